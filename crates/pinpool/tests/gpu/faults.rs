//! What must hold when the driver fails: on the software driver, which fails to order.

use std::time::Duration;

use pinpool::{BackendChoice, BackendKind, Error, Pool};

use pinpool_testkit::soon::HANG;

use crate::Check;
use crate::support::{pool, stream};

/// Settings that change nothing, for tests that steer the driver themselves.
const ON_SOFTWARE_ONLY: &[(&str, &str)] = &[("FAKECUDA_DEVICES", "1")];

pub(crate) const ALL: &[Check] = &[
    Check {
        name: "registration_that_is_refused_rolls_back",
        settings: &[("FAKECUDA_FAIL", "cuMemHostRegister_v2:3:2")],
        run: registration_that_is_refused_rolls_back,
    },
    Check {
        name: "an_address_that_cannot_be_had_rolls_back",
        settings: &[("FAKECUDA_FAIL", "cuMemHostGetDevicePointer_v2:2:1")],
        run: registration_that_is_refused_rolls_back,
    },
    Check {
        name: "where_registration_is_unsupported_the_driver_allocates",
        settings: &[("FAKECUDA_REGISTER", "unsupported")],
        run: where_registration_is_unsupported_the_driver_allocates,
    },
    Check {
        name: "a_copy_that_is_refused_gives_the_lease_back",
        settings: ON_SOFTWARE_ONLY,
        run: || a_copy_that_fails_gives_the_lease_back("cuMemcpyHtoDAsync_v2:1:1"),
    },
    Check {
        name: "a_record_that_fails_waits_for_the_copy",
        settings: &[("FAKECUDA_COPY_DELAY_US", "20000")],
        // The first record is cudarc's, for the device memory; the second is the lease's.
        run: || a_copy_that_fails_gives_the_lease_back("cuEventRecord:2:719"),
    },
    Check {
        name: "a_wait_that_fails_quarantines_the_slot",
        settings: &[("FAKECUDA_FAIL", "cuEventSynchronize:1:719")],
        run: a_wait_that_fails_quarantines_the_slot,
    },
    Check {
        name: "an_unregister_that_fails_keeps_the_memory",
        settings: &[("FAKECUDA_FAIL", "cuMemHostUnregister:1:1")],
        run: an_unregister_that_fails_keeps_the_memory,
    },
    Check {
        name: "events_are_reused_and_destroyed",
        settings: ON_SOFTWARE_ONLY,
        run: events_are_reused_and_destroyed,
    },
    Check {
        name: "a_silent_device_hides_no_other",
        settings: &[("FAKECUDA_DEVICES", "2"), ("FAKECUDA_FAIL", "cuDeviceGetName:2:46")],
        run: a_silent_device_hides_no_other,
    },
    Check {
        name: "a_refused_download_leaves_the_lease_as_it_was",
        settings: ON_SOFTWARE_ONLY,
        run: a_refused_download_leaves_the_lease_as_it_was,
    },
    Check {
        name: "slow_copies_are_never_overtaken",
        settings: &[("FAKECUDA_COPY_DELAY_US", "3000")],
        run: slow_copies_are_never_overtaken,
    },
];

/// Four chunks, of which the third fails.
fn registration_that_is_refused_rolls_back() {
    let builder = || {
        Pool::builder().env(false).backend(BackendChoice::Cuda).pin_chunk(4096).class("c", 4096, 4)
    };
    let error = builder().open().expect_err("a chunk is refused");
    let text = error.to_string();
    assert!(matches!(error, Error::Memory { .. }), "{error:?}");
    for part in ["class 'c'", "4096 bytes", "host RAM", "count", "max_pinned"] {
        assert!(text.contains(part), "'{part}' is missing in: {text}");
    }
    assert_eq!(driver().pinned_bytes(), 0, "registered chunks were left behind");
    let pool = builder().open().expect("the fault was one of a kind");
    assert_eq!(driver().pinned_bytes(), 4 * 4096);
    drop(pool);
    no_harm_done();
}

fn where_registration_is_unsupported_the_driver_allocates() {
    let pool = pool(6_220_800, 3);
    assert_eq!(pool.backend(), BackendKind::Cuda);
    let mut lease = pool.try_lease(6_220_800).expect("a slot");
    assert!(lease.is_pinned() && lease.is_device_accessible() && lease.device_ptr().is_some());
    assert!(lease.as_slice().iter().all(|byte| *byte == 0), "fresh memory is zero");
    let stream = stream(&pool);
    let mut device = stream.alloc_zeros::<u8>(6_220_800).expect("device memory");
    lease.as_mut_slice().fill(3);
    drop(lease.upload(&stream, &mut device).expect("queued").wait().expect("copied"));
    assert!(stream.clone_dtoh(&device).expect("a plain copy").iter().all(|byte| *byte == 3));
    assert!(pool.close(Duration::from_secs(5)).is_complete());
    no_harm_done();
}

/// After the failure an idle stream proves that nothing touches the lease, so it comes back.
fn a_copy_that_fails_gives_the_lease_back(plan: &str) {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let mut device = stream.alloc_zeros::<u8>(4096).expect("device memory");
    let lease = pool.try_lease(4096).expect("a slot");
    // cudarc waits for earlier work on the device memory itself; its own calls must not count.
    stream.synchronize().expect("idle");
    driver().fail(plan).expect("a plan that the driver understands");
    let refused = lease.upload(&stream, &mut device).expect_err("the driver was told to fail");
    assert!(matches!(refused.error, Error::Driver { .. }), "{}", refused.error);
    refused.lease.expect("the stream is idle").as_mut_slice().fill(1);
    assert_eq!(pool.stats().classes[0].free, 1);
    let again = pool.try_lease(4096).expect("the slot is free").upload(&stream, &mut device);
    drop(again.expect("queued").wait().expect("copied"));
    drop((device, pool));
    no_harm_done();
}

