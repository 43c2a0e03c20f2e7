//! The test's side of the library: exported C functions that no real driver has.
//!
//! None of them counts as a driver call, and all work before `cuInit`.

use std::ffi::{c_int, c_uint};
use std::time::Duration;

use super::Handle;
use crate::abi::Text;
use crate::codes::{self, CuResult};
use crate::control::INTERFACE_VERSION;
use crate::state::{self, lock};
use crate::streams::Stream;

/// Tells a library of this kind from a real driver; the version of this list of functions.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_version() -> c_uint {
    INTERFACE_VERSION
}

/// Stops all streams before their next operation.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_hold() {
    lock().held = true;
}

/// Lets all streams run again, also those held one by one.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_release() {
    let mut state = lock();
    state.held = false;
    for stream in state.streams.values_mut() {
        stream.held = false;
        stream.steps = 0;
    }
    state.wake_streams();
}

/// Stops one stream before its next operation.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_hold_stream(stream: Handle) -> CuResult {
    with_stream(stream, |stream| stream.held = true)
}

/// Lets one stream run again, unless all are held.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_release_stream(stream: Handle) -> CuResult {
    with_stream(stream, |stream| {
        stream.held = false;
        stream.steps = 0;
    })
}

/// Lets a held stream run `count` operations: copies, fills, host functions, recordings, waits.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_step(stream: Handle, count: u64) -> CuResult {
    with_stream(stream, |stream| stream.steps += count)
}

/// Operations that a stream has not finished.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_pending(stream: Handle) -> u64 {
    let mut state = lock();
    let context = state::current_context();
    match state.stream(stream, context).and_then(|id| state.stream_ref(id)) {
        Ok(stream) => stream.pending() as u64,
        Err(_) => 0,
    }
}

/// How long each copy takes from now on.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_set_copy_delay_us(micros: u64) {
    lock().config.copy_delay = Duration::from_micros(micros);
}

/// Plans a fault in the words of `FAKECUDA_FAIL`, counted from now on.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_fail(plan: Text) -> CuResult {
    let Ok(plan) = plan.get() else { return codes::INVALID_VALUE };
    match lock().plan_fault(plan) {
        Ok(()) => codes::SUCCESS,
        Err(why) => {
            state::report(&why);
            codes::INVALID_VALUE
        }
    }
}

/// Forgets all planned faults.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_clear_faults() {
    lock().clear_faults();
}

/// Loses the device: queued work never runs, every call returns `code`. 0 brings it back.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_poison(code: CuResult) {
    let mut state = lock();
    if code == codes::SUCCESS {
        state.sticky = None;
    } else {
        state.poison(code);
    }
}

/// Calls of a driver function since the start or the last reset; null asks for all functions.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_calls(name: Text) -> u64 {
    let state = lock();
    if name.is_null() {
        return state.calls(None);
    }
    name.get().map_or(0, |name| state.calls(Some(name)))
}

/// Sets calls, violations, overwrites and the like back to 0.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_reset_counters() {
    lock().reset_counters();
}

/// Memory that was unregistered, freed or unmapped while a queued copy still used it.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_violations() -> u64 {
    lock().violations
}

/// Copies to the device whose host bytes changed between the call and the copying.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_overwrites() -> u64 {
    lock().overwrites
}

/// Calls that named a stream or an event which was destroyed before.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_stale_handles() -> u64 {
    lock().stale_handles
}

/// Driver calls made inside host functions.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_callback_calls() -> u64 {
    lock().callback_calls
}

/// Host bytes that are registered or were allocated by the driver.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_pinned_bytes() -> u64 {
    lock().host.pinned_bytes()
}

/// Host bytes of ranges that are registered and not wholly mapped any more.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_lost_bytes() -> u64 {
    lock().host.lost_bytes()
}

/// Device bytes in use, on all devices.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_device_bytes() -> u64 {
    lock().device.total_used_bytes()
}

/// Events created and not destroyed.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_live_events() -> u64 {
    lock().events.len() as u64
}

/// Streams created and not destroyed; default streams do not count.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_live_streams() -> u64 {
    lock().stream_handles.len() as u64
}

/// Contexts that exist, primary ones included.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_live_contexts() -> u64 {
    lock().contexts.len() as u64
}

fn with_stream(handle: Handle, change: impl FnOnce(&mut Stream)) -> c_int {
    let mut state = lock();
    let context = state::current_context();
    let found = state.stream(handle, context).and_then(|id| state.stream_ref(id).map(change));
    state.wake_streams();
    found.err().unwrap_or(codes::SUCCESS)
}
