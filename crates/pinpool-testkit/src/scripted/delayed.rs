//! Sleeps before chosen steps, to widen races and to make slow systems.

use std::ptr::NonNull;
use std::time::Duration;

use pinpool::{BackendKind, MemoryError, MemoryStep, Obtained, PageLock, PageTier, Pinned, Region};

use super::{STEPS, index};

/// Memory whose steps take time.
#[derive(Debug)]
pub struct Delayed<M> {
    inner: M,
    delays: [Duration; STEPS.len()],
}

impl<M: PageLock> Delayed<M> {
    /// Wraps `inner`, without any delay yet.
    pub fn new(inner: M) -> Self {
        Self { inner, delays: Default::default() }
    }

    /// Sleeps so long before each call of `step`.
    pub fn on(mut self, step: MemoryStep, delay: Duration) -> Self {
        self.delays[index(step)] = delay;
        self
    }

    fn sleep(&self, step: MemoryStep) {
        let delay = self.delays[index(step)];
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
    }
}

// SAFETY: every duty is the inner memory's; this only waits before the calls.
unsafe impl<M: PageLock> PageLock for Delayed<M> {
    fn kind(&self) -> BackendKind {
        self.inner.kind()
    }

    fn takes_system_memory(&self) -> bool {
        self.inner.takes_system_memory()
    }

    fn needs_memlock(&self) -> bool {
        self.inner.needs_memlock()
    }

    fn reserve(&self, bytes: usize) -> Result<NonNull<u8>, MemoryError> {
        self.sleep(MemoryStep::Reserve);
        self.inner.reserve(bytes)
    }

    fn tiers(&self, bytes: usize) -> Vec<PageTier> {
        self.inner.tiers(bytes)
    }

    fn reserve_as(&self, bytes: usize, tier: PageTier) -> Result<NonNull<u8>, MemoryError> {
        self.sleep(MemoryStep::Reserve);
        self.inner.reserve_as(bytes, tier)
    }

    fn reserve_near(
        &self,
        bytes: usize,
        tier: PageTier,
        device: u32,
    ) -> Result<NonNull<u8>, MemoryError> {
        self.sleep(MemoryStep::Reserve);
        self.inner.reserve_near(bytes, tier, device)
    }

    unsafe fn obtained(&self, region: Region, tier: PageTier) -> Obtained {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.obtained(region, tier) }
    }

    unsafe fn populate(&self, part: Region) -> Result<(), MemoryError> {
        self.sleep(MemoryStep::Populate);
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.populate(part) }
    }

    unsafe fn pin(&self, chunk: Region) -> Result<Pinned, MemoryError> {
        self.sleep(MemoryStep::Pin);
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.pin(chunk) }
    }

    unsafe fn unpin(&self, chunk: Region) -> Result<(), MemoryError> {
        self.sleep(MemoryStep::Unpin);
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.unpin(chunk) }
    }

    unsafe fn forgo(&self, part: Region) {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.forgo(part) };
    }

    unsafe fn release(&self, region: Region) -> Result<(), MemoryError> {
        self.sleep(MemoryStep::Release);
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.release(region) }
    }
}
