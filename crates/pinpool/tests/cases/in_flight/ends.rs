//! Ends with work in flight: pools closed and dropped, threads that exit, values forgotten.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use pinpool::{Fence, InFlight, Lease, LeaseError, ManualFence};
use pinpool_testkit::scripted::counted_pool;
use pinpool_testkit::stamp;

use super::{HANG, SIZE, counts, exhausted, frames, until};

/// The pool goes first, then the work ends: the memory goes home by itself.
#[test]
fn memory_goes_home_after_work_that_outlives_its_pool() {
    let (pool, ledger) = counted_pool(&[("frame", SIZE, 4), ("tile", 64, 2)]);
    let fences: [ManualFence; 5] = Default::default();
    for fence in &fences[..3] {
        pool.lease(SIZE).unwrap().retire_after(fence.clone());
    }
    let mut lease = pool.lease(SIZE).unwrap();
    stamp::write_slot(&mut lease, 7);
    let flight = lease.in_flight_until(fences[3].clone());
    pool.lease(64).unwrap().retire_after(fences[4].clone());
    assert_eq!(ledger.regions(), 2);
    drop(pool);
    assert_eq!(ledger.regions(), 2, "the work still uses it");
    fences[4].complete();
    until("the class that is done is given back", || ledger.regions() == 1);
    fences[..3].iter().rev().for_each(ManualFence::complete);
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(ledger.regions(), 1, "one is still held");
    assert!(!flight.is_complete().unwrap());
    fences[3].complete();
    let lease = flight.wait().unwrap();
    stamp::verify(lease.as_slice(), 7);
    drop(lease);
    until("all memory is given back", || ledger.regions() == 0);
    ledger.assert_clean();
}

/// A lease in flight that outlives its pool may be dropped before its work is over.
#[test]
fn a_flight_dropped_after_its_pool_comes_home() {
    for complete_first in [false, true] {
        let (pool, ledger) = frames(1);
        let fence = ManualFence::new();
        let flight = pool.lease(SIZE).unwrap().in_flight_until(fence.clone());
        drop(pool);
        if complete_first {
            fence.complete();
            assert!(flight.is_complete().unwrap());
        }
        drop(flight);
        fence.complete();
        until("the memory is given back", || ledger.regions() == 0);
        ledger.assert_clean();
    }
}

/// A pool's drop does not wait for what somebody still holds: a hundred drops that each took half a
/// second would be called lost.
#[test]
fn a_pools_drop_does_not_wait_for_holders() {
    let start = Instant::now();
    for _ in 0..100 {
        let (pool, ledger) = frames(2);
        let fence = ManualFence::new();
        pool.lease(SIZE).unwrap().retire_after(fence.clone());
        let flight = pool.lease(SIZE).unwrap().in_flight_until(fence.clone());
        drop(pool);
        fence.complete();
        drop(flight);
        until("the memory is given back", || ledger.regions() == 0);
    }
    assert!(start.elapsed() < HANG, "{:?}", start.elapsed());
}

/// Kind of fault: a pool's drop waited for a copy that hung, for ever; or it did not, and unmapped
/// memory under the copy.
#[test]
fn a_pool_dropped_with_work_that_never_ends_returns_and_unmaps_nothing() {
    let (pool, ledger) = frames(2);
    let stuck = ManualFence::new();
    pool.lease(SIZE).unwrap().retire_after(stuck.clone());
    let start = Instant::now();
    drop(pool);
    assert!(start.elapsed() < HANG, "the drop waits for ever");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(ledger.regions(), 1);
    assert!(ledger.pinned_bytes() > 0, "the work still uses it");
    // Otherwise this test would leave a thread behind that asks for ever.
    stuck.complete();
    until("the memory is given back", || ledger.regions() == 0);
    ledger.assert_clean();
}

