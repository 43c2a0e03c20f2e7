//! Driver events of one context, reused: creating and destroying one costs as much as recording it.

use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use cudarc::driver::{CudaContext, DriverError, result, sys};

use super::context::Bound;

/// One driver event. It belongs to the context it was made in.
pub(crate) struct Event {
    raw: sys::CUevent,
    context: Arc<CudaContext>,
}

// SAFETY: a driver event may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Makes an event in `context`, which `_current` says is current.
    pub(super) fn new(context: &Arc<CudaContext>, _current: &Bound) -> Result<Self, DriverError> {
        let raw = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        Ok(Self { raw, context: Arc::clone(context) })
    }

    /// Records all work queued on `stream`, a stream of the event's context, so far.
    pub(super) fn record(&self, stream: sys::CUstream) -> Result<(), DriverError> {
        // SAFETY: event and stream are alive and of one context.
        unsafe { result::event::record(self.raw, stream) }
    }

    /// Waits for what was recorded.
    pub(super) fn wait(&self) -> Result<(), DriverError> {
        let _bound = Bound::to(&self.context)?;
        // SAFETY: the event is alive. The raw call waits even if cudarc has an error parked.
        unsafe { result::event::synchronize(self.raw) }
    }

    /// Whether what was recorded is complete.
    pub(super) fn is_complete(&self) -> Result<bool, DriverError> {
        let _bound = Bound::to(&self.context)?;
        // SAFETY: the event is alive.
        match unsafe { result::event::query(self.raw) } {
            Ok(()) => Ok(true),
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(_bound) = Bound::to(&self.context) {
            // SAFETY: the event is ours and not used again.
            let _ = unsafe { result::event::destroy(self.raw) };
        }
    }
}

/// Idle events of one context.
pub(crate) struct EventPool {
    context: Arc<CudaContext>,
    idle: ArrayQueue<Event>,
}

impl EventPool {
    pub(super) fn new(context: &Arc<CudaContext>) -> Self {
        Self { context: Arc::clone(context), idle: ArrayQueue::new(IDLE_MAX) }
    }

    /// An event for a stream of `context`, reused where it is the pool's own context.
    pub(super) fn take(
        &self,
        context: &Arc<CudaContext>,
        current: &Bound,
    ) -> Result<Event, DriverError> {
        let reused = if **context == *self.context { self.idle.pop() } else { None };
        reused.map_or_else(|| Event::new(context, current), Ok)
    }

    /// Keeps an event whose recorded work is complete, or destroys it where enough are idle.
    pub(super) fn give_back(&self, event: Event) {
        if *event.context == *self.context {
            // One too many comes back and is dropped.
            drop(self.idle.push(event));
        }
    }
}

impl std::fmt::Debug for EventPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventPool").field("idle", &self.idle.len()).finish_non_exhaustive()
    }
}

/// More copies than this are rarely in flight at once; the events beyond are not reused.
const IDLE_MAX: usize = 64;
