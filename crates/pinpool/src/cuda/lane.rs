//! A stream of the stager's own, and copies of pieces between leases and device memory on it.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};

use super::context::{Bound, Unrestricted, failed, note_failure};
use super::event::Event;
use super::exit;
use super::stream::Ready;
use super::transfer::{TransferError, in_flight, queue};
use crate::class::ClassRef;
use crate::error::Error;
use crate::fence::FenceStatus;
use crate::in_flight::InFlight;
use crate::lease::Lease;

/// A stream for one thread's copies, in one context. cudarc does not know of it: a stream made by
/// cudarc would change how it orders the caller's own work.
#[derive(Debug)]
pub(crate) struct Lane {
    context: Arc<CudaContext>,
    stream: sys::CUstream,
}

// SAFETY: a driver stream may be used from any thread.
unsafe impl Send for Lane {}

/// Which lane it is, for whoever comes behind what is queued on it. It lives as long as its crew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LaneId(sys::CUstream);

// SAFETY: a driver stream may be used from any thread.
unsafe impl Send for LaneId {}
// SAFETY: as above.
unsafe impl Sync for LaneId {}

impl Lane {
    /// Makes a stream that waits for no other by itself.
    pub(crate) fn open(context: &Arc<CudaContext>) -> Result<Self, Error> {
        let _inside = exit::enter().ok_or_else(|| gone("cuStreamCreate"))?;
        let _current = Bound::to(context).map_err(|error| failed("cuCtxSetCurrent", error))?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)
            .map_err(|error| failed("cuStreamCreate", error))?;
        Ok(Self { context: Arc::clone(context), stream })
    }

    pub(crate) fn id(&self) -> LaneId {
        LaneId(self.stream)
    }

    pub(crate) fn is_of(&self, context: &CudaContext) -> bool {
        *self.context == *context
    }

    /// Copies the bytes in use to device memory at `target`.
    ///
    /// # Safety
    ///
    /// There is room for them, in memory of the lane's context that stays until the copy is over (I18).
    pub(crate) unsafe fn upload(
        &self,
        lease: Lease,
        target: u64,
    ) -> Result<InFlight, TransferError> {
        let call = "cuMemcpyHtoDAsync";
        let Some(_inside) = exit::enter() else {
            return Err(TransferError { lease: Some(lease), error: gone(call) });
        };
        let place = (&self.context, self.stream);
        let queued = queue(&lease, place, false, call, |stream| {
            // SAFETY: the slot is pinned and moves into the copy (I3); the caller's word for the target.
            unsafe { result::memcpy_htod_async(target, lease.raw_slice(), stream) }
        });
        in_flight(queued, lease)
    }

    /// Copies device memory at `source` to the bytes in use.
    ///
    /// # Safety
    ///
    /// As [`Self::upload`], of the source.
    pub(crate) unsafe fn download(
        &self,
        lease: Lease,
        source: u64,
    ) -> Result<InFlight, TransferError> {
        let call = "cuMemcpyDtoHAsync";
        let Some(_inside) = exit::enter() else {
            return Err(TransferError { lease: Some(lease), error: gone(call) });
        };
        let place = (&self.context, self.stream);
        let queued = queue(&lease, place, true, call, |stream| {
            // SAFETY: the slot is ours, as long as its length, and moves into the copy (I2, I3).
            let bytes =
                unsafe { std::slice::from_raw_parts_mut(lease.as_ptr().cast_mut(), lease.len()) };
            // SAFETY: as above; the caller's word for the source.
            unsafe { result::memcpy_dtoh_async(bytes, source, stream) }
        });
        in_flight(queued, lease)
    }
}

/// Waits for a copy of a lane's: unless the process exits, when nobody asks the driver any more.
pub(crate) fn landed(copy: InFlight) -> Result<Lease, Error> {
    let Some(_inside) = exit::enter() else {
        // Nobody knows how it ends, and nobody needs its slot.
        std::mem::forget(copy);
        return Err(gone("cuEventSynchronize"));
    };
    copy.wait()
}

/// An error once the process exits.
pub(crate) fn still_runs() -> Result<(), Error> {
    if exit::is_exiting() { Err(gone("cuMemcpyAsync")) } else { Ok(()) }
}

/// Drops what may call the driver then; it stays where it is once the process exits, and in a forked child.
pub(crate) fn drop_in_time<T>(value: T) {
    match exit::enter() {
        Some(_inside) => drop(value),
        None => std::mem::forget(value),
    }
}

/// The answer of a driver that is going with the process.
fn gone(call: &'static str) -> Error {
    failed(call, DriverError(sys::CUresult::CUDA_ERROR_DEINITIALIZED))
}

impl Drop for Lane {
    fn drop(&mut self) {
        let Some(_inside) = exit::enter() else { return exit::leave(&self.context) };
        let _bound = Bound::to(&self.context);
        let _unrestricted = Unrestricted::enter();
        // SAFETY: made by `open`, and not used again. What is queued still runs.
        let destroyed = unsafe { result::stream::destroy(self.stream) };
        note_failure("cuStreamDestroy", destroyed);
    }
}

/// A place in a stream: everything queued on it before.
#[derive(Debug)]
pub(crate) struct Mark(Arc<Event>);

impl Mark {
    /// Behind all that is queued on a caller's stream now. `class` tells whose events are used.
    ///
    /// # Errors
    ///
    /// As [`Ready::new`]: among others, the stream is being captured.
    pub(crate) fn behind(class: ClassRef, stream: &CudaStream) -> Result<Self, Error> {
        Ready::new(class, stream.context(), stream.cu_stream())?.mark().map(Self)
    }

    /// All of it is over, or nobody will know: whatever comes next fails, too, then.
    pub(crate) fn is_reached(&self) -> bool {
        !matches!(self.0.poll(), Ok(FenceStatus::Pending))
    }
}

/// Has a caller's stream wait for all that is queued on these lanes of its context.
pub(crate) fn order_behind(
    lanes: &[LaneId],
    class: ClassRef,
    stream: &CudaStream,
) -> Result<(), Error> {
    for lane in lanes {
        let mark = Ready::new(class, stream.context(), lane.0)?.mark()?;
        mark.hold_up(stream.cu_stream()).map_err(|error| failed("cuStreamWaitEvent", error))?;
    }
    Ok(())
}

/// For a thread of our own, for good: it may ask events although some stream is being captured.
pub(crate) fn ask_at_any_time() {
    if let Some(_inside) = exit::enter() {
        std::mem::forget(Unrestricted::enter());
    }
}
