//! Copies between a lease and device memory: the lease moves into the copy and comes back after it.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut,
    DriverError, result, sys,
};

use super::context::failed;
use super::stream::Ready;
use crate::attached::{Attached, Part};
use crate::error::Error;
use crate::fence::Lost;
use crate::in_flight::InFlight;
use crate::lease::Lease;
use crate::shared_lease::SharedLease;
use crate::view::within;

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

// SAFETY: a slice owns its memory, and gives it back behind the work of its context that uses it;
// copies on streams of another context are refused.
unsafe impl<T> DeviceMemory for CudaSlice<T> {}
// SAFETY: a view borrows a part of a slice, checked when it was made.
unsafe impl<T> DeviceMemory for CudaView<'_, T> {}
// SAFETY: as above.
unsafe impl<T> DeviceMemory for CudaViewMut<'_, T> {}

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
    /// If other work that the pool knows of may write the lease, the stream comes behind it; only for a
    /// user's fence, or a copy by cudarc's own calls on another stream, this thread waits.
    ///
    /// ```no_run
    /// # fn up(pool: pinpool::Pool, stream: std::sync::Arc<pinpool::cudarc::driver::CudaStream>)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// let mut on_device = stream.alloc_zeros::<f32>(1024)?;
    /// let mut lease = pool.lease_of::<f32>(1024)?;
    /// lease.as_mut_slice().fill(0.5);
    /// drop(lease.upload(&stream, &mut on_device)?); // the slot comes home when the GPU has read it
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The lease is no memory that a GPU reaches, `target` is too short or of another context than the
    /// stream, the stream is being captured into a graph, or a driver call failed.
    pub fn upload<D: DevicePtrMut<T> + DeviceMemory>(
        self,
        stream: &Arc<CudaStream>,
        target: &mut D,
    ) -> Result<InFlight<T>, TransferError<T>> {
        self.upload_part(.., stream, target)
    }

    /// Copies a range of the elements to the start of `target`, as [`Self::upload`] copies all.
    ///
    /// # Errors
    ///
    /// As [`Self::upload`], and the range does not lie within the elements in use.
    pub fn upload_part<D: DevicePtrMut<T> + DeviceMemory>(
        self,
        range: impl RangeBounds<usize>,
        stream: &Arc<CudaStream>,
        target: &mut D,
    ) -> Result<InFlight<T>, TransferError<T>> {
        in_flight(upload(&self, &range, stream, target), self)
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
        self.download_part(.., source, stream).map_err(|mut refused| {
            if let Some(lease) = &mut refused.lease {
                // It fitted before.
                let _ = lease.set_len(len_before);
            }
            refused
        })
    }

    /// Copies all elements of `source` to the start of a range of this lease, which must be as long or
    /// longer. The other elements, and the length, stay as they are.
    ///
    /// # Errors
    ///
    /// As [`Self::download`], and the range does not lie within the elements in use.
    pub fn download_part<S: DevicePtr<T> + DeviceMemory>(
        self,
        range: impl RangeBounds<usize>,
        source: &S,
        stream: &Arc<CudaStream>,
    ) -> Result<InFlight<T>, TransferError<T>> {
        in_flight(download(&self, &range, source, stream), self)
    }

    /// Tells the pool that work queued on `stream` so far uses this lease: for calls of other
    /// libraries that were given its address. The slot does not come home before that work is over,
    /// and [`Self::as_slice`] and [`Self::as_mut_slice`] wait for it.
    ///
    /// Call it right behind the work, on each stream that has some.
    ///
    /// # Errors
    ///
    /// The lease is no memory that a GPU reaches, the stream is being captured into a graph, or a
    /// driver call failed. If recording failed, this has waited for the stream to be idle; if that
    /// failed too, the slot will be quarantined when the lease is dropped.
    pub fn record_use(&self, stream: &CudaStream) -> Result<(), Error> {
        record_use(self, stream, true)
    }
}

