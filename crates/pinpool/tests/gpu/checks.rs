//! What must hold on any CUDA device.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pinpool::cudarc::driver::{result, sys};
use pinpool::{BackendChoice, BackendKind, ClassConfig, Error, LeaseError, LockMode, Pool};

use pinpool_testkit::sampler::Sampler;

use crate::registration::is_registered;
use crate::support::{all_home, pattern, pool, stream};
use crate::{Check, check};

pub(crate) const ALL: &[Check] = &[
    check("auto_finds_the_device", auto_finds_the_device),
    check("lock_off_keeps_away_from_the_gpu", lock_off_keeps_away_from_the_gpu),
    check("memory_is_portable_and_mapped_and_cached", memory_is_portable_and_mapped_and_cached),
    check("bytes_go_up_and_come_down", bytes_go_up_and_come_down),
    check("typed_leases_go_up_and_come_down", typed_leases_go_up_and_come_down),
    check("every_slot_of_every_chunk_copies", every_slot_of_every_chunk_copies),
    check("the_gpu_reads_a_lease_in_place", the_gpu_reads_a_lease_in_place),
    check("a_dropped_upload_is_not_overwritten", a_dropped_upload_is_not_overwritten),
    check("a_download_is_complete_after_wait", a_download_is_complete_after_wait),
    check("a_copy_counts_as_in_flight", a_copy_counts_as_in_flight),
    check("mismatched_lengths_give_the_lease_back", mismatched_lengths_give_the_lease_back),
    check("a_capturing_stream_is_refused", a_capturing_stream_is_refused),
    check("the_callers_context_stays_current", the_callers_context_stays_current),
    check("the_last_lease_drops_on_a_bare_thread", the_last_lease_drops_on_a_bare_thread),
    check("open_and_close_leave_nothing_registered", open_and_close_leave_nothing_registered),
    check("leases_outlive_the_pool", leases_outlive_the_pool),
    check("threads_copy_at_once", threads_copy_at_once),
    check("a_device_that_does_not_exist_is_refused", a_device_that_does_not_exist_is_refused),
    check("a_pool_in_a_static_is_no_trouble_at_exit", a_pool_in_a_static_is_no_trouble_at_exit),
];

fn auto_finds_the_device() {
    let pool = Pool::builder().env(false).class("c", 4096, 2).open().expect("auto opens");
    assert_eq!(pool.backend(), BackendKind::Cuda);
    let lease = pool.try_lease(1).expect("a slot");
    assert_eq!(lease.backend(), BackendKind::Cuda);
    assert!(lease.is_pinned() && lease.is_device_accessible());
    assert!(pool.startup().reason.contains("CUDA device 0"), "{}", pool.startup().reason);
    let stats = pool.stats();
    assert_eq!((stats.backend, stats.device_accessible), (BackendKind::Cuda, true));
    assert_eq!(stats.pinned_bytes, 8192);
}

fn lock_off_keeps_away_from_the_gpu() {
    let pool = Pool::builder().env(false).lock(LockMode::Off).class("c", 4096, 2).open();
    let pool = pool.expect("an unlocked pool opens");
    assert_eq!(pool.backend(), BackendKind::Host);
    let lease = pool.try_lease(1).expect("a slot");
    assert!(!lease.is_pinned() && !lease.is_device_accessible());
    assert_eq!(lease.device_ptr(), None);
    assert!(
        Pool::builder()
            .env(false)
            .lock(LockMode::Off)
            .backend(BackendChoice::Cuda)
            .class("c", 4096, 2)
            .open()
            .is_err_and(|error| error.is_bad_input())
    );
}

fn memory_is_portable_and_mapped_and_cached() {
    let pool = pool(6_220_800, 3);
    let lease = pool.try_lease(6_220_800).expect("a slot");
    pool.cuda_context().expect("cuda").bind_to_thread().expect("binds");
    let mut flags = 0;
    // SAFETY: the address is a lease's, and the driver writes one number.
    let answer =
        unsafe { sys::cuMemHostGetFlags(&raw mut flags, lease.as_ptr().cast_mut().cast()) };
    answer.result().expect("the driver knows the memory");
    let wanted = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
    assert_eq!(flags & wanted, wanted);
    // Reads of write-combined memory by the processor are some sixty times slower.
    assert_eq!(flags & sys::CU_MEMHOSTALLOC_WRITECOMBINED, 0);
}

