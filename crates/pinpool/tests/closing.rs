//! Closing while other threads lease, wait, return and close: one end of the memory, right reports.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test reports by panicking, and its figures by printing"
)]

#[path = "closing/foreign.rs"]
mod foreign;
#[path = "closing/reports.rs"]
mod reports;

use std::time::{Duration, Instant};

use pinpool::{Heap, LeaseError, MemoryStep, Pool};
use pinpool_testkit::scripted::{Counted, Delayed, counted_pool as pool};
use pinpool_testkit::stamp;

/// The pool is dropped while its leases come home in other threads: the memory is given back once,
/// after the last of them, whoever that is.
#[test]
fn the_pool_goes_while_leases_come_home() {
    for round in 0..2000u64 {
        let (pool, ledger) = pool(&[("frame", 256, 3), ("tile", 64, 3)]);
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (mut frame, mut tile) =
                    (pool.try_lease(256).unwrap(), pool.try_lease(64).unwrap());
                scope.spawn(move || {
                    stamp::write_slot(&mut frame, thread);
                    stamp::write_slot(&mut tile, round);
                    stamp::verify(frame.as_slice(), thread);
                    drop(frame);
                    stamp::verify(tile.as_slice(), round);
                });
            }
            drop(pool);
        });
        ledger.assert_clean();
    }
}

/// Close races waiters, holders and other closers: everybody gets an answer, a report never counts
/// more than is out, and in the end nothing is left.
#[test]
fn close_races_waiters_and_returns() {
    let (mut served, mut refused) = (0, 0);
    for round in 0..1000u32 {
        let (pool, ledger) = pool(&[("frame", 256, 2)]);
        let held: Vec<_> = (0..2).map(|_| pool.try_lease(256).unwrap()).collect();
        std::thread::scope(|scope| {
            let waiters: Vec<_> =
                (0..3).map(|_| scope.spawn(|| pool.lease_timeout(256, HANG).map(drop))).collect();
            let closers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        if round.is_multiple_of(2) {
                            std::thread::yield_now();
                        }
                        pool.close(Duration::ZERO)
                    })
                })
                .collect();
            held.into_iter().for_each(drop);
            for closer in closers {
                for (_, out) in closer.join().unwrap().still_out {
                    assert!(out <= 2, "{out} of 2 slots are out");
                }
            }
            for waiter in waiters {
                match waiter.join().unwrap() {
                    Ok(()) => served += 1,
                    Err(LeaseError::Closed) => refused += 1,
                    Err(error) => panic!("{error}"),
                }
            }
        });
        assert!(pool.close(HANG).is_complete());
        ledger.assert_clean();
    }
    println!("{served} waiters served, {refused} refused");
    assert!(served > 0 && refused > 0, "both outcomes must occur: {served}, {refused}");
}

/// A complete report means that the memory is back, also when another thread brought the last slot
/// home and is not done with a slow unpin.
#[test]
fn a_complete_close_left_nothing_pinned() {
    let (memory, ledger) = Counted::new(Heap::claiming_locked());
    let memory = Delayed::new(memory).on(MemoryStep::Unpin, Duration::from_millis(50));
    let pool = Pool::builder().env(false).class("frame", 4096, 2).memory(memory).open().unwrap();
    let held = pool.try_lease(4096).unwrap();
    assert!(!pool.close(Duration::ZERO).is_complete());
    let holder = std::thread::spawn(move || drop(held));
    let start = Instant::now();
    while !pool.close(Duration::ZERO).is_complete() {
        assert!(start.elapsed() < HANG, "never complete");
        std::thread::yield_now();
    }
    assert_eq!(ledger.pinned_bytes(), 0, "reported as given back");
    holder.join().unwrap();
    ledger.assert_clean();
}

/// What takes longer is lost.
const HANG: Duration = Duration::from_secs(20);
