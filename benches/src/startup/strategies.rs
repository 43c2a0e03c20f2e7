//! The ways to come to pinned memory: pools, the same calls without a pool, one call of the driver.

use std::time::{Duration, Instant};

use pinpool::{BackendChoice, HugePages, LockMode, Pool, PoolBuilder};

use super::region::{Pages, Region, default_threads};
use crate::BenchError;
use crate::cuda_rig::CudaRig;
use crate::rivals::pinned_cuda::DriverPages;

/// What memory is pinned for.
#[derive(Debug, Clone)]
pub enum Ground {
    /// The first device; its context is current on the calling thread.
    Cuda(CudaRig),
    /// No device: memory is locked.
    Host,
}

impl Ground {
    /// The first device, or the host and why.
    ///
    /// # Errors
    /// A device that is there and does not open.
    pub fn find() -> Result<(Self, Option<String>), BenchError> {
        let mut why_not = None;
        let rig = CudaRig::open_if_any(&mut why_not)?;
        Ok((rig.map_or(Self::Host, Self::Cuda), why_not))
    }

    /// "cuda" or "host".
    pub fn name(&self) -> &'static str {
        match self {
            Self::Cuda(_) => CUDA,
            Self::Host => "host",
        }
    }

    /// Makes the device's context current, where there is one: a pool may have taken it off.
    pub(crate) fn bind(&self) -> Result<(), BenchError> {
        match self {
            Self::Cuda(rig) => rig.bind(),
            Self::Host => Ok(()),
        }
    }
}

/// A way to come to pinned memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// A pool with its defaults.
    Pool,
    /// A pool that backs its memory by one thread.
    PoolOneThread,
    /// A pool that makes no pauses between the chunks that it pins.
    PoolWithoutPauses,
    /// A pool that asks for no huge pages.
    PoolOnOrdinaryPages,
    /// The same mapping, backed by as many threads, pinned by one call; no pool.
    Bare,
    /// One call of `cuMemHostAlloc`.
    DriverAlloc,
    /// An ordinary mapping without a page yet, pinned by one call.
    Untouched,
}

impl Strategy {
    /// Those that there are on `ground`.
    pub fn all(ground: &Ground) -> Vec<Self> {
        let mut all = vec![
            Self::Pool,
            Self::PoolOneThread,
            Self::PoolWithoutPauses,
            Self::PoolOnOrdinaryPages,
            Self::Bare,
        ];
        if matches!(ground, Ground::Cuda(_)) {
            all.push(Self::DriverAlloc);
        }
        all.push(Self::Untouched);
        all
    }

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::PoolOneThread => "pool, 1 prefault thread",
            Self::PoolWithoutPauses => "pool, no pauses",
            Self::PoolOnOrdinaryPages => "pool, no huge pages",
            Self::Bare => "no pool",
            Self::DriverAlloc => "cuMemHostAlloc",
            Self::Untouched => "untouched memory",
        }
    }

    /// Whether one thread does it all, which takes seconds where the others take a part of one.
    pub(super) fn is_slow(self) -> bool {
        matches!(self, Self::PoolOneThread | Self::DriverAlloc | Self::Untouched)
    }

    /// Whether it is a pool's.
    pub(super) fn is_pool(self) -> bool {
        !matches!(self, Self::Bare | Self::DriverAlloc | Self::Untouched)
    }

    /// Threads that back `bytes` before they are pinned; zero where the call that pins does it.
    pub(super) fn threads(self, bytes: usize) -> usize {
        match self {
            Self::Pool | Self::PoolWithoutPauses | Self::PoolOnOrdinaryPages | Self::Bare => {
                default_threads(bytes)
            }
            Self::PoolOneThread => 1,
            Self::DriverAlloc | Self::Untouched => 0,
        }
    }

    /// Opens `bytes`, a multiple of [`SLOT_BYTES`].
    ///
    /// # Errors
    /// The system's or the driver's reason.
    pub fn open(self, ground: &Ground, bytes: usize) -> Result<Opened, BenchError> {
        ground.bind()?;
        let threads = self.threads(bytes);
        match self {
            Self::Pool => open_pool(pool(ground, bytes)),
            Self::PoolOneThread => open_pool(pool(ground, bytes).prefault_threads(1)),
            Self::PoolWithoutPauses => open_pool(pool(ground, bytes).pin_pause(Duration::ZERO)),
            Self::PoolOnOrdinaryPages => open_pool(pool(ground, bytes).huge_pages(HugePages::Off)),
            Self::Bare => open_region(ground, bytes, Pages::Huge, threads),
            Self::Untouched => open_region(ground, bytes, Pages::Any, threads),
            Self::DriverAlloc => match ground {
                Ground::Cuda(rig) => {
                    let started = Instant::now();
                    let pages = DriverPages::new(&rig.context, bytes)?;
                    let total = started.elapsed();
                    Ok(Opened { held: Held::Driver(pages), total, phases: None, pages: None })
                }
                Ground::Host => Err(BenchError::input("cuMemHostAlloc needs a CUDA device")),
            },
        }
    }
}