fn bytes_go_up_and_come_down() {
    let pool = pool(6_220_800, 3);
    let stream = stream(&pool);
    for (round, len) in [1, 4095, 4096, 1 << 20, 6_220_800].into_iter().enumerate() {
        let wanted = pattern(len, round as u8);
        let mut device = stream.alloc_zeros::<u8>(len).expect("device memory");
        let mut lease = pool.try_lease(len).expect("a slot");
        lease.as_mut_slice().copy_from_slice(&wanted);
        let mut lease = lease.upload(&stream, &mut device).expect("queued").wait().expect("copied");
        lease.as_mut_slice().fill(0);
        let lease = lease.download(&device, &stream).expect("queued").wait().expect("copied");
        assert!(lease.as_slice() == wanted, "{len} bytes came back changed");
        assert!(
            stream.clone_dtoh(&device).expect("a plain copy") == wanted,
            "{len} bytes on device"
        );
    }
}

fn typed_leases_go_up_and_come_down() {
    let pool = pool(1 << 20, 2);
    let stream = stream(&pool);
    let mut device = stream.alloc_zeros::<f32>(1000).expect("device memory");
    let mut lease = pool.try_lease_of::<f32>(1000).expect("a slot");
    for (at, value) in lease.as_mut_slice().iter_mut().enumerate() {
        *value = at as f32 * 0.5;
    }
    drop(lease.upload(&stream, &mut device).expect("queued").wait().expect("copied"));
    let lease = pool.try_lease_of::<f32>(1).expect("a slot");
    let lease = lease.download(&device, &stream).expect("queued").wait().expect("copied");
    assert_eq!(lease.len(), 1000, "a download sets the length");
    assert!(
        lease
            .as_slice()
            .iter()
            .enumerate()
            .all(|(at, value)| value.to_bits() == (at as f32 * 0.5).to_bits())
    );
}

fn every_slot_of_every_chunk_copies() {
    let pool = Pool::builder()
        .env(false)
        .backend(BackendChoice::Cuda)
        .pin_chunk(1)
        .class_config(ClassConfig::new("odd", 100_032, 70))
        .open()
        .expect("a cuda pool opens");
    let stream = stream(&pool);
    let mut device = stream.alloc_zeros::<u8>(100_032).expect("device memory");
    let leases: Vec<_> = (0..70).map(|_| pool.try_lease(100_032).expect("a slot")).collect();
    for (seed, mut lease) in leases.into_iter().enumerate() {
        let wanted = pattern(100_032, seed as u8);
        lease.as_mut_slice().copy_from_slice(&wanted);
        drop(lease.upload(&stream, &mut device).expect("queued").wait().expect("copied"));
        assert!(stream.clone_dtoh(&device).expect("a plain copy") == wanted, "slot {seed}");
    }
}

fn the_gpu_reads_a_lease_in_place() {
    let pool = pool(1 << 20, 4);
    pool.cuda_context().expect("cuda").bind_to_thread().expect("binds");
    let stream = stream(&pool);
    let device = stream.alloc_zeros::<u8>(1 << 20).expect("device memory");
    // The synchronous copies below run beside this stream, not behind it.
    stream.synchronize().expect("idle");
    let mut held = Vec::new();
    for seed in 0..4 {
        let mut lease = pool.try_lease(1 << 20).expect("a slot");
        let wanted = pattern(1 << 20, seed);
        lease.as_mut_slice().copy_from_slice(&wanted);
        let address = lease.device_ptr().expect("a GPU address");
        let (target, _recorded) = pinpool::cudarc::driver::DevicePtr::device_ptr(&device, &stream);
        // SAFETY: both addresses are valid on the device for 1 MiB.
        unsafe { result::memcpy_dtod_sync(target, address, 1 << 20) }.expect("a device-side copy");
        assert!(stream.clone_dtoh(&device).expect("a plain copy") == wanted, "slot {seed}");
        held.push(lease);
    }
}

