//! Copies between a lease and device memory: the lease moves into the copy and comes back after it.

use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{CudaContext, CudaStream, DevicePtr, DevicePtrMut, DriverError, result, sys};

use super::context::{Bound, failed};
use crate::error::Error;
use crate::lease::Lease;

/// A copy that runs on a stream, and the lease that it reads or writes.
///
/// Nothing can reach the lease's bytes before [`Self::wait`]. Dropping this waits for the copy and
/// gives the slot back; forgetting it costs the slot.
#[must_use = "dropping a copy waits for it"]
pub struct InFlight<T: Pod = u8> {
    /// `None` once the lease was taken out.
    lease: Option<Lease<T>>,
    event: Event,
    /// Keeps the stream while its work runs.
    stream: Arc<CudaStream>,
}

/// A copy that could not be started, with the lease where it is safe to have back.
pub struct TransferError<T: Pod = u8> {
    /// The lease. `None` when the driver cannot say whether the copy runs: its slot is quarantined.
    pub lease: Option<Lease<T>>,
    /// What failed.
    pub error: Error,
}

impl<T: Pod> Lease<T> {
    /// Copies all elements to the start of `target` on `stream`, and returns while the copy runs.
    /// Work queued on the stream later sees the data.
    ///
    /// # Errors
    ///
    /// The lease is no memory that a GPU reaches, `target` is too short, the stream is being
    /// captured into a graph, or a driver call failed.
    pub fn upload<D: DevicePtrMut<T>>(
        self,
        stream: &Arc<CudaStream>,
        target: &mut D,
    ) -> Result<InFlight<T>, TransferError<T>> {
        let len = (self.len(), target.len());
        start(self, stream, len, "cuMemcpyHtoDAsync", |lease, raw_stream| {
            let (address, _recorded) = target.device_ptr_mut(stream);
            // SAFETY: the lease is pinned and moves into the copy, so nobody writes it meanwhile
            // (I3); the target is long enough and stays until its stream passed the copy.
            unsafe { result::memcpy_htod_async(address, lease.as_slice(), raw_stream) }
        })
    }

    /// Copies all elements of `source` to the start of this lease on `stream`, and returns while
    /// the copy runs. Its length becomes that of `source`.
    ///
    /// # Errors
    ///
    /// As [`Self::upload`], the lease's capacity being what must suffice.
    pub fn download<S: DevicePtr<T>>(
        mut self,
        source: &S,
        stream: &Arc<CudaStream>,
    ) -> Result<InFlight<T>, TransferError<T>> {
        let len = source.len();
        if self.set_len(len).is_err() {
            let error = Error::CopyLength { source_len: len, target_len: self.capacity() };
            return Err(TransferError { lease: Some(self), error });
        }
        start(self, stream, (len, len), "cuMemcpyDtoHAsync", |lease, raw_stream| {
            let (address, _recorded) = source.device_ptr(stream);
            // SAFETY: the lease is pinned and moves into the copy, so nobody reads or writes it
            // meanwhile (I3); the source stays until its stream passed the copy.
            unsafe { result::memcpy_dtoh_async(lease.as_mut_slice(), address, raw_stream) }
        })
    }
}

/// Queues `copy` and records its event. `len` is that of the source and of the target.
fn start<T: Pod>(
    mut lease: Lease<T>,
    stream: &Arc<CudaStream>,
    len: (usize, usize),
    call: &'static str,
    copy: impl FnOnce(&mut Lease<T>, sys::CUstream) -> Result<(), DriverError>,
) -> Result<InFlight<T>, TransferError<T>> {
    let event = match prepare(&lease, stream, len) {
        Ok(event) => event,
        Err(error) => return Err(TransferError { lease: Some(lease), error }),
    };
    let raw_stream = stream.cu_stream();
    let class = lease.class_ref();
    class.get().copy_started();
    // The event exists before the copy, so that nothing but recording can fail after it (I11).
    let queued = Bound::to(stream.context())
        .map_err(|error| failed("cuCtxSetCurrent", error))
        .and_then(|_bound| {
            copy(&mut lease, raw_stream).map_err(|error| failed(call, error))?;
            event.record(raw_stream).map_err(|error| failed("cuEventRecord", error))
        });
    let mut flight = InFlight { lease: Some(lease), event, stream: Arc::clone(stream) };
    match queued {
        Ok(()) => Ok(flight),
        // The copy may run, and no event tells: only an idle stream proves that it does not.
        Err(error) => {
            let lease = flight.settle(InFlight::synchronise_stream).ok();
            Err(TransferError { lease, error })
        }
    }
}

