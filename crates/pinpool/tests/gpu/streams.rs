//! Streams of every kind, and streams that go away under their work.

use std::sync::Arc;
use std::time::Duration;

use pinpool::cudarc::driver::{CudaContext, CudaSlice, CudaStream, result, sys};
use pinpool::{Lease, Pool};

use crate::support::*;
use crate::{Check, check};

pub(crate) const ALL: &[Check] = &[
    Check {
        name: "a_handle_that_comes_back_does_not_vouch_for_older_work",
        settings: &[("FAKECUDA_REUSE_HANDLES", "1")],
        run: a_handle_that_comes_back_does_not_vouch_for_older_work,
    },
    check("the_legacy_default_stream_is_followed", the_legacy_default_stream_is_followed),
    check(
        "the_default_stream_is_found_from_bare_threads",
        the_default_stream_is_found_from_bare_threads,
    ),
    check("threads_share_one_per_thread_stream", threads_share_one_per_thread_stream),
    check("a_slot_waits_for_the_last_of_two_streams", a_slot_waits_for_the_last_of_two_streams),
    check("a_stream_dropped_under_its_work_is_survived", a_stream_dropped_under_its_work),
    check("a_stream_destroyed_by_hand_is_never_named", a_stream_destroyed_by_hand),
    check("a_lease_outlives_the_streams_of_its_copies", a_lease_outlives_its_streams),
    check("the_last_one_out_needs_no_context", the_last_one_out_needs_no_context),
    check("drops_on_bare_threads_leave_no_context", drops_on_bare_threads_leave_no_context),
];

pub(crate) const ON_SOFTWARE: &[Check] =
    &[check("a_copy_that_is_refused_costs_no_slot", a_copy_that_is_refused_costs_no_slot)];

/// A stream that the test destroys by hand.
fn raw_stream(context: &Arc<CudaContext>) -> (sys::CUstream, Arc<CudaStream>) {
    context.bind_to_thread().expect("binds");
    let raw = result::stream::create(result::stream::StreamKind::NonBlocking).expect("a stream");
    // SAFETY: the stream is of this context. Tests that destroy it first use the wrapper no more.
    let wrapped = unsafe { context.wrap_borrowed_stream(raw) };
    (raw, wrapped)
}

fn destroy(context: &Arc<CudaContext>, raw: sys::CUstream) {
    context.bind_to_thread().expect("binds");
    // SAFETY: the stream is live, and nobody uses it any more.
    unsafe { result::stream::destroy(raw) }.expect("destroyed");
}

/// Queues the copy of a whole slot of `value` and drops it.
fn upload_and_drop(pool: &Pool, stream: &Arc<CudaStream>, target: &mut CudaSlice<u8>, value: u8) {
    drop(filled(pool, 4096, value).upload(stream, target).expect("queued"));
}

/// A driver gives a new stream the handle of a destroyed one. That the new one is idle says nothing
/// about the old one's copy.
fn a_handle_that_comes_back_does_not_vouch_for_older_work() {
    let pool = pool(4096, 2);
    let context = context(&pool);
    let (keep, probe) = (stream(&pool), Probe::new(&pool));
    let mut device = device_memory(&keep, 4096);
    let mut other = device_memory(&keep, 4096);
    let mut unfit = Vec::new();
    for tries in 0.. {
        assert!(tries < TRIES, "no stream with an old handle runs beside the old one");
        let (old, wrapped) = raw_stream(context);
        let gate = Gate::close_now(&wrapped);
        upload_and_drop(&pool, &wrapped, &mut device, 0xaa);
        drop(wrapped);
        destroy(context, old);
        let made = streams_until(context, old);
        let (again, newest) = made.last().expect("at least one");
        println!("the handle came back: {}, after {} streams", *again == old, made.len());
        assert!(software().is_none() || *again == old, "the software driver was told to repeat it");
        let beside = probe.runs_on(newest);
        if beside {
            the_old_copy_is_waited_for(&pool, newest, &mut other);
        }
        gate.open();
        all_home(&pool);
        let held = [filled(&pool, 4096, 0x55), filled(&pool, 4096, 0x77)];
        assert_filled(&keep, &device, 0xaa);
        drop(held);
        unfit.extend(made);
        if beside {
            break;
        }
    }
    for (raw, wrapped) in unfit {
        drop(wrapped);
        destroy(context, raw);
    }
    no_harm_done();
}

