//! What cudarc's own copies meet in adverse company: failed fences beside healthy ones, halves of one
//! lease on two streams, errors of other threads, streams that come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pinpool::cudarc::driver::{DriverError, sys};

use crate::support::*;
use crate::{Check, check};

pub(crate) const ALL: &[Check] = &[
    check("a_lost_fence_hides_no_other", a_lost_fence_hides_no_other),
    check("two_halves_of_a_lease_are_two_things", two_halves_of_a_lease_are_two_things),
    check("a_parked_error_lets_nobody_read_early", a_parked_error_lets_nobody_read_early),
    check("the_default_stream_among_streams_that_go", the_default_stream_among_streams_that_go),
    check("a_kept_lease_collects_no_fences", a_kept_lease_collects_no_fences),
    check("a_host_function_may_lease", a_host_function_may_lease),
];

pub(crate) const ON_SOFTWARE: &[Check] = &[Check {
    name: "an_unrecorded_copy_is_waited_for",
    settings: &[("FAKECUDA_COPY_DELAY_US", "20000")],
    run: an_unrecorded_copy_is_waited_for,
}];

fn a_lost_fence_hides_no_other() {
    let pool = pool(4096, 2);
    let [capturing, running] = streams_apart(&pool);
    let mut targets = [unwatched_memory(&capturing, 4096), unwatched_memory(&running, 4096)];
    let mut lease = filled(&pool, 4096, 1);
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    capturing.begin_capture(mode).expect("capture begins");
    capturing.memcpy_htod(&lease, &mut targets[0]).expect("captured");
    drop(capturing.end_capture(sys::CUgraphInstantiate_flags(0)).expect("captured"));
    let opener = Gate::close_now(&running).open_soon();
    running.memcpy_htod(&lease, &mut targets[1]).expect("queued");
    lease.as_mut_slice().fill(99);
    assert_filled(&running, &targets[1], 1);
    opener.join().expect("no panic");
    drop(lease);
    until("the captured slot is given up", || class(&pool).quarantined == 1);
    no_harm_done();
}

/// Each thread reads its own half right behind its own copy, and never early.
fn two_halves_of_a_lease_are_two_things() {
    const HALF: usize = 64 << 10;
    let pool = pool(2 * HALF, 1);
    let streams = streams_apart::<2>(&pool);
    let mut lease = filled(&pool, 2 * HALF, 0);
    let whole = lease.view_mut(..).expect("all of it");
    let (left, right) = whole.split_at(HALF).expect("two halves");
    std::thread::scope(|scope| {
        for (mut half, stream) in [left, right].into_iter().zip(&streams) {
            scope.spawn(move || {
                let mut source = unwatched_memory(stream, HALF);
                for round in 0..rounds(2000, 300) {
                    let wanted = round as u8;
                    stream.memcpy_htod(&vec![wanted; HALF], &mut source).expect("queued");
                    stream.memcpy_dtoh(&source, &mut half).expect("queued");
                    let early = half.as_slice().iter().position(|byte| *byte != wanted);
                    assert_eq!(early, None, "round {round}");
                }
            });
        }
    });
    // One half behind a gate does not hold up the other.
    let (mut left, mut right) = lease.view_mut(..).expect("all").split_at(HALF).expect("halves");
    let sources = streams.each_ref().map(|stream| device_memory(stream, HALF));
    let gate = Gate::close_now(&streams[0]);
    streams[0].memcpy_dtoh(&sources[0], &mut left).expect("queued");
    streams[1].memcpy_dtoh(&sources[1], &mut right).expect("queued");
    assert!(right.as_slice().iter().all(|byte| *byte == 0));
    gate.open();
    assert!(left.as_slice().iter().all(|byte| *byte == 0));
    drop(lease);
    all_home(&pool);
    no_harm_done();
}

