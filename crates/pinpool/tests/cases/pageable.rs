//! Pageable buffers stand in for pinned slots where the class allows it: never silently, never more than
//! it allows, and not for ever.

use std::time::Duration;

use pinpool::{BackendKind, ClassConfig, Lease, LeaseError, ManualFence, OnEmpty, Pool};
use pinpool_testkit::scripted::Ledger;
use pinpool_testkit::soon::{HANG, until};
use pinpool_testkit::stamp;

use crate::tasks::block_on;
use crate::{assert_all_home, counted, stats, until_in_line};

const SIZE: usize = 4096;

/// One pinned slot, and at most two pageable ones.
fn fallback(idle: Duration) -> (Pool, Ledger) {
    let class = ClassConfig::new("frame", SIZE, 1)
        .on_empty(OnEmpty::Pageable)
        .pageable_max(2)
        .idle_after(idle);
    counted([class, ClassConfig::new("other", 2 * SIZE, 1)])
}

const FOR_EVER: Duration = Duration::from_secs(3600);

/// Kind of fault: a step down from pinned to pageable memory that nobody sees.
///
/// The lease says what it is and the counts move, for every way to lease; past the limit the class is
/// empty as any other.
///
/// Case empty-4.
#[test]
fn a_pageable_lease_says_so_and_is_counted() {
    let (pool, ledger) = fallback(FOR_EVER);
    let ways: [fn(&Pool) -> Result<Lease, LeaseError>; 5] = [
        |pool| pool.try_lease(SIZE),
        |pool| pool.lease(SIZE),
        |pool| pool.lease_timeout(SIZE, Duration::ZERO),
        |pool| block_on(pool.lease_async(SIZE)),
        |pool| pool.try_lease_many(&[SIZE]).map(|mut leases| leases.remove(0)),
    ];
    let pinned = pool.try_lease(SIZE).unwrap();
    assert!(pinned.is_pinned() && !pinned.is_pageable());
    assert_eq!(pinned.backend(), BackendKind::Heap);
    for (number, way) in (1u64..).zip(ways) {
        let mut lease = way(&pool).unwrap();
        assert!(lease.is_pageable() && !lease.is_pinned() && !lease.is_device_accessible());
        assert_eq!((lease.backend(), lease.device_ptr()), (BackendKind::Pageable, None));
        assert_eq!((lease.capacity(), lease.class_name().as_str()), (SIZE, "frame"));
        stamp::write_slot(&mut lease, number);
        stamp::verify(lease.as_slice(), number);
        let class = stats(&pool, "frame");
        assert_eq!((class.slots, class.leased, class.pageable), (2, 2, 1));
        assert_eq!((class.pageable_total, class.misses_total), (number, 0));
        assert_eq!(pool.stats().pageable_bytes, SIZE as u64, "the buffer is kept for the next");
    }
    let second = [pool.try_lease(SIZE).unwrap(), pool.try_lease(SIZE).unwrap()];
    assert_ne!(second[0].as_ptr(), second[1].as_ptr());
    let error = pool.try_lease(SIZE).unwrap_err();
    let LeaseError::Exhausted(exhausted) = error else { panic!("{error}") };
    assert_eq!(exhausted.slots, 3, "{error}");
    assert!(pool.lease_timeout(SIZE, Duration::from_millis(5)).is_err());
    assert_eq!(pool.stats().pinned_bytes, 3 * SIZE as u64, "no more is pinned");
    assert_eq!(stats(&pool, "other").pageable_total, 0);
    // What is pinned is had first, as soon as it is free.
    drop(pinned);
    assert!(pool.try_lease(SIZE).unwrap().is_pinned());
    drop(second);
    assert_all_home(pool, &ledger);
}

/// Who waits takes the first slot that comes home, be it pinned or pageable.
#[test]
fn a_waiter_takes_whatever_comes_home() {
    let (pool, ledger) = fallback(FOR_EVER);
    for returned in 0..3 {
        let mut held: Vec<_> = (0..3).map(|_| pool.try_lease(SIZE).unwrap()).collect();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pool.lease_timeout(SIZE, HANG).map(|l| l.is_pageable()));
            until_in_line(&pool, "frame", 1);
            drop(held.remove(returned));
            assert_eq!(waiter.join().unwrap(), Ok(returned > 0));
        });
    }
    assert_all_home(pool, &ledger);
}

