//! Scenario `in-flight`: what does it cost to drop a lease while the GPU still uses it, how soon
//! does its slot come home, and does every byte arrive?

mod gate;
mod keeper;
mod pending;
pub mod pytorch;
mod reclaim;
pub mod report;
mod round;
mod section;
mod storm;
mod text;

use std::path::PathBuf;
use std::time::Duration;

use pinpool::{BackendChoice, Lease, LockMode, Pool};

use crate::BenchError;
use crate::cuda_rig::CudaRig;
use crate::header::Header;
use crate::timing::rounded;
use pytorch::PyTorch;
use report::{IN_FLIGHT, InFlightRatios, InFlightReport};

/// What to measure.
#[derive(Debug, Clone, Default)]
pub struct InFlightOptions {
    /// The figures of PyTorch's allocator on the same machine, to compare with.
    pub pytorch: Option<PathBuf>,
    /// Runs every part in a small size: enough to see that it works, too little for figures.
    pub quick: bool,
}

impl InFlightOptions {
    /// Reads PyTorch's figures, if any are given.
    ///
    /// # Errors
    /// [`BenchError::Input`] where the file cannot be read or was measured in another way.
    pub fn check(&self) -> Result<Option<PyTorch>, BenchError> {
        self.pytorch.as_deref().map(PyTorch::read).transpose()
    }
}

/// Runs the scenario, or reports why it cannot run here. `progress` hears of parts done.
///
/// # Errors
/// As [`InFlightOptions::check`]; any call that failed. A machine without a CUDA device is no
/// error: the report says so.
pub fn run(
    options: &InFlightOptions,
    command: String,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<InFlightReport, BenchError> {
    let pytorch = options.check()?;
    let mut report = InFlightReport {
        header: Header::here(IN_FLIGHT, command, options.quick, METHOD),
        ratios: InFlightRatios::default(),
        mismatches: None,
        leaks: None,
        round: Vec::new(),
        pytorch: None,
        pending: Vec::new(),
        storm: None,
        reclaim: Vec::new(),
        keeper: Vec::new(),
    };
    let Some(rig) = CudaRig::open_if_any(&mut report.header.not_run)? else { return Ok(report) };
    if let Some(pytorch) = &pytorch {
        pytorch.check_device(report.header.machine.gpu.as_ref().map(|gpu| gpu.name.as_str()))?;
    }
    let scale = if options.quick { Scale::QUICK } else { Scale::FULL };
    progress(0, PARTS);
    for (tracking, done) in [(false, 1), (true, 2)] {
        report.round.push(round::measure(tracking, &scale)?);
        progress(done, PARTS);
    }
    let pending = pending::measure(&rig, &scale)?;
    progress(3, PARTS);
    let storm = storm::run(&rig, &scale)?;
    progress(4, PARTS);
    report.reclaim = reclaim::measure(&rig, &scale)?;
    progress(5, PARTS);
    report.keeper = keeper::measure(&rig, &scale)?;
    progress(PARTS, PARTS);
    report.ratios = pending.ratios;
    report.ratios.ours_over_pytorch = pytorch.as_ref().and_then(|theirs| {
        let ours = report.round.first()?;
        Some(rounded(ours.added_ns.median / theirs.allocate_record_free_ns.median))
    });
    report.pending = pending.rows;
    report.mismatches = Some(storm.mismatches);
    report.leaks = Some(storm.leaks);
    report.storm = Some(storm);
    report.pytorch = pytorch;
    Ok(report)
}

/// How much of each part to run.
#[derive(Debug, Clone, Copy)]
struct Scale {
    /// Batches of rounds, and as many of bare copy calls.
    batches: usize,
    /// Rounds of one thread beside one number of pending fences, and how often each is repeated.
    pending_rounds: usize,
    pending_repeats: usize,
    storm_rounds: u64,
    reclaim_rounds: usize,
    /// How long the keeper is watched in each case.
    watch: Duration,
}

impl Scale {
    const FULL: Self = Self {
        batches: 20_000,
        pending_rounds: 8_000,
        pending_repeats: 9,
        storm_rounds: 1_000_000,
        reclaim_rounds: 2_000,
        watch: Duration::from_secs(3),
    };
    const QUICK: Self = Self {
        batches: 100,
        pending_rounds: 80,
        pending_repeats: 3,
        storm_rounds: 20_000,
        reclaim_rounds: 20,
        watch: Duration::from_millis(300),
    };
}

/// A pool of one class on the first device.
fn open_pool(class: &str, bytes: usize, slots: usize) -> Result<Pool, BenchError> {
    Pool::builder()
        .env(false)
        .backend(BackendChoice::Cuda)
        .device(0)
        .lock(LockMode::Require)
        .class(class, bytes, slots)
        .open()
        .map_err(|cause| BenchError::opening_pool(&cause))
}

/// A slot of the small parts; where rounds outrun what comes home, waiting for one is a part of
/// the round.
fn lease(pool: &Pool) -> Result<Lease, BenchError> {
    pool.try_lease(BYTES)
        .or_else(|_| pool.lease_timeout(BYTES, PATIENCE))
        .map_err(|cause| BenchError::failed("leasing", cause))
}

/// Closes a pool that a part is done with: its keeper must be gone before the next part.
fn close_pool(pool: &Pool) -> Result<(), BenchError> {
    let closed = pool.close(PATIENCE);
    if closed.is_complete() {
        return Ok(());
    }
    Err(BenchError::failed("closing a pool after its last copy", closed))
}

/// The fixed size of the small parts, as many bytes as PyTorch's side allocates.
const BYTES: usize = 64 << 10;
/// Rounds in flight at most on one stream, so that the stream never is the limit.
const DEPTH: usize = 8;
/// What takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(60);
const PARTS: u64 = 6;
const METHOD: &str = "\
    round: one thread, one non-blocking stream, batches of 8 rounds of try_lease, upload of 64 KiB \
    and drop, and batches of 8 of the same raw copy call from fixed pinned memory, in changing \
    order; the stream is synchronised untimed after each batch; per-call figures are batch means, \
    what is added is their difference pair by pair; what the keeper does in the background is not \
    in it. PyTorch: allocate, copy call, record_event, free, measured in the same way by the \
    runtime's own calls. pending: try_lease, record_use and drop (manual: retire_after; bare: only \
    the driver's cuEventRecord), each round timed, beside fences that a blocked stream (manual: \
    the program) holds back; at most 8 rounds of a thread in flight, 512 slots for the threads at \
    every level; the ratios are medians over repeats. storm: 8 threads on 4 streams, every copy \
    read back and compared in full. reclaim: from the instant at which the uploading thread, \
    polling its own event behind the copy, sees it complete, to the instant at which the same \
    thread sees the slot counted as come home, and to the return of another thread's lease(), \
    which its waking up is part of; less than nothing counts as nothing. \
    keeper: time on a processor as the kernel counts it";
