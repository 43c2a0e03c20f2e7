//! The ways to get a buffer and to give it back, each timed by itself.

use std::hint::black_box;
use std::time::{Duration, Instant};

use pinpool::cudarc::driver::sys;
use pinpool::{BackendChoice, LockMode, Pool};

use crate::rivals::FrameBuffer;
use crate::rivals::pinned_cuda::DriverPages;
use crate::rivals::pinned_host::HostPages;
use crate::startup::Ground;
use crate::{BenchError, clock, machine};

/// A way to come to a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// A lease of a pool that is open.
    Lease,
    /// The allocator, and a write to each page.
    Malloc,
    /// A mapping that is backed and locked.
    Mlock,
    /// `cuMemHostAlloc`.
    HostAlloc,
    /// A mapping that is backed and registered with the driver.
    Register,
    /// Registering memory that is there.
    RegisterInPlace,
}

impl Side {
    /// As results name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lease => LEASE,
            Self::Malloc => "malloc, touched",
            Self::Mlock => "mmap, mlock",
            Self::HostAlloc => "cuMemHostAlloc",
            Self::Register => "mmap, register",
            Self::RegisterInPlace => "register in place",
        }
    }
}

/// How long a buffer took.
#[derive(Debug, Clone, Copy)]
pub struct Took {
    pair: Duration,
    /// Getting it, where that is timed by itself.
    get: Option<Duration>,
}

impl Took {
    /// Seconds to get it and to give it back.
    pub fn pair_s(&self) -> f64 {
        self.pair.as_secs_f64()
    }

    /// Seconds to get it, where that was timed by itself.
    pub fn get_s(&self) -> Option<f64> {
        Some(self.get?.as_secs_f64())
    }

    /// Seconds to give it back, likewise.
    pub fn give_back_s(&self) -> Option<f64> {
        Some(self.pair.saturating_sub(self.get?).as_secs_f64())
    }
}

/// All ways to buffers of one size.
#[derive(Debug)]
pub struct Bench {
    ground: Ground,
    bytes: usize,
    pool: Pool,
    /// What is registered in place; empty where there is no device.
    touched: Vec<u8>,
    may_lock: bool,
    clock: Duration,
}

impl Bench {
    /// Opens a pool of one slot of `bytes`. The notes say what this machine does not allow.
    ///
    /// # Errors
    /// The pool's, or another than that locking is refused.
    pub fn open(
        ground: &Ground,
        bytes: usize,
        notes: &mut Vec<String>,
    ) -> Result<Self, BenchError> {
        let (backend, lock) = match ground {
            Ground::Cuda(_) => (BackendChoice::Cuda, LockMode::Require),
            Ground::Host => (BackendChoice::Host, LockMode::Try),
        };
        let builder = Pool::builder().env(false).backend(backend).device(0).lock(lock);
        let pool = builder.class("alloc", bytes, 1).open();
        let pool = pool.map_err(|cause| BenchError::opening_pool(&cause))?;
        // Opening the pool may have made another context current on this thread.
        ground.bind()?;
        if !pool.is_pinned() {
            notes.push(format!("the pool's memory is not locked: {}", limit()));
        }
        let may_lock = match HostPages::new(bytes, true) {
            Ok(_) => true,
            Err(BenchError::LockRefused { .. }) => {
                notes.push(format!("mlock was left out: {}", limit()));
                false
            }
            Err(other) => return Err(other),
        };
        let touched = if let Ground::Cuda(_) = ground { vec![1; bytes] } else { Vec::new() };
        Ok(Self { ground: ground.clone(), bytes, pool, touched, may_lock, clock: clock::cost() })
    }

    /// The ways that this machine has.
    pub fn sides(&self) -> Vec<Side> {
        let mut sides = vec![Side::Lease, Side::Malloc];
        if self.may_lock {
            sides.push(Side::Mlock);
        }
        if let Ground::Cuda(_) = self.ground {
            sides.extend([Side::HostAlloc, Side::Register, Side::RegisterInPlace]);
        }
        sides
    }

