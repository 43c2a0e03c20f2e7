//! The driver's own copies from and to host memory that is not the pool's, in the caller's stream.

use std::ffi::c_void;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{CudaStream, result, sys};

use super::context::{Bound, Unrestricted, failed};
use super::exit;
use super::lane::Mark;
use super::stream::is_capturing;
use crate::class::ClassRef;
use crate::error::Error;

/// How the driver sees a piece of host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostKind {
    /// It copies it before the call returns.
    Pageable,
    /// It may copy some of it later.
    Mixed,
    /// All of it is pinned, or managed by the driver.
    Pinned,
}

/// What the driver knows of this memory, by its first and its last byte. The context of a pool is there.
pub(crate) fn kind_of<T>(bytes: &[T]) -> HostKind {
    let range = bytes.as_ptr_range();
    let first = range.start.cast::<u8>();
    let last = range.end.cast::<u8>().wrapping_sub(1);
    match (is_known(first), is_known(last)) {
        (true, true) => HostKind::Pinned,
        (false, false) => HostKind::Pageable,
        _ => HostKind::Mixed,
    }
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
    // Who is not told waits.
    asked.result().is_err() || kind != 0
}

/// Copies host memory to device memory at `target` in the order of `stream`. It has been read when this
/// returns; the copy may still be on its way to the device unless it `lasts`.
///
/// # Safety
///
/// There is room at `target`, in memory of the stream's context that stays until the stream has passed.
pub(crate) unsafe fn upload<T: Pod>(
    source: &[T],
    stream: &Arc<CudaStream>,
    target: u64,
    lasts: Option<ClassRef>,
) -> Result<(), Error> {
    let _current = enter(stream)?;
    // SAFETY: the caller's word for the target; the source is there until it has been read, below.
    unsafe { result::memcpy_htod_async(target, source, stream.cu_stream()) }
        .map_err(|error| failed("cuMemcpyHtoDAsync", error))?;
    match lasts {
        Some(class) => wait_for(class, stream),
        None => Ok(()),
    }
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
        .map_err(|error| failed("cuMemcpyDtoHAsync", error))?;
    synchronize(stream)
}

fn enter(stream: &CudaStream) -> Result<Bound, Error> {
    let current = Bound::to(stream.context()).map_err(|error| failed("cuCtxSetCurrent", error))?;
    if is_capturing(stream.cu_stream())? {
        return Err(Error::StreamCapturing);
    }
    Ok(current)
}

/// Waits for what was queued so far, and for nothing that others queue meanwhile, if that can be.
fn wait_for(class: ClassRef, stream: &CudaStream) -> Result<(), Error> {
    match Mark::behind(class, stream) {
        Ok(mark) => mark.wait(),
        Err(_) => synchronize(stream),
    }
}

/// Waits for all that is queued on a stream.
pub(crate) fn synchronize(stream: &CudaStream) -> Result<(), Error> {
    let _current = Bound::to(stream.context()).map_err(|error| failed("cuCtxSetCurrent", error))?;
    // SAFETY: the caller holds the stream.
    unsafe { result::stream::synchronize(stream.cu_stream()) }
        .map_err(|error| failed("cuStreamSynchronize", error))
}

/// Whether all that is queued on a stream is over.
pub(crate) fn is_idle(stream: &CudaStream) -> Result<bool, Error> {
    // The keeper may ask.
    let Some(_inside) = exit::enter() else { return Ok(false) };
    let _unrestricted = Unrestricted::enter();
    let _current = Bound::to(stream.context()).map_err(|error| failed("cuCtxSetCurrent", error))?;
    // SAFETY: the caller holds the stream.
    match unsafe { sys::cuStreamQuery(stream.cu_stream()) }.result() {
        Ok(()) => Ok(true),
        Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
        Err(error) => Err(failed("cuStreamQuery", error)),
    }
}
