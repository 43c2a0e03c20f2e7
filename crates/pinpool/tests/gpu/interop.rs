//! Leases in cudarc's own copies: `stream.memcpy_htod(&lease, ..)` and the like are followed too.

use std::sync::Arc;

use pinpool::cudarc::driver::{CudaSlice, CudaStream};

use crate::support::*;
use crate::{Check, check};

pub(crate) const ALL: &[Check] = &[
    check("a_lease_can_be_dropped_behind_cudarcs_copy", a_lease_can_be_dropped_behind_cudarcs_copy),
    check("cudarcs_copy_is_followed_without_its_tracking", without_its_tracking),
    check("cudarcs_copy_is_followed_on_the_default_stream", on_the_default_stream),
    check("reading_waits_for_cudarcs_download", reading_waits_for_cudarcs_download),
    check("writing_waits_for_cudarcs_upload", writing_waits_for_cudarcs_upload),
    check("views_are_followed_like_leases", views_are_followed_like_leases),
    check("a_shared_lease_is_followed_too", a_shared_lease_is_followed_too),
    check("many_plain_copies_keep_few_slots", many_plain_copies_keep_few_slots),
];

pub(crate) const ON_SOFTWARE: &[Check] = &[
    check("a_recording_that_cudarc_lost_costs_the_slot", a_recording_that_cudarc_lost),
    check("an_error_parked_in_cudarc_is_not_ours_to_lose", an_error_parked_in_cudarc),
];

fn a_lease_can_be_dropped_behind_cudarcs_copy() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 4096);
    for round in 0..20 {
        let gate = Gate::close_now(&stream);
        let lease = filled(&pool, 4096, round);
        stream.memcpy_htod(&lease, &mut device).expect("queued");
        drop(lease);
        assert_eq!(counts(&pool), (0, 0, 1, 0));
        assert!(pool.try_lease(1).is_err(), "the copy has not run");
        gate.open();
        drop(filled(&pool, 4096, 0xff));
        assert_filled(&stream, &device, round);
    }
    no_harm_done();
}

/// Whether cudarc records events or not, the next owner must not be seen by the copy. It may wait.
fn copy_drop_and_overwrite(stream: &Arc<CudaStream>, device: &mut CudaSlice<u8>) {
    let pool = pool(4096, 1);
    for round in 0..10 {
        let opener = Gate::close_now(stream).open_soon();
        let lease = filled(&pool, 4096, round);
        stream.memcpy_htod(&lease, device).expect("queued");
        drop(lease);
        drop(filled(&pool, 4096, 0xff));
        opener.join().expect("no panic");
        assert_filled(stream, device, round);
        let opener = Gate::close_now(stream).open_soon();
        let mut lease = filled(&pool, 4096, 0xee);
        stream.memcpy_dtoh(device, &mut lease).expect("queued");
        assert!(lease.as_slice().iter().all(|byte| *byte == round), "read too early");
        opener.join().expect("no panic");
    }
    all_home(&pool);
    assert_eq!(class(&pool).quarantined, 0);
    no_harm_done();
}

fn without_its_tracking() {
    let stream = stream(&pool(4096, 1));
    // SAFETY: one stream and one slice, which waits for it.
    unsafe { stream.context().disable_event_tracking() };
    let mut device = device_memory(&stream, 4096);
    copy_drop_and_overwrite(&stream, &mut device);
}

/// cudarc records nothing while it has not made a second stream.
fn on_the_default_stream() {
    let stream = context(&pool(4096, 1)).default_stream();
    assert!(!stream.context().is_in_multi_stream_mode());
    let mut device = device_memory(&stream, 4096);
    copy_drop_and_overwrite(&stream, &mut device);
}

fn reading_waits_for_cudarcs_download() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let wanted = pattern(4096, 5);
    let device = stream.clone_htod(&wanted).expect("device memory");
    for round in 0..10 {
        let mut lease = filled(&pool, 4096, 0xee);
        let gate = Gate::close_now(&stream);
        stream.memcpy_dtoh(&device, &mut lease).expect("queued");
        let opener = gate.open_soon();
        assert_eq!(lease.as_slice(), wanted, "round {round}: read too early");
        opener.join().expect("no panic");
    }
    let mut lease = filled(&pool, 4096, 0xee);
    let gate = Gate::close_now(&stream);
    stream.memcpy_dtoh(&device, &mut lease).expect("queued");
    drop(lease);
    assert!(pool.try_lease(1).is_err(), "the copy still writes");
    gate.open();
    all_home(&pool);
}

fn writing_waits_for_cudarcs_upload() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 4096);
    let mut lease = filled(&pool, 4096, 0);
    for round in 0..10 {
        let gate = Gate::close_now(&stream);
        stream.memcpy_htod(&lease, &mut device).expect("queued");
        assert_eq!(lease.as_slice()[0], round, "reading beside a copy that reads needs no wait");
        let opener = gate.open_soon();
        lease.as_mut_slice().fill(round + 1);
        opener.join().expect("no panic");
        assert_filled(&stream, &device, round);
    }
    no_harm_done();
}

