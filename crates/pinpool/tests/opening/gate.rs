//! Memory whose pinning waits for the test.

use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use pinpool::{BackendKind, MemoryError, PageLock, Pinned, Region};

/// Lets calls through, so many at a time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    permits: usize,
    arrived: usize,
}

impl Gate {
    /// Lets so many more calls through.
    pub(crate) fn let_pass(&self, calls: usize) {
        self.state().permits += calls;
        self.0.1.notify_all();
    }

    /// Calls that came so far.
    pub(crate) fn arrived(&self) -> usize {
        self.state().arrived
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self) {
        let mut state = self.state();
        state.arrived += 1;
        self.0.1.notify_all();
        while state.permits == 0 {
            state = self.0.1.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.permits -= 1;
    }
}

/// Memory whose pinning waits at a gate.
#[derive(Debug)]
pub(crate) struct Gated<M> {
    inner: M,
    gate: Gate,
}

impl<M: PageLock> Gated<M> {
    pub(crate) fn new(inner: M, gate: Gate) -> Self {
        Self { inner, gate }
    }
}

// SAFETY: every duty is the inner memory's; this only waits before one of the calls.
unsafe impl<M: PageLock> PageLock for Gated<M> {
    fn kind(&self) -> BackendKind {
        self.inner.kind()
    }

    fn reserve(&self, bytes: usize) -> Result<NonNull<u8>, MemoryError> {
        self.inner.reserve(bytes)
    }

    unsafe fn populate(&self, part: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.populate(part) }
    }

    unsafe fn pin(&self, chunk: Region) -> Result<Pinned, MemoryError> {
        self.gate.pass();
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.pin(chunk) }
    }

    unsafe fn unpin(&self, chunk: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.unpin(chunk) }
    }

    unsafe fn release(&self, region: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.release(region) }
    }
}