/// New streams until one has this handle, or a thousand.
fn streams_until(
    context: &Arc<CudaContext>,
    handle: sys::CUstream,
) -> Vec<(sys::CUstream, Arc<CudaStream>)> {
    let mut made = Vec::new();
    while made.len() < 1000 && made.last().is_none_or(|(raw, _)| *raw != handle) {
        made.push(raw_stream(context));
    }
    made
}

/// One of two slots waits for another stream: copies through the other one do not free it.
fn the_old_copy_is_waited_for(pool: &Pool, stream: &Arc<CudaStream>, target: &mut CudaSlice<u8>) {
    for round in 0..20 {
        upload_and_drop(pool, stream, target, round);
        stream.synchronize().expect("idle");
        let other = pool.try_lease(4096).expect("this stream's copy is over");
        assert!(pool.try_lease(4096).is_err(), "the other stream's copy has not run");
        assert_eq!(counts(pool), (0, 1, 1, 0));
        drop(other);
    }
}

fn the_legacy_default_stream_is_followed() {
    let pool = pool(4096, 1);
    let stream = context(&pool).default_stream();
    let mut device = device_memory(&stream, 4096);
    for round in 0..10 {
        let gate = Gate::close_now(&stream);
        upload_and_drop(&pool, &stream, &mut device, round);
        assert_eq!(counts(&pool), (0, 0, 1, 0));
        assert!(pool.try_lease(4096).is_err());
        gate.open();
        drop(filled(&pool, 4096, 0xff));
        assert_filled(&stream, &device, round);
    }
    no_harm_done();
}

/// One `Arc` means another stream on each thread: what one thread queued, another's end does not
/// tell.
fn threads_share_one_per_thread_stream() {
    let pool = pool(4096, 2);
    let (own, probe) = (stream(&pool), Probe::new(&pool));
    let shared = context(&pool).per_thread_stream();
    let mut devices = [device_memory(&own, 4096), device_memory(&own, 4096)];
    let [first, second] = &mut devices;
    std::thread::scope(|scope| {
        let (pool, stream, probe) = (&pool, &shared, &probe);
        let (told, tell) = std::sync::mpsc::channel();
        let (stay, leave) = std::sync::mpsc::channel::<()>();
        let slow = scope.spawn(move || {
            let gate = Gate::close_now(stream);
            upload_and_drop(pool, stream, first, 0xaa);
            told.send(gate).expect("the other thread listens");
            // The stream stays as long as its thread.
            let _ = leave.recv_timeout(HANG);
        });
        let gate = tell.recv_timeout(HANG).expect("queued");
        // Each thread has a stream of its own; one of them runs beside the first.
        let ran = (0..TRIES).any(|_| {
            std::thread::scope(|scope| {
                let quick = scope.spawn(|| {
                    let runs = probe.runs_on(stream);
                    if runs {
                        the_old_copy_is_waited_for(pool, stream, second);
                    }
                    runs
                });
                quick.join().expect("no panic")
            })
        });
        assert!(ran, "{TRIES} threads' streams stand still with another one");
        gate.open();
        all_home(pool);
        drop(stay);
        slow.join().expect("no panic");
    });
    assert_filled(&own, &devices[0], 0xaa);
    assert_filled(&own, &devices[1], 19);
    no_harm_done();
}

