//! Pinned memory from the CUDA driver for each frame: `cuMemHostAlloc` and `cuMemFreeHost`.

use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use pinpool::cudarc::driver::{CudaContext, DriverError, result, sys};

use super::{BufferSource, FrameBuffer};
use crate::BenchError;

/// Allocates pinned memory from the driver for each frame.
#[derive(Debug)]
pub struct PinnedCuda {
    context: Arc<CudaContext>,
    bytes: usize,
}

impl PinnedCuda {
    /// Buffers of `bytes`, pinned for `context`.
    pub fn new(context: Arc<CudaContext>, bytes: usize) -> Self {
        Self { context, bytes }
    }
}

impl BufferSource for PinnedCuda {
    type Buffer = DriverPages;

    fn acquire(&mut self) -> Result<DriverPages, BenchError> {
        DriverPages::new(&self.context, self.bytes)
    }

    fn release(&mut self, buffer: DriverPages) -> Result<(), BenchError> {
        buffer.release()
    }
}

/// One allocation of `cuMemHostAlloc`, portable and mapped as the pool's slabs are.
#[derive(Debug)]
pub struct DriverPages {
    /// The start of the allocation that this value owns alone; `None` once it is freed.
    address: Option<NonNull<u8>>,
    bytes: usize,
    context: Arc<CudaContext>,
}

impl DriverPages {
    /// Allocates `bytes`, zeroed, with `context` current on this thread.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<Self, BenchError> {
        Self::allocate(context, bytes, 0)
    }

    /// As [`Self::new`], write-combined: fast to write in order, very slow to read for the host.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn write_combined(context: &Arc<CudaContext>, bytes: usize) -> Result<Self, BenchError> {
        Self::allocate(context, bytes, sys::CU_MEMHOSTALLOC_WRITECOMBINED)
    }

    /// Where the device finds it, for kernels that read it where it is.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn device_address(&self) -> Result<sys::CUdeviceptr, BenchError> {
        let start = self.address.map_or(std::ptr::null_mut(), NonNull::as_ptr);
        let mut address = 0;
        // SAFETY: the allocation lives and is mapped; the driver writes one number to a live local.
        unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut address, start.cast(), 0) }
            .result()
            .map_err(|cause| BenchError::failed("cuMemHostGetDevicePointer", cause))?;
        Ok(address)
    }

    fn allocate(context: &Arc<CudaContext>, bytes: usize, more: u32) -> Result<Self, BenchError> {
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP | more;
        // SAFETY: a context exists, so the driver is loaded; the memory is ours alone until freed.
        let allocated = unsafe { result::malloc_host(bytes, flags) };
        let allocated = allocated.map_err(|cause| {
            BenchError::failed(&format!("cuMemHostAlloc of {bytes} bytes"), cause)
        })?;
        let address = NonNull::new(allocated.cast::<u8>());
        Ok(Self { address, bytes, context: Arc::clone(context) })
    }

    /// The whole allocation.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let Some(address) = self.address else { return &mut [] };
        // SAFETY: the allocation is `bytes` long, owned by this value and borrowed mutably through
        // it; the pages that the driver gives out are initialised.
        unsafe { slice::from_raw_parts_mut(address.as_ptr(), self.bytes) }
    }

    /// Gives it back to the driver, whose context is current on this thread.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn release(mut self) -> Result<(), BenchError> {
        self.free().map_err(|cause| BenchError::failed("cuMemFreeHost", cause))
    }

    fn free(&mut self) -> Result<(), DriverError> {
        let Some(address) = self.address.take() else { return Ok(()) };
        // SAFETY: `malloc_host` returned the address, it is freed once because it was taken out of
        // this value, and every copy from it was waited for.
        unsafe { result::free_host(address.as_ptr().cast()) }
    }
}

impl FrameBuffer for DriverPages {
    fn fill(&mut self, frame: &[u8]) {
        self.bytes_mut().copy_from_slice(frame);
    }

    fn bytes(&self) -> &[u8] {
        let Some(address) = self.address else { return &[] };
        // SAFETY: as in `bytes_mut`, and the allocation lives as long as the borrow of this value.
        unsafe { slice::from_raw_parts(address.as_ptr(), self.bytes) }
    }
}

impl Drop for DriverPages {
    fn drop(&mut self) {
        // Only reached with memory allocated when a run ends, possibly on another thread.
        if self.address.is_some() && self.context.bind_to_thread().is_ok() {
            let _ = self.free();
        }
    }
}
