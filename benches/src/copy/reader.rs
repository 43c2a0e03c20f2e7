//! A kernel that reads memory where it is: the other way to the device than a copy.

use std::ffi::{CString, c_void};

use pinpool::cudarc::driver::{result, sys};

use crate::BenchError;
use crate::cuda_rig::{CudaRig, DeviceMemory};

/// The kernel, and where it puts its sum.
#[derive(Debug)]
pub(super) struct Reader {
    rig: CudaRig,
    module: sys::CUmodule,
    function: sys::CUfunction,
    sum: DeviceMemory,
}

impl Reader {
    /// Hands the kernel to the driver, which translates it for the device.
    ///
    /// # Errors
    /// The driver's reason: the software driver, for one, has no kernels.
    pub(super) fn load(rig: &CudaRig) -> Result<Self, BenchError> {
        let failed = |cause| BenchError::failed("loading a kernel", cause);
        let text = CString::new(TEXT).map_err(|cause| BenchError::failed("a kernel", cause))?;
        let sum = rig.device_memory(SUM_BYTES)?;
        // SAFETY: the text ends with a zero and lives until the call is over; a context is current.
        let module = unsafe { result::module::load_data(text.as_ptr().cast()) }.map_err(failed)?;
        // SAFETY: the module was loaded just now.
        let function = unsafe { result::module::get_function(module, NAME.into()) };
        match function {
            Ok(function) => Ok(Self { rig: rig.clone(), module, function, sum }),
            Err(cause) => {
                // SAFETY: loaded above, and nothing of it is in use.
                let _ = unsafe { result::module::unload(module) };
                Err(failed(cause))
            }
        }
    }

    /// Lets the device read `bytes`, a multiple of 16, from `start` on, and waits.
    ///
    /// # Safety
    /// The device may read so many bytes there until this returns.
    ///
    /// # Errors
    /// The driver's reason.
    pub(super) unsafe fn read(
        &mut self,
        mut start: sys::CUdeviceptr,
        bytes: usize,
    ) -> Result<(), BenchError> {
        let mut groups = (bytes / GROUP_BYTES) as u64;
        let mut sum = self.sum.address();
        let blocks = groups.div_ceil(u64::from(THREADS)).clamp(1, BLOCKS_MAX);
        let blocks = u32::try_from(blocks).unwrap_or(1);
        let mut parameters: [*mut c_void; 3] =
            [(&raw mut start).cast(), (&raw mut groups).cast(), (&raw mut sum).cast()];
        let stream = self.rig.stream.cu_stream();
        // SAFETY: the parameters are those of the kernel's declaration and live until the call is
        // over; the memory is the caller's promise, and the sum's block is ours.
        let launched = unsafe {
            result::launch_kernel(
                self.function,
                (blocks, 1, 1),
                (THREADS, 1, 1),
                0,
                stream,
                &mut parameters,
            )
        };
        // SAFETY: the stream lives, because the rig holds it.
        let waited = unsafe { result::stream::synchronize(stream) };
        launched.and(waited).map_err(|cause| BenchError::failed("running a kernel", cause))
    }

    /// What all reads since the last call added up to.
    ///
    /// # Errors
    /// The driver's reason.
    pub(super) fn take_sum(&mut self) -> Result<u64, BenchError> {
        let mut sum = [0; SUM_BYTES];
        self.sum.copy_out(&mut sum)?;
        self.sum.copy_in(&[0; SUM_BYTES])?;
        Ok(u64::from_ne_bytes(sum))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.rig.bind().is_ok() {
            // SAFETY: loaded by `load`, and every run of the kernel was waited for.
            let _ = unsafe { result::module::unload(self.module) };
        }
    }
}

/// What the kernel adds up: the 32-bit words of the bytes.
pub(super) fn sum_of(bytes: &[u8]) -> u64 {
    let word = |word: &[u8; 4]| u64::from(u32::from_ne_bytes(*word));
    bytes.as_chunks::<4>().0.iter().map(word).fold(0, u64::wrapping_add)
}

/// The kernel reads so many bytes at a time.
pub(super) const GROUP_BYTES: usize = 16;
const TEXT: &str = include_str!("../kernels/read.ptx");
const NAME: &std::ffi::CStr = c"sum_words";
const SUM_BYTES: usize = 8;
const THREADS: u32 = 256;
const BLOCKS_MAX: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_add_up_as_in_the_kernel() {
        assert_eq!(sum_of(&[3; 16]), 4 * 0x0303_0303);
        assert_eq!(sum_of(&[255; 8]), 2 * u64::from(u32::MAX));
    }

    #[test]
    fn the_kernel_is_a_text_that_holds_its_name() {
        assert!(TEXT.is_ascii() && TEXT.contains(".visible .entry sum_words("));
        assert_eq!(NAME.to_str(), Ok("sum_words"));
    }
}
