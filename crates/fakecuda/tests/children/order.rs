//! The order within a stream, between streams, and with the host.

use crate::support::*;

#[test]
fn streams_wait_for_one_another() {
    in_child(module_path!(), "streams_wait_for_one_another", &[], |control| {
        let (context, one) = open();
        let two = context.new_stream().unwrap();
        let slice = one.alloc_zeros::<u8>(100).unwrap();
        let (pointer, pinned) = (raw(&slice, &one), Pinned::new(5, 100));
        let target = Pinned::new(0, 100);
        context.synchronize().unwrap();
        control.hold_stream(handle(&one));
        // SAFETY: the buffer outlives the copy.
        unsafe { result::memcpy_htod_async(pointer, pinned.bytes(), one.cu_stream()) }.unwrap();
        two.join(&one).unwrap();
        let (to, from) = (target.at, pointer);
        // SAFETY: the buffer outlives the copy.
        let queued = unsafe { sys::cuMemcpyDtoHAsync_v2(to, from, 100, two.cu_stream()) };
        assert_eq!(queued, CUresult::CUDA_SUCCESS);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(control.pending(handle(&two)), 2, "the second stream waits, though not held");
        // One step is the copy, the next is the recorded event.
        control.step(handle(&one), 1);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(control.pending(handle(&two)), 2);
        control.step(handle(&one), 1);
        two.synchronize().unwrap();
        assert_eq!(target.bytes(), [5; 100]);
        control.release();
        target.free().unwrap();
        pinned.free().unwrap();
        assert_eq!(control.violations(), 0);
    });
}

#[test]
fn the_null_stream_waits_for_blocking_streams_only() {
    in_child(module_path!(), "the_null_stream_waits_for_blocking_streams_only", &[], |control| {
        let (context, free) = open();
        let blocking = result::stream::create(result::stream::StreamKind::Default).unwrap();
        let slice = free.alloc_zeros::<u8>(100).unwrap();
        let pointer = raw(&slice, &free);
        context.synchronize().unwrap();
        control.hold_stream(blocking.addr());
        // SAFETY: the device memory outlives the fill.
        unsafe { result::memset_d8_async(pointer, 1, 100, blocking) }.unwrap();
        let event = context.default_stream().record_event(None).unwrap();
        free.synchronize().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(!event.is_complete());
        control.release_stream(blocking.addr());
        event.synchronize().unwrap();
        assert_eq!(device_bytes(&free, &slice), vec![1; 100]);
        // SAFETY: the stream is ours and not used again.
        unsafe { result::stream::destroy(blocking) }.unwrap();
    });
}

#[test]
fn a_destroyed_stream_finishes_its_work_and_its_handle_can_come_back() {
    let name = "a_destroyed_stream_finishes_its_work_and_its_handle_can_come_back";
    in_child(module_path!(), name, &[("FAKECUDA_REUSE_HANDLES", "1")], |control| {
        let (context, keep) = open();
        let slice = keep.alloc_zeros::<u8>(100).unwrap();
        let (pointer, pinned) = (raw(&slice, &keep), Pinned::new(3, 100));
        context.synchronize().unwrap();
        let stream = context.new_stream().unwrap();
        let (old, event) = (handle(&stream), context.new_event(None).unwrap());
        let id = stream_id(&stream);
        control.hold();
        // SAFETY: the buffer outlives the copy.
        unsafe { result::memcpy_htod_async(pointer, pinned.bytes(), stream.cu_stream()) }.unwrap();
        event.record(&stream).unwrap();
        drop(stream);
        assert!(!event.is_complete());
        let next = context.new_stream().unwrap();
        assert_eq!(handle(&next), old, "the handle is used again");
        assert_ne!(stream_id(&next), id, "but the identity is not");
        control.release();
        event.synchronize().unwrap();
        assert_eq!(device_bytes(&keep, &slice), vec![3; 100]);
        pinned.free().unwrap();
        assert_eq!(control.violations(), 0);
    });
}

#[test]
fn host_functions_run_in_order_and_may_not_call_the_driver() {
    extern "C" fn ask(answer: *mut c_void) {
        let code = code(result::device::get_count()) as i32;
        // SAFETY: the test passes room for one number, alive until the stream was waited for.
        unsafe { answer.cast::<i32>().write(code) };
    }
    in_child(
        module_path!(),
        "host_functions_run_in_order_and_may_not_call_the_driver",
        &[],
        |control| {
            let (_context, stream) = open();
            let mut answer = Box::new(0_i32);
            let room: *mut c_void = std::ptr::from_mut(&mut *answer).cast();
            control.hold();
            // SAFETY: `answer` outlives the wait below.
            unsafe { sys::cuLaunchHostFunc(stream.cu_stream(), Some(as_host_fn(ask)), room) };
            control.release();
            stream.synchronize().unwrap();
            assert_eq!(*answer, 800, "CUDA_ERROR_NOT_PERMITTED");
            assert_eq!(control.callback_calls(), 1);
        },
    );
}

/// cudarc declares host functions as unsafe to call.
fn as_host_fn(function: extern "C" fn(*mut c_void)) -> unsafe extern "C" fn(*mut c_void) {
    function
}

#[test]
fn an_event_of_a_context_covers_all_its_streams() {
    in_child(module_path!(), "an_event_of_a_context_covers_all_its_streams", &[], |control| {
        let (context, one) = open();
        let two = context.new_stream().unwrap();
        let slice = one.alloc_zeros::<u8>(100).unwrap();
        let pointer = raw(&slice, &one);
        let event = context.new_event(None).unwrap();
        context.synchronize().unwrap();
        control.hold();
        for stream in [&one, &two] {
            // SAFETY: the device memory outlives the fill.
            unsafe { result::memset_d8_async(pointer, 1, 100, stream.cu_stream()) }.unwrap();
        }
        let record = newer::<extern "C" fn(usize, usize) -> i32>("cuCtxRecordEvent");
        assert_eq!(record(context.cu_ctx().addr(), event.cu_event().addr()), 0);
        control.step(handle(&one), 2);
        while control.pending(handle(&one)) > 0 {
            std::thread::yield_now();
        }
        assert!(!event.is_complete(), "the second stream has not run");
        control.release();
        event.synchronize().unwrap();
    });
}
