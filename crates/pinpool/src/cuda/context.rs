//! The calling thread's CUDA context: set for one call, and the caller's restored afterwards.

use std::marker::PhantomData;

use cudarc::driver::{CudaContext, DriverError, result, sys};

use crate::error::{Error, is_told};
use crate::foreign::tell;
use crate::sync::plain::{AtomicUsize, Ordering};

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

/// Lets the calling thread ask and destroy events while it lives, although some stream is being
/// captured into a graph: without it the question fails and ruins the capture.
pub(super) struct Unrestricted {
    /// The mode before, if it could be exchanged.
    previous: Option<sys::CUstreamCaptureMode>,
    /// The mode belongs to one thread.
    not_send: PhantomData<*const ()>,
}

impl Unrestricted {
    pub(super) fn enter() -> Self {
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the driver reads and writes one number.
        let exchanged = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) }.result();
        Self { previous: exchanged.is_ok().then_some(mode), not_send: PhantomData }
    }
}

impl Drop for Unrestricted {
    fn drop(&mut self) {
        if let Some(mut mode) = self.previous {
            // SAFETY: as above.
            let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) }.result();
        }
    }
}

/// Counts and logs a failure that nobody can be told of: the call came from a drop.
pub(super) fn note_failure(call: &'static str, result: Result<(), DriverError>) {
    let Err(error) = gone_is_done(result) else { return };
    let count = FAILURES.fetch_add(1, Ordering::Relaxed) + 1;
    if is_told(count) {
        tell!(warn, call, code = code(error), count, "a driver call failed in a drop");
    }
}

/// Driver calls of this process that failed where nobody could be told.
pub(crate) fn noted_failures() -> usize {
    FAILURES.load(Ordering::Relaxed)
}

static FAILURES: AtomicUsize = AtomicUsize::new(0);

/// At process exit the driver may be gone already, and everything of it.
pub(super) fn gone_is_done(result: Result<(), DriverError>) -> Result<(), DriverError> {
    match result {
        Err(DriverError(sys::CUresult::CUDA_ERROR_DEINITIALIZED)) => Ok(()),
        other => other,
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
        sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
        | sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION => {
            "the capture is ruined: cudarc's event tracking must be off (see \
             `CudaContext::disable_event_tracking`) when device memory for graphs is allocated"
        }
        _ => "",
    };
    Error::Driver { call, code: code(error), advice }
}
