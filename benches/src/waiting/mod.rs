//! Scenario `waiting`: who waits how long for a buffer when there are far more takers than buffers,
//! what waiting in line costs, and what happens when many give up?

mod handover;
mod load;
mod pools;
pub mod report;
mod section;
mod short;
mod sides;
mod text;

use std::time::Duration;

use crate::BenchError;
use crate::header::Header;
use crate::timing::Progress;
use report::{WAITING_SCENARIO, WaitingRatios, WaitingReport};

/// What to measure.
#[derive(Debug, Clone)]
pub struct WaitingOptions {
    /// How long each case of tasks and of threads is counted, over all its rounds.
    pub seconds: u64,
    /// Runs every part in a small size: enough to see that it works, too little for figures.
    pub quick: bool,
}

impl WaitingOptions {
    /// Whether it can be served.
    ///
    /// # Errors
    /// [`BenchError::Input`] where `seconds` is not between 1 and 600.
    pub fn check(&self) -> Result<(), BenchError> {
        if (1..=SECONDS_MAX).contains(&self.seconds) {
            return Ok(());
        }
        let seconds = self.seconds;
        Err(BenchError::input(format!("--seconds {seconds}: between 1 and {SECONDS_MAX} expected")))
    }
}

/// Runs the scenario. `progress` hears of rounds done.
///
/// # Errors
/// As [`WaitingOptions::check`]; any call that failed.
pub fn run(
    options: &WaitingOptions,
    command: String,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<WaitingReport, BenchError> {
    options.check()?;
    let scale = if options.quick { Scale::quick() } else { Scale::full(options.seconds) };
    let total = (2 * scale.rounds + scale.short_rounds + scale.handover_rounds) as u64;
    let mut progress = Progress::new(total, progress);
    let tasks = sides::tasks(&scale, &mut progress)?;
    let threads = sides::threads(&scale, &mut progress)?;
    let short = short::measure(&scale, &mut progress)?;
    let handover = handover::measure(&scale, &mut progress)?;
    let lost = tasks.iter().chain(&threads).map(|row| row.lost).sum::<u64>()
        + short.iter().map(|row| row.lost).sum::<u64>();
    Ok(WaitingReport {
        header: Header::here(WAITING_SCENARIO, command, options.quick, METHOD),
        rounds: scale.rounds as u64,
        counted_seconds: scale.counted.as_secs_f64() * scale.rounds as f64,
        executor_threads: load::workers() as u64,
        ratios: WaitingRatios::of(&tasks, &threads, &short),
        lost,
        tasks,
        threads,
        short,
        handover,
    })
}

/// How much of each part to run.
#[derive(Debug, Clone, Copy)]
struct Scale {
    tasks: usize,
    threads: usize,
    rounds: usize,
    warm_up: Duration,
    /// How long each case is counted in a round.
    counted: Duration,
    short_rounds: usize,
    short_round: Duration,
    handover_rounds: usize,
}

impl Scale {
    fn full(seconds: u64) -> Self {
        Self {
            tasks: 1000,
            threads: 1000,
            rounds: 5,
            warm_up: Duration::from_millis(200),
            counted: Duration::from_secs(seconds) / 5,
            short_rounds: 20,
            short_round: Duration::from_secs(seconds) / 50,
            handover_rounds: 100,
        }
    }

    fn quick() -> Self {
        Self {
            tasks: 200,
            threads: 100,
            rounds: 2,
            warm_up: Duration::from_millis(20),
            counted: Duration::from_millis(60),
            short_rounds: 2,
            short_round: Duration::from_millis(10),
            handover_rounds: 1,
        }
    }
}

const SECONDS_MAX: u64 = 600;
const METHOD: &str = "\
    tasks: async-executor on a thread for each core, each task takes a buffer, holds it for 1 ms \
    of async-io's timer, gives it back and takes the next; a wait is from the call to the buffer \
    in hand; all that began in the counted time count, however late they end, so that nobody \
    starves unseen. waiting: 20 times as many takers as buffers; free: as many, so that nobody \
    waits; giving up: waiting, and half of the waits, chosen at random, are dropped within 5 ms. \
    threads: the same with threads and sleeps. All cases of a part in each round, in changing \
    order; medians, lowest and highest are over rounds, ratios are of the two cases of one \
    round; percentiles are of all rounds together. semaphore: tokio's semaphore (first come \
    first served) before a queue of buffers; channel: an async-channel of buffers; condvar: a \
    vector behind a mutex with a condition variable (neither is first come first served: whoever \
    starves does so until the end of a round). short: threads that hold a buffer for a few \
    hundred nanoseconds of work, which is less than a thread takes to wake; in a round in which \
    a line forms, every lease waits for that. hand-over: from before the drop of the only buffer \
    to the waiter that has it; thread: asleep for 150 us; task, executor asleep: on another \
    thread, asleep for 150 us; task, same thread: on the thread that drops. lost: buffers that \
    are not back after a run";
