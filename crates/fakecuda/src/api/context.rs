//! Primary contexts, other contexts, and which one is current.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use super::Handle;
use crate::abi::{Call, Out, Res, driver_api};
use crate::codes;
use crate::context::{destroy, release_primary, reset_primary};
use crate::state::{self, wait_until};

driver_api! {
    fn cuDevicePrimaryCtxRetain[Init](call, context: Out<Handle>, device: c_int) {
        context.set(call.state.retain_primary(device)?)
    }

    fn cuDevicePrimaryCtxRelease_v2[Init](call, device: c_int) {
        release_primary(&mut call.state, device)
    }

    fn cuDevicePrimaryCtxReset_v2[Init](call, device: c_int) {
        reset_primary(&mut call.state, device)
    }

    fn cuDevicePrimaryCtxSetFlags_v2[Init](call, device: c_int, flags: c_uint) {
        call.state.device(device)?;
        let handle = call.state.primaries.get(&device).map(|primary| primary.handle);
        if let Some(context) = handle.and_then(|handle| call.state.contexts.get_mut(&handle)) {
            context.flags = flags;
        }
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState[Init](
        call,
        device: c_int,
        flags: Out<c_uint>,
        active: Out<c_int>,
    ) {
        call.state.device(device)?;
        let handle = call.state.primaries.get(&device).map(|primary| primary.handle);
        let context = handle.and_then(|handle| call.state.contexts.get(&handle));
        flags.set(context.map_or(0, |context| context.flags))?;
        active.set(c_int::from(context.is_some()))
    }

    fn cuCtxCreate_v2[Init](call, context: Out<Handle>, flags: c_uint, device: c_int) {
        create(call, &context, flags, device)
    }

    fn cuCtxCreate_v3[Init](
        call,
        context: Out<Handle>,
        _params: *const c_void,
        _count: c_int,
        flags: c_uint,
        device: c_int,
    ) {
        create(call, &context, flags, device)
    }

    fn cuCtxCreate_v4[Init](
        call,
        context: Out<Handle>,
        _params: *const c_void,
        flags: c_uint,
        device: c_int,
    ) {
        create(call, &context, flags, device)
    }

    fn cuCtxDestroy_v2[Init](call, context: Handle) {
        if call.state.primaries.values().any(|primary| primary.handle == context) {
            return Err(codes::INVALID_CONTEXT);
        }
        destroy(&mut call.state, context)?;
        if call.context == Some(context) {
            state::pop_context();
        }
        Ok(())
    }

    fn cuCtxGetCurrent[Init](call, context: Out<Handle>) {
        context.set(call.context.unwrap_or(0))
    }

    fn cuCtxSetCurrent[Init](call, context: Handle) {
        live(call, context, true)?;
        state::set_current_context(context);
        Ok(())
    }

    fn cuCtxPushCurrent_v2[Init](call, context: Handle) {
        live(call, context, false)?;
        state::push_context(context)
    }

    fn cuCtxPopCurrent_v2[Init](_call, context: Out<Handle>) {
        context.set_if_wanted(state::pop_context().ok_or(codes::INVALID_CONTEXT)?);
        Ok(())
    }

    fn cuCtxGetDevice[Context](call, device: Out<c_int>) {
        let current = call.current()?;
        let context = call.state.contexts.get(&current).ok_or(codes::INVALID_CONTEXT)?;
        device.set(context.device)
    }

    fn cuCtxGetFlags[Context](call, flags: Out<c_uint>) {
        let current = call.current()?;
        let context = call.state.contexts.get(&current).ok_or(codes::INVALID_CONTEXT)?;
        flags.set(context.flags)
    }

    fn cuCtxSetFlags[Context](call, flags: c_uint) {
        let current = call.current()?;
        let context = call.state.contexts.get_mut(&current).ok_or(codes::INVALID_CONTEXT)?;
        context.flags = flags;
        Ok(())
    }

    fn cuCtxGetId[Init](call, context: Handle, id: Out<c_ulonglong>) {
        let context = if context == 0 { call.current()? } else { context };
        live(call, context, false)?;
        id.set(context as c_ulonglong)
    }

    fn cuCtxGetApiVersion[Init](call, context: Handle, version: Out<c_uint>) {
        live(call, context, true)?;
        version.set(3020)
    }

    fn cuCtxGetStreamPriorityRange[Context](_call, least: Out<c_int>, greatest: Out<c_int>) {
        least.set_if_wanted(0);
        greatest.set_if_wanted(-5);
        Ok(())
    }

    fn cuCtxEnablePeerAccess[Context](call, peer: Handle, flags: c_uint) {
        if flags != 0 {
            return Err(codes::INVALID_VALUE);
        }
        live(call, peer, false)
    }

    /// Waits for the present work of all streams of the context.
    fn cuCtxSynchronize[Context](call) {
        let current = call.current()?;
        call.state.refuse_during_capture()?;
        let ids: Vec<_> = call
            .state
            .streams
            .iter()
            .filter_map(|(&id, stream)| (stream.context == current).then_some(id))
            .collect();
        for &id in &ids {
            call.state.refuse_if_capturing(id)?;
        }
        let marks = ids.into_iter().map(|id| call.state.mark(id)).collect::<Res<Vec<_>>>()?;
        wait_until(&mut call.state, |_| marks.iter().all(|mark| mark.is_done()))
    }
}

fn create(call: &mut Call, context: &Out<Handle>, flags: c_uint, device: c_int) -> Res {
    let handle = call.state.create_context(device, flags)?;
    state::push_context(handle)?;
    context.set(handle)
}

/// Checks that the handle is a live context, or null where that is allowed.
fn live(call: &Call, context: Handle, null_allowed: bool) -> Res {
    if (context == 0 && null_allowed) || call.state.contexts.contains_key(&context) {
        Ok(())
    } else {
        Err(codes::INVALID_CONTEXT)
    }
}
