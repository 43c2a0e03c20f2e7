//! Slots whose copies are under way: withheld until the fence, given out at once after it.

use std::time::Duration;

use pinpool::{Lease, LeaseError, ManualFence, Pool, TryTakeError};

use crate::support::*;
use crate::{Check, check};

pub(crate) const ALL: &[Check] = &[
    check(
        "a_slot_in_flight_is_not_given_to_the_next_owner",
        a_slot_in_flight_is_not_given_to_the_next_owner,
    ),
    check("staged_copies_of_eight_threads_arrive_whole", staged_copies_of_eight_threads),
    check("the_fence_stands_right_behind_the_copy", the_fence_stands_right_behind_the_copy),
    check(
        "a_download_is_pending_until_the_bytes_are_there",
        a_download_is_pending_until_the_bytes_are_there,
    ),
    check("a_part_goes_up_and_a_part_comes_down", a_part_goes_up_and_a_part_comes_down),
    check("a_dropped_copy_blocks_nobody", a_dropped_copy_blocks_nobody),
    check("a_waiter_gets_the_slot_when_the_copy_ends", a_waiter_gets_the_slot_when_the_copy_ends),
    check("a_producer_that_outruns_its_fences_is_told", a_producer_that_outruns_its_fences),
    check("a_synchronised_stream_leaves_every_slot_free", a_synchronised_stream_leaves_all_free),
    check("a_shared_buffer_goes_to_four_streams", a_shared_buffer_goes_to_four_streams),
    check("a_shared_lease_is_taken_back_by_the_last", a_shared_lease_is_taken_back_by_the_last),
    check("a_failed_fence_costs_its_slot_and_no_other", a_failed_fence_costs_its_slot),
    check("a_copy_can_be_awaited_without_a_runtime", a_copy_can_be_awaited_without_a_runtime),
];

fn a_slot_in_flight_is_not_given_to_the_next_owner() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 4096);
    let gate = Gate::close_now(&stream);
    std::thread::scope(|scope| {
        scope.spawn(|| drop(filled(&pool, 4096, 0xaa).upload(&stream, &mut device).unwrap()));
    });
    assert_eq!(counts(&pool), (0, 0, 1, 0));
    let early = pool.lease_timeout(4096, Duration::from_millis(300));
    match early.expect_err("the copy has not run") {
        LeaseError::Timeout { exhausted, .. } => assert_eq!(exhausted.in_flight, 1),
        other => panic!("not a timeout: {other}"),
    }
    gate.open();
    let next = filled(&pool, 4096, 0x55);
    assert_filled(&stream, &device, 0xaa);
    drop(next);
    assert_eq!(counts(&pool), (1, 0, 0, 0));
    no_harm_done();
}

/// Queues a copy from a staging buffer and returns while it runs, like code that never waits.
fn stage(
    pool: &Pool,
    stream: &std::sync::Arc<pinpool::cudarc::driver::CudaStream>,
    owner: u64,
    target: &mut pinpool::cudarc::driver::CudaSlice<u8>,
) {
    let mut lease = pool.lease_timeout(64 << 10, HANG).expect("a slot in time");
    pinpool_testkit::stamp::write_slot(&mut lease, owner);
    drop(lease.upload(stream, target).expect("queued"));
}

fn staged_copies_of_eight_threads() {
    const RING: u64 = 8;
    let pool = pool(64 << 10, 4);
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let pool = &pool;
            scope.spawn(move || {
                let stream = stream(pool);
                let mut ring: Vec<_> =
                    (0..RING).map(|_| device_memory(&stream, 64 << 10)).collect();
                for first in (0..1000).step_by(RING as usize) {
                    let owners = first..first + RING;
                    for (owner, target) in owners.clone().zip(&mut ring) {
                        stage(pool, &stream, thread << 32 | owner, target);
                    }
                    for (owner, target) in owners.zip(&ring) {
                        let seen = on_device(&stream, target);
                        pinpool_testkit::stamp::verify(&seen, thread << 32 | owner);
                    }
                }
            });
        }
    });
    all_home(&pool);
    no_harm_done();
}

/// Work queued behind the copy does not keep the slot.
fn the_fence_stands_right_behind_the_copy() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 4096);
    let flight = filled(&pool, 4096, 7).upload(&stream, &mut device).expect("queued");
    let gate = Gate::close(&stream);
    drop(flight);
    let next = std::thread::scope(|scope| {
        scope.spawn(|| pool.lease_timeout(4096, Duration::from_secs(10))).join()
    });
    drop(next.expect("no panic").expect("the copy is over, though the stream stands still"));
    gate.open();
    let lease = filled(&pool, 4096, 8);
    foreign_upload(&lease, &stream, &mut device);
    lease.record_use(&stream).expect("recorded");
    let gate = Gate::close(&stream);
    drop(lease);
    drop(pool.lease_timeout(4096, Duration::from_secs(10)).expect("the recorded use is over"));
    gate.open();
    assert_filled(&stream, &device, 8);
}

