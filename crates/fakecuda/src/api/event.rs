//! Events.

use std::ffi::c_uint;

use super::{Handle, known_flags};
use crate::abi::{Call, Out, Res, driver_api};
use crate::codes;
use crate::events::{DISABLE_TIMING, Event, INTERPROCESS};
use crate::state::wait_until;

/// `CU_EVENT_BLOCKING_SYNC`; waiting here never spins.
const BLOCKING_SYNC: u32 = 1;

driver_api! {
    fn cuEventCreate[Context](call, event: Out<Handle>, flags: c_uint) {
        let flags = known_flags(flags, BLOCKING_SYNC | DISABLE_TIMING | INTERPROCESS)?;
        if flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0 {
            return Err(codes::INVALID_VALUE);
        }
        let context = call.current()?;
        let handle = call.state.new_handle();
        event.set(handle)?;
        call.state.events.insert(handle, Event::new(context, flags));
        Ok(())
    }

    fn cuEventDestroy_v2[Context](call, event: Handle) {
        match call.state.events.remove(&event) {
            Some(_) => Ok(()),
            None => Err(call.state.no_such_handle(event)),
        }
    }

    fn cuEventRecord[Work](call, event: Handle, stream: Handle) {
        record(call, event, stream)
    }

    fn cuEventRecordWithFlags[Work](call, event: Handle, stream: Handle, flags: c_uint) {
        known_flags(flags, 1)?;
        record(call, event, stream)
    }

    fn cuCtxRecordEvent[Work](call, context: Handle, event: Handle) {
        let context = if context == 0 { call.current()? } else { context };
        if !call.state.contexts.contains_key(&context) {
            return Err(codes::INVALID_CONTEXT);
        }
        call.state.record_context(event, context)
    }

    fn cuEventQuery[Work](call, event: Handle) {
        let done = call.state.event_outside_capture(event)?.is_done();
        call.state.refuse_during_capture()?;
        if done { Ok(()) } else { Err(codes::NOT_READY) }
    }

    fn cuEventSynchronize[Work](call, event: Handle) {
        let marks = call.state.event_outside_capture(event)?.marks();
        call.state.refuse_during_capture()?;
        wait_until(&mut call.state, |_| marks.iter().all(|mark| mark.is_done()))
    }

    fn cuEventElapsedTime[Work](call, millis: Out<f32>, from: Handle, to: Handle) {
        millis.set(call.state.elapsed_ms(from, to)?)
    }

    fn cuEventElapsedTime_v2[Work](call, millis: Out<f32>, from: Handle, to: Handle) {
        millis.set(call.state.elapsed_ms(from, to)?)
    }
}

/// The null stream is that of the current context, so recording there needs one.
fn record(call: &mut Call, event: Handle, stream: Handle) -> Res {
    let id = call.state.stream(stream, call.context)?;
    call.state.record(event, id)
}
