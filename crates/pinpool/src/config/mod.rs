//! What the user may say about a pool: the options, their defaults and why.

mod class;
pub(crate) mod env;
#[cfg(feature = "config")]
pub(crate) mod file;
pub(crate) mod layer;
mod value;

use std::fmt;
use std::time::Duration;

pub use class::{ALIGN_DEFAULT, ClassConfig, GROWN_SLABS_MAX, IDLE_AFTER_DEFAULT};
pub use class::{OnEmpty, SPILL_MAX, Scrub};

use crate::memory::{ForkPolicy, HugePages, KeepFree, LockMode, Numa};

/// An effective configuration: every option with the value that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolConfig {
    /// Which memory the pool stands on. Default: [`BackendChoice::Auto`].
    pub backend: BackendChoice,
    /// The CUDA device whose context is used, by its number in the driver's order. Default: 0.
    pub device: u32,
    /// Other devices that use the memory, which then lies near all of them. Default: none.
    pub other_devices: Vec<u32>,
    /// The most bytes the pool may pin. Default: none, the classes themselves are the limit.
    pub max_pinned: Option<u64>,
    /// Whether host memory is locked in RAM. Default: [`LockMode::Require`].
    pub lock: LockMode,
    /// Whether slabs lie on huge pages. Default: [`HugePages::Try`].
    pub huge_pages: HugePages,
    /// On which NUMA node slabs lie. Default: [`Numa::Auto`].
    pub numa: Numa,
    /// Threads that touch the memory at start-up. Default: [`Threads::Auto`].
    pub prefault_threads: Threads,
    /// Bytes pinned by one system or driver call. Default: [`PIN_CHUNK_DEFAULT`].
    pub pin_chunk: u64,
    /// How long other threads and processes are let in between two such calls, once they were kept out for
    /// a millisecond; zero for never, at most [`PIN_PAUSE_MAX`]. Default: [`PIN_PAUSE_DEFAULT`].
    pub pin_pause: Duration,
    /// The longest that opening may take. Default: none.
    pub open_timeout: Option<Duration>,
    /// The pool opens smaller than configured if not all memory can be had, but with no less than these bytes.
    /// Default: none, all or nothing.
    pub min_bytes: Option<u64>,
    /// What a forked child gets of the slabs. Default: [`ForkPolicy::Deny`].
    pub fork: ForkPolicy,
    /// Whether the pool remembers since when and by which thread each lease is held, which costs one
    /// reading of the clock per lease. Default: no.
    pub track_holders: bool,
    /// A lease that is held for longer is reported, once; more than zero and at most
    /// [`DURATION_MAX`]. Implies `track_holders`. Default: none, nothing is reported.
    pub leak_after: Option<Duration>,
    /// What stays free of the machine's RAM and of the control group's limit. Default:
    /// [`KeepFree::Auto`].
    pub keep_free: KeepFree,
    /// What grown slabs do while the system is short of memory. Default: [`OnPressure::Trim`].
    pub on_pressure: OnPressure,
    /// Canaries between the slots, poison in free ones and guard pages around slabs. Needs the
    /// Cargo feature `debug-checks`. Default: no.
    pub debug_checks: bool,
    /// Threads of a `Stager` over the pool. Default: three quarters of the processors, at most 12.
    pub stage_threads: Threads,
    /// The most bytes that a `Stager` copies in one piece, which a slot of the pool must hold. Default:
    /// [`STAGE_CHUNK_DEFAULT`].
    pub stage_chunk: u64,
    /// The size classes, in the order given.
    pub classes: Vec<ClassConfig>,
}

/// The backend that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackendChoice {
    /// CUDA when a driver and the device are there, else the host.
    #[default]
    Auto,
    /// CUDA or an error.
    Cuda,
    /// Host memory, locked as `lock` says.
    Host,
}

/// What classes that grow do while tasks wait for memory (`memory.pressure` of the control group where it
/// is counted, else `/proc/pressure/memory`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnPressure {
    /// Unused grown slabs and pageable buffers go at once, and nothing grows until it is over. What the
    /// pool opened with stays.
    #[default]
    Trim,
    /// As at any other time.
    Ignore,
}