fn a_download_is_pending_until_the_bytes_are_there() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let wanted = pattern(4096, 3);
    let device = stream.clone_htod(&wanted).expect("device memory");
    let gate = Gate::close_now(&stream);
    let flight = filled(&pool, 1, 0xee).download(&device, &stream).expect("queued");
    assert!(!flight.is_complete().expect("no fault"));
    let flight = match flight.try_take() {
        Err(TryTakeError::Pending(flight)) => flight,
        other => panic!("the copy has not run: {other:?}"),
    };
    assert_eq!(counts(&pool), (0, 0, 1, 0));
    gate.open();
    let lease = flight.wait().expect("copied");
    assert_eq!(lease.as_slice(), wanted, "all the bytes, and the length of the source");
    assert_eq!(counts(&pool), (0, 1, 0, 0));
    drop(lease);
    let flight = pool.try_lease(4096).expect("free").download(&device, &stream).expect("queued");
    stream.synchronize().expect("idle");
    assert!(flight.is_complete().expect("no fault"));
    assert_eq!(flight.try_take().expect("complete").as_slice(), wanted);
}

fn a_part_goes_up_and_a_part_comes_down() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let wanted = pattern(4096, 9);
    let mut device = device_memory(&stream, 1000);
    let mut lease = pool.try_lease(4096).expect("a slot");
    lease.as_mut_slice().copy_from_slice(&wanted);
    let flight = lease.upload_part(100..1100, &stream, &mut device).expect("queued");
    let lease = flight.wait().expect("copied");
    assert_eq!(on_device(&stream, &device), wanted[100..1100]);
    let flight = lease.download_part(3000..4000, &device, &stream).expect("queued");
    let lease = flight.wait().expect("copied");
    assert_eq!(lease.len(), 4096, "the length stays");
    assert_eq!(lease.as_slice()[3000..4000], wanted[100..1100]);
    assert_eq!(lease.as_slice()[..3000], wanted[..3000]);
    assert_eq!(lease.as_slice()[4000..], wanted[4000..]);
    let refused = lease.upload_part(4000..4097, &stream, &mut device).expect_err("out of range");
    let refused = refused.lease.expect("nothing was queued");
    let refused = refused.download_part(..999, &device, &stream).expect_err("1000 into 999");
    drop(refused.lease.expect("nothing was queued"));
    assert_eq!(counts(&pool), (1, 0, 0, 0));
}

/// The drop must return while the stream stands still: nobody opens the gate for it.
fn a_dropped_copy_blocks_nobody() {
    let pool = pool(4096, 2);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 4096);
    let gate = Gate::close_now(&stream);
    let start = std::time::Instant::now();
    drop(filled(&pool, 4096, 1).upload(&stream, &mut device).expect("queued"));
    drop(filled(&pool, 4096, 2).in_flight_until(complete_behind(&stream)));
    assert!(start.elapsed() < HANG / 2, "a drop waited for the stream");
    assert_eq!(counts(&pool), (0, 0, 2, 0));
    gate.open();
    all_home(&pool);
    assert_filled(&stream, &device, 1);
}

/// Nothing but the pool's own thread asks: the waiter sleeps.
fn a_waiter_gets_the_slot_when_the_copy_ends() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 4096);
    for round in 0..20 {
        let gate = Gate::close_now(&stream);
        drop(filled(&pool, 4096, round).upload(&stream, &mut device).expect("queued"));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pool.lease_timeout(4096, HANG).expect("woken"));
            std::thread::sleep(Duration::from_millis(5));
            assert!(!waiter.is_finished(), "round {round}: too early");
            gate.open();
            waiter.join().expect("no panic").as_mut_slice().fill(0xff);
        });
        assert_filled(&stream, &device, round);
    }
}

fn a_producer_that_outruns_its_fences() {
    let pool = pool(4096, 8);
    let cap = pool.stats().cap_bytes;
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 4096);
    let gate = Gate::close_now(&stream);
    for round in 0..8 {
        drop(filled(&pool, 4096, round).upload(&stream, &mut device).expect("queued"));
        assert!(pool.stats().pinned_bytes <= cap);
    }
    match pool.try_lease(4096).expect_err("all eight are in flight") {
        LeaseError::Exhausted(exhausted) => assert_eq!(exhausted.in_flight, 8),
        other => panic!("not exhausted: {other}"),
    }
    assert!(matches!(
        pool.lease_timeout(4096, Duration::from_millis(50)),
        Err(LeaseError::Timeout { .. })
    ));
    let opener = gate.open_soon();
    let held: Vec<Lease> = (0..8).map(|_| filled(&pool, 4096, 0xff)).collect();
    assert!(pool.stats().pinned_bytes <= cap);
    assert_filled(&stream, &device, 7);
    drop(held);
    opener.join().expect("no panic");
    no_harm_done();
}