impl<T: Pod> SharedLease<T> {
    /// Copies all elements to the start of `target` on `stream`, and returns while the copy runs.
    /// Copies on several streams may run at once.
    ///
    /// # Errors
    ///
    /// As [`Lease::upload`].
    pub fn upload<D: DevicePtrMut<T> + DeviceMemory>(
        &self,
        stream: &Arc<CudaStream>,
        target: &mut D,
    ) -> Result<(), Error> {
        self.upload_part(.., stream, target)
    }

    /// Copies a range of the elements, as [`Self::upload`] copies all.
    ///
    /// # Errors
    ///
    /// As [`Lease::upload_part`].
    pub fn upload_part<D: DevicePtrMut<T> + DeviceMemory>(
        &self,
        range: impl RangeBounds<usize>,
        stream: &Arc<CudaStream>,
        target: &mut D,
    ) -> Result<(), Error> {
        upload(self.lease(), &range, stream, target).map_err(|failure| {
            failure.keep_out(self.lease());
            failure.error
        })
    }

    /// Tells the pool that work queued on `stream` so far reads this lease; as
    /// [`Lease::record_use`].
    ///
    /// # Errors
    ///
    /// As [`Lease::record_use`].
    pub fn record_use(&self, stream: &CudaStream) -> Result<(), Error> {
        record_use(self.lease(), stream, false)
    }
}

/// A copy that was not queued, or nobody knows.
pub(super) struct Failure {
    pub(super) error: Error,
    /// Nobody knows whether the device uses the bytes, or will ever know.
    unknown: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, unknown: false }
    }
}

impl Failure {
    /// Sees to it that the slot is quarantined when its holder lets go.
    pub(super) fn keep_out<T: Pod>(&self, lease: &Lease<T>) {
        if self.unknown {
            lease.attach(Attached::user(Lost("a copy from it could not be followed")));
        }
    }
}

pub(super) fn in_flight<T: Pod>(
    queued: Result<(), Failure>,
    lease: Lease<T>,
) -> Result<InFlight<T>, TransferError<T>> {
    match queued {
        Ok(()) => Ok(InFlight::new(lease)),
        Err(Failure { error, unknown: false }) => Err(TransferError { lease: Some(lease), error }),
        Err(Failure { error, unknown: true }) => {
            lease.class_ref().get().depart();
            lease.quarantine(&error);
            // Its slot never comes home, and its slab stays mapped (I6, I11).
            std::mem::forget(lease);
            Err(TransferError { lease: None, error })
        }
    }
}

fn upload<T: Pod, D: DevicePtrMut<T> + DeviceMemory>(
    lease: &Lease<T>,
    range: &impl RangeBounds<usize>,
    stream: &Arc<CudaStream>,
    target: &mut D,
) -> Result<(), Failure> {
    let range = within(range, lease.len()).map_err(Error::Lease)?;
    check_len(range.len(), target.len())?;
    check_context(target.stream(), stream)?;
    let place = (stream.context(), stream.cu_stream());
    queue(lease, place, false, "cuMemcpyHtoDAsync", |raw_stream| {
        let (address, _recorded) = target.device_ptr_mut(stream);
        let part = &lease.raw_slice()[range];
        // SAFETY: the slot is pinned; nobody writes it before the fence is complete, because the
        // lease moves into the copy or is shared (I3); the target is long enough and stays until its
        // stream passed the copy.
        unsafe { result::memcpy_htod_async(address, part, raw_stream) }
    })
}

