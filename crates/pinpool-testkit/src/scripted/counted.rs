//! Counts every call, and books what is reserved and pinned.

use std::ptr::NonNull;

use pinpool::{BackendKind, MemoryError, MemoryStep, Obtained, PageLock, PageTier, Pinned, Region};

use super::Ledger;

/// Memory whose calls are booked in a [`Ledger`]. It never panics: breaches are recorded.
#[derive(Debug)]
pub struct Counted<M> {
    inner: M,
    ledger: Ledger,
}

impl<M: PageLock> Counted<M> {
    /// Wraps `inner`; the ledger stays with the test.
    pub fn new(inner: M) -> (Self, Ledger) {
        let ledger = Ledger::default();
        (Self { inner, ledger: ledger.clone() }, ledger)
    }

    /// Books one reservation.
    fn reserved(
        &self,
        bytes: usize,
        result: Result<NonNull<u8>, MemoryError>,
    ) -> Result<NonNull<u8>, MemoryError> {
        self.ledger.count(MemoryStep::Reserve, result.is_err());
        if let Ok(start) = result {
            self.ledger.reserved(Region { start, bytes });
        }
        result
    }
}

// SAFETY: every duty is the inner memory's; this only writes a book of its own between the calls.
unsafe impl<M: PageLock> PageLock for Counted<M> {
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
        self.reserved(bytes, self.inner.reserve(bytes))
    }

    fn tiers(&self, bytes: usize) -> Vec<PageTier> {
        self.inner.tiers(bytes)
    }

    fn reserve_as(&self, bytes: usize, tier: PageTier) -> Result<NonNull<u8>, MemoryError> {
        let result = self.inner.reserve_as(bytes, tier);
        self.reserved(bytes, result)
    }

    fn reserve_near(
        &self,
        bytes: usize,
        tier: PageTier,
        device: u32,
    ) -> Result<NonNull<u8>, MemoryError> {
        let result = self.inner.reserve_near(bytes, tier, device);
        self.reserved(bytes, result)
    }

    unsafe fn obtained(&self, region: Region, tier: PageTier) -> Obtained {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.obtained(region, tier) }
    }

    unsafe fn populate(&self, part: Region) -> Result<(), MemoryError> {
        self.ledger.populating(part);
        // SAFETY: the caller's duty is the same.
        let result = unsafe { self.inner.populate(part) };
        self.ledger.count(MemoryStep::Populate, result.is_err());
        result
    }

    unsafe fn pin(&self, chunk: Region) -> Result<Pinned, MemoryError> {
        self.ledger.pinning(chunk);
        // SAFETY: the caller's duty is the same.
        let result = unsafe { self.inner.pin(chunk) };
        self.ledger.count(MemoryStep::Pin, result.is_err());
        if result.as_ref().is_ok_and(|pinned| pinned.locked || pinned.device_base.is_some()) {
            self.ledger.pinned(chunk);
        }
        result
    }

    unsafe fn unpin(&self, chunk: Region) -> Result<(), MemoryError> {
        self.ledger.unpinning(chunk);
        // SAFETY: the caller's duty is the same.
        let result = unsafe { self.inner.unpin(chunk) };
        self.ledger.count(MemoryStep::Unpin, result.is_err());
        if result.is_ok() {
            self.ledger.unpinned(chunk);
        }
        result
    }

    unsafe fn forgo(&self, part: Region) {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.forgo(part) };
    }

    unsafe fn release(&self, region: Region) -> Result<(), MemoryError> {
        // Before the call: once it is over another thread may be given the same addresses.
        let held = self.ledger.releasing(region);
        // SAFETY: the caller's duty is the same.
        let result = unsafe { self.inner.release(region) };
        self.ledger.count(MemoryStep::Release, result.is_err());
        if result.is_err() {
            self.ledger.not_released(region, held);
        }
        result
    }
}