/// A miss looks for complete slots itself: it need not wait for the pool's thread.
fn a_synchronised_stream_leaves_all_free() {
    let pool = pool(4096, 8);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 4096);
    for round in 0..200 {
        for _ in 0..8 {
            let lease = pool.try_lease(4096).unwrap_or_else(|error| panic!("{round}: {error}"));
            drop(lease.upload(&stream, &mut device).expect("queued"));
        }
        stream.synchronize().expect("idle");
    }
    all_home(&pool);
    assert_eq!(class(&pool).leases_total, 1600);
}

fn a_shared_buffer_goes_to_four_streams() {
    let pool = pool(64 << 10, 1);
    let streams = streams_apart::<4>(&pool);
    let mut targets: Vec<_> = streams.iter().map(|one| device_memory(one, 64 << 10)).collect();
    let gate = Gate::close_now(&streams[0]);
    let mut lease = pool.try_lease(64 << 10).expect("a slot");
    pinpool_testkit::stamp::write_slot(&mut lease, 77);
    let shared = lease.share();
    std::thread::scope(|scope| {
        for (stream, target) in streams.iter().zip(&mut targets) {
            let shared = shared.clone();
            scope.spawn(move || shared.upload(stream, target).expect("queued"));
        }
    });
    pinpool_testkit::stamp::verify(shared.as_slice(), 77);
    assert_eq!(shared.len(), 64 << 10);
    for stream in &streams[1..] {
        stream.synchronize().expect("idle");
    }
    drop(shared);
    assert_eq!(counts(&pool), (0, 0, 1, 0), "one of four copies has not run");
    assert!(pool.try_lease(1).is_err());
    gate.open();
    drop(filled(&pool, 64 << 10, 0xff));
    for (stream, target) in streams.iter().zip(&targets) {
        pinpool_testkit::stamp::verify(&on_device(stream, target), 77);
    }
    no_harm_done();
}

fn a_shared_lease_is_taken_back_by_the_last() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 100);
    let shared = filled(&pool, 4096, 5).share();
    let other = shared.clone();
    let shared = shared.into_lease().expect_err("there is a second clone");
    let gate = Gate::close_now(&stream);
    other.upload_part(10..110, &stream, &mut device).expect("queued");
    drop(shared);
    let other = other.into_lease().expect_err("a copy is under way");
    gate.open();
    stream.synchronize().expect("idle");
    let mut lease = other.into_lease().expect("the last clone, and no copy");
    lease.as_mut_slice().fill(6);
    assert_filled(&stream, &device, 5);
    assert_eq!(counts(&pool), (0, 1, 0, 0));
    drop(lease);
    assert_eq!(counts(&pool), (1, 0, 0, 0));
}

fn a_failed_fence_costs_its_slot() {
    let pool = pool(4096, 3);
    let (failing, waiting) = (ManualFence::new(), ManualFence::new());
    filled(&pool, 4096, 1).retire_after(failing.clone());
    let flight = filled(&pool, 4096, 2).in_flight_until(waiting.clone());
    failing.fail("the cable was pulled");
    waiting.fail("so was this one");
    let error = flight.wait().expect_err("the fence failed");
    assert!(error.to_string().contains("so was this one"), "{error}");
    until("two slots are quarantined", || counts(&pool) == (1, 0, 0, 2));
    for _ in 0..100 {
        drop(filled(&pool, 4096, 3));
        assert_eq!(counts(&pool), (1, 0, 0, 2));
    }
}

/// Polls by hand; the pool's own thread calls the waker.
fn a_copy_can_be_awaited_without_a_runtime() {
    use std::future::IntoFuture;
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};

    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 4096);
    let gate = Gate::close_now(&stream);
    let flight = filled(&pool, 4096, 9).upload(&stream, &mut device).expect("queued");
    let mut future = Box::pin(flight.into_future());
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    assert!(future.as_mut().poll(&mut context).is_pending());
    let opener = gate.open_soon();
    let start = std::time::Instant::now();
    let lease = loop {
        std::thread::park_timeout(HANG);
        assert!(start.elapsed() < HANG, "nobody called the waker");
        if let Poll::Ready(lease) = future.as_mut().poll(&mut context) {
            break lease.expect("copied");
        }
    };
    assert!(lease.as_slice().iter().all(|byte| *byte == 9));
    opener.join().expect("no panic");
    assert_filled(&stream, &device, 9);
}