/// Everything that can be refused before the copy.
fn prepare<T: Pod>(
    lease: &Lease<T>,
    stream: &Arc<CudaStream>,
    (source_len, target_len): (usize, usize),
) -> Result<Event, Error> {
    if !lease.is_device_accessible() {
        return Err(Error::NotDeviceAccessible { backend: lease.backend() });
    }
    if source_len > target_len {
        return Err(Error::CopyLength { source_len, target_len });
    }
    let bound = Bound::to(stream.context()).map_err(|error| failed("cuCtxSetCurrent", error))?;
    // SAFETY: the stream is alive.
    let capture = unsafe { result::stream::is_capturing(stream.cu_stream()) }
        .map_err(|error| failed("cuStreamIsCapturing", error))?;
    if capture != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
        return Err(Error::StreamCapturing);
    }
    let event =
        Event::new(stream.context(), &bound).map_err(|error| failed("cuEventCreate", error))?;
    Ok(event)
}

impl<T: Pod> InFlight<T> {
    /// Waits until the copy is complete and gives the lease back.
    ///
    /// # Errors
    ///
    /// The driver reports a failure. Nobody knows then whether the device still touches the memory,
    /// so its slot is quarantined: never used again, and counted.
    pub fn wait(mut self) -> Result<Lease<T>, Error> {
        self.settle(|flight| flight.event.wait())
    }

    /// Whether the copy is complete.
    ///
    /// # Errors
    ///
    /// The driver reports a failure.
    pub fn is_complete(&self) -> Result<bool, Error> {
        self.event.is_complete().map_err(|error| failed("cuEventQuery", error))
    }

    /// Takes the lease out after `finish` proved the copy complete, or quarantines its slot.
    fn settle(
        &mut self,
        finish: impl FnOnce(&Self) -> Result<(), DriverError>,
    ) -> Result<Lease<T>, Error> {
        let finished = finish(self);
        let Some(lease) = self.lease.take() else {
            return Err(failed(
                "cuEventSynchronize",
                DriverError(sys::CUresult::CUDA_ERROR_INVALID_HANDLE),
            ));
        };
        let class = lease.class_ref();
        match finished {
            Ok(()) => {
                class.get().copy_finished();
                Ok(lease)
            }
            Err(error) => {
                class.get().quarantine();
                let error = failed("cuEventSynchronize", error);
                tracing::error!(%error, slot = lease.slot(), "slot quarantined");
                // Its slot never comes home, and its slab stays mapped (I6, I11).
                std::mem::forget(lease);
                Err(error)
            }
        }
    }

    fn synchronise_stream(&self) -> Result<(), DriverError> {
        let _bound = Bound::to(self.stream.context())?;
        // SAFETY: the stream is alive.
        unsafe { result::stream::synchronize(self.stream.cu_stream()) }
    }
}

impl<T: Pod> Drop for InFlight<T> {
    fn drop(&mut self) {
        if self.lease.is_some() {
            let wait = |flight: &Self| {
                if crate::seeded::bug("no-wait") { Ok(()) } else { flight.event.wait() }
            };
            // A failure was logged and counted; the slot is quarantined.
            drop(self.settle(wait));
        }
    }
}

/// One driver event.
struct Event {
    raw: sys::CUevent,
    context: Arc<CudaContext>,
}

// SAFETY: a driver event may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    fn new(context: &Arc<CudaContext>, _current: &Bound) -> Result<Self, DriverError> {
        let raw = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        Ok(Self { raw, context: Arc::clone(context) })
    }

    fn record(&self, stream: sys::CUstream) -> Result<(), DriverError> {
        // SAFETY: event and stream are alive and of one context.
        unsafe { result::event::record(self.raw, stream) }
    }

    fn wait(&self) -> Result<(), DriverError> {
        let _bound = Bound::to(&self.context)?;
        // SAFETY: the event is alive. The raw call waits even if cudarc has an error parked.
        unsafe { result::event::synchronize(self.raw) }
    }

    fn is_complete(&self) -> Result<bool, DriverError> {
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

impl<T: Pod> fmt::Debug for InFlight<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl<T: Pod> fmt::Debug for TransferError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransferError")
            .field("lease", &self.lease)
            .field("error", &self.error)
            .finish()
    }
}

impl<T: Pod> fmt::Display for TransferError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T: Pod> std::error::Error for TransferError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}
