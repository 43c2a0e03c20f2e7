//! When host memory is read, and what happens to memory that goes away too early.

use crate::support::*;

#[test]
fn pinned_memory_is_read_when_the_copy_runs() {
    in_child(module_path!(), "pinned_memory_is_read_when_the_copy_runs", &[], |control| {
        let (_context, stream) = open();
        let slice = stream.alloc_zeros::<u8>(1000).unwrap();
        let (pointer, mut pinned) = (raw(&slice, &stream), Pinned::new(1, 1000));
        stream.synchronize().unwrap();
        control.hold();
        // SAFETY: the buffer outlives the copy; changing it meanwhile is the point of the test.
        unsafe { result::memcpy_htod_async(pointer, pinned.bytes(), stream.cu_stream()) }.unwrap();
        let event = stream.record_event(None).unwrap();
        assert!(!event.is_complete());
        assert_eq!(control.pending(handle(&stream)), 2);
        pinned.set(2);
        std::thread::sleep(Duration::from_millis(20));
        assert!(!event.is_complete(), "held streams stand still");
        control.release();
        event.synchronize().unwrap();
        assert!(event.is_complete());
        assert_eq!(device_bytes(&stream, &slice), vec![2; 1000]);
        assert_eq!(control.overwrites(), 1, "and the fake noticed");
        pinned.free().unwrap();
        assert_eq!(control.violations(), 0);
    });
}

#[test]
fn pageable_memory_is_read_when_the_copy_is_asked_for() {
    in_child(
        module_path!(),
        "pageable_memory_is_read_when_the_copy_is_asked_for",
        &[],
        |control| {
            let (_context, stream) = open();
            let mut slice = stream.alloc_zeros::<u8>(1000).unwrap();
            stream.synchronize().unwrap();
            control.hold();
            let mut pageable = vec![1_u8; 1000];
            stream.memcpy_htod(&pageable, &mut slice).unwrap();
            pageable.fill(2);
            control.release();
            assert_eq!(device_bytes(&stream, &slice), vec![1; 1000]);
            assert_eq!(control.overwrites(), 0);
        },
    );
}

#[test]
fn freeing_under_a_queued_copy_is_noticed_and_survived() {
    in_child(
        module_path!(),
        "freeing_under_a_queued_copy_is_noticed_and_survived",
        &[],
        |control| {
            let (_context, stream) = open();
            let slice = stream.alloc_zeros::<u8>(1000).unwrap();
            let (pointer, pinned) = (raw(&slice, &stream), Pinned::new(9, 1000));
            stream.synchronize().unwrap();
            control.hold();
            // SAFETY: the fake waits for the copy before it frees the memory.
            unsafe { result::memcpy_htod_async(pointer, pinned.bytes(), stream.cu_stream()) }
                .unwrap();
            pinned.free().unwrap();
            assert_eq!(control.violations(), 1);
            assert_eq!(control.pinned_bytes(), 0);
            control.release();
            assert_eq!(device_bytes(&stream, &slice), vec![9; 1000]);
        },
    );
}

#[test]
fn freeing_after_the_wait_is_no_violation() {
    let delay = [("FAKECUDA_COPY_DELAY_US", "20000")];
    in_child(module_path!(), "freeing_after_the_wait_is_no_violation", &delay, |control| {
        let (_context, stream) = open();
        let slice = stream.alloc_zeros::<u8>(1000).unwrap();
        let (pointer, pinned) = (raw(&slice, &stream), Pinned::new(9, 1000));
        let start = Instant::now();
        // SAFETY: the buffer is freed after the stream was waited for.
        unsafe { result::memcpy_htod_async(pointer, pinned.bytes(), stream.cu_stream()) }.unwrap();
        stream.synchronize().unwrap();
        assert!(start.elapsed() >= Duration::from_millis(20), "the copy takes its delay");
        pinned.free().unwrap();
        assert_eq!(control.violations(), 0);
    });
}

