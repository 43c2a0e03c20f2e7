//! Closing: waiters wake, leases stay valid, and the report names what is out.

use std::time::{Duration, Instant};

use pinpool::LeaseError;

use super::{Check, HANG, Subject, join_soon, until_waiting};
use crate::stamp;

pub(super) const CHECKS: &[Check] = &[
    ("an idle pool closes at once", idle_close),
    ("close wakes every waiter", close_wakes_waiters),
    ("close reports what is out", close_reports),
    ("close waits for the last lease", close_waits),
    ("close twice", close_twice),
];

fn idle_close(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 4);
    drop(pool.try_lease(4096).unwrap());
    let report = pool.close(HANG);
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(pool.try_lease(4096).unwrap_err(), LeaseError::Closed);
    assert_eq!(pool.lease(4096).unwrap_err(), LeaseError::Closed);
    assert_eq!(pool.lease_timeout(4096, HANG).unwrap_err(), LeaseError::Closed);
    assert_eq!(pool.clone().try_lease(4096).unwrap_err(), LeaseError::Closed);
    assert_eq!(pool.try_lease(0).unwrap_err(), LeaseError::ZeroLen, "a mistake stays one");
    let stats = pool.stats();
    assert_eq!((stats.pinned_bytes, stats.mapped_bytes, stats.stuck_bytes), (0, 0, 0));
}

fn close_wakes_waiters(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 1);
    let held = pool.try_lease(4096).unwrap();
    let waiters: Vec<_> = (0..8)
        .map(|waiter| {
            let pool = pool.clone();
            std::thread::spawn(move || match waiter % 2 {
                0 => pool.lease(4096).map(|lease| lease.slot()),
                _ => pool.lease_timeout(4096, HANG).map(|lease| lease.slot()),
            })
        })
        .collect();
    until_waiting(&pool, 8);
    let start = Instant::now();
    let report = pool.close(Duration::ZERO);
    for waiter in waiters {
        assert_eq!(join_soon(waiter), Err(LeaseError::Closed));
    }
    assert!(start.elapsed() < HANG / 2, "the waiters woke, they did not time out");
    assert_eq!(report.still_out.len(), 1);
    drop(held);
    assert!(pool.close(HANG).is_complete());
}

fn close_reports(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 4);
    let mut held: Vec<_> = (0..3).map(|_| pool.try_lease(4096).unwrap()).collect();
    held.iter_mut().zip(0..).for_each(|(lease, owner)| stamp::write_slot(lease, owner));
    for out in [3, 2, 1] {
        let report = pool.close(Duration::from_millis(1));
        let named: Vec<_> =
            report.still_out.iter().map(|(name, out)| (name.as_str(), *out)).collect();
        assert_eq!((named, report.stuck_bytes), (vec![("main", out)], 0));
        let lease = held.pop().unwrap();
        stamp::verify(lease.as_slice(), (out - 1) as u64);
    }
    assert!(pool.close(HANG).is_complete());
}

fn close_waits(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 2);
    let held = pool.try_lease(4096).unwrap();
    let holder = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        drop(held);
    });
    let report = pool.close(HANG);
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(pool.stats().mapped_bytes, 0, "the memory is gone when close returns");
    holder.join().unwrap();
}

fn close_twice(subject: &Subject<'_>) {
    for _ in 0..50 {
        let pool = subject.pool(64, 4);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let report = pool.close(Duration::ZERO);
                    // Nothing was ever leased, so nothing can be out.
                    assert_eq!(report.still_out, [], "{report:?}");
                });
            }
        });
        assert!(pool.close(HANG).is_complete());
    }
}
