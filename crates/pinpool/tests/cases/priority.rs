//! The reserve is for leases with priority, and a larger class's slots for those who may spill: neither
//! costs anybody else a slot.

use std::sync::Mutex;
use std::time::Duration;

use pinpool::{ClassConfig, LeaseError, ManualFence, Pool};
use pinpool_testkit::scripted::Ledger;
use pinpool_testkit::soon::{HANG, until};

use crate::tasks::block_on;
use crate::{assert_all_home, counted, stats, until_in_line};

const SIZE: usize = 512;

fn reserved(count: usize, reserve: usize) -> (Pool, Ledger) {
    counted([ClassConfig::new("frame", SIZE, count).reserve(reserve)])
}

/// The last slots are had with priority only, and the error says that they are kept.
#[test]
fn the_last_slots_are_for_priority() {
    let (pool, ledger) = reserved(4, 2);
    let plain = [pool.try_lease(SIZE).unwrap(), pool.lease(SIZE).unwrap()];
    for error in [
        pool.try_lease(SIZE).unwrap_err(),
        pool.lease_timeout(SIZE, Duration::from_millis(2)).unwrap_err(),
        pool.try_lease_many(&[SIZE]).unwrap_err(),
    ] {
        let (LeaseError::Exhausted(counts) | LeaseError::Timeout { exhausted: counts, .. }) = error
        else {
            panic!("{error}")
        };
        assert_eq!((counts.slots, counts.reserved), (4, 2));
        let text = error.to_string();
        assert!(
            text.contains("2 are leased") && text.contains("2 kept for lease_priority"),
            "{text}"
        );
    }
    assert_eq!(pool.plan().classes[0].reserve, 2);
    let numbers = stats(&pool, "frame");
    assert_eq!((numbers.free, numbers.reserved, numbers.high_water), (2, 2, 2));
    let urgent = [pool.try_lease_priority(SIZE).unwrap(), pool.lease_priority(SIZE).unwrap()];
    let error = pool.try_lease_priority(SIZE).unwrap_err();
    assert!(!error.to_string().contains("lease_priority"), "{error}");
    let numbers = stats(&pool, "frame");
    assert_eq!((numbers.free, numbers.reserved, numbers.high_water), (0, 0, 4));
    // With priority, too, what is everybody's goes first.
    drop((plain, urgent));
    let first = [pool.try_lease_priority(SIZE).unwrap(), pool.try_lease_priority(SIZE).unwrap()];
    assert_eq!(stats(&pool, "frame").reserved, 2);
    drop(first);
    assert_all_home(pool, &ledger);
}

/// A slot of the reserve that comes home, by a drop or after its work, is no use to a plain waiter; one that
/// is everybody's is.
#[test]
fn the_reserve_wakes_no_plain_waiter() {
    let (pool, ledger) = reserved(2, 1);
    for retired in [false, true] {
        let plain = pool.try_lease(SIZE).unwrap();
        let urgent = pool.try_lease_priority(SIZE).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pool.lease_timeout(SIZE, HANG).map(|lease| lease.slot()));
            let task = scope.spawn(|| block_on(pool.lease_async(SIZE)).map(|lease| lease.slot()));
            until_in_line(&pool, "frame", 2);
            if retired {
                let fence = ManualFence::new();
                fence.complete();
                urgent.retire_after(fence);
            } else {
                drop(urgent);
            }
            until("the reserve is back", || stats(&pool, "frame").reserved == 1);
            std::thread::sleep(Duration::from_millis(5));
            assert!(!waiter.is_finished() && !task.is_finished());
            // It is there for whom it is kept, though others wait.
            drop(pool.try_lease_priority(SIZE).unwrap());
            let slot = plain.slot();
            drop(plain);
            assert_eq!((waiter.join().unwrap(), task.join().unwrap()), (Ok(slot), Ok(slot)));
        });
    }
    assert_all_home(pool, &ledger);
}

/// Those with priority are served before all others, in the order in which they came.
#[test]
fn priority_goes_first() {
    let (pool, ledger) = reserved(2, 1);
    let held = [pool.try_lease(SIZE).unwrap(), pool.try_lease_priority(SIZE).unwrap()];
    let served = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for place in 0..12 {
            let (pool, served) = (&pool, &served);
            scope.spawn(move || {
                let lease = match place % 4 {
                    0 => pool.lease(SIZE),
                    1 => pool.lease_priority(SIZE),
                    2 => block_on(pool.lease_async(SIZE)),
                    _ => block_on(pool.lease_priority_async(SIZE)),
                };
                served.lock().unwrap().push(place);
                drop(lease.unwrap());
            });
            until_in_line(pool, "frame", place + 1);
        }
        let [plain, urgent] = held;
        drop(plain);
        until("all are served", || served.lock().unwrap().len() == 12);
        drop(urgent);
    });
    assert_eq!(served.into_inner().unwrap(), [1, 3, 5, 7, 9, 11, 0, 2, 4, 6, 8, 10]);
    assert_all_home(pool, &ledger);
}

