//! Fails chosen calls without any effect, as a system or driver call may.

use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;
use pinpool::{
    BackendKind, MemoryCause, MemoryError, MemoryStep, Obtained, PageLock, PageTier, Pinned, Region,
};

/// Which calls fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Calls of this step count, or of every step.
    pub step: Option<MemoryStep>,
    /// The number of the failing call, from 1.
    pub nth: u64,
    /// That call only, or all counted calls from it on.
    pub persistent: bool,
    /// The cause that is reported.
    pub cause: MemoryCause,
}

/// What a [`Faulty`] memory has done so far; it can also change the fault.
#[derive(Debug, Clone, Default)]
pub struct FaultLog {
    script: Arc<Mutex<Script>>,
}

#[derive(Debug, Default)]
struct Script {
    fault: Option<Fault>,
    calls: u64,
    injected: Vec<(MemoryStep, usize)>,
}

/// Memory in which chosen calls fail.
#[derive(Debug)]
pub struct Faulty<M> {
    inner: M,
    log: FaultLog,
}

impl Fault {
    /// The `nth` call of all steps, once.
    pub fn nth(nth: u64) -> Self {
        let cause = MemoryCause::Other("planted fault");
        Self { step: None, nth, persistent: false, cause }
    }

    /// The same, counting calls of one step only.
    pub fn of(self, step: MemoryStep) -> Self {
        Self { step: Some(step), ..self }
    }

    /// The same, and every later call too.
    pub fn persistent(self) -> Self {
        Self { persistent: true, ..self }
    }

    /// The same, reported as the system's error number.
    pub fn os(self, code: i32) -> Self {
        Self { cause: MemoryCause::Os(code), ..self }
    }
}

impl FaultLog {
    /// Replaces the fault, counting from now; `None` makes every call pass.
    pub fn arm(&self, fault: Option<Fault>) {
        let mut script = self.script.lock();
        script.fault = fault;
        script.calls = 0;
    }

    /// The failed calls: step and bytes, in order.
    pub fn injected(&self) -> Vec<(MemoryStep, usize)> {
        self.script.lock().injected.clone()
    }

    fn check(&self, step: MemoryStep, bytes: usize) -> Result<(), MemoryError> {
        let mut script = self.script.lock();
        let Script { fault: Some(fault), calls, injected } = &mut *script else { return Ok(()) };
        if fault.step.is_some_and(|only| only != step) {
            return Ok(());
        }
        *calls += 1;
        if *calls == fault.nth || (fault.persistent && *calls > fault.nth) {
            injected.push((step, bytes));
            return Err(MemoryError { step, bytes, cause: fault.cause.clone() });
        }
        Ok(())
    }
}

impl<M: PageLock> Faulty<M> {
    /// Wraps `inner`; the log stays with the test.
    pub fn new(inner: M, fault: Fault) -> (Self, FaultLog) {
        let log = FaultLog::default();
        log.arm(Some(fault));
        (Self { inner, log: log.clone() }, log)
    }
}

// SAFETY: a call either is the inner memory's or fails before it, with no effect (B3).
unsafe impl<M: PageLock> PageLock for Faulty<M> {
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
        self.log.check(MemoryStep::Reserve, bytes)?;
        self.inner.reserve(bytes)
    }

    fn tiers(&self, bytes: usize) -> Vec<PageTier> {
        self.inner.tiers(bytes)
    }

    fn reserve_as(&self, bytes: usize, tier: PageTier) -> Result<NonNull<u8>, MemoryError> {
        self.log.check(MemoryStep::Reserve, bytes)?;
        self.inner.reserve_as(bytes, tier)
    }

    fn reserve_near(
        &self,
        bytes: usize,
        tier: PageTier,
        device: u32,
    ) -> Result<NonNull<u8>, MemoryError> {
        self.log.check(MemoryStep::Reserve, bytes)?;
        self.inner.reserve_near(bytes, tier, device)
    }

    unsafe fn obtained(&self, region: Region, tier: PageTier) -> Obtained {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.obtained(region, tier) }
    }

    unsafe fn populate(&self, part: Region) -> Result<(), MemoryError> {
        self.log.check(MemoryStep::Populate, part.bytes)?;
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.populate(part) }
    }

    unsafe fn pin(&self, chunk: Region) -> Result<Pinned, MemoryError> {
        self.log.check(MemoryStep::Pin, chunk.bytes)?;
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.pin(chunk) }
    }

    unsafe fn unpin(&self, chunk: Region) -> Result<(), MemoryError> {
        self.log.check(MemoryStep::Unpin, chunk.bytes)?;
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.unpin(chunk) }
    }

    unsafe fn forgo(&self, part: Region) {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.forgo(part) };
    }

    unsafe fn release(&self, region: Region) -> Result<(), MemoryError> {
        self.log.check(MemoryStep::Release, region.bytes)?;
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.release(region) }
    }
}
