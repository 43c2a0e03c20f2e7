//! What the pool, its classes, its slabs and its keeper all hold: the memory, the budget, the ledger
//! of slabs, the keeper's bell.

use std::sync::Arc;
use std::time::Duration;

use crate::attached::AnyFence;
use crate::bell::Bell;
use crate::budget::Budget;
use crate::clock;
use crate::config::OnPressure;
use crate::memory::limits::admission::Admission;
use crate::memory::{KeepFree, MemoryError, PageLock};
use crate::process::Home;
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering};
use crate::wakers::Wakers;

/// The common ground of one pool. It lives as long as the last slab or handle.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) memory: Arc<dyn PageLock>,
    /// The process whose pool this is.
    home: Home,
    pub(crate) budget: Budget,
    /// What the system's limits have room for.
    pub(crate) admission: Admission,
    /// Whether the system is short of memory.
    pub(crate) strain: Strain,
    /// Wakes the keeper.
    pub(crate) bell: Bell,
    /// Wakes the thread that adds slabs.
    pub(crate) growth: Bell,
    /// Tasks that await a fence.
    pub(crate) wakers: Wakers,
    /// Threads that wait for everything to come home.
    closers: AtomicUsize,
    /// Bytes whose unpin or unmap failed. They stay mapped, pinned or not, and in the budget.
    stuck_bytes: AtomicU64,
    /// Slabs that were not given back yet. A closer sleeps on it.
    mapped: Mutex<Mapped>,
    all_home: Condvar,
}

/// What a pool may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// The most pinned bytes.
    pub(crate) cap: u64,
    pub(crate) keep_free: KeepFree,
    pub(crate) on_pressure: OnPressure,
}

/// Memory pressure, as the thread that adds slabs has met it.
#[derive(Debug)]
pub(crate) struct Strain {
    /// It makes a difference.
    heeded: bool,
    /// 1 while it lasts.
    lasts: AtomicU32,
    /// How often it began.
    episodes: AtomicU64,
}

/// Slabs that exist, those given up as stuck not counted, and the bytes of all that are mapped.
#[derive(Debug, Default)]
struct Mapped {
    slabs: usize,
    bytes: u64,
}

impl Strain {
    fn new(heeded: bool) -> Self {
        Self { heeded, lasts: AtomicU32::new(0), episodes: AtomicU64::new(0) }
    }

    /// Somebody must look for it.
    pub(crate) fn is_heeded(&self) -> bool {
        self.heeded
    }

    /// It began, or ended.
    pub(crate) fn set(&self, lasts: bool) {
        self.episodes.fetch_add(u64::from(lasts), Ordering::Relaxed);
        self.lasts.store(u32::from(lasts), Ordering::Relaxed);
    }

    /// Nothing grows now.
    pub(crate) fn lasts(&self) -> bool {
        self.lasts.load(Ordering::Relaxed) != 0
    }

    /// How often it began so far.
    pub(crate) fn episodes(&self) -> u64 {
        self.episodes.load(Ordering::Relaxed)
    }
}

impl Shared {
    pub(crate) fn new(memory: Arc<dyn PageLock>, terms: Terms, home: Home) -> Self {
        let admission = Admission::new(&*memory, terms.keep_free);
        let trims = terms.on_pressure == OnPressure::Trim;
        let strain = Strain::new(trims && memory.takes_system_memory());
        Self {
            memory,
            home,
            budget: Budget::new(terms.cap),
            admission,
            strain,
            bell: Bell::new(),
            growth: Bell::new(),
            wakers: Wakers::new(),
            closers: AtomicUsize::new(0),
            stuck_bytes: AtomicU64::new(0),
            mapped: Mutex::new(Mapped::default()),
            all_home: Condvar::default(),
        }
    }

    /// Whether the system's limits have room for `bytes` more.
    pub(crate) fn enter(&self, bytes: u64, locked: bool) -> Result<(), MemoryError> {
        self.admission.enter(&*self.memory, bytes, locked)
    }

    /// Some class wants to grow. Whoever sees to it in this pool is told.
    pub(crate) fn ring_for_growth(&self) {
        self.growth.ring();
        self.bell.ring();
    }

    /// False in a forked child, which has none of the pool's threads, and where any lock may be held
    /// for ever (I12).
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.home.is_here()
    }

    pub(crate) fn slab_opened(&self, bytes: u64) {
        let mut mapped = self.mapped.lock();
        mapped.slabs += 1;
        mapped.bytes += bytes;
    }

    /// Counts a slab out after it was given back, or after `stuck` of its bytes could not be: it
    /// stays mapped then.
    pub(crate) fn slab_closed(&self, bytes: u64, stuck: u64) {
        self.stuck_bytes.fetch_add(stuck, Ordering::AcqRel);
        let mut mapped = self.mapped.lock();
        mapped.slabs -= 1;
        mapped.bytes -= if stuck == 0 { bytes } else { 0 };
        drop(mapped);
        self.all_home.notify_all();
    }

    /// Takes back a fence whose work is over. Called without a lock: it may call the driver, or run
    /// a user's code.
    #[cfg_attr(not(feature = "cuda"), allow(clippy::unused_self, reason = "events come of it"))]
    pub(crate) fn recycle(&self, fence: AnyFence) {
        #[cfg(feature = "cuda")]
        if let AnyFence::Event(event) = fence {
            if let Some(pages) = crate::cuda::pages::CudaPages::of(&*self.memory) {
                pages.events().give_back(event);
            }
            return;
        }
        drop(fence);
    }

    /// Bytes in slabs that are mapped: in a forked child none (I12).
    pub(crate) fn mapped_bytes(&self) -> u64 {
        if self.is_here() { self.mapped.lock().bytes } else { 0 }
    }

    pub(crate) fn stuck_bytes(&self) -> u64 {
        self.stuck_bytes.load(Ordering::Acquire)
    }

    /// Waits until every slab was given back, or all that ever will be, or until `timeout`; returns how
    /// many were not. `lasting` tells how many stay for good, once that is known.
    pub(crate) fn wait_all_home(
        &self,
        timeout: Duration,
        lasting: impl Fn() -> Option<usize>,
    ) -> usize {
        self.closers.fetch_add(1, Ordering::Relaxed);
        self.bell.ring();
        // A timeout past the end of the clock is no timeout.
        let deadline = clock::now().checked_add(timeout);
        let mut mapped = self.mapped.lock();
        while mapped.slabs > 0 && lasting().is_none_or(|lasting| mapped.slabs > lasting) {
            if self.all_home.wait(&mut mapped, deadline) {
                break;
            }
        }
        self.closers.fetch_sub(1, Ordering::Relaxed);
        mapped.slabs
    }

    /// Nothing is out any more but what never comes home: closers need not wait for that.
    pub(crate) fn tell_closers(&self) {
        // Taken once: a closer has looked before, and sleeps by now, or looks after.
        drop(self.mapped.lock());
        self.all_home.notify_all();
    }

    /// Somebody waits for a close to finish.
    pub(crate) fn is_awaited(&self) -> bool {
        self.closers.load(Ordering::Relaxed) > 0
    }
}