    /// Gets a buffer and gives it back.
    ///
    /// # Errors
    /// The call that failed, or a way that needs a device where there is none.
    pub fn once(&mut self, side: Side) -> Result<Took, BenchError> {
        let bytes = self.bytes;
        match side {
            Side::Lease => self.leases(),
            Side::Malloc => {
                let free = |buffer| {
                    drop(buffer);
                    Ok(())
                };
                self.timed(|| malloc(bytes), free)
            }
            Side::Mlock => self.timed(|| HostPages::new(bytes, true), HostPages::release),
            Side::HostAlloc => {
                let context = &self.rig()?.context;
                self.timed(|| DriverPages::new(context, bytes), DriverPages::release)
            }
            Side::Register => {
                self.rig()?;
                let get = || {
                    let pages = HostPages::new(bytes, false)?;
                    register(pages.bytes())?;
                    Ok(pages)
                };
                self.timed(get, |pages| unregister(pages.bytes()).and_then(|()| pages.release()))
            }
            Side::RegisterInPlace => {
                self.rig()?;
                let memory = self.touched.as_slice();
                self.timed(|| register(memory), |()| unregister(memory))
            }
        }
    }

    fn rig(&self) -> Result<&crate::cuda_rig::CudaRig, BenchError> {
        match &self.ground {
            Ground::Cuda(rig) => Ok(rig),
            Ground::Host => Err(BenchError::Failed("this way needs a device".to_owned())),
        }
    }

    fn timed<B>(
        &self,
        get: impl FnOnce() -> Result<B, BenchError>,
        give_back: impl FnOnce(B) -> Result<(), BenchError>,
    ) -> Result<Took, BenchError> {
        let started = Instant::now();
        let buffer = black_box(get()?);
        let got = started.elapsed();
        give_back(buffer)?;
        let all = started.elapsed();
        // The first reading lies in both times, the second in the whole as well.
        let get = got.saturating_sub(self.clock);
        Ok(Took { pair: all.saturating_sub(2 * self.clock), get: Some(get) })
    }

    /// Many in a row: one lease takes as long as reading the clock.
    fn leases(&self) -> Result<Took, BenchError> {
        let started = Instant::now();
        for _ in 0..LEASES {
            let lease = self.pool.try_lease(self.bytes);
            drop(black_box(lease.map_err(|cause| BenchError::failed("leasing a buffer", cause))?));
        }
        let all = started.elapsed().saturating_sub(self.clock);
        Ok(Took { pair: all / LEASES, get: None })
    }
}

/// As the allocator gives it, with a byte of each page written.
fn malloc(bytes: usize) -> Result<Vec<u8>, BenchError> {
    let mut buffer: Vec<u8> = Vec::new();
    let reserved = buffer.try_reserve_exact(bytes);
    reserved.map_err(|cause| BenchError::failed("allocating a buffer", cause))?;
    for page in buffer.spare_capacity_mut()[..bytes].chunks_mut(PAGE_BYTES) {
        page[0].write(1);
        black_box(&page[0]);
    }
    Ok(buffer)
}

fn register(memory: &[u8]) -> Result<(), BenchError> {
    let start = memory.as_ptr().cast_mut().cast();
    let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
    // SAFETY: the memory is the caller's and stays where it is until `unregister`; a context exists,
    // so the driver is loaded. Registering changes no byte.
    unsafe { sys::cuMemHostRegister_v2(start, memory.len(), flags) }
        .result()
        .map_err(|cause| BenchError::failed("cuMemHostRegister", cause))
}

fn unregister(memory: &[u8]) -> Result<(), BenchError> {
    // SAFETY: `register` was given this memory, and nothing copies from it.
    unsafe { sys::cuMemHostUnregister(memory.as_ptr().cast_mut().cast()) }
        .result()
        .map_err(|cause| BenchError::failed("cuMemHostUnregister", cause))
}

fn limit() -> String {
    format!("RLIMIT_MEMLOCK is {}", machine::memlock().summary())
}

/// [`Side::name`] of a lease.
pub(super) const LEASE: &str = "lease";
const LEASES: u32 = 100;
/// The smallest page of any system.
const PAGE_BYTES: usize = 4096;
