//! The calling thread's CUDA context: set for one call, and the caller's restored afterwards.

use std::marker::PhantomData;

use cudarc::driver::{CudaContext, DriverError, result, sys};

use crate::error::Error;

/// Makes a context current while it lives. Drops and copies may run on any thread, and what the
/// application made current there must stay so.
pub(super) struct Bound {
    previous: Option<sys::CUcontext>,
    /// A current context belongs to one thread.
    not_send: PhantomData<*const ()>,
}

impl Bound {
    /// Makes `context` current.
    pub(super) fn to(context: &CudaContext) -> Result<Self, DriverError> {
        let ours = context.cu_ctx();
        let current = result::ctx::get_current()?;
        if current == Some(ours) {
            return Ok(Self { previous: None, not_send: PhantomData });
        }
        // SAFETY: `context` is alive, so its handle is valid.
        unsafe { result::ctx::set_current(ours) }?;
        Ok(Self::restoring(current))
    }

    /// Restores on drop what is current now, or what `current` says was.
    pub(super) fn restoring(current: Option<sys::CUcontext>) -> Self {
        Self { previous: Some(current.unwrap_or(std::ptr::null_mut())), not_send: PhantomData }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Some(previous) = self.previous {
            // SAFETY: it was current before, or is null, which means none.
            let _ = unsafe { result::ctx::set_current(previous) };
        }
    }
}

/// The driver's name for an error. (The error's own `Display` asks the driver, which may be gone.)
pub(super) fn code(error: DriverError) -> String {
    format!("{:?}", error.0)
}

/// A failed driver call.
pub(super) fn failed(call: &'static str, error: DriverError) -> Error {
    let advice = match error.0 {
        sys::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        | sys::CUresult::CUDA_ERROR_LAUNCH_FAILED
        | sys::CUresult::CUDA_ERROR_ECC_UNCORRECTABLE => {
            "the device is lost to this process: an earlier kernel or copy failed"
        }
        sys::CUresult::CUDA_ERROR_INVALID_CONTEXT
        | sys::CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED => {
            "the CUDA context is gone: close the pool before resetting the device"
        }
        _ => "",
    };
    Error::Driver { call, code: code(error), advice }
}