fn a_wait_that_fails_quarantines_the_slot() {
    let pool = pool(4096, 2);
    let stream = stream(&pool);
    let mut device = stream.alloc_zeros::<u8>(4096).expect("device memory");
    let flight = pool.try_lease(4096).expect("a slot").upload(&stream, &mut device);
    let error = flight.expect("queued").wait().expect_err("the driver was told to fail");
    assert!(matches!(error, Error::Driver { call: "cuEventSynchronize", .. }), "{error}");
    let class = pool.stats().classes[0].clone();
    assert_eq!((class.free, class.leased, class.in_flight, class.quarantined), (1, 0, 0, 1));
    // The rest of the pool works on; the slot is reported and its slab stays.
    let held = pool.try_lease(4096).expect("the other slot");
    let message = pool.try_lease(1).expect_err("none is left").to_string();
    assert!(message.contains("1 quarantined"), "{message}");
    drop(held);
    let report = pool.close(Duration::from_millis(50));
    assert_eq!(report.still_out.iter().map(|(_, slots)| *slots).sum::<usize>(), 1);
    assert_eq!(driver().pinned_bytes(), 8192, "memory in doubt stays pinned");
}

/// Case register-3, at a close; at a trim: `a_grown_slab_that_stays_registered_is_given_up`.
fn an_unregister_that_fails_keeps_the_memory() {
    let pool = pool(4096, 2);
    let mut lease = pool.try_lease(4096).expect("a slot");
    let address = lease.as_mut_ptr();
    drop(lease);
    let report = pool.close(Duration::from_secs(1));
    assert_eq!(report.stuck_bytes, 8192);
    let stats = pool.stats();
    assert_eq!((stats.stuck_bytes, stats.pinned_bytes), (8192, 8192), "the budget is not refunded");
    // SAFETY: what could not be unregistered is not unmapped; nobody else uses it.
    unsafe { address.write_volatile(1) };
}

fn a_silent_device_hides_no_other() {
    let devices = pinpool::cuda::probe().expect("a driver").devices;
    assert_eq!(devices.len(), 2);
    assert_eq!((devices[0].fault.is_none(), devices[1].fault.is_some()), (true, true));
    assert_eq!(pool(4096, 1).backend(), BackendKind::Cuda);
}

fn a_refused_download_leaves_the_lease_as_it_was() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let device = stream.alloc_zeros::<u8>(4096).expect("device memory");
    stream.synchronize().expect("idle");
    driver().fail("cuMemcpyDtoHAsync_v2:1:1").expect("a plan that the driver understands");
    let refused = pool.try_lease(100).expect("a slot").download(&device, &stream);
    let lease =
        refused.expect_err("the driver was told to fail").lease.expect("the stream is idle");
    assert_eq!(lease.len(), 100);
}

/// A thousand times three copies, three at a time, need few events: three, and another now and then
/// when two threads ask one at the same moment. None is left when the pool goes.
fn events_are_reused_and_destroyed() {
    let pool = pool(4096, 3);
    let stream = stream(&pool);
    let mut targets: Vec<_> =
        (0..3).map(|_| stream.alloc_zeros::<u8>(4096).expect("device memory")).collect();
    stream.synchronize().expect("idle");
    let before = (driver().calls("cuEventCreate"), driver().live_events());
    for _ in 0..1000 {
        let copies: Vec<_> = targets
            .iter_mut()
            .map(|target| {
                pool.lease(4096).expect("a slot").upload(&stream, target).expect("queued")
            })
            .collect();
        drop(copies);
    }
    let created = driver().calls("cuEventCreate") - before.0;
    assert!((3..=300).contains(&created), "{created} events for 3000 copies, three at a time");
    assert!(pool.close(HANG).is_complete());
    drop(pool);
    assert_eq!(driver().live_events(), before.1);
}

/// Every copy takes 3 ms, every slot is overwritten as soon as it is handed out again.
fn slow_copies_are_never_overtaken() {
    let pool = pool(64 << 10, 2);
    let stream = stream(&pool);
    let mut device = stream.alloc_zeros::<u8>(64 << 10).expect("device memory");
    for round in 0..100u8 {
        let mut lease = pool.lease(64 << 10).expect("a slot in time");
        lease.as_mut_slice().fill(round);
        drop(lease.upload(&stream, &mut device).expect("queued"));
        pool.lease(64 << 10).expect("a slot in time").as_mut_slice().fill(0xff);
        let seen = stream.clone_dtoh(&device).expect("a plain copy");
        assert!(seen.iter().all(|byte| *byte == round), "round {round}");
    }
    drop((device, pool));
    no_harm_done();
}

fn driver() -> fakecuda::Control {
    fakecuda::Control::open().expect("this test runs on the software driver")
}

/// No memory was given up while a copy used it, and none is left registered.
fn no_harm_done() {
    assert_eq!(driver().violations(), 0, "memory was given up under a running copy");
    assert_eq!(driver().overwrites(), 0, "memory was written under a queued copy");
    assert_eq!(driver().pinned_bytes(), 0, "memory was left registered");
}
