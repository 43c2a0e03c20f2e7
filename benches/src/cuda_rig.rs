//! The CUDA side of a scenario: one context, one stream, one block of device memory.

use std::sync::Arc;

use pinpool::cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, DevicePtrMut, DriverError, result, sys,
};

use crate::BenchError;

/// A device, the first one in scenarios, ready for copies from this thread.
#[derive(Debug, Clone)]
pub struct CudaRig {
    /// The device's primary context, current on the thread that opened it.
    pub context: Arc<CudaContext>,
    /// The stream that all copies go through.
    pub stream: Arc<CudaStream>,
}

impl CudaRig {
    /// Opens the first device.
    ///
    /// # Errors
    /// [`BenchError::Input`] where there is no driver or no device, else the driver's reason.
    pub fn open() -> Result<Self, BenchError> {
        Self::open_on(0)
    }

    /// Opens the device of this number.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_on(device: u32) -> Result<Self, BenchError> {
        // Without a driver every call into cudarc panics: the probe comes first.
        if let Err(reason) = pinpool::cuda::probe() {
            return Err(BenchError::Input(format!("no CUDA device: {reason}")));
        }
        let context = CudaContext::new(device as usize)
            .map_err(|cause| BenchError::failed(&format!("opening device {device}"), cause))?;
        let stream =
            context.new_stream().map_err(|cause| BenchError::failed("creating a stream", cause))?;
        Ok(Self { context, stream })
    }

    /// Opens the first device. Where there is none, that is no error: the reason goes to `not_run`.
    ///
    /// # Errors
    /// The driver's reason.
    pub(crate) fn open_if_any(not_run: &mut Option<String>) -> Result<Option<Self>, BenchError> {
        match Self::open() {
            Ok(rig) => Ok(Some(rig)),
            Err(BenchError::Input(reason)) => {
                *not_run = Some(reason);
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }

    /// Opens the first device without cudarc's event tracking, which records an event of its own
    /// for every use of device memory.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_untracked() -> Result<Self, BenchError> {
        let rig = Self::open()?;
        // SAFETY: this value's memory is made, used and freed on its one stream, in order.
        unsafe { rig.context.disable_event_tracking() };
        Ok(rig)
    }

    /// The same device, with a stream of its own.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn with_own_stream(&self) -> Result<Self, BenchError> {
        let stream = self.context.new_stream();
        let stream = stream.map_err(|cause| BenchError::failed("creating a stream", cause))?;
        Ok(Self { context: Arc::clone(&self.context), stream })
    }

    /// Makes the context current on this thread.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn bind(&self) -> Result<(), BenchError> {
        self.context
            .bind_to_thread()
            .map_err(|cause| BenchError::failed("binding the context", cause))
    }

    /// Device memory of `bytes`, zeroed.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn device_memory(&self, bytes: usize) -> Result<DeviceMemory, BenchError> {
        let allocated = self.stream.alloc_zeros::<u8>(bytes);
        let mut slice = allocated.map_err(|cause| {
            BenchError::failed(&format!("allocating {bytes} bytes on the device"), cause)
        })?;
        let address = slice.device_ptr_mut(&self.stream).0;
        Ok(DeviceMemory { slice, address, stream: Arc::clone(&self.stream) })
    }
}

/// A block of device memory, with the raw copies that all rivals share.
#[derive(Debug)]
pub struct DeviceMemory {
    /// The block, for the pool's own copies.
    pub slice: CudaSlice<u8>,
    address: sys::CUdeviceptr,
    stream: Arc<CudaStream>,
}

impl DeviceMemory {
    /// Where the block begins, for copy calls of one's own.
    pub fn address(&self) -> sys::CUdeviceptr {
        self.address
    }

    /// The stream that the block is made, used and freed in.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Copies `source` here and waits.
    ///
    /// # Errors
    /// The driver's reason, or [`BenchError::Failed`] where the source is longer than the block.
    pub fn copy_in(&mut self, source: &[u8]) -> Result<(), BenchError> {
        self.check(source.len())?;
        // SAFETY: the block is at least as long as `source` (checked), and `source` stays
        // borrowed until the stream has run dry below.
        let copied =
            unsafe { result::memcpy_htod_async(self.address, source, self.stream.cu_stream()) };
        self.finish(copied)
    }

    /// Copies from here to fill `target` and waits.
    ///
    /// # Errors
    /// The driver's reason, or [`BenchError::Failed`] where the target is longer than the block.
    pub fn copy_out(&self, target: &mut [u8]) -> Result<(), BenchError> {
        self.check(target.len())?;
        // SAFETY: the block is at least as long as `target` (checked), and `target` stays
        // borrowed until the stream has run dry below.
        let copied =
            unsafe { result::memcpy_dtoh_async(target, self.address, self.stream.cu_stream()) };
        self.finish(copied)
    }

    /// Queues a copy of `source` here, in the block's stream.
    ///
    /// # Errors
    /// As [`Self::copy_in`].
    ///
    /// # Safety
    /// `source` stays as it is until the stream has run dry, also where this fails.
    pub unsafe fn queue_in(&mut self, source: &[u8]) -> Result<(), BenchError> {
        self.check(source.len())?;
        // SAFETY: the block is at least as long as `source` (checked), and the caller keeps that.
        let queued =
            unsafe { result::memcpy_htod_async(self.address, source, self.stream.cu_stream()) };
        queued.map_err(|cause| BenchError::failed("copying a buffer", cause))
    }

    /// Queues a copy from here that fills `target`, in the block's stream.
    ///
    /// # Errors
    /// As [`Self::copy_out`].
    ///
    /// # Safety
    /// `target` is neither freed nor looked at until the stream has run dry, also where this fails.
    pub unsafe fn queue_out(&self, target: &mut [u8]) -> Result<(), BenchError> {
        self.check(target.len())?;
        // SAFETY: the block is at least as long as `target` (checked), and the caller keeps that.
        let queued =
            unsafe { result::memcpy_dtoh_async(target, self.address, self.stream.cu_stream()) };
        queued.map_err(|cause| BenchError::failed("copying a buffer", cause))
    }

    fn check(&self, bytes: usize) -> Result<(), BenchError> {
        if bytes <= self.slice.num_bytes() {
            return Ok(());
        }
        let held = self.slice.num_bytes();
        Err(BenchError::Failed(format!("a copy of {bytes} bytes exceeds the {held} bytes there")))
    }

    /// Waits for the stream whether or not the copy was accepted: the caller's borrow ends here.
    fn finish(&self, copied: Result<(), DriverError>) -> Result<(), BenchError> {
        // SAFETY: the stream lives, because this value holds it.
        let waited = unsafe { result::stream::synchronize(self.stream.cu_stream()) };
        copied.and(waited).map_err(|cause| BenchError::failed("copying a buffer", cause))
    }
}