/// The slot of a dropped copy goes to the next owner, who overwrites it at once: the device must
/// have the old bytes.
fn a_dropped_upload_is_not_overwritten() {
    let bytes = 64 << 20;
    let pool = pool(bytes, 1);
    let stream = stream(&pool);
    let mut device = stream.alloc_zeros::<u8>(bytes).expect("device memory");
    for seed in 1..=10u8 {
        let mut lease = pool.try_lease(bytes).expect("the only slot");
        lease.as_mut_slice().fill(seed);
        drop(lease.upload(&stream, &mut device).expect("queued"));
        let mut next = pool.lease_timeout(bytes, Duration::from_secs(20)).expect("the same slot");
        next.as_mut_slice().fill(0x55);
        let on_device = stream.clone_dtoh(&device).expect("a plain copy");
        assert!(on_device.iter().all(|byte| *byte == seed), "round {seed}: overwritten in flight");
    }
}

fn a_download_is_complete_after_wait() {
    let bytes = 32 << 20;
    let pool = pool(bytes, 1);
    let stream = stream(&pool);
    let mut device = stream.alloc_zeros::<u8>(bytes).expect("device memory");
    for seed in 1..=10u8 {
        stream.memcpy_htod(&vec![seed; bytes], &mut device).expect("filled");
        let mut lease = pool.try_lease(bytes).expect("the only slot");
        lease.as_mut_slice().fill(0xee);
        let lease = lease.download(&device, &stream).expect("queued").wait().expect("copied");
        assert!(lease.as_slice().iter().all(|byte| *byte == seed), "round {seed}: read too early");
    }
}

fn a_copy_counts_as_in_flight() {
    let pool = pool(1 << 20, 2);
    let stream = stream(&pool);
    let mut device = stream.alloc_zeros::<u8>(1 << 20).expect("device memory");
    let counts = |pool: &Pool| {
        let class = &pool.stats().classes[0];
        (class.free, class.leased, class.in_flight, class.quarantined)
    };
    let flight = pool.try_lease(1 << 20).expect("a slot").upload(&stream, &mut device);
    let flight = flight.expect("queued");
    assert_eq!(counts(&pool), (1, 0, 1, 0));
    while !flight.is_complete().expect("no fault") {
        std::hint::spin_loop();
    }
    let lease = flight.wait().expect("copied");
    assert_eq!(counts(&pool), (1, 1, 0, 0));
    drop(lease);
    assert_eq!(counts(&pool), (2, 0, 0, 0));
}

fn mismatched_lengths_give_the_lease_back() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let mut device = stream.alloc_zeros::<u8>(100).expect("device memory");
    let refused = pool.try_lease(101).expect("a slot").upload(&stream, &mut device);
    let refused = refused.expect_err("101 bytes into 100");
    assert!(matches!(refused.error, Error::CopyLength { source_len: 101, target_len: 100 }));
    drop(refused.lease.expect("nothing was queued"));
    let large = stream.alloc_zeros::<u8>(4097).expect("device memory");
    let refused = pool.try_lease(1).expect("a slot").download(&large, &stream);
    let refused = refused.expect_err("4097 bytes into a slot of 4096");
    assert!(matches!(refused.error, Error::CopyLength { source_len: 4097, target_len: 4096 }));
    assert_eq!(refused.lease.expect("nothing was queued").len(), 1);
    assert_eq!(pool.stats().classes[0].free, 1);
}

fn a_capturing_stream_is_refused() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let other = stream.context().new_stream().expect("a stream");
    let mut device = other.alloc_zeros::<u8>(4096).expect("device memory");
    other.synchronize().expect("idle");
    stream
        .begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)
        .expect("capture begins");
    let refused = pool.try_lease(4096).expect("a slot").upload(&stream, &mut device);
    let refused = refused.expect_err("a captured copy would outlive the lease");
    assert!(matches!(refused.error, Error::StreamCapturing), "{}", refused.error);
    assert!(refused.lease.is_some());
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    assert!(stream.end_capture(flags).is_ok(), "the refusal must not invalidate the capture");
}

