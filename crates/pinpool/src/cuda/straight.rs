//! The driver's own copies from and to host memory that is not the pool's, in the caller's stream.

use std::ffi::c_void;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};

use super::context::{Bound, failed};
use super::stream::is_capturing;
use super::transfer::is_refusal;
use crate::error::Error;

/// Whether the driver copies all of this memory without a buffer in between, by its first and its last byte: it is
/// pinned, or the driver's own. Who is not told assumes it, and leaves it to the driver.
pub(crate) fn is_pinned<T>(bytes: &[T], context: &CudaContext) -> bool {
    let Ok(_current) = Bound::to(context) else { return true };
    let range = bytes.as_ptr_range();
    let first = range.start.cast::<u8>();
    let last = range.end.cast::<u8>().wrapping_sub(1);
    is_known(first) && is_known(last)
}

/// Host memory that nobody registered, and nobody allocated by the driver, is unknown to it.
///
/// The question for several attributes gives zero for such memory; that for one fails, which takes a driver
/// that keeps a log of failures several times as long.
fn is_known(address: *const u8) -> bool {
    let mut kind: u32 = 0;
    let mut attributes = [sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE];
    let mut places = [(&raw mut kind).cast::<c_void>()];
    let (attributes, places) = (attributes.as_mut_ptr(), places.as_mut_ptr());
    // SAFETY: one attribute and one place for it; the driver reads nothing at the address.
    let asked = unsafe { sys::cuPointerGetAttributes(1, attributes, places, address as u64) };
    asked.result().is_err() || kind != 0
}

/// Copies host memory to device memory at `target` in the order of `stream`, and waits for it.
///
/// Where it did not wait, only an event behind the copy could tell of its end: what is queued on the stream later is no
/// part of it, a stream per thread is another one elsewhere, and one that is being captured by then must not be asked.
/// An event costs a small copy a tenth of its time, and waiting costs what the caller's own wait would.
///
/// # Safety
///
/// There is room at `target`, in memory of the stream's context that stays until the stream has passed.
pub(crate) unsafe fn upload<T: Pod>(
    source: &[T],
    stream: &Arc<CudaStream>,
    target: u64,
) -> Result<(), Error> {
    let _current = enter(stream)?;
    // SAFETY: the caller's word for the target; the source is there until it has been read, below.
    unsafe { result::memcpy_htod_async(target, source, stream.cu_stream()) }
        .map_err(|error| unqueued("cuMemcpyHtoDAsync", error, stream))?;
    synchronize(stream)
}

/// Copies device memory at `source` to host memory in the order of `stream`, and waits for it.
///
/// # Safety
///
/// As [`upload`], of the source: as many elements as the target has.
pub(crate) unsafe fn download<T: Pod>(
    source: u64,
    stream: &Arc<CudaStream>,
    target: &mut [T],
) -> Result<(), Error> {
    let _current = enter(stream)?;
    // SAFETY: the caller's word for the source; the target is there until it is written, below.
    unsafe { result::memcpy_dtoh_async(target, source, stream.cu_stream()) }
        .map_err(|error| unqueued("cuMemcpyDtoHAsync", error, stream))?;
    synchronize(stream)
}

/// A copy that the driver refused, or that it may have queued behind earlier work whose failure this is: the host
/// memory is the caller's again when this returns.
fn unqueued(call: &'static str, error: DriverError, stream: &CudaStream) -> Error {
    if !is_refusal(error) {
        // If that fails, too, the device is lost and nothing of it runs.
        let _ = synchronize(stream);
    }
    failed(call, error)
}

fn enter(stream: &CudaStream) -> Result<Bound, Error> {
    let current = Bound::to(stream.context()).map_err(|error| failed("cuCtxSetCurrent", error))?;
    if is_capturing(stream.cu_stream())? {
        return Err(Error::StreamCapturing);
    }
    Ok(current)
}

/// Waits for all that is queued on a stream, whose context is current.
fn synchronize(stream: &CudaStream) -> Result<(), Error> {
    // SAFETY: the caller holds the stream.
    unsafe { result::stream::synchronize(stream.cu_stream()) }
        .map_err(|error| failed("cuStreamSynchronize", error))
}
