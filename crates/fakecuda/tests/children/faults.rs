//! Planned faults, lost devices and misuse that is counted.

use crate::support::*;

#[test]
fn the_chosen_call_fails() {
    let plan = [("FAKECUDA_FAIL", "cuEventRecord:2:719,cuMemHostAlloc:1+:2")];
    in_child(module_path!(), "the_chosen_call_fails", &plan, |control| {
        let (context, stream) = open();
        let event = context.new_event(None).unwrap();
        let records: Vec<CUresult> = (0..3).map(|_| code(event.record(&stream))).collect();
        assert_eq!(
            records,
            [CUresult::CUDA_SUCCESS, CUresult::CUDA_ERROR_LAUNCH_FAILED, CUresult::CUDA_SUCCESS]
        );
        for _ in 0..2 {
            // SAFETY: nothing reads the memory.
            let refused = unsafe { context.alloc_pinned::<u8>(64) };
            assert_eq!(code(refused), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        control.clear_faults();
        // SAFETY: nothing reads the memory.
        assert!(unsafe { context.alloc_pinned::<u8>(64) }.is_ok());
        control.fail("cuStreamSynchronize:1:700").unwrap();
        assert_eq!(code(stream.synchronize()), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        assert!(stream.synchronize().is_ok());
        assert!(control.fail("nonsense").is_err());
    });
}

#[test]
fn a_lost_device_answers_and_never_hangs() {
    let plan = [("FAKECUDA_FAIL", "async-copy:1:700")];
    in_child(module_path!(), "a_lost_device_answers_and_never_hangs", &plan, |control| {
        let (context, stream) = open();
        let slice = stream.alloc_zeros::<u8>(1000).unwrap();
        let (pointer, pinned) = (raw(&slice, &stream), Pinned::new(1, 1000));
        // SAFETY: the buffer outlives the copy.
        unsafe { result::memcpy_htod_async(pointer, pinned.bytes(), stream.cu_stream()) }.unwrap();
        assert_eq!(code(stream.synchronize()), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_eq!(code(context.new_event(None)), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_eq!(code(pinned.free()), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_eq!(control.pinned_bytes(), 1000, "a failed call changes nothing");
        control.poison(0);
        assert!(context.new_event(None).is_ok());
        control.poison(719);
        assert_eq!(code(stream.synchronize()), CUresult::CUDA_ERROR_LAUNCH_FAILED);
        drop((slice, stream, context));
        let (_context, stream) = open();
        assert!(stream.synchronize().is_ok(), "a new context starts afresh");
    });
}

#[test]
fn a_late_call_holds_up_nobody_else() {
    let plan = [("FAKECUDA_FAIL", "cuEventRecord:2:sleep=1000")];
    in_child(module_path!(), "a_late_call_holds_up_nobody_else", &plan, |control| {
        let (context, stream) = open();
        let event = context.new_event(None).unwrap();
        event.record(&stream).unwrap();
        let start = Instant::now();
        std::thread::scope(|scope| {
            let late = scope.spawn(|| event.record(&stream));
            while control.calls("cuEventRecord") < 2 {
                std::thread::yield_now();
            }
            for _ in 0..100 {
                stream.synchronize().unwrap();
            }
            assert!(!late.is_finished(), "the other calls went ahead");
            late.join().unwrap().unwrap();
        });
        assert!(start.elapsed() >= Duration::from_secs(1));
        event.record(&stream).unwrap();
        event.synchronize().unwrap();
    });
}

#[test]
fn a_late_copy_delays_its_stream() {
    let plan = [("FAKECUDA_FAIL", "async-copy:1+:sleep=30")];
    in_child(module_path!(), "a_late_copy_delays_its_stream", &plan, |control| {
        let (_context, stream) = open();
        let slice = stream.alloc_zeros::<u8>(1000).unwrap();
        let start = Instant::now();
        assert_eq!(device_bytes(&stream, &slice), vec![0; 1000]);
        assert!(start.elapsed() >= Duration::from_millis(30));
        assert!(control.fail("cuEventRecord:1:sleep=soon").is_err());
    });
}

#[test]
fn calls_on_destroyed_handles_are_counted() {
    in_child(module_path!(), "calls_on_destroyed_handles_are_counted", &[], |control| {
        let (context, stream) = open();
        let (old, event) = (stream.cu_stream(), context.new_event(None).unwrap());
        drop(stream);
        assert_eq!(control.stale_handles(), 0, "a destruction is no misuse");
        // SAFETY: the fake looks the handle up.
        let asked = unsafe { result::event::record(event.cu_event(), old) };
        assert_eq!(code(asked), CUresult::CUDA_ERROR_INVALID_HANDLE);
        let gone = event.cu_event();
        drop(event);
        // SAFETY: as above.
        let asked = unsafe { result::event::query(gone) };
        assert_eq!(code(asked), CUresult::CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(control.stale_handles(), 2);
        // SAFETY: as above; no handle was ever this.
        let asked = unsafe { result::event::query(std::ptr::without_provenance_mut(64)) };
        assert_eq!(code(asked), CUresult::CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(control.stale_handles(), 2, "never valid, so not stale");
    });
}