/// A close that runs out of time names the slots that are stuck, the oldest first; a later one
/// succeeds.
#[test]
fn close_names_the_stuck_slots_and_their_age() {
    let (pool, ledger) = counted_pool(&[("frame", SIZE, 3), ("tile", 64, 2)]);
    let fences: [ManualFence; 2] = Default::default();
    let first = pool.lease(SIZE).unwrap();
    let second = pool.lease(64).unwrap();
    let slots = [first.slot(), second.slot()];
    let before = Instant::now();
    first.retire_after(fences[0].clone());
    let after = Instant::now();
    std::thread::sleep(Duration::from_millis(20));
    second.retire_after(fences[1].clone());
    let leased = pool.lease(SIZE).unwrap();
    let report = pool.close(Duration::from_millis(30));
    assert!(!report.is_complete());
    let [one, two] = &report.in_flight[..] else { panic!("two are stuck: {report:?}") };
    assert_eq!((one.class.as_str(), one.slot), ("frame", slots[0]));
    assert_eq!((two.class.as_str(), two.slot), ("tile", slots[1]));
    assert!(one.age > two.age && two.age >= Duration::from_millis(30), "{report:?}");
    assert!(one.age <= before.elapsed() && one.age >= Duration::from_millis(50), "{report:?}");
    assert!(after >= before);
    let text = report.to_string();
    for word in ["2 slabs", "'frame': 2 slots", "'tile': 1 slots", "in flight for"] {
        assert!(text.contains(word), "`{word}` is missing: {text}");
    }
    assert_eq!(pool.try_lease(SIZE).unwrap_err(), LeaseError::Closed);
    let class = pool.stats().class("frame").cloned().unwrap();
    assert_eq!((class.free, class.leased, class.in_flight), (1, 1, 1));
    fences[1].complete();
    until("one class is home", || ledger.regions() == 1);
    let report = pool.close(Duration::ZERO);
    assert_eq!((report.in_flight.len(), report.slabs_left), (1, 1), "{report:?}");
    fences[0].complete();
    drop(leased);
    assert!(pool.close(HANG).is_complete());
    assert!(pool.stats().classes.iter().all(|class| class.free == class.slots));
    ledger.assert_clean();
}

/// A close waits for work that ends meanwhile, and for leases in flight that somebody holds.
#[test]
fn close_waits_for_work_in_flight() {
    for round in 0..20 {
        let (pool, ledger) = frames(3);
        let fence = ManualFence::new();
        pool.lease(SIZE).unwrap().retire_after(fence.clone());
        let flight = pool.lease(SIZE).unwrap().in_flight_until(fence.clone());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(round % 4));
                fence.complete();
            });
            scope.spawn(|| drop(flight.wait().unwrap()));
            let report = pool.close(HANG);
            assert!(report.is_complete(), "{report:?}");
            assert_eq!(ledger.regions(), 0, "the memory is gone when close returns");
        });
        assert_eq!((counts(&pool), pool.stats().classes[0].landed_total), ([3, 0, 0, 0], 2));
        ledger.assert_clean();
    }
}

/// Leases may be retired and sent into flight after their pool was closed.
#[test]
fn leases_of_a_closed_pool_go_into_flight_too() {
    let (pool, ledger) = frames(3);
    let mut leases: Vec<Lease> = (0..3).map(|_| pool.lease(SIZE).unwrap()).collect();
    assert!(!pool.close(Duration::ZERO).is_complete());
    let fences: [ManualFence; 2] = Default::default();
    leases.pop().unwrap().retire_after(fences[0].clone());
    let flight = leases.pop().unwrap().in_flight_until(fences[1].clone());
    assert_eq!(counts(&pool), [0, 1, 2, 0]);
    drop(leases);
    assert_eq!(counts(&pool), [1, 0, 2, 0]);
    fences[0].complete();
    until("the retired one is home", || counts(&pool) == [2, 0, 1, 0]);
    fences[1].complete();
    let lease = flight.wait().unwrap();
    assert_eq!(counts(&pool), [2, 1, 0, 0]);
    drop(lease);
    assert!(pool.close(HANG).is_complete());
    ledger.assert_clean();
}

