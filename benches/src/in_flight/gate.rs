//! Host functions that hold a stream back: until a gate is opened, or for a fixed time.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pinpool::cudarc::driver::{CudaStream, result};

use super::PATIENCE;
use crate::BenchError;

/// Holds a stream back until it is opened or dropped.
#[derive(Debug)]
pub(super) struct Gate {
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    open: AtomicBool,
    /// The host function gave up waiting: what was measured meanwhile means nothing.
    gave_up: AtomicBool,
}

impl Gate {
    /// Holds back what is queued on `stream` from now on.
    pub(super) fn close(stream: &CudaStream) -> Result<Self, BenchError> {
        let state = Arc::new(State::default());
        let argument = Arc::into_raw(Arc::clone(&state));
        if let Err(cause) = launch(stream, wait_until_open, argument.cast_mut().cast()) {
            // SAFETY: the call failed, so the count that `argument` stands for is still ours.
            drop(unsafe { Arc::from_raw(argument) });
            return Err(cause);
        }
        Ok(Self { state })
    }

    /// Lets the stream go on.
    pub(super) fn open(self) -> Result<(), BenchError> {
        if self.state.gave_up.load(Ordering::Acquire) {
            return Err(BenchError::Failed("a blocked stream went on by itself".to_owned()));
        }
        Ok(())
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.state.open.store(true, Ordering::Release);
    }
}

/// Holds `stream` back for `time`.
pub(super) fn delay(stream: &CudaStream, time: Duration) -> Result<(), BenchError> {
    let micros = usize::try_from(time.as_micros()).unwrap_or(usize::MAX);
    launch(stream, sleep_micros, ptr::without_provenance_mut(micros))
}

fn launch(
    stream: &CudaStream,
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
) -> Result<(), BenchError> {
    // SAFETY: the stream lives, and each caller gives the argument that its function expects.
    unsafe { result::stream::launch_host_function(stream.cu_stream(), function, argument) }
        .map_err(|cause| BenchError::failed("cuLaunchHostFunc", cause))
}

unsafe extern "C" fn wait_until_open(argument: *mut c_void) {
    // SAFETY: `Gate::close` gave one count away for this one call.
    let state = unsafe { Arc::from_raw(argument.cast_const().cast::<State>()) };
    let started = Instant::now();
    while !state.open.load(Ordering::Acquire) {
        if started.elapsed() > PATIENCE {
            state.gave_up.store(true, Ordering::Release);
            return;
        }
        thread::sleep(POLL_EVERY);
    }
}

unsafe extern "C" fn sleep_micros(argument: *mut c_void) {
    thread::sleep(Duration::from_micros(argument.addr() as u64));
}

/// Seldom enough to disturb nobody.
const POLL_EVERY: Duration = Duration::from_micros(200);
