//! Driver events: recorded behind a copy, asked by anybody, and reused per context, because creating
//! and destroying one costs as much as recording it.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock, Weak};

use crossbeam::queue::ArrayQueue;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, result, sys};

use super::context::{Bound, Unrestricted, failed, note_failure};
use super::exit;
use super::probe::function;
use crate::error::Error;
use crate::fence::{Fence, FenceError, FenceStatus};
use crate::sync::Mutex;

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
    fn new(context: &Arc<CudaContext>, _current: &Bound) -> Result<Self, DriverError> {
        let raw = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        Ok(Self { raw, context: Arc::clone(context) })
    }

    /// Records all work queued on `stream`, a stream of the event's context, so far.
    pub(super) fn record(&self, stream: sys::CUstream) -> Result<(), DriverError> {
        // SAFETY: event and stream are alive and of one context.
        unsafe { result::event::record(self.raw, stream) }
    }

    /// Waits for what was recorded.
    pub(crate) fn wait(&self) -> Result<(), Error> {
        asking(&self.context, || {
            // SAFETY: the event is alive. The raw call waits even if cudarc has an error parked.
            unsafe { result::event::synchronize(self.raw) }
        })
        .map_err(|error| failed("cuEventSynchronize", error))
    }

    /// Whether what was recorded is complete.
    pub(crate) fn poll(&self) -> Result<FenceStatus, Error> {
        query(&self.context, self.raw)
    }

    /// Makes `stream` wait for what was recorded; the host goes on.
    pub(super) fn hold_up(&self, stream: sys::CUstream) -> Result<(), DriverError> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: event and stream are alive.
        unsafe { result::stream::wait_event(stream, self.raw, flags) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let Some(_inside) = exit::enter() else { return exit::leave(&self.context) };
        // SAFETY: the event is ours and not used again.
        let destroyed = asking(&self.context, || unsafe { result::event::destroy(self.raw) });
        note_failure("cuEventDestroy", destroyed);
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").finish_non_exhaustive()
    }
}

/// A fresh event for cudarc to record behind a copy that it queues itself.
///
/// cudarc may skip the recording: when event tracking is switched off, or when it finds an error
/// that another thread parked in the context. An event that was never recorded looks complete, so
/// this one measures time: only a recorded event has a time. Whoever waits for one without waits for
/// the whole context; a retired slot with one is quarantined.
pub(crate) struct InteropEvent {
    /// Dropped with the caller's context restored.
    event: ManuallyDrop<CudaEvent>,
    context: Arc<CudaContext>,
    /// Whether the thread that asked cudarc to record it still lives.
    thread: Weak<()>,
}

std::thread_local! {
    /// Goes when the thread does.
    static LIVES: Arc<()> = Arc::new(());
}

impl InteropEvent {
    /// An event in the stream's context.
    pub(super) fn new(stream: &CudaStream) -> Result<Self, DriverError> {
        let context = stream.context();
        let _bound = Bound::to(context)?;
        let event = context.new_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT))?;
        Ok(Self {
            event: ManuallyDrop::new(event),
            context: Arc::clone(context),
            // A thread that is ending hands nothing to cudarc any more.
            thread: LIVES.try_with(Arc::downgrade).unwrap_or_default(),
        })
    }

    /// True if cudarc is done with it: the calling thread handed it over, and is back; or the thread
    /// that did is gone.
    pub(crate) fn is_unborrowed(&self) -> bool {
        let own = |lives: &Arc<()>| std::ptr::eq(self.thread.as_ptr(), Arc::as_ptr(lives));
        self.thread.strong_count() == 0 || LIVES.try_with(own).unwrap_or(false)
    }

    /// What cudarc records.
    pub(super) fn event(&self) -> &CudaEvent {
        &self.event
    }

    /// Whether what was recorded is complete.
    pub(crate) fn poll(&self) -> Result<FenceStatus, Error> {
        let status = query(&self.context, self.event.cu_event())?;
        if status == FenceStatus::Complete && !self.was_recorded()? {
            return Err(Error::Fence(FenceError::new(
                "cudarc did not record an event behind the copy",
            )));
        }
        Ok(status)
    }

    /// Waits for what was recorded; where nothing was, for all work of the context.
    pub(crate) fn wait(&self) -> Result<(), Error> {
        if !self.was_recorded()? {
            return asking(&self.context, result::ctx::synchronize)
                .map_err(|error| failed("cuCtxSynchronize", error));
        }
        asking(&self.context, || {
            // SAFETY: the event is alive.
            unsafe { result::event::synchronize(self.event.cu_event()) }
        })
        .map_err(|error| failed("cuEventSynchronize", error))
    }

    fn was_recorded(&self) -> Result<bool, Error> {
        let raw = self.event.cu_event();
        match asking(&self.context, || elapsed(raw)) {
            Ok(()) | Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(true),
            Err(DriverError(sys::CUresult::CUDA_ERROR_INVALID_HANDLE)) => Ok(false),
            Err(error) => Err(failed("cuEventElapsedTime", error)),
        }
    }
}

