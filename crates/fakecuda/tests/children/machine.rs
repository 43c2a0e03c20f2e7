//! What the pretended machine is: devices, drivers that are absent, plain cudarc use.

use crate::support::*;

#[test]
fn cudarc_runs_unchanged() {
    in_child(module_path!(), "cudarc_runs_unchanged", &[], |control| {
        {
            let (context, one) = open();
            let two = context.new_stream().unwrap();
            assert_eq!(context.name().unwrap(), "Fake CUDA device 0");
            let source: Vec<f32> = (0..4096_u16).map(f32::from).collect();
            let mut slice = one.alloc_zeros::<f32>(source.len()).unwrap();
            assert!(one.clone_dtoh(&slice).unwrap().iter().all(|value| *value == 0.0));
            one.memcpy_htod(&source, &mut slice).unwrap();
            let event = one.record_event(None).unwrap();
            two.wait(&event).unwrap();
            let copy = two.clone_dtod(&slice).unwrap();
            let mut back = vec![0.0; source.len()];
            two.memcpy_dtoh(&copy, &mut back).unwrap();
            assert_eq!(back, source);
            assert!(event.is_complete());
            let third = context.default_stream().clone_htod(&[1_u64, 2, 3]).unwrap();
            assert_eq!(two.clone_dtoh(&third).unwrap(), [1, 2, 3]);
            // SAFETY: every element is written before it is read.
            let mut pinned = unsafe { context.alloc_pinned::<f32>(source.len()) }.unwrap();
            two.memcpy_dtoh(&copy, &mut pinned).unwrap();
            assert_eq!(pinned.as_slice().unwrap(), source);
            let (free, total) = context.mem_get_info().unwrap();
            assert!(free < total);
            context.synchronize().unwrap();
            assert!(control.calls("cuMemcpyHtoDAsync_v2") >= 2);
        }
        assert_eq!(control.live_contexts(), 0);
        assert_eq!(control.live_events(), 0);
        assert_eq!(control.live_streams(), 0);
        assert_eq!(control.device_bytes(), 0);
        assert_eq!(control.pinned_bytes(), 0);
        assert_eq!(control.violations(), 0);
    });
}

#[test]
fn without_memory_pools_cudarc_allocates_at_once() {
    let name = "without_memory_pools_cudarc_allocates_at_once";
    let settings = [("FAKECUDA_ASYNC_ALLOC", "unsupported"), ("FAKECUDA_MEMORY", "1000")];
    in_child(module_path!(), name, &settings, |control| {
        let (_context, stream) = open();
        let slice = stream.clone_htod(&[3_u8; 600]).unwrap();
        assert_eq!(code(stream.alloc_zeros::<u8>(600)), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!(device_bytes(&stream, &slice), vec![3; 600]);
        drop(slice);
        assert!(stream.alloc_zeros::<u8>(600).is_ok());
        assert_eq!(control.calls("cuMemAllocAsync"), 0);
        assert_eq!(control.calls("cuMemAlloc_v2"), 3);
        assert_eq!(control.device_bytes(), 0);
    });
}

#[test]
fn no_device_is_an_error_with_a_name() {
    in_child(
        module_path!(),
        "no_device_is_an_error_with_a_name",
        &[("FAKECUDA_NO_DEVICE", "1")],
        |_| {
            let error = CudaContext::new(0).unwrap_err();
            assert_eq!(error.0, CUresult::CUDA_ERROR_NO_DEVICE);
            assert!(error.to_string().contains("CUDA_ERROR_NO_DEVICE"), "{error}");
        },
    );
}

#[test]
fn a_stub_says_so() {
    in_child(module_path!(), "a_stub_says_so", &[("FAKECUDA_STUB", "1")], |_| {
        assert_eq!(code(CudaContext::new(0)), CUresult::CUDA_ERROR_STUB_LIBRARY);
    });
}

#[test]
fn the_number_of_devices_is_chosen() {
    in_child(
        module_path!(),
        "the_number_of_devices_is_chosen",
        &[("FAKECUDA_DEVICES", "2")],
        |control| {
            assert_eq!(code(result::device::get_count()), CUresult::CUDA_ERROR_NOT_INITIALIZED);
            assert_eq!(CudaContext::device_count().unwrap(), 2);
            let (one, two) = (CudaContext::new(0).unwrap(), CudaContext::new(1).unwrap());
            assert_eq!(code(CudaContext::new(2)), CUresult::CUDA_ERROR_INVALID_DEVICE);
            let stream = two.new_stream().unwrap();
            let event = one.new_event(None).unwrap();
            // SAFETY: both handles are live.
            let recorded = unsafe { result::event::record(event.cu_event(), stream.cu_stream()) };
            assert_eq!(code(recorded), CUresult::CUDA_ERROR_INVALID_HANDLE);
            assert_eq!(control.live_contexts(), 2);
        },
    );
}

#[test]
fn zero_devices_is_not_an_error_of_init() {
    in_child(
        module_path!(),
        "zero_devices_is_not_an_error_of_init",
        &[("FAKECUDA_DEVICES", "0")],
        |_| {
            assert_eq!(CudaContext::device_count().unwrap(), 0);
            assert_eq!(code(CudaContext::new(0)), CUresult::CUDA_ERROR_INVALID_DEVICE);
        },
    );
}

#[test]
fn a_setting_that_cannot_be_read_stops_the_test() {
    let name = "a_setting_that_cannot_be_read_stops_the_test";
    in_child(module_path!(), name, &[("FAKECUDA_FAIL", "cuEventRecrod:1:1")], |_| {
        assert_eq!(code(CudaContext::new(0)), CUresult::CUDA_ERROR_UNKNOWN);
    });
}

#[test]
fn registration_can_be_unsupported_or_limited() {
    let settings = [("FAKECUDA_REGISTER", "unsupported"), ("FAKECUDA_PIN_LIMIT", "5000")];
    in_child(module_path!(), "registration_can_be_unsupported_or_limited", &settings, |control| {
        let (context, _stream) = open();
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED;
        assert_eq!(context.attribute(attribute).unwrap(), 0);
        let mut bytes = vec![0_u8; 4096];
        // SAFETY: the vector outlives the attempt.
        let refused = unsafe { sys::cuMemHostRegister_v2(bytes.as_mut_ptr().cast(), 4096, 1) };
        assert_eq!(refused, CUresult::CUDA_ERROR_NOT_SUPPORTED);
        let pinned = Pinned::new(0, 4096);
        // SAFETY: nothing reads the memory.
        let second = unsafe { result::malloc_host(4096, 1) };
        assert_eq!(code(second), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!(control.pinned_bytes(), 4096);
        pinned.free().unwrap();
    });
}

#[test]
fn a_forked_child_is_refused() {
    in_child(module_path!(), "a_forked_child_is_refused", &[], |_| {
        let (context, _stream) = open();
        // SAFETY: the child makes one driver call, which takes no lock, and leaves.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            let refused = code(result::device::get_count()) as i32;
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(refused) };
        }
        let mut status = 0;
        // SAFETY: waits for our own child.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert!(libc::WIFEXITED(status));
        assert_eq!(libc::WEXITSTATUS(status), 3, "CUDA_ERROR_NOT_INITIALIZED");
        context.synchronize().unwrap();
    });
}