/// Priority needs no reserve to stand in front.
#[test]
fn priority_goes_first_without_a_reserve() {
    let (pool, ledger) = reserved(1, 0);
    let held = pool.try_lease_priority(SIZE).unwrap();
    let error = pool.lease_priority_timeout(SIZE, Duration::from_millis(2)).unwrap_err();
    assert!(matches!(error, LeaseError::Timeout { .. }), "{error}");
    let served = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (place, urgent) in [false, false, true].into_iter().enumerate() {
            let (pool, served) = (&pool, &served);
            scope.spawn(move || {
                let lease = if urgent { pool.lease_priority(SIZE) } else { pool.lease(SIZE) };
                served.lock().unwrap().push(place);
                drop(lease.unwrap());
            });
            until_in_line(pool, "frame", place + 1);
        }
        drop(held);
    });
    assert_eq!(served.into_inner().unwrap(), [2, 0, 1]);
    assert_all_home(pool, &ledger);
}

/// Who waits for an empty class that may spill is told of a larger slot that comes free, thread and task
/// alike, and nobody who comes later has it before.
#[test]
fn a_waiter_gets_a_larger_slot_that_comes_free() {
    let classes = [ClassConfig::new("small", 64, 1).max_spill(4), ClassConfig::new("big", 256, 1)];
    let (pool, ledger) = counted(classes);
    for round in 1..=20 {
        let small = pool.try_lease(64).unwrap();
        let big = pool.try_lease(256).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| match round % 2 {
                0 => pool.lease_timeout(64, HANG),
                _ => block_on(pool.lease_async(64)),
            });
            until_in_line(&pool, "small", 1);
            drop(big);
            while !waiter.is_finished() {
                // The waiter may have had it, and dropped nothing yet.
                assert!(pool.try_lease(64).is_err(), "a newcomer passed the waiter");
            }
            let lease = waiter.join().unwrap().unwrap();
            assert_eq!((lease.class_name().as_str(), lease.len()), ("big", 64));
        });
        drop(small);
        assert_eq!(stats(&pool, "small").spilled_total, round);
    }
    let small = stats(&pool, "small");
    assert_eq!((small.waits_total, small.timeouts_total, small.cancelled_total), (20, 0, 0));
    assert_all_home(pool, &ledger);
}

fn spilling(max_spill: u32) -> (Pool, Ledger) {
    counted([
        ClassConfig::new("small", 64, 1).max_spill(max_spill),
        ClassConfig::new("middle", 256, 2).reserve(1),
        ClassConfig::new("large", 1024, 2),
    ])
}

/// How many leases of the smallest class there are before it is empty, and what they come from.
fn taken(max_spill: u32) -> (Vec<usize>, u64) {
    let (pool, ledger) = spilling(max_spill);
    let mut held = Vec::new();
    while let Ok(lease) = pool.try_lease(64) {
        assert_eq!(lease.len(), 64);
        held.push(lease);
    }
    let capacities = held.iter().map(pinpool::Lease::capacity).collect();
    let spilled = stats(&pool, "small").spilled_total;
    let others = ["middle", "large"].map(|class| stats(&pool, class));
    assert!(others.iter().all(|class| class.misses_total == 0 && class.spilled_total == 0));
    let leased: u32 = others.iter().map(|class| class.leased).sum();
    assert_eq!(u64::from(leased), spilled, "a spilled lease counts where its slot is");
    drop(held);
    assert_all_home(pool, &ledger);
    (capacities, spilled)
}

/// Kind of fault: a small request takes a large buffer.
///
/// Spilling is off unless it is asked for, bounded by the factor, and never takes the reserve.
#[test]
fn spilling_is_off_and_bounded() {
    assert_eq!(taken(1), (vec![64], 0));
    assert_eq!(taken(3), (vec![64], 0));
    assert_eq!(taken(4), (vec![64, 256], 1));
    assert_eq!(taken(15), (vec![64, 256], 1));
    assert_eq!(taken(16), (vec![64, 256, 1024, 1024], 3));
}

/// A larger slot that somebody waits for is not spilled into, nor is the reserve: the waiter gets it.
#[test]
fn spilling_passes_no_waiter_of_the_larger_class() {
    let (pool, ledger) = spilling(4);
    let small = pool.try_lease(64).unwrap();
    for _ in 0..50 {
        let middle = pool.try_lease(256).unwrap();
        assert!(pool.try_lease(64).is_err(), "the reserve is not spilled into");
        let served = Mutex::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let lease = pool.lease_timeout(256, HANG).unwrap();
                *served.lock().unwrap() = true;
                drop(lease);
            });
            until_in_line(&pool, "middle", 1);
            drop(middle);
            while !*served.lock().unwrap() {
                if let Ok(_spilled) = pool.try_lease(64) {
                    assert!(*served.lock().unwrap(), "it passed the waiter");
                }
            }
        });
    }
    assert_eq!(stats(&pool, "middle").timeouts_total, 0);
    drop(small);
    assert_all_home(pool, &ledger);
}