impl Drop for InteropEvent {
    fn drop(&mut self) {
        // Left behind, cudarc's event keeps the context.
        let Some(_inside) = exit::enter() else { return };
        let _bound = Bound::to(&self.context);
        let _unrestricted = Unrestricted::enter();
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.event) };
    }
}

/// Asks for the time from an event to itself. By its old name: newer bindings ask old drivers for
/// one that they lack.
fn elapsed(event: sys::CUevent) -> Result<(), DriverError> {
    type Elapsed = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;
    static ELAPSED: OnceLock<Option<Elapsed>> = OnceLock::new();
    // SAFETY: this is the function's type in every version of the driver.
    let function = ELAPSED.get_or_init(|| unsafe { function("cuEventElapsedTime") });
    let Some(function) = function else {
        return Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_FOUND));
    };
    let mut millis = 0.0;
    // SAFETY: the event is alive; the driver writes one number.
    unsafe { function(&raw mut millis, event, event) }.result()
}

/// An event that the caller records, right behind the work that uses the slot. One that was never
/// recorded counts as complete.
impl Fence for CudaEvent {
    fn poll(&self) -> Result<FenceStatus, FenceError> {
        query(self.context(), self.cu_event()).map_err(|error| FenceError::new(error.to_string()))
    }
}

/// Calls the driver with `context` current, and so that no capture anywhere minds.
fn asking<R>(
    context: &CudaContext,
    call: impl FnOnce() -> Result<R, DriverError>,
) -> Result<R, DriverError> {
    if exit::is_exiting() {
        return Err(DriverError(sys::CUresult::CUDA_ERROR_DEINITIALIZED));
    }
    let _bound = Bound::to(context)?;
    let _unrestricted = Unrestricted::enter();
    call()
}

fn query(context: &CudaContext, event: sys::CUevent) -> Result<FenceStatus, Error> {
    // Nobody will know any more, and nobody will use the slot.
    let Some(_inside) = exit::enter() else { return Ok(FenceStatus::Pending) };
    // SAFETY: the caller holds the event.
    match asking(context, || unsafe { result::event::query(event) }) {
        Ok(()) => Ok(FenceStatus::Complete),
        // In a host function of a stream the driver answers nothing, nor when it is going: that tells
        // nothing of the work.
        Err(DriverError(
            sys::CUresult::CUDA_ERROR_NOT_READY
            | sys::CUresult::CUDA_ERROR_NOT_PERMITTED
            | sys::CUresult::CUDA_ERROR_DEINITIALIZED,
        )) => Ok(FenceStatus::Pending),
        Err(error) => Err(failed("cuEventQuery", error)),
    }
}

/// Idle events, by context.
#[derive(Debug)]
pub(crate) struct EventPool {
    /// The memory's own context, where nearly all copies run.
    own: Idle,
    /// Contexts of other devices whose streams used the memory.
    others: Mutex<Vec<Arc<Idle>>>,
}

/// Idle events of one context.
struct Idle {
    context: Arc<CudaContext>,
    events: ArrayQueue<Arc<Event>>,
}

impl EventPool {
    pub(super) fn new(context: &Arc<CudaContext>) -> Self {
        Self { own: Idle::new(context), others: Mutex::new(Vec::new()) }
    }

    /// An event for a stream of `context`.
    pub(super) fn take(
        &self,
        context: &Arc<CudaContext>,
        current: &Bound,
    ) -> Result<Arc<Event>, DriverError> {
        let reused = if **context == *self.own.context {
            self.own.events.pop()
        } else {
            self.other(context).events.pop()
        };
        reused.map_or_else(|| Event::new(context, current).map(Arc::new), Ok)
    }

    /// Keeps an event whose recorded work is complete, unless somebody still asks it or enough are
    /// idle: then it is destroyed.
    pub(crate) fn give_back(&self, event: Arc<Event>) {
        if Arc::strong_count(&event) > 1 {
            return;
        }
        let pushed = if *event.context == *self.own.context {
            self.own.events.push(event)
        } else {
            let idle = self.other(&event.context);
            idle.events.push(event)
        };
        drop(pushed);
    }

    fn other(&self, context: &Arc<CudaContext>) -> Arc<Idle> {
        let mut others = self.others.lock();
        if let Some(known) = others.iter().find(|idle| *idle.context == **context) {
            return Arc::clone(known);
        }
        let idle = Arc::new(Idle::new(context));
        others.push(Arc::clone(&idle));
        idle
    }
}

impl Idle {
    fn new(context: &Arc<CudaContext>) -> Self {
        Self { context: Arc::clone(context), events: ArrayQueue::new(IDLE_MAX) }
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        if exit::is_exiting() {
            exit::leave(&self.context);
        }
    }
}

impl fmt::Debug for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idle").field("events", &self.events.len()).finish_non_exhaustive()
    }
}

/// More copies than this are rarely in flight at once; the events beyond are not reused.
const IDLE_MAX: usize = 1024;
