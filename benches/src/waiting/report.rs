//! The result of the scenario `waiting`: its JSON form, which is committed.

use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::header::Header;
use crate::json::to_json;
use crate::timing::Range;

/// A result of the scenario `waiting`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitingReport {
    /// Where it comes from.
    #[serde(flatten)]
    pub header: Header,
    /// Interleaved rounds of tasks, and of threads.
    pub rounds: u64,
    /// What each case of these was counted for, over all rounds.
    pub counted_seconds: f64,
    /// Threads that run the tasks.
    pub executor_threads: u64,
    /// What the parts come to.
    pub ratios: WaitingRatios,
    /// Buffers that did not come back, of all parts that give them back while others wait.
    pub lost: u64,
    /// Tasks.
    pub tasks: Vec<LoadRow>,
    /// Threads.
    pub threads: Vec<LoadRow>,
    /// Threads with holds of less than a microsecond.
    pub short: Vec<ShortRow>,
    /// From the drop of a buffer to its next owner.
    pub handover: Vec<HandoverRow>,
}

/// Figures over figures of the same round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct WaitingRatios {
    /// p99.9 over p50 of a task's wait for a lease.
    pub tail_tasks: Range,
    /// The same of a thread's.
    pub tail_threads: Range,
    /// Leases a second of tasks that wait over those of tasks that never do.
    pub waiting_over_free_tasks: Range,
    /// The same of threads.
    pub waiting_over_free_threads: Range,
    /// The same of threads with short holds.
    pub waiting_over_free_short: Range,
    /// The same of the rival there, a vector behind a mutex.
    pub waiting_over_free_short_condvar: Range,
    /// Leases a second of tasks that wait, over the same with tokio's semaphore.
    pub lease_over_semaphore: Range,
    /// The same with half of the waits given up.
    pub lease_over_semaphore_giving_up: Range,
    /// Leases a second of threads that wait, over the same with a vector behind a mutex.
    pub lease_over_condvar: Range,
    /// The same with short holds.
    pub lease_over_condvar_short: Range,
}

/// One pool under one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadRow {
    /// [`WAITING`], [`FREE`] or [`GIVING_UP`].
    pub case: String,
    /// [`LEASE`] or a rival.
    pub pool: String,
    /// Tasks or threads.
    pub waiters: u64,
    /// Buffers that they share.
    pub slots: u64,
    /// Buffers taken in a second.
    pub leases_per_s: Range,
    /// The same, round by round.
    pub rounds: Vec<f64>,
    /// How many of all tries had to get in line, where the pool counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_line_percent: Option<f64>,
    /// Waits that ended with a buffer, counted below.
    pub waits: u64,
    /// Median of a wait.
    pub p50_us: f64,
    /// What 99 of 100 keep to.
    pub p99_us: f64,
    /// What 999 of 1,000 keep to.
    pub p999_us: f64,
    /// What 9,999 of 10,000 keep to.
    pub p9999_us: f64,
    /// The longest.
    pub max_us: f64,
    /// p99.9 over p50, by round.
    pub tail: Range,
    /// Waits given up.
    pub cancelled: u64,
    /// Buffers that did not come back.
    pub lost: u64,
}

/// Threads that hold a buffer for less than a microsecond.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShortRow {
    /// [`WAITING`] or [`FREE`].
    pub case: String,
    /// [`LEASE`] or [`CONDVAR`].
    pub pool: String,
    /// Threads.
    pub threads: u64,
    /// Buffers that they share.
    pub slots: u64,
    /// What a hold takes.
    pub work_ns: f64,
    /// Buffers taken in a second.
    pub leases_per_s: Range,
    /// The same, round by round.
    pub rounds: Vec<f64>,
    /// Buffers that did not come back.
    pub lost: u64,
}

/// From the drop of the only buffer to the waiter that has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HandoverRow {
    /// [`THREAD`], [`ASLEEP_TASK`] or [`NEIGHBOUR_TASK`].
    pub waiter: String,
    /// [`LEASE`] or a rival.
    pub pool: String,
    /// Hand-overs counted.
    pub count: u64,
    /// Median.
    pub p50_us: f64,
    /// What 99 of 100 keep to.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl WaitingReport {
    /// The result as the JSON that is committed.
    ///
    /// # Errors
    /// Never for a result of a run; the writer's reason else.
    pub fn to_json(&self) -> Result<String, BenchError> {
        to_json(self)
    }
}

impl WaitingRatios {
    pub(super) fn of(tasks: &[LoadRow], threads: &[LoadRow], short: &[ShortRow]) -> Self {
        let find = |rows: &[LoadRow], case: &str, pool: &str| {
            rows.iter().find(|row| (row.case.as_str(), row.pool.as_str()) == (case, pool)).cloned()
        };
        let tail = |rows| find(rows, WAITING, LEASE).map_or(Range::default(), |row| row.tail);
        let rounds = |rows: &[LoadRow], case: &str, pool: &str| {
            find(rows, case, pool).map_or_else(Vec::new, |row| row.rounds)
        };
        let in_short = |case: &str, pool: &str| {
            let row =
                short.iter().find(|row| (row.case.as_str(), row.pool.as_str()) == (case, pool));
            row.map_or_else(Vec::new, |row| row.rounds.clone())
        };
        let over_free = |rows: &[LoadRow]| {
            Range::of_ratios(&rounds(rows, WAITING, LEASE), &rounds(rows, FREE, LEASE))
        };
        let short_over_free =
            |pool: &str| Range::of_ratios(&in_short(WAITING, pool), &in_short(FREE, pool));
        let over = |rows: &[LoadRow], case: &str, rival: &str| {
            Range::of_ratios(&rounds(rows, case, LEASE), &rounds(rows, case, rival))
        };
        Self {
            tail_tasks: tail(tasks),
            tail_threads: tail(threads),
            waiting_over_free_tasks: over_free(tasks),
            waiting_over_free_threads: over_free(threads),
            waiting_over_free_short: short_over_free(LEASE),
            waiting_over_free_short_condvar: short_over_free(CONDVAR),
            lease_over_semaphore: over(tasks, WAITING, SEMAPHORE),
            lease_over_semaphore_giving_up: over(tasks, GIVING_UP, SEMAPHORE),
            lease_over_condvar: over(threads, WAITING, CONDVAR),
            lease_over_condvar_short: Range::of_ratios(
                &in_short(WAITING, LEASE),
                &in_short(WAITING, CONDVAR),
            ),
        }
    }
}

/// The name of the scenario of [`WaitingReport`].
pub const WAITING_SCENARIO: &str = "waiting";
/// More takers than buffers.
pub const WAITING: &str = "waiting";
/// As many takers as buffers.
pub const FREE: &str = "free";
/// More takers than buffers, and half of the waits are given up.
pub const GIVING_UP: &str = "giving up";
/// The pool's leases.
pub const LEASE: &str = "lease";
/// tokio's semaphore before a queue of buffers.
pub const SEMAPHORE: &str = "semaphore";
/// An async-channel of buffers.
pub const CHANNEL: &str = "channel";
/// A vector of buffers behind a mutex, with a condition variable.
pub const CONDVAR: &str = "condvar";
/// The waiter is a thread.
pub const THREAD: &str = "thread";
/// The waiter is a task on another thread that has nothing else to do.
pub const ASLEEP_TASK: &str = "task, executor asleep";
/// The waiter is a task on the thread that drops.
pub const NEIGHBOUR_TASK: &str = "task, same thread";
