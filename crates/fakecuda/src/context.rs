//! Contexts: the primary one of each device, and those that callers make.

use std::collections::BTreeMap;

use crate::abi::Res;
use crate::codes;
use crate::host_memory;
use crate::state::{self, Guard, State};
use crate::streams::StreamId;

/// A live context.
pub(crate) struct Context {
    pub(crate) device: i32,
    pub(crate) flags: u32,
    pub(crate) null_stream: StreamId,
    /// Default streams of threads, by thread number.
    pub(crate) per_thread: BTreeMap<u64, StreamId>,
}

/// A device's primary context while it is retained.
pub(crate) struct Primary {
    pub(crate) handle: usize,
    retained: u64,
}

impl State {
    /// Checks a device number.
    pub(crate) fn device(&self, device: i32) -> Res<i32> {
        if (0..self.config.devices).contains(&device) {
            Ok(device)
        } else {
            Err(codes::INVALID_DEVICE)
        }
    }

    pub(crate) fn create_context(&mut self, device: i32, flags: u32) -> Res<usize> {
        self.device(device)?;
        if self.config.compute_mode == COMPUTE_MODE_PROHIBITED {
            return Err(codes::UNKNOWN);
        }
        let handle = self.new_handle();
        let null_stream = self.new_stream(handle, 0, 0);
        let per_thread = BTreeMap::new();
        self.contexts.insert(handle, Context { device, flags, null_stream, per_thread });
        Ok(handle)
    }

    pub(crate) fn retain_primary(&mut self, device: i32) -> Res<usize> {
        if let Some(primary) = self.primaries.get_mut(&device) {
            primary.retained += 1;
            return Ok(primary.handle);
        }
        let handle = self.create_context(device, 0)?;
        self.primaries.insert(device, Primary { handle, retained: 1 });
        Ok(handle)
    }
}

/// Gives a retained primary context back; the last one destroys it.
pub(crate) fn release_primary(state: &mut Guard, device: i32) -> Res {
    state.device(device)?;
    let primary = state.primaries.get_mut(&device).ok_or(codes::INVALID_CONTEXT)?;
    primary.retained -= 1;
    if primary.retained > 0 {
        return Ok(());
    }
    reset_primary(state, device)
}

pub(crate) fn reset_primary(state: &mut Guard, device: i32) -> Res {
    state.device(device)?;
    let Some(primary) = state.primaries.remove(&device) else { return Ok(()) };
    destroy(state, primary.handle)
}

/// Finishes a context's work, then takes everything away that lives in it.
pub(crate) fn destroy(state: &mut Guard, handle: usize) -> Res {
    if !state.contexts.contains_key(&handle) {
        return Err(codes::INVALID_CONTEXT);
    }
    // A lost device has no work left to wait for.
    let _ = state::drain_until(state, |state| {
        state.streams.values().all(|stream| stream.context != handle || stream.is_idle())
    });
    state.contexts.remove(&handle);
    let streams: Vec<StreamId> = state
        .streams
        .iter()
        .filter_map(|(&id, stream)| (stream.context == handle).then_some(id))
        .collect();
    for id in streams {
        state.stream_handles.retain(|_, other| *other != id);
        state.retire_stream(id);
    }
    state.events.retain(|_, event| event.context != handle);
    for address in state.device.of_context(handle) {
        if let Some(gone) = state.device.remove(address) {
            state.device.give_back(gone.device, gone.len);
        }
    }
    for base in state.host.of_context(handle) {
        if let Some(region) = state.host.remove(base)
            && region.allocated
        {
            host_memory::unmap(base, region.len);
        }
    }
    if state.contexts.is_empty() {
        // A lost device comes back with its next context.
        state.sticky = None;
    }
    state::changed();
    Ok(())
}

/// What a device's compute mode is when no process may use it.
const COMPUTE_MODE_PROHIBITED: i32 = 2;
