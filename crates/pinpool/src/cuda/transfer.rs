//! Copies between a lease and device memory: the lease moves into the copy and comes back after it.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{
    CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut, DriverError, result, sys,
};

use super::context::{Bound, failed};
use super::event::Event;
use super::pages::CudaPages;
use crate::error::Error;
use crate::lease::Lease;

/// Device memory that a copy may trust.
///
/// cudarc's `DevicePtr` and `DevicePtrMut` are safe traits: any type may implement them and answer
/// with any address. A copy in safe code must not follow such an answer, so it asks for this as well.
///
/// # Safety
///
/// The address and the length that `DevicePtr` and `DevicePtrMut` give describe device memory that
/// is valid for that many elements, and stays so until the stream has passed what is queued before
/// the returned guard is dropped.
pub unsafe trait DeviceMemory {}

// SAFETY: a slice owns its memory, and gives it back behind the work that uses it.
unsafe impl<T> DeviceMemory for CudaSlice<T> {}
// SAFETY: a view borrows a part of a slice, checked when it was made.
unsafe impl<T> DeviceMemory for CudaView<'_, T> {}
// SAFETY: as above.
unsafe impl<T> DeviceMemory for CudaViewMut<'_, T> {}

/// A copy that runs on a stream, and the lease that it reads or writes.
///
/// Nothing can reach the lease's bytes before [`Self::wait`]. Dropping this waits for the copy and
/// gives the slot back; forgetting it costs the slot.
#[must_use = "dropping a copy waits for it"]
pub struct InFlight<T: Pod = u8> {
    /// Taken out once: by `wait` or by drop.
    copy: ManuallyDrop<Copying<T>>,
}

/// What a copy holds on to while it runs.
struct Copying<T: Pod> {
    lease: Lease<T>,
    /// Recorded right behind the copy.
    event: Event,
    /// Keeps the stream while its work runs.
    stream: Arc<CudaStream>,
}

/// A copy that could not be started, with the lease where it is safe to have back. The slot stays out
/// as long as this value lives: drop it, or take the lease from it.
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
    pub fn upload<D: DevicePtrMut<T> + DeviceMemory>(
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
    pub fn download<S: DevicePtr<T> + DeviceMemory>(
        mut self,
        source: &S,
        stream: &Arc<CudaStream>,
    ) -> Result<InFlight<T>, TransferError<T>> {
        let len = source.len();
        let len_before = self.len();
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
        .map_err(|mut refused| {
            if let Some(lease) = &mut refused.lease {
                // It fitted before.
                let _ = lease.set_len(len_before);
            }
            refused
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
    let (event, _bound) = match prepare(&lease, stream, len) {
        Ok(ready) => ready,
        Err(error) => return Err(TransferError { lease: Some(lease), error }),
    };
    let raw_stream = stream.cu_stream();
    lease.class_ref().get().copy_started();
    // The event exists before the copy, so that nothing but recording can fail after it (I11).
    let queued = copy(&mut lease, raw_stream)
        .map_err(|error| failed(call, error))
        .and_then(|()| event.record(raw_stream).map_err(|error| failed("cuEventRecord", error)));
    let copying = Copying { lease, event, stream: Arc::clone(stream) };
    match queued {
        Ok(()) => Ok(InFlight { copy: ManuallyDrop::new(copying) }),
        // The copy may run, and no event tells: only an idle stream proves that it does not.
        Err(error) => {
            let idle = copying.wait_for_stream();
            Err(TransferError { lease: copying.settle("cuStreamSynchronize", idle).ok(), error })
        }
    }
}

/// Everything that can be refused before the copy: gives the event to record, and the stream's
/// context made current.
fn prepare<T: Pod>(
    lease: &Lease<T>,
    stream: &Arc<CudaStream>,
    (source_len, target_len): (usize, usize),
) -> Result<(Event, Bound), Error> {
    let class = lease.class_ref();
    let memory = &class.get().shared().memory;
    let Some(pages) = CudaPages::of(&**memory).filter(|_| lease.is_device_accessible()) else {
        return Err(Error::NotDeviceAccessible { backend: lease.backend() });
    };
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
    let event = pages.events().take(stream.context(), &bound);
    Ok((event.map_err(|error| failed("cuEventCreate", error))?, bound))
}

impl<T: Pod> InFlight<T> {
    /// Waits until the copy is complete and gives the lease back.
    ///
    /// # Errors
    ///
    /// The driver reports a failure. Nobody knows then whether the device still touches the memory,
    /// so its slot is quarantined: never used again, and counted.
    pub fn wait(self) -> Result<Lease<T>, Error> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so the copy is taken out once.
        let copying = unsafe { ManuallyDrop::take(&mut this.copy) };
        let complete = copying.event.wait();
        copying.settle("cuEventSynchronize", complete)
    }

    /// Whether the copy is complete.
    ///
    /// # Errors
    ///
    /// The driver reports a failure.
    pub fn is_complete(&self) -> Result<bool, Error> {
        self.copy.event.is_complete().map_err(|error| failed("cuEventQuery", error))
    }
}

impl<T: Pod> Drop for InFlight<T> {
    fn drop(&mut self) {
        // SAFETY: `wait` did not run, so the copy is taken out once.
        let copying = unsafe { ManuallyDrop::take(&mut self.copy) };
        let complete = if crate::seeded::bug("no-wait") { Ok(()) } else { copying.event.wait() };
        // A failure is logged and counted; the slot is quarantined.
        drop(copying.settle("cuEventSynchronize", complete));
    }
}

impl<T: Pod> Copying<T> {
    /// Gives the lease back where `complete` proves that the copy is, or quarantines its slot.
    fn settle(
        self,
        call: &'static str,
        complete: Result<(), DriverError>,
    ) -> Result<Lease<T>, Error> {
        let Self { lease, event, stream: _ } = self;
        let class = lease.class_ref();
        match complete {
            Ok(()) => {
                if let Some(pages) = CudaPages::of(&*class.get().shared().memory) {
                    pages.events().give_back(event);
                }
                class.get().copy_finished();
                Ok(lease)
            }
            Err(error) => {
                class.get().quarantine();
                let error = failed(call, error);
                tracing::error!(%error, slot = lease.slot(), "slot quarantined");
                // Its slot never comes home, and its slab stays mapped (I6, I11).
                std::mem::forget(lease);
                Err(error)
            }
        }
    }

    fn wait_for_stream(&self) -> Result<(), DriverError> {
        let _bound = Bound::to(self.stream.context())?;
        // SAFETY: the stream is alive.
        unsafe { result::stream::synchronize(self.stream.cu_stream()) }
    }
}

impl<T: Pod> fmt::Debug for InFlight<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("lease", &self.copy.lease).finish_non_exhaustive()
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
    // Displayed as the error itself, so its source is this one's too.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}
