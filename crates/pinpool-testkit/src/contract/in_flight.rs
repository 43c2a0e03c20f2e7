//! Work in flight: a slot is withheld until its fence is complete, comes home then, and is lost if
//! nobody will ever know.

use std::time::Duration;

use pinpool::{Error, Lease, LeaseError, ManualFence, Pool, TryTakeError};

use super::{Check, HANG, Subject, assert_balanced, join_soon, main_stats, until_waiting};
use crate::stamp;

pub(super) const CHECKS: &[Check] = &[
    ("a retired slot comes home after its fence", retired),
    ("a retired slot wakes a waiter", retired_wakes),
    ("a lease in flight is waited for", waited_for),
    ("a lease in flight is taken when it is over", taken),
    ("a dropped lease in flight comes home", dropped),
    ("a failed fence costs its slot", failed),
    ("a shared lease goes home with its last holder", shared),
    ("close waits for work in flight", close_waits),
];

/// Free, leased, in flight and quarantined slots of "main".
fn counts(pool: &Pool) -> [u32; 4] {
    assert_balanced(pool);
    let class = main_stats(pool);
    [class.free, class.leased, class.in_flight, class.quarantined]
}

/// Waits until "main" counts so: a slot whose work is over comes home by itself.
fn until_counts(pool: &Pool, wanted: [u32; 4]) {
    let start = std::time::Instant::now();
    while counts(pool) != wanted {
        assert!(start.elapsed() < HANG, "{:?} never became {wanted:?}", counts(pool));
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn stamped(pool: &Pool, owner: u64) -> Lease {
    let mut lease = pool.try_lease(4096).unwrap();
    stamp::write(lease.as_mut_slice(), owner);
    lease
}

fn retired(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 2);
    let held = pool.try_lease(4096).unwrap();
    for round in 0..20 {
        let fence = ManualFence::new();
        stamped(&pool, round).retire_after(fence.clone());
        let error = pool.try_lease(4096).unwrap_err();
        assert!(error.to_string().contains("1 in flight"), "{error}");
        let LeaseError::Exhausted(exhausted) = error else { panic!("not exhausted: {error:?}") };
        assert_eq!((exhausted.slots, exhausted.in_flight, exhausted.quarantined), (2, 1, 0));
        assert_eq!(counts(&pool), [0, 1, 1, 0]);
        assert!(main_stats(&pool).oldest_in_flight.is_some());
        fence.complete();
        // Without any pause: whoever asks finds what is complete.
        stamp::verify(pool.try_lease(4096).unwrap().as_slice(), round);
    }
    let fence = ManualFence::new();
    stamped(&pool, 20).retire_after(fence.clone());
    fence.complete();
    // And without anybody asking.
    until_counts(&pool, [1, 1, 0, 0]);
    assert_eq!(main_stats(&pool).landed_total, 21);
    drop(held);
}

fn retired_wakes(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 1);
    for round in 1..=5 {
        let fence = ManualFence::new();
        stamped(&pool, round).retire_after(fence.clone());
        let waiter = {
            let pool = pool.clone();
            std::thread::spawn(move || {
                pool.lease(4096).map(|lease| stamp::verify(lease.as_slice(), round))
            })
        };
        until_waiting(&pool, round);
        assert!(!waiter.is_finished(), "it waits while the slot is in flight");
        fence.complete();
        assert_eq!(join_soon(waiter), Ok(()));
    }
}

fn waited_for(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 1);
    let fence = ManualFence::new();
    let lease = stamped(&pool, 3);
    let (slot, start) = (lease.slot(), lease.as_ptr() as usize);
    let flight = lease.in_flight_until(fence.clone());
    assert_eq!(counts(&pool), [0, 0, 1, 0]);
    let waiter = std::thread::spawn(move || flight.wait());
    std::thread::sleep(Duration::from_millis(5));
    assert!(!waiter.is_finished(), "the work goes on");
    fence.complete();
    let lease = join_soon(waiter).unwrap();
    assert_eq!((lease.slot(), lease.as_ptr() as usize, lease.len()), (slot, start, 4096));
    stamp::verify(lease.as_slice(), 3);
    assert_eq!(counts(&pool), [0, 1, 0, 0]);
    drop(lease);
    assert_eq!(counts(&pool), [1, 0, 0, 0]);
}