fn the_callers_context_stays_current() {
    let none = || result::ctx::get_current().expect("the driver answers").is_none();
    std::thread::spawn(move || {
        pinpool::cuda::probe().expect("a device");
        assert!(none(), "a fresh thread has no context");
        let pool = pool(4096, 2);
        assert!(none(), "opening changed the caller's context");
        let lease = pool.try_lease(1).expect("a slot");
        assert!(lease.device_ptr().is_some());
        drop(pool);
        drop(lease);
        assert!(none(), "closing changed the caller's context");
    })
    .join()
    .expect("the checks hold");
}

fn the_last_lease_drops_on_a_bare_thread() {
    let pool = pool(4096, 1);
    let context = Arc::clone(pool.cuda_context().expect("cuda"));
    let lease = pool.try_lease(1).expect("a slot");
    let address = lease.as_ptr() as usize;
    assert!(is_registered(&context, address));
    std::thread::spawn(move || {
        drop(pool);
        drop(lease);
    })
    .join()
    .expect("no panic");
    assert!(!is_registered(&context, address), "the memory is still registered");
}

/// Addresses come back after an unmap; a forgotten registration would refuse them.
fn open_and_close_leave_nothing_registered() {
    for round in 0..100 {
        let pool = pool(1 << 20, 1 + round % 5);
        let _other_maps = vec![0u8; (round * 37) << 10];
        drop(pool.try_lease(1 << 20).expect("a slot"));
        let report = pool.close(Duration::from_secs(5));
        assert!(report.is_complete(), "round {round}: {report:?}");
        assert_eq!(pool.stats().pinned_bytes, 0);
        assert!(matches!(pool.try_lease(1), Err(LeaseError::Closed)));
    }
}

fn leases_outlive_the_pool() {
    let pool = pool(1 << 20, 2);
    let stream = stream(&pool);
    let mut device = stream.alloc_zeros::<u8>(1 << 20).expect("device memory");
    let mut lease = pool.try_lease(1 << 20).expect("a slot");
    drop(pool);
    lease.as_mut_slice().fill(9);
    let lease = lease.upload(&stream, &mut device).expect("queued").wait().expect("copied");
    assert!(stream.clone_dtoh(&device).expect("a plain copy").iter().all(|byte| *byte == 9));
    drop(lease);
}

fn threads_copy_at_once() {
    let pool = pool(256 << 10, 6);
    let sampler = Sampler::start(&pool);
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let pool = &pool;
            scope.spawn(move || {
                let stream = stream(pool);
                let mut device = stream.alloc_zeros::<u8>(256 << 10).expect("device memory");
                for round in 0..200u8 {
                    let mut lease = pool.lease(256 << 10).expect("a slot in time");
                    let wanted = thread.wrapping_mul(64).wrapping_add(round);
                    lease.as_mut_slice().fill(wanted);
                    let flight = lease.upload(&stream, &mut device).expect("queued");
                    if round % 2 == 0 {
                        drop(flight);
                    } else {
                        drop(flight.wait().expect("copied"));
                    }
                    let seen = stream.clone_dtoh(&device).expect("a plain copy");
                    assert!(seen.iter().all(|byte| *byte == wanted), "thread {thread} {round}");
                }
            });
        }
    });
    // A dropped copy comes home a moment after it is complete.
    all_home(&pool);
    assert!(sampler.stop() > 10, "the statistics were looked at all the while");
}

fn a_device_that_does_not_exist_is_refused() {
    let open =
        |backend| Pool::builder().env(false).backend(backend).device(99).class("c", 64, 1).open();
    let error = open(BackendChoice::Cuda).expect_err("there is no device 99");
    assert!(error.is_bad_input());
    assert!(error.to_string().contains("device 99 does not exist"), "{error}");
    assert_eq!(open(BackendChoice::Auto).expect("auto falls back").backend(), BackendKind::Host);
}

fn a_pool_in_a_static_is_no_trouble_at_exit() {
    static POOL: OnceLock<Pool> = OnceLock::new();
    let pool = POOL.get_or_init(|| pool(1 << 20, 2));
    assert!(pool.try_lease(1).is_ok());
}