fn a_slot_waits_for_the_last_of_two_streams() {
    let pool = pool(4096, 1);
    let [one, two] = streams_apart(&pool);
    let mut devices = [device_memory(&one, 4096), device_memory(&two, 4096)];
    let [first, second] = &mut devices;
    let first_gate = Gate::close_now(&one);
    let second_gate = Gate::close(&two);
    let lease = filled(&pool, 4096, 0xaa);
    foreign_upload(&lease, &one, first);
    lease.record_use(&one).expect("recorded");
    foreign_upload(&lease, &two, second);
    lease.record_use(&two).expect("recorded");
    drop(lease);
    assert_eq!(counts(&pool), (0, 0, 1, 0));
    first_gate.open();
    one.synchronize().expect("idle");
    for _ in 0..20 {
        assert!(pool.try_lease(4096).is_err(), "the second stream still reads");
        std::thread::sleep(Duration::from_millis(2));
    }
    second_gate.open();
    drop(filled(&pool, 4096, 0xff));
    assert_filled(&one, &devices[0], 0xaa);
    assert_filled(&two, &devices[1], 0xaa);
    no_harm_done();
}

/// cudarc destroys the stream with its last `Arc`, whatever is queued on it.
fn a_stream_dropped_under_its_work() {
    let pool = pool(4096, 1);
    let keep = stream(&pool);
    let mut device = device_memory(&keep, 4096);
    for round in 0..20 {
        let doomed = stream(&pool);
        let gate = Gate::close_now(&doomed);
        let lease = filled(&pool, 4096, round);
        foreign_upload(&lease, &doomed, &mut device);
        lease.record_use(&doomed).expect("recorded");
        drop(doomed);
        drop(lease);
        assert_eq!(counts(&pool), (0, 0, 1, 0));
        assert!(pool.try_lease(4096).is_err());
        gate.open();
        drop(filled(&pool, 4096, 0xff));
        assert_filled(&keep, &device, round);
    }
    no_harm_done();
}

fn a_stream_destroyed_by_hand() {
    let pool = pool(4096, 2);
    let context = context(&pool);
    let keep = stream(&pool);
    let mut device = device_memory(&keep, 4096);
    for round in 0..20 {
        let (raw, wrapped) = raw_stream(context);
        let mut gate = None;
        if round % 2 == 0 {
            gate = Some(Gate::close_now(&wrapped));
        }
        let flight = filled(&pool, 4096, round).upload(&wrapped, &mut device).expect("queued");
        drop(wrapped);
        destroy(context, raw);
        if round % 4 < 2 {
            drop(flight);
        } else {
            drop(gate.take());
            drop(flight.wait().expect("copied"));
        }
        // The next call that has nothing to do with it finds no error left behind.
        context.mem_get_info().expect("an unrelated call is clean");
        assert!(context.check_err().is_ok(), "an error was left behind");
        drop(gate);
        all_home(&pool);
        assert_filled(&keep, &device, round);
    }
    assert!(pool.close(Duration::from_secs(10)).is_complete());
    no_harm_done();
}

fn a_lease_outlives_its_streams() {
    let pool = pool(4096, 1);
    let keep = stream(&pool);
    let mut device = device_memory(&keep, 4096);
    let mut lease = filled(&pool, 4096, 0);
    for round in 1..50 {
        let doomed = stream(&pool);
        foreign_upload(&lease, &doomed, &mut device);
        lease.record_use(&doomed).expect("recorded");
        drop(doomed);
        // Waits for the copy, whose stream is gone.
        lease.as_mut_slice().fill(round);
        assert_filled(&keep, &device, round - 1);
    }
    drop(lease);
    all_home(&pool);
    no_harm_done();
}

fn no_context() -> bool {
    result::ctx::get_current().expect("the driver answers").is_none()
}

