//! Streams: making, asking, waiting, host functions and capture.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use super::{Handle, known_flags};
use crate::abi::{Call, Out, Res, driver_api};
use crate::capture;
use crate::codes;
use crate::state::wait_until;
use crate::streams::{NON_BLOCKING, StreamId};
use crate::work::{HostFunction, Op};

/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`; 0 is none.
const CAPTURE_ACTIVE: c_int = 1;
/// `CU_STREAM_CAPTURE_STATUS_INVALIDATED`.
const CAPTURE_INVALIDATED: c_int = 2;

driver_api! {
    fn cuStreamCreate[Context](call, stream: Out<Handle>, flags: c_uint) {
        create(call, &stream, flags, 0)
    }

    fn cuStreamCreateWithPriority[Context](
        call,
        stream: Out<Handle>,
        flags: c_uint,
        priority: c_int,
    ) {
        create(call, &stream, flags, priority)
    }

    /// Queued work still runs.
    fn cuStreamDestroy_v2[Work](call, stream: Handle) {
        call.state.close_stream(stream)
    }

    fn cuStreamSynchronize[Work](call, stream: Handle) {
        let id = find(call, stream)?;
        call.state.refuse_if_capturing(id)?;
        let mark = call.state.mark(id)?;
        wait_until(&mut call.state, |_| mark.is_done())
    }

    fn cuStreamQuery[Work](call, stream: Handle) {
        let id = find(call, stream)?;
        call.state.refuse_if_capturing(id)?;
        if call.state.is_quiet(id)? { Ok(()) } else { Err(codes::NOT_READY) }
    }

    fn cuStreamWaitEvent[Work](call, stream: Handle, event: Handle, flags: c_uint) {
        known_flags(flags, 1)?;
        let id = find(call, stream)?;
        call.state.wait_event(id, event)
    }

    fn cuStreamGetCtx[Work](call, stream: Handle, context: Out<Handle>) {
        let id = find(call, stream)?;
        context.set(call.state.stream_ref(id)?.context)
    }

    /// Ruins a capture of the stream, as seen on a real driver; the manual does not say so.
    fn cuStreamGetId[Work](call, stream: Handle, id: Out<c_ulonglong>) {
        let found = find(call, stream)?;
        call.state.refuse_if_capturing(found)?;
        id.set(found.0)
    }

    fn cuStreamGetFlags[Work](call, stream: Handle, flags: Out<c_uint>) {
        let id = find(call, stream)?;
        flags.set(call.state.stream_ref(id)?.flags)
    }

    fn cuStreamGetPriority[Work](call, stream: Handle, priority: Out<c_int>) {
        let id = find(call, stream)?;
        priority.set(call.state.stream_ref(id)?.priority)
    }

    fn cuStreamGetDevice[Work](call, stream: Handle, device: Out<c_int>) {
        let id = find(call, stream)?;
        let context = call.state.stream_ref(id)?.context;
        device.set(call.state.contexts.get(&context).ok_or(codes::INVALID_CONTEXT)?.device)
    }

    fn cuLaunchHostFunc[Work](
        call,
        stream: Handle,
        function: Option<extern "C" fn(*mut c_void)>,
        argument: *mut c_void,
    ) {
        let function = function.ok_or(codes::INVALID_VALUE)?;
        let id = find(call, stream)?;
        let argument = argument.expose_provenance();
        call.state.enqueue(id, Op::Call(HostFunction { function, argument }))
    }

    fn cuStreamBeginCapture_v2[Work](call, stream: Handle, mode: c_uint) {
        let id = find(call, stream)?;
        call.state.begin_capture(id, mode)
    }

    fn cuStreamEndCapture[Work](call, stream: Handle, graph: Out<Handle>) {
        let id = find(call, stream)?;
        match call.state.end_capture(id) {
            Ok(handle) => graph.set(handle),
            Err(code) => {
                graph.set_if_wanted(0);
                Err(code)
            }
        }
    }

    fn cuStreamIsCapturing[Work](call, stream: Handle, status: Out<c_int>) {
        status.set(capture_status(call, stream)?)
    }

    fn cuStreamGetCaptureInfo_v2[Work](
        call,
        stream: Handle,
        status: Out<c_int>,
        id: Out<c_ulonglong>,
        graph: Out<Handle>,
        dependencies: Out<*const c_void>,
        count: Out<usize>,
    ) {
        status.set(capture_status(call, stream)?)?;
        id.set_if_wanted(find(call, stream)?.0);
        graph.set_if_wanted(0);
        dependencies.set_if_wanted(std::ptr::null());
        count.set_if_wanted(0);
        Ok(())
    }

    fn cuThreadExchangeStreamCaptureMode[Work](_call, mode: Out<c_uint>) {
        mode.set(capture::exchange_mode(mode.get()?)?)
    }
}

fn create(call: &mut Call, stream: &Out<Handle>, flags: c_uint, priority: c_int) -> Res {
    let flags = known_flags(flags, NON_BLOCKING)?;
    let context = call.current()?;
    stream.set(call.state.open_stream(context, flags, priority))
}

fn find(call: &mut Call, stream: Handle) -> Res<StreamId> {
    call.state.stream(stream, call.context)
}

fn capture_status(call: &mut Call, stream: Handle) -> Res<c_int> {
    let id = find(call, stream)?;
    Ok(match &call.state.stream_ref(id)?.capture {
        None => 0,
        Some(capture) if capture.is_valid() => CAPTURE_ACTIVE,
        Some(_) => CAPTURE_INVALIDATED,
    })
}
