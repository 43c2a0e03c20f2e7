//! Refuses to pin past a number of bytes, in total or in one call.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use pinpool::{BackendKind, MemoryError, MemoryStep, Obtained, PageLock, PageTier, Pinned, Region};
use rustix::io::Errno;

/// Memory with a limit on pinned bytes, like `RLIMIT_MEMLOCK` or a driver's table.
#[derive(Debug)]
pub struct Limited<M> {
    inner: M,
    total_bytes: usize,
    call_bytes: usize,
    /// Answers "not locked" in place of an error, as `lock = "try"` does.
    lenient: bool,
    pinned_bytes: AtomicUsize,
}

impl<M: PageLock> Limited<M> {
    /// At most `bytes` pinned in total; past that `pin` fails with `ENOMEM`.
    pub fn new(inner: M, bytes: usize) -> Self {
        Self {
            inner,
            total_bytes: bytes,
            call_bytes: usize::MAX,
            lenient: false,
            pinned_bytes: AtomicUsize::new(0),
        }
    }

    /// The same limit, past which `pin` succeeds without locking.
    pub fn lenient(inner: M, bytes: usize) -> Self {
        Self { lenient: true, ..Self::new(inner, bytes) }
    }

    /// No limit in total, but at most `bytes` in one call.
    pub fn per_call(inner: M, bytes: usize) -> Self {
        Self { call_bytes: bytes, ..Self::new(inner, usize::MAX) }
    }
}

// SAFETY: a call is the inner memory's, or `pin` does nothing and says so (B3, B4).
unsafe impl<M: PageLock> PageLock for Limited<M> {
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
        self.inner.reserve(bytes)
    }

    fn tiers(&self, bytes: usize) -> Vec<PageTier> {
        self.inner.tiers(bytes)
    }

    fn reserve_as(&self, bytes: usize, tier: PageTier) -> Result<NonNull<u8>, MemoryError> {
        self.inner.reserve_as(bytes, tier)
    }

    fn reserve_near(
        &self,
        bytes: usize,
        tier: PageTier,
        device: u32,
    ) -> Result<NonNull<u8>, MemoryError> {
        self.inner.reserve_near(bytes, tier, device)
    }

    unsafe fn obtained(&self, region: Region, tier: PageTier) -> Obtained {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.obtained(region, tier) }
    }

    unsafe fn populate(&self, part: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.populate(part) }
    }

    unsafe fn pin(&self, chunk: Region) -> Result<Pinned, MemoryError> {
        let pinned_bytes = self.pinned_bytes.load(Ordering::Acquire);
        if chunk.bytes > self.call_bytes || pinned_bytes + chunk.bytes > self.total_bytes {
            let refused = MemoryError::os(MemoryStep::Pin, chunk.bytes, Errno::NOMEM);
            return if self.lenient { Ok(Pinned::default()) } else { Err(refused) };
        }
        // SAFETY: the caller's duty is the same.
        let pinned = unsafe { self.inner.pin(chunk) }?;
        if pinned.locked {
            self.pinned_bytes.fetch_add(chunk.bytes, Ordering::AcqRel);
        }
        Ok(pinned)
    }

    unsafe fn unpin(&self, chunk: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.unpin(chunk) }?;
        self.pinned_bytes.fetch_sub(chunk.bytes, Ordering::AcqRel);
        Ok(())
    }

    unsafe fn forgo(&self, part: Region) {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.forgo(part) };
    }

    unsafe fn release(&self, region: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.release(region) }
    }
}
