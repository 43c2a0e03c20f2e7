//! Scenario `lease`: what taking a buffer and giving it back costs, by threads, pools and rivals; the
//! same from thread to thread, in an empty pool and in a large one.

mod growth;
pub mod pytorch;
mod rates;
pub(crate) mod ratios;
pub mod report;
mod section;
mod tail;
mod text;

use std::path::PathBuf;
use std::time::Duration;

use crate::BenchError;
use crate::churn::run::thread_counts;
use crate::churn::{PINPOOL, SLOTS};
use crate::header::Header;
use crate::stamp::Clock;
use crate::timing::{Progress, rounded};
use pytorch::PyTorch;
use report::{LEASE_SCENARIO, LeaseRatios, LeaseReport};

/// What to measure.
#[derive(Debug, Clone, Default)]
pub struct LeaseOptions {
    /// The figures of PyTorch's allocator on the same machine, to compare with.
    pub pytorch: Option<PathBuf>,
    /// Runs every part in a small size: enough to see that it works, too little for figures.
    pub quick: bool,
}

impl LeaseOptions {
    /// Reads PyTorch's figures, if any are given.
    ///
    /// # Errors
    /// [`BenchError::Input`] where the file cannot be read or says nothing to compare with.
    pub fn check(&self) -> Result<Option<PyTorch>, BenchError> {
        self.pytorch.as_deref().map(PyTorch::read).transpose()
    }
}

/// Runs the scenario. `progress` hears of rounds done.
///
/// # Errors
/// As [`LeaseOptions::check`]; any call that failed.
pub fn run(
    options: &LeaseOptions,
    command: String,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<LeaseReport, BenchError> {
    let pytorch = options.check()?;
    let header = Header::here(LEASE_SCENARIO, command, options.quick, METHOD);
    if let Some(theirs) = &pytorch {
        theirs.check_device(&header.machine)?;
    }
    let scale = if options.quick { Scale::QUICK } else { Scale::FULL };
    let mut progress = Progress::new((PARTS * scale.rounds) as u64, progress);
    let clock = Clock::measure()?;
    let threads = rates::by_threads(&scale, &mut progress)?;
    let handoff = rates::from_thread_to_thread(&scale, &mut progress)?;
    let exhausted = rates::exhausted(&scale, &mut progress)?;
    let after_fence = rates::after_a_fence(&scale, &mut progress)?;
    let tail = tail::measure(&clock, &scale, &mut progress)?;
    let growth = growth::measure(&clock, &scale, &mut progress)?;
    let most = thread_counts().last().copied().unwrap_or(1) as u64;
    let ratios = LeaseRatios::of(&threads, &handoff, &tail, &growth, most, pytorch.as_ref());
    let ours = |of| ratios::find(&threads, PINPOOL, of);
    let (one, all) =
        (ours(1).map_or(0.0, |row| row.ns), ours(most).map_or(0.0, |row| row.mops.median));
    let p9999_ns = tail.iter().find(|row| row.source == PINPOOL).map_or(0.0, |row| row.p9999_ns);
    let no_pytorch = pytorch.is_none().then(|| NO_PYTORCH.to_owned());
    Ok(LeaseReport {
        header,
        rounds: scale.rounds as u64,
        slots: SLOTS as u64,
        ns_one_thread: one,
        mops_16: all,
        mops_16_threads: most,
        p9999_ns,
        stamps_ns: rounded(clock.overhead_ns()),
        ratios,
        pytorch_not_measured: no_pytorch,
        threads,
        handoff,
        exhausted,
        after_fence,
        tail,
        growth,
        pytorch,
    })
}

/// How much of each part to run.
#[derive(Debug, Clone, Copy)]
struct Scale {
    rounds: usize,
    /// How long each source counts in a round; it warms up for a quarter of that before.
    counted: Duration,
    handoff_counted: Duration,
    /// Operations of a round of growth.
    growth_count: u64,
}

impl Scale {
    const FULL: Self = Self {
        rounds: 7,
        counted: Duration::from_millis(50),
        handoff_counted: Duration::from_millis(80),
        growth_count: 200_000,
    };
    const QUICK: Self = Self {
        rounds: 2,
        counted: Duration::from_millis(10),
        handoff_counted: Duration::from_millis(10),
        growth_count: 2_000,
    };
}

const PARTS: usize = 6;
const NO_PYTORCH: &str =
    "scripts/pytorch/lease.py measures it where PyTorch and a GPU are; --pytorch takes its file";
const METHOD: &str = "\
    host memory, lock mode try, 64 slots of one class unless it says otherwise; no byte of a \
    buffer is touched. Every source runs with every number of threads in each round, in changing \
    order; threads start afresh, warm up, then count together, and whoever counts goes on to the \
    end of the time; rates are of all threads together, ns is a thread's time for one at the \
    median rate, ratios are medians of those of the rounds. mutex-vec: parking_lot; array-queue: \
    crossbeam; deadpool: unmanaged, try_get; all with 64 buffers. opool has 64 and makes another \
    where these are out, lockfree-object-pool and sharded-slab make as many as are needed. None of \
    the six knows size classes. mimalloc and malloc know all sizes and no bound: 64 B, and a frame \
    of 6,220,800 B. handoff: one thread of a pair takes, the other gives back, through a bounded \
    crossbeam channel of 16, with at least 32 slots a pair; integers through the same channel are \
    what it costs by itself, messages of 32 B what it costs with as many bytes as a lease has. \
    exhausted: tries that find nothing: the only slot of the pool is out, \
    and the others hold nothing. after a fence: retire_after a \
    fence that is complete; where another thread takes all slots home at that moment, who asks \
    asks again. tail: each one timed, on all processors at once, by the processor's counter, less \
    the median of two stamps with nothing between; quantiles are the medians of those of the rounds, \
    the longest is that of all; what the stamps alone show is the machine's, and on some processors the counter moves in steps of 10 ns; of 65,536 slots each was out before, \
    and they came back in a random order. growth: one thread, the same \
    stamps; all slots are taken and given back in a random order, then each lease and drop is \
    timed; half out: half of the slots are held, a random one is dropped and one is leased; \
    the records of 65,536 slots exceed the cache, which is what this shows. \
    PyTorch: allocate and free of one size in C++, all cached, by scripts/pytorch/lease.py on the \
    same machine";
