//! A kernel that reads memory where it is: the other way to the device than a copy.

use std::ffi::c_void;

use pinpool::cudarc::driver::{result, sys};

use crate::BenchError;
use crate::cuda_rig::{CudaRig, DeviceMemory};
use crate::kernels::Kernel;

/// The kernel, and where it puts its sum.
#[derive(Debug)]
pub(super) struct Reader {
    rig: CudaRig,
    kernel: Kernel,
    sum: DeviceMemory,
}

impl Reader {
    /// Hands the kernel to the driver, which translates it for the device.
    ///
    /// # Errors
    /// The driver's reason: the software driver, for one, has no kernels.
    pub(super) fn load(rig: &CudaRig) -> Result<Self, BenchError> {
        let sum = rig.device_memory(SUM_BYTES)?;
        let kernel = Kernel::load(&rig.context, TEXT, NAME);
        let kernel = kernel.map_err(|cause| BenchError::failed("loading a kernel", cause))?;
        Ok(Self { rig: rig.clone(), kernel, sum })
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
        let stream = &self.rig.stream;
        // SAFETY: the parameters are those of the kernel's declaration; the memory is the caller's
        // promise until the stream has run it, below, and the sum's block is ours.
        let launched = unsafe { self.kernel.launch(stream, [blocks, THREADS], &mut parameters) };
        // SAFETY: the stream lives, because the rig holds it. The raw call waits whatever cudarc has parked.
        let waited = unsafe { result::stream::synchronize(stream.cu_stream()) };
        let failed = |cause| BenchError::failed("running a kernel", cause);
        launched.and(waited.map_err(failed))
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

/// What the kernel adds up: the 32-bit words of the bytes.
pub(super) fn sum_of(bytes: &[u8]) -> u64 {
    let word = |word: &[u8; 4]| u64::from(u32::from_ne_bytes(*word));
    bytes.as_chunks::<4>().0.iter().map(word).fold(0, u64::wrapping_add)
}

/// The kernel reads so many bytes at a time.
pub(super) const GROUP_BYTES: usize = 16;
const TEXT: &str = concat!(include_str!("../kernels/read.ptx"), "\0");
const NAME: &str = "sum_words";
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
        assert_eq!(NAME, "sum_words");
    }
}
