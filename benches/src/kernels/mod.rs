//! The few kernels that scenarios run on the device: texts that any driver compiles, and their launches.
//!
//! This is the only place that launches anything. It knows nothing of what is measured.

use std::ffi::{CStr, CString, c_void};
use std::sync::Arc;
use std::time::Duration;

use pinpool::cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};

use crate::BenchError;
use crate::cuda_rig::{CudaRig, DeviceMemory};

/// The kernels, loaded into one context.
#[derive(Debug)]
pub struct Kernels {
    spin: Kernel,
    chain: Kernel,
}

impl Kernels {
    /// Has the driver compile them for the device of `rig`, whose context is current on this thread.
    ///
    /// # Errors
    /// [`BenchError::Input`] where the driver runs no kernels, else the driver's reason.
    pub fn load(rig: &CudaRig) -> Result<Self, BenchError> {
        let load = |text, name: &str| {
            Kernel::load(&rig.context, text, name).map_err(|cause| match cause.0 {
                sys::CUresult::CUDA_ERROR_NOT_SUPPORTED => BenchError::input(NO_KERNELS),
                _ => BenchError::failed(&format!("loading the kernel {name}"), cause),
            })
        };
        let spin = load(concat!(include_str!("spin.ptx"), "\0"), "spin")?;
        let chain = load(concat!(include_str!("chain.ptx"), "\0"), "chain")?;
        Ok(Self { spin, chain })
    }

    /// Loads them. Where the driver runs none, that is no error: the reason goes to `not_run`.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn load_if_any(
        rig: &CudaRig,
        not_run: &mut Option<String>,
    ) -> Result<Option<Self>, BenchError> {
        match Self::load(rig) {
            Ok(kernels) => Ok(Some(kernels)),
            Err(BenchError::Input(reason)) => {
                *not_run = Some(reason);
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }

    /// Queues a kernel of one thread that runs for `length`; one that ends at once if that is zero.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn spin(&self, stream: &CudaStream, length: Duration) -> Result<(), BenchError> {
        let mut ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: spin takes one u64 and touches no memory; the stream lives in this call, and what
        // is queued in it outlives its handle.
        unsafe { self.spin.launch(stream, [1, 1], &mut [(&raw mut ns).cast()]) }
    }

    /// Queues, in the stream of `memory`, `steps` additions and multiplications, one after the other, for
    /// each of the `f32` there: each step makes `y` to `1 - y`.
    ///
    /// # Errors
    /// The driver's reason, or [`BenchError::Failed`] for more than `u32::MAX` numbers.
    pub fn chain(&self, memory: &mut DeviceMemory, mut steps: u32) -> Result<(), BenchError> {
        let floats = memory.slice.len() / size_of::<f32>();
        let mut count = u32::try_from(floats)
            .map_err(|_| BenchError::Failed(format!("{floats} numbers are too many")))?;
        let mut address = memory.address();
        let shape = [count.div_ceil(BLOCK_THREADS).max(1), BLOCK_THREADS];
        let mut parameters: [*mut c_void; 3] =
            [(&raw mut address).cast(), (&raw mut count).cast(), (&raw mut steps).cast()];
        // SAFETY: chain takes an address and two u32, and touches the `count` floats there only, which
        // the memory has; it is given back in the order of the same stream.
        unsafe { self.chain.launch(memory.stream(), shape, &mut parameters) }
    }
}

/// One kernel, and the module that it is alone in.
#[derive(Debug)]
pub(crate) struct Kernel {
    name: CString,
    function: sys::CUfunction,
    module: sys::CUmodule,
    context: Arc<CudaContext>,
}

impl Kernel {
    /// Has the driver compile `text`, which ends with a zero, for the context's device.
    pub(crate) fn load(
        context: &Arc<CudaContext>,
        text: &str,
        name: &str,
    ) -> Result<Self, DriverError> {
        context.bind_to_thread()?;
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the text ends with the only zero in it (a test looks), and is read in this call only.
        let module = unsafe { result::module::load_data(text.as_ptr().cast()) }?;
        // The module is unloaded even where it has no such function.
        let mut kernel = Self {
            name: name.clone(),
            function: std::ptr::null_mut(),
            module,
            context: Arc::clone(context),
        };
        // SAFETY: the module was loaded above, and nobody else unloads it.
        kernel.function = unsafe { result::module::get_function(module, name) }?;
        Ok(kernel)
    }

    /// Queues it with blocks and threads of `shape`.
    ///
    /// # Safety
    /// Each of `parameters` points to a value of the type that the kernel has in that place, and what
    /// the kernel touches must be there until the stream has run it.
    pub(crate) unsafe fn launch(
        &self,
        stream: &CudaStream,
        [blocks, threads]: [u32; 2],
        parameters: &mut [*mut c_void],
    ) -> Result<(), BenchError> {
        // SAFETY: the function is of a module that lives as long as this value; the driver copies the
        // parameters in this call, and the caller vouches for them.
        let launched = unsafe {
            result::launch_kernel(
                self.function,
                (blocks, 1, 1),
                (threads, 1, 1),
                0,
                stream.cu_stream(),
                parameters,
            )
        };
        launched.map_err(|cause| {
            BenchError::failed(&format!("launching the kernel {}", name(&self.name)), cause)
        })
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: this value alone owns the module. The driver unloads it once its kernels ended.
            let _ = unsafe { result::module::unload(self.module) };
        }
    }
}

fn name(name: &CStr) -> &str {
    name.to_str().unwrap_or_default()
}

/// Why there is no kernel to run.
pub const NO_KERNELS: &str = "the driver runs no kernels";
const BLOCK_THREADS: u32 = 256;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_texts_are_for_any_device_and_hold_no_zero() {
        for (text, entry) in [
            (include_str!("spin.ptx"), ".visible .entry spin("),
            (include_str!("chain.ptx"), ".visible .entry chain("),
        ] {
            assert!(text.contains(entry) && text.contains(".target sm_52"), "{text}");
            assert!(text.is_ascii() && !text.contains('\0'), "{text}");
        }
    }

    #[test]
    fn kernels_run_for_as_long_and_do_what_they_say() {
        let rig = match CudaRig::open() {
            Ok(rig) => rig,
            Err(error) => return println!("kernels not tested: {error}"),
        };
        let kernels = match Kernels::load(&rig) {
            Ok(kernels) => kernels,
            Err(error) => return println!("kernels not tested: {error}"),
        };
        let length = Duration::from_millis(20);
        let started = Instant::now();
        kernels.spin(&rig.stream, length).unwrap();
        assert!(started.elapsed() < length, "a launch waits for nothing");
        rig.stream.synchronize().unwrap();
        assert!(started.elapsed() >= length);

        let floats = 1000u16;
        let bytes: Vec<u8> = (0..floats).flat_map(|n| f32::from(n).to_ne_bytes()).collect();
        let wanted: Vec<u8> =
            (0..floats).flat_map(|n| (1.0 - f32::from(n)).to_ne_bytes()).collect();
        let mut memory = rig.device_memory(bytes.len()).unwrap();
        let mut back = vec![0; bytes.len()];
        for (steps, wanted) in [(0, &bytes), (1, &wanted), (2, &bytes), (777, &wanted)] {
            memory.copy_in(&bytes).unwrap();
            kernels.chain(&mut memory, steps).unwrap();
            memory.copy_out(&mut back).unwrap();
            assert_eq!(&back, wanted, "{steps} steps");
        }
    }
}