fn download<T: Pod, S: DevicePtr<T> + DeviceMemory>(
    lease: &Lease<T>,
    range: &impl RangeBounds<usize>,
    source: &S,
    stream: &Arc<CudaStream>,
) -> Result<(), Failure> {
    let range = within(range, lease.len()).map_err(Error::Lease)?;
    check_len(source.len(), range.len())?;
    check_context(source.stream(), stream)?;
    let place = (stream.context(), stream.cu_stream());
    queue(lease, place, true, "cuMemcpyDtoHAsync", |raw_stream| {
        let (address, _recorded) = source.device_ptr(stream);
        let start = lease.as_ptr().cast_mut();
        // SAFETY: the range lies within the slot.
        let start = unsafe { start.add(range.start) };
        // SAFETY: the slot is pinned, and the lease moves into the copy, so nobody else reads or
        // writes it before the fence is complete (I3).
        let part = unsafe { std::slice::from_raw_parts_mut(start, source.len()) };
        // SAFETY: as above; the source stays until its stream passed the copy.
        unsafe { result::memcpy_dtoh_async(part, address, raw_stream) }
    })
}

pub(crate) fn check_len(source_len: usize, target_len: usize) -> Result<(), Error> {
    if source_len > target_len {
        return Err(Error::CopyLength { source_len, target_len });
    }
    Ok(())
}

/// A slice gives its memory back behind the work of its own context, and of no other.
pub(crate) fn check_context(memory: &CudaStream, stream: &CudaStream) -> Result<(), Error> {
    if memory.context() != stream.context() {
        return Err(Error::OtherContext);
    }
    Ok(())
}

/// Queues `copy` on a stream of a context and puts a fence behind it.
pub(super) fn queue<T: Pod>(
    lease: &Lease<T>,
    (context, stream): (&Arc<CudaContext>, sys::CUstream),
    writes: bool,
    call: &'static str,
    copy: impl FnOnce(sys::CUstream) -> Result<(), DriverError>,
) -> Result<(), Failure> {
    if !lease.is_copyable() {
        return Err(Error::NotDeviceAccessible { backend: lease.backend() }.into());
    }
    let class = lease.class_ref();
    let ready = Ready::new(class, context, stream)?;
    lease.slot_of().come_behind_others(ready.id(), writes, |fence| ready.order_behind(fence))?;
    match copy(ready.stream()) {
        Ok(()) => follow(lease, ready, writes),
        Err(error) if is_refusal(error) => Err(failed(call, error).into()),
        // Anything else may be the failure of earlier work, with this copy queued behind it.
        Err(error) => {
            let followed = follow(lease, ready, writes);
            let unknown = followed.is_err_and(|failure| failure.unknown);
            Err(Failure { error: failed(call, error), unknown })
        }
    }
}

/// Puts a fence behind what was queued. Where that fails, an idle stream is the only proof.
pub(super) fn follow<T: Pod>(lease: &Lease<T>, ready: Ready, writes: bool) -> Result<(), Failure> {
    match ready.record(lease.class_ref(), Part::ALL, writes) {
        Ok(attached) => {
            lease.attach(attached);
            Ok(())
        }
        Err(unrecorded) => {
            let unknown = unrecorded.wait_for_stream().is_err();
            Err(Failure { error: failed("cuEventRecord", unrecorded.error), unknown })
        }
    }
}

fn record_use<T: Pod>(lease: &Lease<T>, stream: &CudaStream, writes: bool) -> Result<(), Error> {
    if !lease.is_copyable() {
        return Err(Error::NotDeviceAccessible { backend: lease.backend() });
    }
    let ready = Ready::new(lease.class_ref(), stream.context(), stream.cu_stream())?;
    follow(lease, ready, writes).map_err(|failure| {
        failure.keep_out(lease);
        failure.error
    })
}

/// The driver looked at the arguments and did nothing.
pub(super) fn is_refusal(error: DriverError) -> bool {
    matches!(
        error.0,
        sys::CUresult::CUDA_ERROR_INVALID_VALUE
            | sys::CUresult::CUDA_ERROR_INVALID_CONTEXT
            | sys::CUresult::CUDA_ERROR_INVALID_HANDLE
    )
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

/// Drops the lease.
impl<T: Pod> From<TransferError<T>> for Error {
    fn from(refused: TransferError<T>) -> Self {
        refused.error
    }
}

impl<T: Pod> std::error::Error for TransferError<T> {
    // Displayed as the error itself, so its source is this one's too.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}
