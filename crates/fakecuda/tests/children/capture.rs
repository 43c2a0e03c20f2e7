//! Stream capture.

use crate::support::*;

#[test]
fn a_captured_copy_runs_at_every_launch() {
    in_child(module_path!(), "a_captured_copy_runs_at_every_launch", &[], |control| {
        let (context, stream) = open();
        let slice = stream.alloc_zeros::<u8>(100).unwrap();
        let (pointer, mut pinned) = (raw(&slice, &stream), Pinned::new(1, 100));
        stream.synchronize().unwrap();
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream.begin_capture(mode).unwrap();
        // SAFETY: the buffer outlives the graph.
        unsafe { result::memcpy_htod_async(pointer, pinned.bytes(), stream.cu_stream()) }.unwrap();
        let graph = stream.end_capture(GRAPH_FLAGS).unwrap().unwrap();
        assert_eq!(device_bytes(&stream, &slice), vec![0; 100], "captured, not run");
        for byte in [7, 8] {
            pinned.set(byte);
            graph.launch().unwrap();
            assert_eq!(device_bytes(&stream, &slice), vec![byte; 100]);
        }
        pinned.free().unwrap();
        assert_eq!(control.violations(), 0);
        assert_eq!(code(graph.launch()), CUresult::CUDA_SUCCESS);
        assert_eq!(code(stream.synchronize()), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        assert!(control.violations() >= 1, "the graph still names the freed memory");
        drop(context);
    });
}

#[test]
fn asking_a_captured_event_ruins_the_capture() {
    in_child(module_path!(), "asking_a_captured_event_ruins_the_capture", &[], |_| {
        let (context, stream) = open();
        let event = context.new_event(None).unwrap();
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        stream.begin_capture(mode).unwrap();
        event.record(&stream).unwrap();
        // SAFETY: the event is live.
        let asked = unsafe { result::event::query(event.cu_event()) };
        assert_eq!(code(asked), CUresult::CUDA_ERROR_CAPTURED_EVENT);
        let status = stream.capture_status().unwrap();
        assert_eq!(status, sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED);
        let ended = stream.end_capture(GRAPH_FLAGS);
        assert_eq!(code(ended), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    });
}

#[test]
fn a_global_capture_forbids_unsafe_calls_of_other_threads() {
    in_child(module_path!(), "a_global_capture_forbids_unsafe_calls_of_other_threads", &[], |_| {
        let (context, stream) = open();
        let event = context.new_event(None).unwrap();
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        let query = |relaxed: bool| {
            std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
                    if relaxed {
                        // SAFETY: the place is valid.
                        let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
                    }
                    // SAFETY: the event is live.
                    code(unsafe { result::event::query(event.cu_event()) })
                });
                thread.join().unwrap()
            })
        };
        stream.begin_capture(mode).unwrap();
        assert_eq!(query(true), CUresult::CUDA_SUCCESS);
        assert_eq!(query(false), CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        let ended = stream.end_capture(GRAPH_FLAGS);
        assert_eq!(code(ended), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    });
}

#[test]
fn asking_which_stream_it_is_ruins_its_capture() {
    in_child(module_path!(), "asking_which_stream_it_is_ruins_its_capture", &[], |_| {
        let (context, stream) = open();
        let other = context.new_stream().unwrap();
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        stream.begin_capture(mode).unwrap();
        assert_ne!(stream_id(&other), 0, "others can be asked");
        let status = stream.capture_status().unwrap();
        assert_eq!(status, sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE);
        let (refused, _) = ask_stream_id(&stream);
        assert_eq!(refused, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED as i32);
        let ended = stream.end_capture(GRAPH_FLAGS);
        assert_eq!(code(ended), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    });
}
