//! What comes home without being asked for: the pool's own thread sees to it, and to all classes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pinpool::ManualFence;
use pinpool_testkit::scripted::counted_pool;

use super::{HANG, SIZE, counts, exhausted, frames, until};

/// Case R27 in its host shape: a class that is stuck, with a waiter, beside one that is busy.
#[test]
fn a_stuck_class_does_not_stop_a_busy_one() {
    const ROUNDS: usize = 20_000;
    let (pool, _ledger) = counted_pool(&[("stuck", 64, 2), ("busy", SIZE, 4)]);
    let fence = ManualFence::new();
    (0..2).for_each(|_| pool.lease(64).unwrap().retire_after(fence.clone()));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| pool.lease_timeout(64, HANG).map(drop));
        until("it waits", || pool.stats().class("stuck").unwrap().waits_total == 1);
        let (send, receive) = std::sync::mpsc::channel::<ManualFence>();
        scope.spawn(move || receive.iter().for_each(|copied| copied.complete()));
        for round in 0..ROUNDS {
            let lease = pool.lease_timeout(SIZE, HANG).expect("the busy class goes on");
            let copied = ManualFence::new();
            match round % 2 {
                0 => lease.retire_after(copied.clone()),
                _ => drop(lease.in_flight_until(copied.clone())),
            }
            send.send(copied).unwrap();
        }
        drop(send);
        assert!(!waiter.is_finished(), "the stuck class has no slot");
        let error = pool.lease_timeout(64, Duration::from_millis(5)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("2 in flight"), "{text}");
        assert_eq!(exhausted(Err(error)).in_flight, 2);
        let stats = pool.stats();
        assert_eq!(stats.class("stuck").unwrap().in_flight, 2);
        assert_eq!(stats.class("busy").unwrap().leases_total, ROUNDS as u64);
        fence.complete();
        waiter.join().unwrap().unwrap();
    });
}

/// Kind of fault: the only thread that could have noticed the copies' end was asleep, waiting for
/// it.
///
/// Case empty-1.
#[test]
fn a_waiter_alone_gets_a_slot_whose_work_ends() {
    let (pool, _ledger) = frames(4);
    for pause in [0, 1, 50, 300] {
        let fences: [ManualFence; 4] = Default::default();
        for fence in &fences {
            pool.lease(SIZE).unwrap().retire_after(fence.clone());
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                drop(pool.lease_timeout(SIZE, HANG).unwrap());
                assert!(fences.iter().any(ManualFence::is_complete));
                done.store(true, Ordering::Release);
            });
            // Nobody touches the pool from here on.
            std::thread::sleep(Duration::from_millis(pause));
            assert!(!done.load(Ordering::Acquire));
            fences.iter().for_each(ManualFence::complete);
            until("the waiter got a slot", || done.load(Ordering::Acquire));
        });
        until("all came home", || counts(&pool) == [4, 0, 0, 0]);
    }
}

/// The pool's own thread sleeps for good while nothing is in flight. A retirement wakes it, with or
/// without a waiter: the slot comes home although nobody asks for it.
#[test]
fn a_sleeping_keeper_is_woken_by_a_retirement() {
    let (pool, _ledger) = frames(1);
    for waits in [true, false, true, false] {
        let lease = pool.try_lease(SIZE).unwrap();
        let fence = ManualFence::new();
        std::thread::scope(|scope| {
            let waiter = waits.then(|| {
                let before = pool.stats().classes[0].waits_total;
                let waiter = scope.spawn(|| pool.lease_timeout(SIZE, HANG).map(drop));
                until("it waits", || pool.stats().classes[0].waits_total > before);
                waiter
            });
            // Longer than it stays up after its last work.
            std::thread::sleep(Duration::from_millis(250));
            lease.retire_after(fence.clone());
            fence.complete();
            if let Some(waiter) = waiter {
                waiter.join().unwrap().expect("the slot came home in time");
            }
        });
        until("the slot is free", || counts(&pool) == [1, 0, 0, 0]);
    }
    assert_eq!(pool.stats().classes[0].timeouts_total, 0);
}

/// What was complete before a lease was asked for is had at once, whatever the keeper is doing with
/// it at that moment; a waiter elsewhere keeps it busy.
#[test]
fn work_that_is_over_never_counts_as_a_miss() {
    const ROUNDS: u64 = 500_000;
    let (pool, _ledger) = counted_pool(&[("frame", SIZE, 1), ("stuck", 2 * SIZE, 1)]);
    let stuck = ManualFence::new();
    pool.lease(2 * SIZE).unwrap().retire_after(stuck.clone());
    let misses = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| pool.lease_timeout(2 * SIZE, 3 * HANG).map(drop));
        until("it waits", || pool.stats().class("stuck").unwrap().waits_total == 1);
        for round in 0..ROUNDS {
            let fence = ManualFence::new();
            let Ok(lease) = pool.try_lease(SIZE) else {
                misses.fetch_add(1, Ordering::Relaxed);
                until("it comes home", || counts(&pool)[0] == 1);
                continue;
            };
            lease.retire_after(fence.clone());
            for _ in 0..round % 64 {
                std::hint::spin_loop();
            }
            fence.complete();
        }
        stuck.complete();
        waiter.join().unwrap().unwrap();
    });
    assert_eq!(misses.into_inner(), 0, "of {ROUNDS} rounds");
}
