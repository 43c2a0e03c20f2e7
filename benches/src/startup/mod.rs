//! Scenario `startup`: how long a pool takes to open, beside other ways to pinned memory, and how long
//! that holds up others.

mod neighbours;
mod opens;
mod own;
pub mod process;
pub mod pytorch;
pub(crate) mod ratios;
mod region;
pub mod report;
mod room;
mod section;
mod strategies;
mod text;

use std::path::PathBuf;
use std::time::Duration;

use crate::header::Header;
use crate::timing::Progress;
use crate::{BenchError, pin_room};
pub(crate) use own::map_a_page;
use process::Program;
use pytorch::PyTorch;
use report::{STARTUP, SizeRatios, StartupRatios, StartupReport};
use room::Room;
pub(crate) use room::lockable;
pub use strategies::{Ground, Opened, SLOT_BYTES, Strategy};

/// What to measure.
#[derive(Debug, Clone, Default)]
pub struct StartupOptions {
    /// The sizes in bytes; none means the usual ones.
    pub sizes: Vec<usize>,
    /// What is pinned while others are watched, in bytes; `None` is the usual size.
    pub neighbour_size: Option<usize>,
    /// The figures of PyTorch on the same machine, to compare with.
    pub pytorch: Option<PathBuf>,
    /// Runs every part in a small size: enough to see that it works, too little for figures.
    pub quick: bool,
    /// The most memory to have pinned at a time, in bytes.
    pub max_pinned: Option<u64>,
    /// How to start another process that is watched; none is where there is no way.
    pub program: Option<Program>,
}

impl StartupOptions {
    /// Reads PyTorch's figures, if any are given.
    ///
    /// # Errors
    /// [`BenchError::Input`] for a size that is not a multiple of [`SLOT_BYTES`] up to [`SIZE_MAX`], or
    /// where PyTorch's file cannot be read or says nothing to compare with.
    pub fn check(&self) -> Result<Option<PyTorch>, BenchError> {
        pin_room::check(self.max_pinned)?;
        let sizes = self.sizes.iter().map(|size| ("--size", *size));
        let neighbour = self.neighbour_size.iter().map(|size| ("--neighbour-size", *size));
        let is_wrong = |&(_, size): &(&str, usize)| {
            size == 0 || size > SIZE_MAX || !size.is_multiple_of(SLOT_BYTES)
        };
        if let Some((option, size)) = sizes.chain(neighbour).find(is_wrong) {
            return Err(BenchError::Input(format!(
                "{option} {size}: a multiple of {} expected, at most {}",
                crate::text::bytes(SLOT_BYTES as u64),
                crate::text::bytes(SIZE_MAX as u64),
            )));
        }
        self.pytorch.as_deref().map(PyTorch::read).transpose()
    }
}