#[test]
fn memory_unmapped_under_a_queued_copy_is_noticed() {
    in_child(module_path!(), "memory_unmapped_under_a_queued_copy_is_noticed", &[], |control| {
        let (context, stream) = open();
        let slice = stream.alloc_zeros::<u8>(4096).unwrap();
        stream.synchronize().unwrap();
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping touches nothing else.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
        // SAFETY: the page is mapped.
        let registered = unsafe { sys::cuMemHostRegister_v2(at, 4096, 1) };
        assert_eq!(registered, CUresult::CUDA_SUCCESS);
        let pinned = Pinned { at, len: 4096 };
        let pointer = raw(&slice, &stream);
        control.hold();
        // SAFETY: the fake checks the pages before it reads them.
        unsafe { result::memcpy_htod_async(pointer, pinned.bytes(), stream.cu_stream()) }.unwrap();
        // SAFETY: the mapping is ours; the copy that needs it is the point of the test.
        unsafe { libc::munmap(at, 4096) };
        control.release();
        assert_eq!(code(context.synchronize()), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_eq!(control.violations(), 1);
    });
}

#[test]
fn many_threads_and_streams_keep_their_bytes() {
    const THREADS: u8 = 6;
    const ROUNDS: u8 = 100;
    in_child(module_path!(), "many_threads_and_streams_keep_their_bytes", &[], |control| {
        let context = CudaContext::new(0).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let context = &context;
                scope.spawn(move || {
                    let stream = context.new_stream().unwrap();
                    let mut slice = stream.alloc_zeros::<u8>(5000).unwrap();
                    for round in 0..ROUNDS {
                        let value = thread.wrapping_mul(31).wrapping_add(round);
                        stream.memcpy_htod(&[value; 5000], &mut slice).unwrap();
                        assert_eq!(device_bytes(&stream, &slice), vec![value; 5000]);
                    }
                });
            }
        });
        drop(context);
        assert_eq!(control.violations(), 0);
        assert_eq!(control.live_events(), 0);
        assert_eq!(control.device_bytes(), 0);
    });
}

#[test]
fn device_memory_freed_under_another_stream_is_noticed() {
    let name = "device_memory_freed_under_another_stream_is_noticed";
    in_child(module_path!(), name, &[], |control| {
        let (context, one) = open();
        let two = context.new_stream().unwrap();
        // SAFETY: the memory is given back below.
        let pointer = unsafe { result::malloc_async(one.cu_stream(), 100) }.unwrap();
        let target = Pinned::new(0, 100);
        control.hold_stream(handle(&two));
        // SAFETY: the buffer outlives the copy.
        let queued = unsafe { sys::cuMemcpyDtoHAsync_v2(target.at, pointer, 100, two.cu_stream()) };
        assert_eq!(queued, CUresult::CUDA_SUCCESS);
        // SAFETY: the fake keeps the bytes; freeing too early is the point of the test.
        unsafe { result::free_async(pointer, one.cu_stream()) }.unwrap();
        one.synchronize().unwrap();
        assert_eq!(control.violations(), 1);
        control.release();
        two.synchronize().unwrap();
        assert_eq!(control.device_bytes(), 0);
        target.free().unwrap();
        assert_eq!(control.violations(), 1);
    });
}

#[test]
fn memory_unmapped_before_it_is_unregistered_is_noticed() {
    let name = "memory_unmapped_before_it_is_unregistered_is_noticed";
    in_child(module_path!(), name, &[("FAKECUDA_PIN_MAX", "4096")], |control| {
        let (_context, _stream) = open();
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping touches nothing else.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), 8192, protection, flags, -1, 0) };
        // SAFETY: the pages are mapped.
        let both = unsafe { sys::cuMemHostRegister_v2(at, 8192, 1) };
        assert_eq!(both, CUresult::CUDA_ERROR_INVALID_VALUE, "more than FAKECUDA_PIN_MAX");
        // SAFETY: the page is mapped.
        let first = unsafe { sys::cuMemHostRegister_v2(at, 4096, 1) };
        assert_eq!(first, CUresult::CUDA_SUCCESS);
        // SAFETY: the mapping is ours and nothing uses it.
        unsafe { libc::munmap(at, 8192) };
        // SAFETY: the fake checks the address.
        let gone = unsafe { sys::cuMemHostUnregister(at) };
        assert_eq!(gone, CUresult::CUDA_SUCCESS);
        assert_eq!(control.violations(), 1);
    });
}