fn taken(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 1);
    let fence = ManualFence::new();
    let mut flight = stamped(&pool, 4).in_flight_until(fence.clone());
    for _ in 0..3 {
        assert!(!flight.is_complete().unwrap());
        flight = match flight.try_take() {
            Err(TryTakeError::Pending(flight)) => flight,
            other => panic!("the work goes on: {other:?}"),
        };
    }
    assert!(pool.try_lease(4096).is_err());
    fence.complete();
    assert!(flight.is_complete().unwrap());
    stamp::verify(flight.try_take().unwrap().as_slice(), 4);
    assert_eq!(counts(&pool), [1, 0, 0, 0]);
}

fn dropped(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 1);
    let fence = ManualFence::new();
    drop(stamped(&pool, 5).in_flight_until(fence.clone()));
    assert_eq!(counts(&pool), [0, 0, 1, 0]);
    assert!(pool.try_lease(4096).is_err());
    fence.complete();
    stamp::verify(pool.try_lease(4096).unwrap().as_slice(), 5);
}

fn failed(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 3);
    let fence = ManualFence::new();
    stamped(&pool, 6).retire_after(fence.clone());
    let flight = stamped(&pool, 7).in_flight_until(fence.clone());
    fence.fail("nobody knows");
    until_counts(&pool, [1, 0, 1, 1]);
    let error = flight.wait().unwrap_err();
    assert!(matches!(error, Error::Fence(_)) && error.to_string().contains("nobody knows"));
    assert_eq!(counts(&pool), [1, 0, 0, 2]);
    let held = pool.try_lease(4096).unwrap();
    let error = pool.try_lease(4096).unwrap_err();
    let LeaseError::Exhausted(exhausted) = error else { panic!("not exhausted: {error:?}") };
    assert_eq!((exhausted.in_flight, exhausted.quarantined), (0, 2));
    drop(held);
    let report = pool.close(Duration::ZERO);
    let out: Vec<_> = report.still_out.iter().map(|(name, out)| (name.as_str(), *out)).collect();
    assert_eq!((out, report.in_flight.len()), (vec![("main", 2)], 0), "they never come home");
}

fn shared(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 1);
    let first = stamped(&pool, 8).share();
    let reader = {
        let clone = first.clone();
        std::thread::spawn(move || stamp::verify(clone.as_slice(), 8))
    };
    join_soon(reader);
    let second = first.clone();
    let first = first.into_lease().expect_err("two hold it");
    drop(first);
    assert_eq!(counts(&pool), [0, 1, 0, 0]);
    let mut lease = second.into_lease().expect("one holds it");
    stamp::write(lease.as_mut_slice(), 9);
    let last = lease.share();
    stamp::verify(last.as_slice(), 9);
    drop(last);
    assert_eq!(counts(&pool), [1, 0, 0, 0]);
}

fn close_waits(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 2);
    let fences: [ManualFence; 2] = Default::default();
    let slot = {
        let lease = pool.try_lease(4096).unwrap();
        let slot = lease.slot();
        lease.retire_after(fences[0].clone());
        slot
    };
    let flight = pool.try_lease(4096).unwrap().in_flight_until(fences[1].clone());
    let report = pool.close(Duration::from_millis(1));
    let [stuck] = &report.in_flight[..] else { panic!("one is stuck: {report:?}") };
    assert_eq!((stuck.class.as_str(), stuck.slot), ("main", slot));
    fences.iter().for_each(ManualFence::complete);
    drop(flight.wait().unwrap());
    assert!(pool.close(HANG).is_complete());
    assert_eq!((counts(&pool), pool.stats().mapped_bytes), ([2, 0, 0, 0], 0));
}