/// Forgetting a lease in flight costs its slot and no more, and the slot stays visible.
#[test]
fn a_forgotten_flight_costs_its_slot_only() {
    let (pool, ledger) = frames(2);
    let fence = ManualFence::new();
    std::mem::forget(pool.lease(SIZE).unwrap().in_flight_until(fence.clone()));
    fence.complete();
    for _ in 0..100 {
        let lease = pool.try_lease(SIZE).unwrap();
        assert_eq!(exhausted(pool.try_lease(SIZE)).in_flight, 1);
        let other = ManualFence::new();
        other.complete();
        lease.retire_after(other);
    }
    until("the other came home", || counts(&pool) == [1, 0, 1, 0]);
    assert!(pool.stats().classes[0].oldest_in_flight.is_some());
    let report = pool.close(Duration::from_millis(5));
    assert_eq!((report.still_out.len(), report.slabs_left), (1, 1), "{report:?}");
    drop(pool);
    assert_eq!(ledger.regions(), 1, "its memory stays");
}

/// Any thread may ask, several at once.
#[test]
fn a_flight_is_asked_from_two_threads_at_once() {
    let (pool, _ledger) = frames(1);
    for _ in 0..2_000 {
        let fence = ManualFence::new();
        let flight = pool.lease(SIZE).unwrap().in_flight_until(fence.clone());
        std::thread::scope(|scope| {
            let ask = || while !flight.is_complete().unwrap() {};
            scope.spawn(ask);
            scope.spawn(ask);
            fence.complete();
        });
        assert_eq!(counts(&pool), [0, 0, 1, 0], "nobody has taken it");
        drop(flight.try_take().unwrap());
    }
    assert_eq!((counts(&pool), pool.stats().classes[0].landed_total), ([1, 0, 0, 0], 2_000));
}

thread_local! {
    static KEPT: RefCell<Vec<(Lease, ManualFence)>> = const { RefCell::new(Vec::new()) };
    static FLIGHTS: RefCell<Vec<InFlight>> = const { RefCell::new(Vec::new()) };
}

/// Retires the leases it holds when its thread ends.
struct AtExit;

impl Drop for AtExit {
    fn drop(&mut self) {
        // The other thread-local may be gone already: its leases went home then.
        let _ = KEPT.try_with(|kept| {
            for (lease, fence) in kept.borrow_mut().drain(..) {
                lease.retire_after(fence);
            }
        });
    }
}

thread_local! {
    static AT_EXIT: AtExit = const { AtExit };
}

/// Leases are retired, and leases in flight dropped, by destructors of thread-locals.
#[test]
fn slots_retired_while_threads_end_come_home() {
    let (pool, ledger) = frames(16);
    let mut retired = 0;
    for wave in 0..200 {
        let fence = ManualFence::new();
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (pool, fence) = (pool.clone(), fence.clone());
                std::thread::spawn(move || {
                    let kept = || pool.lease_timeout(SIZE, HANG).unwrap();
                    // Both orders of the destructors, which run last to first.
                    if wave % 2 == 0 {
                        AT_EXIT.with(|_| ());
                    }
                    KEPT.with_borrow_mut(|list| list.push((kept(), fence.clone())));
                    AT_EXIT.with(|_| ());
                    let flight = kept().in_flight_until(fence);
                    FLIGHTS.with_borrow_mut(|list| list.push(flight));
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let [_, leased, in_flight, _] = counts(&pool);
        assert_eq!(leased, 0, "every thread has ended");
        assert!((8..=16).contains(&in_flight), "{in_flight} are in flight");
        retired += u64::from(in_flight);
        fence.complete();
        until("all came home", || counts(&pool) == [16, 0, 0, 0]);
    }
    let class = &pool.stats().classes[0];
    assert_eq!((class.landed_total, class.leases_total), (retired, 200 * 16));
    assert!(retired > 200 * 8, "destructors retired some leases: {retired}");
    assert!(pool.close(HANG).is_complete());
    ledger.assert_clean();
}

/// A fence that is complete from the start costs nothing.
#[test]
fn a_complete_fence_is_no_obstacle() {
    let (pool, _ledger) = frames(1);
    let fence = ManualFence::new();
    fence.complete();
    assert!(fence.poll().is_ok());
    for _ in 0..10_000 {
        pool.try_lease(SIZE).unwrap().retire_after(fence.clone());
        drop(pool.try_lease(SIZE).unwrap().in_flight_until(fence.clone()).try_take().unwrap());
    }
    until("all came home", || counts(&pool) == [1, 0, 0, 0]);
    assert_eq!(pool.stats().classes[0].landed_total, 20_000);
}