/// Pinned memory, and how long it took.
#[derive(Debug)]
pub struct Opened {
    held: Held,
    /// From the first call to the return of the last.
    pub total: Duration,
    /// The steps, where they were taken one by one.
    pub(super) phases: Option<Phases>,
    /// The kind of its pages, where a pool says.
    pub(super) pages: Option<String>,
}

/// How long each step of opening took, and all together as the pool counts it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Phases {
    pub(super) reserve: Duration,
    pub(super) populate: Duration,
    pub(super) pin: Duration,
    pub(super) total: Duration,
}

#[derive(Debug)]
enum Held {
    Pool(Pool),
    Region(Region),
    Driver(DriverPages),
}

impl Opened {
    /// Gives everything back, and says how long that took.
    ///
    /// # Errors
    /// What could not be given back.
    pub fn close(self) -> Result<Duration, BenchError> {
        let started = Instant::now();
        match self.held {
            Held::Pool(pool) => {
                let closed = pool.close(PATIENCE);
                if !closed.is_complete() {
                    return Err(BenchError::failed("closing the pool", closed));
                }
            }
            Held::Region(region) => region.close()?,
            Held::Driver(pages) => pages.release()?,
        }
        Ok(started.elapsed())
    }
}

/// A pool of slots of 1 MiB with everything else as it is by default.
fn pool(ground: &Ground, bytes: usize) -> PoolBuilder {
    let builder = Pool::builder().env(false).lock(LockMode::Require);
    let builder = match ground {
        Ground::Cuda(_) => builder.backend(BackendChoice::Cuda).device(0),
        Ground::Host => builder.backend(BackendChoice::Host),
    };
    builder.class("startup", SLOT_BYTES, bytes / SLOT_BYTES)
}

fn open_pool(builder: PoolBuilder) -> Result<Opened, BenchError> {
    let started = Instant::now();
    let pool = builder.open().map_err(|cause| BenchError::opening_pool(&cause))?;
    let total = started.elapsed();
    let startup = pool.startup();
    let phases = Phases {
        reserve: startup.times.reserve,
        populate: startup.times.populate,
        pin: startup.times.pin,
        total: startup.total,
    };
    let pages = startup.slabs.first().map(|slab| slab.pages.to_string());
    Ok(Opened { held: Held::Pool(pool), total, phases: Some(phases), pages })
}

/// With no thread to back the memory, pinning does.
fn open_region(
    ground: &Ground,
    bytes: usize,
    pages: Pages,
    threads: usize,
) -> Result<Opened, BenchError> {
    let started = Instant::now();
    let mut region = Region::map(bytes, pages)?;
    let reserved = Instant::now();
    if threads > 0 {
        region.populate(threads)?;
    }
    let populated = Instant::now();
    region.pin(ground)?;
    let pinned = Instant::now();
    let total = pinned.duration_since(started);
    let phases = Phases {
        reserve: reserved.duration_since(started),
        populate: populated.duration_since(reserved),
        pin: pinned.duration_since(populated),
        total,
    };
    Ok(Opened { held: Held::Region(region), total, phases: Some(phases), pages: None })
}

/// Opens nothing, but has the machine back as much memory once: a virtual machine often gets its memory
/// from its host on first touch, which would be measured instead.
pub(super) fn touch(bytes: usize) -> Result<(), BenchError> {
    let region = Region::map(bytes, Pages::Huge)?;
    region.populate(default_threads(bytes))?;
    region.close()
}

/// [`Ground::name`] of a device.
pub(super) const CUDA: &str = "cuda";
/// The size of the pool's slots.
pub const SLOT_BYTES: usize = 1 << 20;
/// What takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(60);