/// Work in flight keeps a pageable buffer as it keeps a slot: until it is over, across `trim` and a close.
#[test]
fn work_in_flight_keeps_a_pageable_buffer() {
    let (pool, ledger) = fallback(FOR_EVER);
    let pinned = pool.try_lease(SIZE).unwrap();
    let fences: [ManualFence; 3] = Default::default();
    pool.try_lease(SIZE).unwrap().retire_after(fences[0].clone());
    let mut lease = pool.try_lease(SIZE).unwrap();
    stamp::write_slot(&mut lease, 9);
    let flight = lease.in_flight_until(fences[1].clone());
    let class = stats(&pool, "frame");
    assert_eq!((class.leased, class.in_flight, class.pageable), (1, 2, 2));
    assert!(pool.try_lease(SIZE).is_err());
    assert_eq!(pool.trim(), 0);
    fences[0].complete();
    fences[1].complete();
    let lease = flight.wait().unwrap();
    stamp::verify(lease.as_slice(), 9);
    assert!(lease.is_pageable());
    let other = pool.try_lease(SIZE).expect("its work is over");
    other.retire_after(fences[2].clone());
    drop(pinned);
    let report = pool.close(Duration::ZERO);
    assert_eq!(report.still_out.iter().map(|(_, slots)| slots).sum::<usize>(), 2, "{report}");
    stamp::verify(lease.as_slice(), 9);
    fences[2].complete();
    drop(lease);
    let watched = pool.clone();
    assert!(pool.close(HANG).is_complete());
    assert_eq!(watched.stats().pageable_bytes, 0, "the buffers went with the last lease");
    drop(watched);
    assert_all_home(pool, &ledger);
}

/// A fence that fails costs its pageable slot, and no other.
#[test]
fn failed_work_costs_its_pageable_buffer() {
    let (pool, _ledger) = fallback(FOR_EVER);
    let pinned = pool.try_lease(SIZE).unwrap();
    let fence = ManualFence::new();
    pool.try_lease(SIZE).unwrap().retire_after(fence.clone());
    fence.fail("planted");
    until("it is quarantined", || stats(&pool, "frame").quarantined == 1);
    let second = pool.try_lease(SIZE).unwrap();
    assert!(second.is_pageable() && pool.try_lease(SIZE).is_err());
    drop((pinned, second));
    let class = stats(&pool, "frame");
    assert_eq!((class.free, class.leased, class.in_flight), (1, 0, 0), "{class:?}");
    assert_eq!(pool.trim(), 0, "nobody knows whether the lost one is written to");
}

/// Buffers that nobody uses go: by themselves after their time, although nobody touches the pool, and at
/// once by `trim`.
#[test]
fn idle_buffers_go() {
    for (idle, by_itself) in [(Duration::from_millis(40), true), (FOR_EVER, false)] {
        let (pool, ledger) = fallback(idle);
        for round in 1..=3u64 {
            let held: Vec<_> = (0..3).map(|_| pool.try_lease(SIZE).unwrap()).collect();
            assert_eq!(pool.stats().pageable_bytes, 2 * SIZE as u64);
            assert_eq!(pool.trim(), 0, "they are in use");
            drop(held);
            if by_itself {
                until("they go", || pool.stats().pageable_bytes == 0);
            } else {
                assert_eq!(pool.trim(), 2 * SIZE as u64);
            }
            assert_eq!((pool.trim(), pool.stats().pageable_bytes), (0, 0));
            assert_eq!(stats(&pool, "frame").pageable_total, 2 * round);
        }
        assert_all_home(pool, &ledger);
    }
}

/// A keeper that has gone to sleep learns of the first buffer, and sees to it that it goes.
#[test]
fn a_buffer_of_a_sleeping_pool_goes_too() {
    let (pool, ledger) = fallback(Duration::from_millis(40));
    // Longer than the keeper stays up with nothing to do.
    std::thread::sleep(Duration::from_millis(300));
    let held = [pool.try_lease(SIZE).unwrap(), pool.try_lease(SIZE).unwrap()];
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(pool.stats().pageable_bytes, SIZE as u64);
    drop(held);
    until("it goes", || pool.stats().pageable_bytes == 0);
    assert_all_home(pool, &ledger);
}