fn views_are_followed_like_leases() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let wanted = pattern(4096, 6);
    let mut device = device_memory(&stream, 1000);
    let mut lease = pool.try_lease(4096).expect("a slot");
    lease.as_mut_slice().copy_from_slice(&wanted);
    let gate = Gate::close_now(&stream);
    let view = lease.view(100..1100).expect("a part");
    stream.memcpy_htod(&view, &mut device).expect("queued");
    drop(lease);
    assert_eq!(counts(&pool), (0, 0, 1, 0));
    assert!(pool.try_lease(1).is_err(), "the copy has not run");
    gate.open();
    let mut lease = filled(&pool, 4096, 0xee);
    assert_eq!(on_device(&stream, &device), wanted[100..1100]);
    let gate = Gate::close_now(&stream);
    let mut view = lease.view_mut(3000..4000).expect("a part");
    stream.memcpy_dtoh(&device, &mut view).expect("queued");
    let opener = gate.open_soon();
    assert_eq!(lease.as_slice()[3000..4000], wanted[100..1100], "read too early");
    assert!(lease.as_slice()[..3000].iter().all(|byte| *byte == 0xee));
    opener.join().expect("no panic");
    drop(lease);
    all_home(&pool);
    no_harm_done();
}

fn a_shared_lease_is_followed_too() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 4096);
    let shared = filled(&pool, 4096, 7).share();
    let gate = Gate::close_now(&stream);
    stream.memcpy_htod(&shared, &mut device).expect("queued");
    let shared = shared.into_lease().expect_err("a copy is under way");
    drop(shared);
    assert_eq!(counts(&pool), (0, 0, 1, 0));
    gate.open();
    drop(filled(&pool, 4096, 0xff));
    assert_filled(&stream, &device, 7);
    no_harm_done();
}

/// One lease in hundreds of copies: what is complete is forgotten along the way.
fn many_plain_copies_keep_few_slots() {
    let pool = pool(4096, 2);
    let stream = stream(&pool);
    let mut device = unwatched_memory(&stream, 4096);
    let before = software().map(|driver| driver.live_events());
    let lease = filled(&pool, 4096, 7);
    for _ in 0..500 {
        stream.memcpy_htod(&lease, &mut device).expect("queued");
        stream.synchronize().expect("idle");
    }
    if let (Some(driver), Some(before)) = (software(), before) {
        let more = driver.live_events() - before;
        assert!(more <= 64, "{more} events for copies that are over");
    }
    drop(lease);
    all_home(&pool);
    assert_filled(&stream, &device, 7);
}

/// cudarc records from a drop and can tell nobody that it failed. The pool must not take an event
/// that was never recorded for one that is complete.
fn a_recording_that_cudarc_lost() {
    let pool = pool(4096, 2);
    let stream = stream(&pool);
    let mut device = unwatched_memory(&stream, 4096);
    let gate = Gate::close_now(&stream);
    let lease = filled(&pool, 4096, 7);
    driver().fail("cuEventRecord:1:719").expect("a plan that the driver understands");
    let before = driver().calls("cuEventRecord");
    let _ = stream.memcpy_htod(&lease, &mut device);
    assert!(driver().calls("cuEventRecord") > before, "no recording failed: the test is void");
    driver().clear_faults();
    let _ = stream.context().check_err();
    let opener = gate.open_soon();
    drop(lease);
    until("the slot is given up", || class(&pool).quarantined == 1);
    for _ in 0..100 {
        drop(filled(&pool, 4096, 0xff));
        assert_eq!(counts(&pool), (1, 0, 0, 1));
    }
    opener.join().expect("no panic");
    assert_filled(&stream, &device, 7);
    no_harm_done();
}

/// Whatever call finds it: the error reaches the caller, and the pool's counts stay right.
fn an_error_parked_in_cudarc() {
    use pinpool::cudarc::driver::{DriverError, sys::CUresult};
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let mut device = unwatched_memory(&stream, 4096);
    let parked: Result<(), _> = Err(DriverError(CUresult::CUDA_ERROR_NOT_SUPPORTED));
    stream.context().record_err(parked);
    for round in 0..10 {
        drop(filled(&pool, 4096, round).upload(&stream, &mut device).expect("not our error"));
        drop(pool.lease_timeout(4096, HANG).expect("the copy is over"));
    }
    let found = stream.context().check_err().expect_err("nobody took the error away");
    assert_eq!(found.0, CUresult::CUDA_ERROR_NOT_SUPPORTED);
    assert_filled(&stream, &device, 9);
    all_home(&pool);
    no_harm_done();
}