/// A number of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Threads {
    /// One per 64 MiB, at most 16 and at most the processors this process may use: on a 16-core
    /// host 16 threads zero and fault in 8 GiB in 0.39 s, one needs 2.7 s.
    #[default]
    Auto,
    /// Exactly so many.
    Count(usize),
}

/// 64 MiB: one registration this size holds driver locks for about 2 ms on the H200 host, and 8 GiB take as
/// long in such chunks as at once.
pub const PIN_CHUNK_DEFAULT: u64 = 64 << 20;
/// 200 us: chunks back to back keep a thread that copies out for the whole registration (120 to 207 ms for 8 GiB on
/// the H200 host, whatever their size), and with this pause for the longest chunk (1.7 ms), in the same time.
pub const PIN_PAUSE_DEFAULT: Duration = Duration::from_micros(200);
/// One second, the longest pause: whoever returns a pool's last lease unpins it, with pauses.
pub const PIN_PAUSE_MAX: Duration = Duration::from_secs(1);
/// 4 MiB: of the sizes of one piece that were measured on the H200 host the fastest.
pub const STAGE_CHUNK_DEFAULT: u64 = 4 << 20;
/// The least bytes of one piece of a staged copy.
pub const STAGE_CHUNK_MIN: u64 = 4096;
/// Slots that each thread of a `Stager` holds: the device copies one while the thread copies the other.
pub const STAGE_SLOTS_EACH: usize = 2;
/// The most threads of one `Stager`.
pub const STAGE_THREADS_MAX: usize = 64;
/// The most prefault threads.
pub const THREADS_MAX: usize = 1024;
/// 365 days, the longest duration of any option: added to the clock it never overflows.
pub const DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// [`DURATION_MAX`] as messages write it: by itself it would be months of 30.44 days.
pub(crate) const DURATION_MAX_TEXT: &str = "365days";

impl PoolConfig {
    /// The devices that use the memory: first the one whose context is used.
    pub fn devices(&self) -> impl Iterator<Item = u32> + '_ {
        [self.device].into_iter().chain(self.other_devices.iter().copied())
    }
}

impl PoolConfig {
    /// Slots of [`Self::stage_chunk`](field@Self::stage_chunk) bytes that a `Stager` holds on this machine.
    pub fn stage_slots(&self) -> usize {
        self.stage_threads.for_a_stager() * STAGE_SLOTS_EACH
    }
}

impl Threads {
    /// Threads of a `Stager` on this machine: three quarters of the processors, at most 12, the others being the pipeline's.
    /// With 12 it reached 0.87 of the link for 1 GiB on each H200 host, with 8 from 0.81 to 0.89.
    pub(crate) fn for_a_stager(self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        match self {
            Self::Auto => (processors() * 3 / 4).clamp(1, 12),
            Self::Count(count) => count,
        }
    }
}

impl Default for PoolConfig {
    /// The defaults, with no class yet.
    fn default() -> Self {
        Self {
            backend: BackendChoice::default(),
            device: 0,
            other_devices: Vec::new(),
            max_pinned: None,
            lock: LockMode::default(),
            huge_pages: HugePages::default(),
            numa: Numa::default(),
            prefault_threads: Threads::default(),
            pin_chunk: PIN_CHUNK_DEFAULT,
            pin_pause: PIN_PAUSE_DEFAULT,
            open_timeout: None,
            min_bytes: None,
            fork: ForkPolicy::default(),
            track_holders: false,
            leak_after: None,
            keep_free: KeepFree::default(),
            on_pressure: OnPressure::default(),
            debug_checks: false,
            stage_threads: Threads::default(),
            stage_chunk: STAGE_CHUNK_DEFAULT,
            classes: Vec::new(),
        }
    }
}

impl fmt::Display for BackendChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Cuda => "cuda",
            Self::Host => "host",
        })
    }
}

impl fmt::Display for OnPressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Trim => "trim",
            Self::Ignore => "ignore",
        })
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Count(count) => write!(f, "{count}"),
        }
    }
}