/// Runs the scenario: on the first GPU, or else with memory that is locked. `progress` hears of rounds
/// done.
///
/// # Errors
/// As [`StartupOptions::check`]; any call that failed.
pub fn run(
    options: &StartupOptions,
    command: String,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<StartupReport, BenchError> {
    let pytorch = options.check()?;
    let header = Header::here(STARTUP, command, options.quick, METHOD);
    if let Some(theirs) = &pytorch {
        theirs.check_device(&header.machine)?;
    }
    let scale = if options.quick { Scale::QUICK } else { Scale::FULL };
    let (ground, why_host) = Ground::find()?;
    let mut notes: Vec<String> = why_host.iter().map(|why| on_the_host(why)).collect();
    let room = Room::find(&ground, options.max_pinned)?;
    let sizes = room.fit(options.sizes_or(&scale), &mut notes);
    let watched =
        room.fit(vec![options.neighbour_size.unwrap_or(scale.neighbour_size)], &mut notes);
    let watched = watched.first().copied().unwrap_or(SLOT_BYTES);
    let rounds =
        scale.rounds * sizes.len() + scale.neighbour_rounds * neighbours::cases(&ground).len();
    let mut progress = Progress::new(rounds as u64, progress);
    strategies::touch(sizes.iter().copied().fold(watched, usize::max))?;
    let (opens, left) = opens::measure(&ground, &sizes, &scale, &mut progress)?;
    let program = options.program.as_ref();
    let neighbours = neighbours::measure(&ground, watched, program, &scale, &mut progress)?;
    let of_size = |&bytes: &usize| SizeRatios::of(&opens, bytes as u64, pytorch.as_ref());
    let sizes: Vec<SizeRatios> = sizes.iter().map(of_size).collect();
    let is_gpu = matches!(ground, Ground::Cuda(_));
    Ok(StartupReport {
        header,
        backend: ground.name().to_owned(),
        notes,
        rounds: scale.rounds as u64,
        ratios: StartupRatios::of(&sizes, &neighbours, is_gpu),
        left,
        sizes,
        opens,
        process_not_watched: not_watched(&ground, program),
        neighbours,
        pytorch_not_measured: pytorch.is_none().then(|| NO_PYTORCH.to_owned()),
        pytorch,
    })
}

impl StartupOptions {
    fn sizes_or(&self, scale: &Scale) -> Vec<usize> {
        if self.sizes.is_empty() { scale.sizes.to_vec() } else { self.sizes.clone() }
    }
}

/// How much of each part to run.
#[derive(Debug, Clone, Copy)]
struct Scale {
    sizes: [usize; 2],
    neighbour_size: usize,
    rounds: usize,
    /// Rounds of a way that takes seconds, with sizes above [`SLOW_BYTES`].
    slow_rounds: usize,
    neighbour_rounds: usize,
    /// How long others are watched while nothing is pinned.
    idle: Duration,
}

impl Scale {
    const FULL: Self = Self {
        sizes: [1 << 30, 8 << 30],
        neighbour_size: 32 << 30,
        rounds: 5,
        slow_rounds: 2,
        neighbour_rounds: 2,
        idle: Duration::from_secs(1),
    };
    const QUICK: Self = Self {
        sizes: [64 << 20, 256 << 20],
        neighbour_size: 128 << 20,
        rounds: 2,
        slow_rounds: 2,
        neighbour_rounds: 1,
        idle: Duration::from_millis(100),
    };

    fn rounds_of(&self, strategy: Strategy, bytes: usize) -> usize {
        if strategy.is_slow() && bytes > SLOW_BYTES { self.slow_rounds } else { self.rounds }
    }
}

fn on_the_host(why: &str) -> String {
    format!(
        "{why}: memory is locked instead of registered, there is no cuMemHostAlloc, and the thread \
         beside maps pages instead of copying"
    )
}

fn not_watched(ground: &Ground, program: Option<&Program>) -> Option<String> {
    match (ground, program) {
        (Ground::Host, _) => Some(
            "locking memory takes no lock that another process waits for; with a GPU its driver's \
             locks are what is watched"
                .to_owned(),
        ),
        (Ground::Cuda(_), None) => Some("no program to start was named".to_owned()),
        (Ground::Cuda(_), Some(_)) => None,
    }
}

/// The largest size.
pub const SIZE_MAX: usize = 1 << 40;
/// Above this a way that takes seconds has less rounds.
const SLOW_BYTES: usize = 2 << 30;
const NO_PYTORCH: &str =
    "scripts/pytorch/startup.py measures it where PyTorch and a GPU are; --pytorch takes its file";
const METHOD: &str = "\
    as much memory is touched and given back before anything is timed, because virtual machines \
    get theirs from the host on first touch. Each way opens and closes once in each round, in \
    changing order, with the device's context there before; ms is from the first call to the \
    return of the last, GiB/s binary, at the median; ratios are medians of those of the rounds. \
    pool: one class of slots of 1 MiB, all else as by default; its steps as it reports them. no \
    pool: the same mapping, backed by as many threads and pinned by one call. untouched memory: \
    a mapping that asks for no huge pages, pinned by one call that backs it too. What is left is \
    what the kernel counts for this process after a pool's close, less what it counted before \
    that opening, at most, without the first round. Neighbours: another process that calls \
    cuMemGetInfo every 10 ms, and a thread of this process that copies 1 MiB to the device, \
    waits for it and sleeps 200 us (without a GPU: maps a page, touches and unmaps it), both at \
    once, from the first call of an opening, or of a close, to its return; a call that falls \
    into it in part counts. PyTorch: torch.empty with pin_memory, in a process of its own for \
    each of its modes, with its context there and memory touched before, by \
    scripts/pytorch/startup.py on the same machine";

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_no_pool_has_are_refused() {
        let check = |sizes: &[usize], neighbour_size| {
            let sizes = sizes.to_vec();
            StartupOptions { sizes, neighbour_size, ..StartupOptions::default() }.check()
        };
        assert_eq!(check(&[SLOT_BYTES, 8 << 30], Some(SIZE_MAX)).unwrap(), None);
        for wrong in [0, 1, SLOT_BYTES + 1, SIZE_MAX + SLOT_BYTES] {
            let error = check(&[SLOT_BYTES, wrong], None).unwrap_err();
            assert!(error.is_input() && error.to_string().contains("--size"), "{error}");
            let error = check(&[], Some(wrong)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("--neighbour-size {wrong}: ")), "{error}");
        }
    }

    #[test]
    fn slow_ways_have_less_rounds_with_large_sizes_only() {
        let rounds = |strategy, bytes| Scale::FULL.rounds_of(strategy, bytes);
        assert_eq!(rounds(Strategy::Pool, 8 << 30), 5);
        assert_eq!(rounds(Strategy::DriverAlloc, 1 << 30), 5);
        assert_eq!(rounds(Strategy::DriverAlloc, 8 << 30), 2);
    }
}
