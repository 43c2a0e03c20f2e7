//! Managed memory, which the driver moves between host and device as a whole when it is asked to.

use std::slice;

use pinpool::cudarc::driver::{DriverError, result, sys};

use super::Direction;
use crate::BenchError;
use crate::cuda_rig::CudaRig;

/// One allocation of managed memory.
#[derive(Debug)]
pub(super) struct Managed {
    rig: CudaRig,
    address: sys::CUdeviceptr,
    bytes: usize,
    prefetch: Prefetch,
}

/// The driver's `CUmemLocation`, which not every version of its headers has in this form.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Location {
    kind: i32,
    id: i32,
}

type Prefetch = unsafe extern "C" fn(
    sys::CUdeviceptr,
    usize,
    Location,
    core::ffi::c_uint,
    sys::CUstream,
) -> sys::CUresult;

impl Managed {
    /// Allocates `bytes`.
    ///
    /// # Errors
    /// The driver's reason: a driver before CUDA 12.2, for one, has no prefetch to a location.
    pub(super) fn new(rig: &CudaRig, bytes: usize) -> Result<Self, BenchError> {
        // SAFETY: the rig's context shows that the driver is there.
        let library = unsafe { sys::culib() };
        // SAFETY: the type is that of the function in CUDA's headers since 12.2.
        let prefetch = unsafe { library.get::<Prefetch>(b"cuMemPrefetchAsync_v2\0") };
        let prefetch = *prefetch
            .map_err(|_| BenchError::failed("cuMemPrefetchAsync_v2", "the driver is too old"))?;
        let flag = sys::CUmemAttach_flags_enum::CU_MEM_ATTACH_GLOBAL;
        // SAFETY: a context is current; the memory is ours alone until freed.
        let address = unsafe { result::malloc_managed(bytes, flag) }
            .map_err(|cause| BenchError::failed("cuMemAllocManaged", cause))?;
        let mut managed = Self { rig: rig.clone(), address, bytes, prefetch };
        // A device that cannot prefetch says so now.
        managed.bytes_mut()?.fill(0);
        managed.copy(Direction::HostToDevice)?;
        Ok(managed)
    }

    /// The whole allocation, on the host from then on.
    ///
    /// # Errors
    /// The driver's reason.
    pub(super) fn bytes_mut(&mut self) -> Result<&mut [u8], BenchError> {
        self.rig.stream.synchronize().map_err(|cause| BenchError::failed("waiting", cause))?;
        let start = usize::try_from(self.address)
            .map_err(|cause| BenchError::failed("an address", cause))?;
        let start = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the allocation is `bytes` long and zero or written, since `new` filled it; the
        // host may use it, because nothing runs on the device that does.
        Ok(unsafe { slice::from_raw_parts_mut(start, self.bytes) })
    }

    /// Moves all of it to the device, or back, and waits.
    ///
    /// # Errors
    /// The driver's reason.
    pub(super) fn copy(&mut self, direction: Direction) -> Result<(), BenchError> {
        let location = match direction {
            Direction::HostToDevice => Location { kind: DEVICE, id: 0 },
            Direction::DeviceToHost => Location { kind: HOST, id: 0 },
        };
        let stream = self.rig.stream.cu_stream();
        // SAFETY: the range is our allocation; the stream lives, because the rig holds it.
        let moved = unsafe { (self.prefetch)(self.address, self.bytes, location, 0, stream) };
        // SAFETY: as above.
        let waited = unsafe { result::stream::synchronize(stream) };
        moved.result().and(waited).map_err(|cause| BenchError::failed("prefetching", cause))
    }

    /// Where device and host find it.
    pub(super) fn address(&self) -> sys::CUdeviceptr {
        self.address
    }

    fn free(&mut self) -> Result<(), DriverError> {
        // SAFETY: `new` allocated it, it is freed once, and every use of it was waited for.
        unsafe { result::free_sync(self.address) }
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        if self.rig.bind().is_ok() {
            let _ = self.free();
        }
    }
}

/// `CU_MEM_LOCATION_TYPE_DEVICE` and `CU_MEM_LOCATION_TYPE_HOST`.
const DEVICE: i32 = 1;
const HOST: i32 = 2;
