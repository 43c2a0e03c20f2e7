//! What the user may say about a pool: the options, their defaults and why.

pub(crate) mod env;
#[cfg(feature = "config")]
pub(crate) mod file;
pub(crate) mod layer;
mod value;

use std::fmt;

use crate::memory::LockMode;

/// An effective configuration: every option with the value that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolConfig {
    /// Which memory the pool stands on. Default: [`BackendChoice::Auto`].
    pub backend: BackendChoice,
    /// The CUDA device, by its number in the driver's order. Default: 0.
    pub device: u32,
    /// The most bytes the pool may pin. Default: none, the classes themselves are the limit.
    pub max_pinned: Option<u64>,
    /// Whether host memory is locked in RAM. Default: [`LockMode::Require`].
    pub lock: LockMode,
    /// Threads that touch the memory at start-up. Default: [`Threads::Auto`].
    pub prefault_threads: Threads,
    /// Bytes pinned by one system or driver call. Default: [`PIN_CHUNK_DEFAULT`].
    pub pin_chunk: u64,
    /// The size classes, in the order given.
    pub classes: Vec<ClassConfig>,
}

/// One size class as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassConfig {
    /// A name of letters, digits, `-`, `_` and `.`, at most 31 bytes.
    pub name: String,
    /// Bytes in one slot.
    pub size: usize,
    /// How many slots.
    pub count: usize,
    /// Slot sizes are rounded up to a multiple of this power of two. Default: [`ALIGN_DEFAULT`].
    pub align: usize,
}

impl ClassConfig {
    /// A class with default alignment.
    pub fn new(name: impl Into<String>, size: usize, count: usize) -> Self {
        Self { name: name.into(), size, count, align: ALIGN_DEFAULT }
    }
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

/// 256 MiB: one registration this size holds driver locks for about 10 ms.
pub const PIN_CHUNK_DEFAULT: u64 = 256 << 20;
/// 64: slots share no cache line. Sizes that are a multiple of a page are page-aligned as well.
pub const ALIGN_DEFAULT: usize = 64;
/// The most prefault threads.
pub const THREADS_MAX: usize = 1024;

impl Default for PoolConfig {
    /// The defaults, with no class yet.
    fn default() -> Self {
        Self {
            backend: BackendChoice::default(),
            device: 0,
            max_pinned: None,
            lock: LockMode::default(),
            prefault_threads: Threads::default(),
            pin_chunk: PIN_CHUNK_DEFAULT,
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

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Count(count) => write!(f, "{count}"),
        }
    }
}
