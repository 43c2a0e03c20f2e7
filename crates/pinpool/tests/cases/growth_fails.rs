//! A growth that fails, in the pool's own thread: the process lives, whoever waits gets another slot or
//! its timeout, and the class grows once memory is to be had.

use std::time::Duration;

use pinpool::{ClassConfig, Heap, LeaseError, MemoryStep, OnEmpty, Pool};
use pinpool_testkit::scripted::{Counted, Fault, FaultLog, Faulty, Ledger};
use pinpool_testkit::soon::{HANG, until};
use pinpool_testkit::stamp;

const SIZE: usize = 4096;

fn open() -> (Pool, Ledger, FaultLog) {
    let (counted, ledger) = Counted::new(Heap::claiming_locked());
    let (memory, faults) = Faulty::new(counted, Fault::nth(u64::MAX));
    let class = ClassConfig::new("frame", SIZE, 2).on_empty(OnEmpty::Grow).grow_max(2).grow_at(0);
    let builder = Pool::builder().env(false).max_pinned(1 << 20).class_config(class);
    (builder.memory(memory).open().unwrap(), ledger, faults)
}

#[test]
fn a_growth_that_fails_costs_nobody_but_who_waited_for_it() {
    for step in [MemoryStep::Reserve, MemoryStep::Populate, MemoryStep::Pin] {
        let (pool, ledger, faults) = open();
        let regions = ledger.regions();
        faults.arm(Some(Fault::nth(1).of(step).persistent()));
        let mut held: Vec<_> = (0..2).map(|_| pool.try_lease(SIZE).unwrap()).collect();
        for lease in &mut held {
            stamp::write_slot(lease, 5);
        }
        let timeout = pool.lease_timeout(SIZE, Duration::from_millis(30));
        assert!(matches!(timeout, Err(LeaseError::Timeout { .. })), "{step:?}: {timeout:?}");
        let failures = || pool.stats().classes[0].grow_failures_total;
        until("growth is tried", || failures() > 0);
        assert!(matches!(pool.try_lease(SIZE), Err(LeaseError::Exhausted(_))));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pool.lease_timeout(SIZE, HANG));
            until("it waits", || pool.stats().classes[0].waiting == 1);
            drop(held.pop());
            stamp::write_slot(&mut waiter.join().unwrap().unwrap(), 6);
        });
        assert_eq!((ledger.regions(), pool.stats().classes[0].grown), (regions, 0), "{step:?}");
        let slots = pool.stats().classes[0].slots;
        assert_eq!(slots, 2);
        // The system has memory again: a waiter gets of it.
        faults.arm(None);
        let other = pool.try_lease(SIZE).unwrap();
        let grown = pool.lease_timeout(SIZE, HANG).unwrap();
        assert_eq!(pool.stats().classes[0].grown_total, 1, "{step:?}");
        for lease in &held {
            stamp::verify(lease.as_slice(), 5);
        }
        drop((held, other, grown));
        assert!(pool.close(HANG).is_complete());
        ledger.assert_clean();
    }
}

/// The pool closes while the keeper's growth fails again and again, or is being made: it ends.
#[test]
fn a_close_meets_a_growth() {
    for round in 0..300 {
        let (pool, ledger, faults) = open();
        if round % 2 == 0 {
            faults.arm(Some(Fault::nth(1).of(MemoryStep::Pin).persistent()));
        }
        let held: Vec<_> = (0..2).map(|_| pool.try_lease(SIZE).unwrap()).collect();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pool.lease(SIZE).map(drop));
            if round % 3 == 0 {
                let class = || pool.stats().classes[0].clone();
                until("it waits or has it", || class().waits_total > 0 || class().leases_total > 2);
            }
            pool.close(Duration::ZERO);
            match waiter.join().unwrap() {
                Ok(()) | Err(LeaseError::Closed) => {}
                Err(error) => panic!("{error}"),
            }
        });
        drop(held);
        let report = pool.close(HANG);
        assert!(report.is_complete(), "{report}");
        ledger.assert_clean();
    }
}
