//! The result of the scenario `lease`: its JSON form, which is committed.

use serde::{Deserialize, Serialize};

use super::pytorch::PyTorch;
use crate::BenchError;
use crate::header::Header;
use crate::json::to_json;
use crate::timing::Range;

/// A result of the scenario `lease`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeaseReport {
    /// Where it comes from.
    #[serde(flatten)]
    pub header: Header,
    /// Interleaved rounds of each part.
    pub rounds: u64,
    /// Slots of the pool that the main figures are of.
    pub slots: u64,
    /// Nanoseconds of a lease and its drop with one thread.
    pub ns_one_thread: f64,
    /// Millions of these a second with 16 threads together, or with as many as are named next.
    pub mops_16: f64,
    /// The threads of `mops_16` and of all ratios that say 16: the most that there are processors for.
    pub mops_16_threads: u64,
    /// What 9,999 of 10,000 leases with their drops keep to while all processors do the same.
    pub p9999_ns: f64,
    /// What each single time was reduced by: two stamps with nothing between them.
    pub stamps_ns: f64,
    /// What the parts come to.
    pub ratios: LeaseRatios,
    /// Why there are no figures of PyTorch, where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pytorch_not_measured: Option<String>,
    /// Taking and giving back, by source and number of threads.
    pub threads: Vec<RateRow>,
    /// One thread takes, another gives back, through a channel.
    pub handoff: Vec<RateRow>,
    /// Being told that there is none.
    pub exhausted: Vec<RateRow>,
    /// A drop with a fence that is complete, beside one without.
    pub after_fence: Vec<RateRow>,
    /// Single times while all processors do the same.
    pub tail: Vec<TailRow>,
    /// Single times in small and in large pools whose slots came back in a random order.
    pub growth: Vec<GrowthRow>,
    /// PyTorch's figures, where they were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pytorch: Option<PyTorch>,
}

/// Figures over figures, each the median of the ratios of the rounds, where both sides have rounds.
/// What takes one thread is compared by time, so that less is better; all others by rate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LeaseRatios {
    /// Our time over that of PyTorch's host allocator.
    pub one_thread_over_pytorch: Option<f64>,
    /// Our time over that of mimalloc with 64 bytes.
    pub one_thread_over_mimalloc64: Option<f64>,
    /// Our time over that of crossbeam's `ArrayQueue`.
    pub array_queue_1_thread: Option<f64>,
    /// Our rate with most threads over PyTorch's with as many.
    pub total16_over_pytorch: Option<f64>,
    /// Our rate with most threads over ours with one.
    pub total16_over_one_thread: Option<f64>,
    /// Our rate with two threads over that of a vector behind a mutex.
    pub mutex_vec_2_threads: Option<f64>,
    /// Leases through a channel, over plain integers through it: one pair of threads.
    pub handoff_1_over_integers: Option<f64>,
    /// The same with eight pairs.
    pub handoff_8_over_integers: Option<f64>,
    /// Leases through a channel, over plain messages of their size through it: one pair of threads.
    pub handoff_1_over_same_size: Option<f64>,
    /// The same with eight pairs.
    pub handoff_8_over_same_size: Option<f64>,
    /// What 9,999 of 10,000 keep to under load with 65,536 slots, over that with 64 (where there are more
    /// than 16 processors, with four a processor).
    pub tail_65536_over_64: Option<f64>,
    /// The median of a lease and its drop with 65,536 slots, over that with 64.
    pub growth_median: Option<f64>,
    /// The same of the 99th percentile.
    pub growth_p99: Option<f64>,
    /// The median with half of the slots out and each drop a random one's.
    pub growth_median_half_out: Option<f64>,
    /// The same of the 99th percentile.
    pub growth_p99_half_out: Option<f64>,
}

/// One source with one number of threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RateRow {
    /// A name of [`churn`](crate::churn), with what is particular about this one.
    pub source: String,
    /// Whether it finds the right buffer for a size.
    pub has_classes: bool,
    /// Whether there are as many buffers as were asked for and no more.
    pub is_bounded: bool,
    /// Threads, or pairs of them.
    pub threads: u64,
    /// Millions of operations a second, of all threads together.
    pub mops: Range,
    /// What one of them takes its thread, in nanoseconds, at that median.
    pub ns: f64,
    /// The rates, round by round.
    pub rounds: Vec<f64>,
    /// Tries that found no buffer (where there should be none: that found one), in all rounds.
    pub missed: u64,
}

/// Single times while all processors do the same: the medians of the rounds, but for the longest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TailRow {
    /// The source; [`STAMPS`] is none at all.
    pub source: String,
    /// Threads.
    pub threads: u64,
    /// Operations timed.
    pub count: u64,
    /// Median.
    pub p50_ns: f64,
    /// What 99 of 100 keep to.
    pub p99_ns: f64,
    /// What 999 of 1,000 keep to.
    pub p999_ns: f64,
    /// What 9,999 of 10,000 keep to.
    pub p9999_ns: f64,
    /// The longest.
    pub max_ns: f64,
}

/// Single times in a pool of one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GrowthRow {
    /// [`LEASE_AND_DROP`] or [`HALF_OUT`].
    pub case: String,
    /// Slots of the pool.
    pub slots: u64,
    /// Operations timed.
    pub count: u64,
    /// The median of the rounds' medians.
    pub p50_ns: f64,
    /// The median of what 99 of 100 keep to in a round.
    pub p99_ns: f64,
    /// The medians, round by round.
    pub p50_rounds: Vec<f64>,
    /// What 99 of 100 keep to, round by round.
    pub p99_rounds: Vec<f64>,
}

impl LeaseReport {
    /// The result as the JSON that is committed.
    ///
    /// # Errors
    /// Never for a result of a run; the writer's reason else.
    pub fn to_json(&self) -> Result<String, BenchError> {
        to_json(self)
    }
}

/// The name of the scenario of [`LeaseReport`].
pub const LEASE_SCENARIO: &str = "lease";
/// The pool with 65,536 slots, each of which was out before.
pub const PINPOOL_MANY: &str = "pinpool, 65536 slots";
/// Two stamps and nothing between them.
pub const STAMPS: &str = "the stamps alone";
/// A lease and its drop.
pub const LEASE_AND_DROP: &str = "lease and drop";
/// Half of the slots are out; a random one is dropped, and one leased.
pub const HALF_OUT: &str = "half out, a random one dropped";
