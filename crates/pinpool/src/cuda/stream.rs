//! What a copy must know of its stream: whether it is being captured, and which of all streams it is.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use cudarc::driver::{CudaContext, DriverError, result, sys};

use super::context::{Bound, failed};
use super::event::Event;
use super::pages::CudaPages;
use super::probe::function;
use crate::attached::{AnyFence, Attached, Order, Part};
use crate::class::ClassRef;
use crate::error::{Error, LeaseError};
use crate::free_list::home_number;

/// A stream with its context current, and an event to record in it.
///
/// The event exists before the work is queued, so that nothing but recording can fail after it (I11).
pub(super) struct Ready {
    stream: sys::CUstream,
    event: Arc<Event>,
    /// Read before the work is queued.
    before: u64,
    id: u64,
    _current: Bound,
}

impl Ready {
    /// Gets ready to use a slot of `class` on a stream that is not being captured.
    pub(super) fn new(
        class: ClassRef,
        context: &Arc<CudaContext>,
        stream: sys::CUstream,
    ) -> Result<Self, Error> {
        if !class.get().shared().is_here() {
            // A forked child has no part in the parent's context (I12).
            return Err(Error::Lease(LeaseError::Forked));
        }
        let current = Bound::to(context).map_err(|error| failed("cuCtxSetCurrent", error))?;
        if is_capturing(stream)? {
            return Err(Error::StreamCapturing);
        }
        let class = class.get();
        let Some(pages) = CudaPages::of(&*class.shared().memory) else {
            return Err(Error::NotDeviceAccessible { backend: class.backend() });
        };
        let event = pages.events().take(context, &current);
        let event = event.map_err(|error| failed("cuEventCreate", error))?;
        let before = class.recordings().before_recording();
        Ok(Self { stream, event, before, id: stream_id(stream), _current: current })
    }

    pub(super) fn stream(&self) -> sys::CUstream {
        self.stream
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// An event behind all that was queued.
    pub(super) fn mark(self) -> Result<Arc<Event>, Error> {
        self.event.record(self.stream).map_err(|error| failed("cuEventRecord", error))?;
        Ok(self.event)
    }

    /// Has the stream wait for a fence. False if it cannot: only events of ours are known to be
    /// recorded.
    pub(super) fn order_behind(&self, fence: &AnyFence) -> bool {
        match fence {
            AnyFence::Event(event) => event.hold_up(self.stream).is_ok(),
            AnyFence::Interop(_) | AnyFence::User(_) => false,
        }
    }

    /// Records the event behind what was queued, as a fence for a slot of `class`.
    pub(super) fn record(
        self,
        class: ClassRef,
        bytes: Part,
        writes: bool,
    ) -> Result<Attached, Unrecorded> {
        if let Err(error) = self.event.record(self.stream) {
            return Err(Unrecorded { error, ready: self });
        }
        let after = class.get().recordings().after_recording();
        Ok(Attached {
            fence: AnyFence::Event(self.event),
            order: Order { stream: self.id, before: self.before, after },
            since: Instant::now(),
            writes,
            bytes,
            shard: home_number(),
        })
    }
}

/// An event that could not be recorded behind work that may run.
pub(super) struct Unrecorded {
    pub(super) error: DriverError,
    ready: Ready,
}

impl Unrecorded {
    /// Waits until the stream is idle, which is the only proof left that the work is over.
    pub(super) fn wait_for_stream(&self) -> Result<(), DriverError> {
        // SAFETY: the caller of `Ready::new` holds the stream.
        unsafe { result::stream::synchronize(self.ready.stream) }
    }
}

/// Whether work queued now is captured into a graph instead of run.
pub(super) fn is_capturing(stream: sys::CUstream) -> Result<bool, Error> {
    // SAFETY: the caller holds the stream.
    let status = unsafe { result::stream::is_capturing(stream) }
        .map_err(|error| failed("cuStreamIsCapturing", error))?;
    Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
}

/// A number that the driver never gives to another stream: handles come back, and one handle stands
/// for a stream per thread. [`Order::NO_STREAM`] where the driver has none, which only means that
/// its fences are asked one by one.
pub(super) fn stream_id(stream: sys::CUstream) -> u64 {
    type GetId = unsafe extern "C" fn(sys::CUstream, *mut u64) -> sys::CUresult;
    static GET_ID: OnceLock<Option<GetId>> = OnceLock::new();
    // SAFETY: this is the function's type, in drivers from CUDA 12.0 on.
    let function = GET_ID.get_or_init(|| unsafe { function("cuStreamGetId") });
    let Some(function) = function else { return Order::NO_STREAM };
    let mut id = 0;
    // SAFETY: the caller holds the stream; the driver writes one number.
    match unsafe { function(stream, &raw mut id) }.result() {
        Ok(()) => id.checked_add(1).unwrap_or(Order::NO_STREAM),
        Err(_) => Order::NO_STREAM,
    }
}