/// An error of another thread can make cudarc skip the event, and then the pool waits for all.
fn a_parked_error_lets_nobody_read_early() {
    let pool = pool(1 << 20, 2);
    let stream = stream(&pool);
    let mut source = unwatched_memory(&stream, 1 << 20);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let context = Arc::clone(stream.context());
        let over = &over;
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let error = DriverError(sys::CUresult::CUDA_ERROR_UNKNOWN);
                context.record_err(Err::<(), _>(error));
                // Copies succeed in between, and some meet the error half-way.
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let mut lease = filled(&pool, 1 << 20, 0);
        let mut copies = 0;
        for round in 0..rounds(5000, 500) {
            let wanted = round as u8;
            let up = stream.memcpy_htod(&vec![wanted; 1 << 20], &mut source);
            if up.is_err() || stream.memcpy_dtoh(&source, &mut lease).is_err() {
                continue;
            }
            copies += 1;
            let early = lease.as_slice().iter().position(|byte| *byte != wanted);
            assert_eq!(early, None, "copy {copies}");
        }
        over.store(true, Ordering::Relaxed);
        println!("{copies} copies");
        assert!(copies > 0);
    });
    let _ = stream.context().check_err();
}

/// On the default stream cudarc records or waits as it finds other streams in the context, and looks
/// twice.
fn the_default_stream_among_streams_that_go() {
    let pool = pool(4096, 4);
    let stream = context(&pool).default_stream();
    let mut device = unwatched_memory(&stream, 4096);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (over, other) = (&over, Arc::clone(context(&pool)));
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                drop(other.new_stream().expect("a stream"));
            }
        });
        for round in 0..rounds(2000, 500) {
            let wanted = round as u8;
            let mut lease = filled(&pool, 4096, wanted);
            stream.memcpy_htod(&lease, &mut device).expect("copied");
            lease.as_mut_slice().fill(!wanted);
            drop(lease);
            assert_filled(&stream, &device, wanted);
        }
        over.store(true, Ordering::Relaxed);
    });
    all_home(&pool);
    assert_eq!(class(&pool).quarantined, 0);
    no_harm_done();
}

/// One lease is kept and copied from again and again, on streams and by threads that come and go.
fn a_kept_lease_collects_no_fences() {
    let pool = pool(4096, 2);
    let kept = stream(&pool);
    let mut device = unwatched_memory(&kept, 4096);
    let lease = filled(&pool, 4096, 1);
    let before = software().map(|driver| driver.live_events());
    for _ in 0..rounds(200, 200) {
        let passing = stream(&pool);
        lease.record_use(&passing).expect("recorded");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                kept.context().bind_to_thread().expect("bound");
                kept.memcpy_htod(&lease, &mut device).expect("queued");
            });
        });
        kept.synchronize().expect("idle");
    }
    if let (Some(driver), Some(before)) = (software(), before) {
        let more = driver.live_events() - before;
        assert!(more <= 60, "{more} events for copies that are over");
    }
    drop(lease);
    all_home(&pool);
    no_harm_done();
}

/// The driver answers no question in a host function, which says nothing about the work.
fn a_host_function_may_lease() {
    let pool = pool(4096, 4);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 4096);
    let (queued, told) = std::sync::mpsc::channel();
    let inner = pool.clone();
    // The copies are queued behind it, so that they are pending while it asks.
    let asked = host_function(&stream, move || {
        told.recv_timeout(HANG).expect("the copies are queued");
        assert!(inner.try_lease(1).is_err());
    });
    for value in 0..4 {
        drop(filled(&pool, 4096, value).upload(&stream, &mut device).expect("queued"));
    }
    queued.send(()).expect("it waits");
    assert!(asked.recv_timeout(HANG).expect("it ran"), "the host function panicked");
    all_home(&pool);
    assert_eq!(class(&pool).quarantined, 0);
    // Not `no_harm_done`, which wants no question from a host function at all.
    assert_eq!(software().map_or(0, |driver| driver.violations()), 0);
}

/// The event behind the copy could not be recorded, and cudarc tells nobody.
fn an_unrecorded_copy_is_waited_for() {
    let pool = pool(4096, 2);
    let stream = stream(&pool);
    let mut device = unwatched_memory(&stream, 4096);
    let mut lease = filled(&pool, 4096, 7);
    driver().fail("cuEventRecord:1:999").expect("a plan that the driver understands");
    stream.memcpy_htod(&lease, &mut device).expect("queued");
    driver().clear_faults();
    lease.as_mut_slice().fill(99);
    let _ = stream.context().check_err();
    assert_filled(&stream, &device, 7);
    drop(lease);
    all_home(&pool);
    no_harm_done();
}
