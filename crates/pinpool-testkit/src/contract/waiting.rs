//! Waiting: timeouts, wake-up by a return, and that two classes do not disturb each other.

use std::time::{Duration, Instant};

use pinpool::{ClassConfig, LeaseError};

use super::{Check, Subject, assert_balanced, join_soon, main_stats, until_waiting};

pub(super) const CHECKS: &[Check] = &[
    ("a free slot is had without waiting", no_wait_when_free),
    ("a timeout ends the wait", timeout),
    ("a return wakes a waiter", woken_by_return),
    ("a return wakes the waiter of its class", woken_by_its_class),
];

fn no_wait_when_free(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 3);
    let held = (
        pool.lease(4096).unwrap(),
        pool.lease_timeout(4096, Duration::ZERO).unwrap(),
        pool.lease_timeout(4096, Duration::MAX).unwrap(),
    );
    assert_eq!(main_stats(&pool).waits_total, 0);
    drop(held);
    assert_eq!(pool.lease_of::<u32>(4).unwrap().len(), 4);
    assert_eq!(pool.lease_timeout_of::<u32>(4, Duration::ZERO).unwrap().len(), 4);
}

fn timeout(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 1);
    let held = pool.try_lease(4096).unwrap();
    for patience in [Duration::ZERO, Duration::from_millis(20)] {
        let start = Instant::now();
        let error = pool.lease_timeout(4096, patience).unwrap_err();
        let LeaseError::Timeout { exhausted, waited } = error else { panic!("{error:?}") };
        assert!(waited >= patience && start.elapsed() >= waited, "{waited:?} of {patience:?}");
        assert_eq!((exhausted.name.as_str(), exhausted.slots), ("main", 1));
        let text = error.to_string();
        assert!(text.contains("'main'") && text.contains("1 slots"), "{text}");
    }
    let stats = main_stats(&pool);
    assert_eq!((stats.waits_total, stats.timeouts_total, stats.misses_total), (2, 2, 2));
    drop(held);
    assert!(pool.lease_timeout(4096, Duration::ZERO).is_ok(), "the queue is not stuck");
    assert_balanced(&pool);
}

fn woken_by_return(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 1);
    for round in 1..=5 {
        let held = pool.try_lease(4096).unwrap();
        let slot = held.slot();
        let waiter = {
            let pool = pool.clone();
            std::thread::spawn(move || pool.lease(4096).map(|lease| lease.slot()))
        };
        until_waiting(&pool, round);
        assert!(!waiter.is_finished(), "it waits while the slot is out");
        drop(held);
        assert_eq!(join_soon(waiter), Ok(slot));
    }
    let stats = main_stats(&pool);
    assert_eq!((stats.waits_total, stats.timeouts_total, stats.free), (5, 0, 1));
}

fn woken_by_its_class(subject: &Subject<'_>) {
    let classes = vec![ClassConfig::new("main", 4096, 1), ClassConfig::new("small", 64, 1)];
    let pool = (subject.open)(classes);
    let large = pool.try_lease(4096).unwrap();
    let small = pool.try_lease(64).unwrap();
    let waiter = {
        let pool = pool.clone();
        std::thread::spawn(move || pool.lease(4096).map(|lease| lease.capacity()))
    };
    until_waiting(&pool, 1);
    drop(small);
    std::thread::sleep(Duration::from_millis(10));
    assert!(!waiter.is_finished(), "a slot of another class is no use to it");
    assert!(pool.try_lease(64).is_ok(), "and is still free");
    drop(large);
    assert_eq!(join_soon(waiter), Ok(4096));
}