fn the_last_one_out_needs_no_context() {
    let (flight, pool, stream, gate) = std::thread::spawn(|| {
        let pool = pool(4096, 1);
        let stream = stream(&pool);
        let mut device = device_memory(&stream, 4096);
        let gate = Gate::close_now(&stream);
        let flight = filled(&pool, 4096, 1).upload(&stream, &mut device).expect("queued");
        // Freed behind the copy.
        drop(device);
        (flight, pool, stream, gate)
    })
    .join()
    .expect("no panic");
    std::thread::spawn(move || {
        assert!(no_context(), "a fresh thread has no context");
        drop(pool);
        drop(flight);
        assert!(no_context(), "dropping the pool or the copy left a context behind");
        gate.open();
    })
    .join()
    .expect("the checks hold");
    stream.synchronize().expect("idle");
    if let Some(driver) = software() {
        until("nothing is pinned", || driver.pinned_bytes() == 0);
    }
    no_harm_done();
}

fn drops_on_bare_threads_leave_no_context() {
    let pool = pool(4096, 4);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 4096);
    for round in 0..50 {
        let flight = filled(&pool, 4096, round).upload(&stream, &mut device).expect("queued");
        let pool = &pool;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                if round % 3 == 0 {
                    drop(flight);
                } else if round % 3 == 1 {
                    let lease: Lease = flight.wait().expect("copied");
                    assert!(lease.as_slice().iter().all(|byte| *byte == round));
                } else {
                    drop(flight);
                    drop(pool.lease_timeout(1, HANG).expect("a slot in time"));
                }
                assert!(no_context(), "round {round} left a context behind");
            });
        });
    }
    all_home(&pool);
}

/// Nothing was queued, so that the slot is free at once, and the counts say so.
fn a_copy_that_is_refused_costs_no_slot() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let mut device = unwatched_memory(&stream, 4096);
    for plan in ["cuMemcpyHtoDAsync_v2:1:1", "cuMemcpyHtoDAsync_v2:1:400"] {
        driver().fail(plan).expect("a plan that the driver understands");
        let refused = filled(&pool, 4096, 1).upload(&stream, &mut device);
        drop(refused.expect_err("the driver was told to fail").lease.expect("not in doubt"));
        assert_eq!(counts(&pool), (1, 0, 0, 0));
        drop(pool.try_lease(4096).expect("free at once"));
    }
    driver().fail("cuMemcpyDtoHAsync_v2:1:1").expect("a plan that the driver understands");
    let refused = filled(&pool, 4096, 1).download(&device, &stream);
    drop(refused.expect_err("the driver was told to fail"));
    assert_eq!(counts(&pool), (1, 0, 0, 0));
    // A code that says nothing of the call itself: the copy may have been queued all the same.
    driver().fail("cuMemcpyHtoDAsync_v2:1:2").expect("a plan that the driver understands");
    drop(filled(&pool, 4096, 1).upload(&stream, &mut device).expect_err("told to fail"));
    all_home(&pool);
    upload_and_drop(&pool, &stream, &mut device, 3);
    stream.synchronize().expect("idle");
    drop(pool.try_lease(4096).expect("complete"));
    no_harm_done();
}

/// A null handle means the stream of the current context: a pool that passed it along on a thread
/// with another context, or none, would follow nothing.
fn the_default_stream_is_found_from_bare_threads() {
    let pool = pool(4096, 1);
    let stream = context(&pool).default_stream();
    let mut device = device_memory(&stream, 4096);
    for round in 0..20 {
        let mut lease = filled(&pool, 4096, round);
        let gate = Gate::close_now(&stream);
        foreign_upload(&lease, &stream, &mut device);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(no_context());
                lease.record_use(&stream).expect("recorded");
                let opener = gate.open_soon();
                // Waits for the copy.
                lease.as_mut_slice().fill(0xee);
                drop(lease);
                assert!(no_context());
                opener.join().expect("no panic");
            });
        });
        assert_filled(&stream, &device, round);
    }
    all_home(&pool);
    no_harm_done();
}
