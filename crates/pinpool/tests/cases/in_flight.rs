//! Slots that some work still uses: never given out before it is over, always had afterwards.

mod ends;
mod foreign;
mod keeper;
mod lost;
mod shared;

use std::collections::BTreeMap;
use std::time::Duration;

use pinpool::{
    Exhausted, Fence, FenceError, FenceStatus, InFlight, Lease, LeaseError, ManualFence, Pool,
    TryTakeError,
};
use pinpool_testkit::scripted::{Ledger, counted_pool};
use pinpool_testkit::soon::{HANG, until};
use pinpool_testkit::stamp;

const SIZE: usize = 4096;

/// A pool with one class of so many slots, on memory whose calls are booked.
fn frames(count: usize) -> (Pool, Ledger) {
    counted_pool(&[("frame", SIZE, count)])
}

/// Free, leased, in flight and quarantined slots of the first class.
fn counts(pool: &Pool) -> [u32; 4] {
    let class = &pool.stats().classes[0];
    let counts = [class.free, class.leased, class.in_flight, class.quarantined];
    assert_eq!(counts.iter().sum::<u32>(), class.slots, "{class:?}");
    assert_eq!(class.stale_returns_total, 0, "{class:?}");
    counts
}

/// The numbers of an empty class.
fn exhausted(result: Result<Lease, LeaseError>) -> Exhausted {
    match result {
        Err(LeaseError::Exhausted(exhausted) | LeaseError::Timeout { exhausted, .. }) => exhausted,
        other => panic!("the class is not empty: {other:?}"),
    }
}

fn pending(result: Result<Lease, TryTakeError>) -> InFlight {
    match result {
        Err(TryTakeError::Pending(flight)) => flight,
        other => panic!("the work is over: {other:?}"),
    }
}

/// Kind of fault: a buffer was given out again while a copy still read it.
///
/// Case reuse-1.
#[test]
fn a_slot_is_given_out_after_its_fence_and_not_before() {
    let (pool, ledger) = frames(1);
    let copied = ManualFence::new();
    let mut lease = pool.lease(SIZE).unwrap();
    stamp::write_slot(&mut lease, 1);
    lease.retire_after(copied.clone());
    std::thread::scope(|scope| {
        let next = scope.spawn(|| {
            let mut lease = pool.lease_timeout(SIZE, HANG).unwrap();
            let in_time = copied.is_complete();
            stamp::verify(lease.as_slice(), 1);
            stamp::write_slot(&mut lease, 2);
            in_time
        });
        until("the next owner waits", || pool.stats().classes[0].waits_total == 1);
        for _ in 0..50 {
            assert_eq!(exhausted(pool.try_lease(SIZE)).in_flight, 1);
            assert!(!next.is_finished(), "the copy still reads the slot");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(counts(&pool), [0, 0, 1, 0]);
        copied.complete();
        assert!(next.join().unwrap(), "it had the slot before the copy was over");
    });
    stamp::verify(pool.try_lease(SIZE).unwrap().as_slice(), 2);
    assert!(pool.close(HANG).is_complete());
    ledger.assert_clean();
}

/// Kind of fault: the end of a copy was marked when its buffer was dropped, behind all that was
/// queued meanwhile.
///
/// Case reuse-5.
#[test]
fn work_that_began_later_does_not_keep_a_slot() {
    let (pool, _ledger) = frames(3);
    let (copy, later) = (ManualFence::new(), ManualFence::new());
    let flight = pool.lease(SIZE).unwrap().in_flight_until(copy.clone());
    pool.lease(SIZE).unwrap().retire_after(later.clone());
    let beside = pool.lease(SIZE).unwrap().in_flight_until(later.clone());
    assert_eq!(exhausted(pool.try_lease(SIZE)).in_flight, 3);
    copy.complete();
    assert!(flight.is_complete().unwrap(), "its own work is over");
    drop(flight);
    let lease = pool.try_lease(SIZE).unwrap();
    assert_eq!(exhausted(pool.try_lease(SIZE)).in_flight, 2, "the later work goes on");
    later.complete();
    drop((lease, beside.wait().unwrap()));
    until("all came home", || counts(&pool) == [3, 0, 0, 0]);
}

/// Complete when both of two are.
struct Both(ManualFence, ManualFence);

impl Fence for Both {
    fn poll(&self) -> Result<FenceStatus, FenceError> {
        match (self.0.poll()?, self.1.poll()?) {
            (FenceStatus::Complete, FenceStatus::Complete) => Ok(FenceStatus::Complete),
            _ => Ok(FenceStatus::Pending),
        }
    }
}

/// A slot that two works use comes home after the second of them, whichever that is.
#[test]
fn two_works_on_one_slot_are_both_waited_for() {
    let (pool, _ledger) = frames(1);
    for round in 0..200 {
        let works = [ManualFence::new(), ManualFence::new()];
        let [first, second] = [round % 2, 1 - round % 2].map(|at| works[at].clone());
        let lease = pool.try_lease(SIZE).unwrap();
        lease.retire_after(Both(works[0].clone(), works[1].clone()));
        assert_eq!(exhausted(pool.try_lease(SIZE)).in_flight, 1);
        first.complete();
        assert_eq!(exhausted(pool.try_lease(SIZE)).in_flight, 1, "one of two is complete");
        second.complete();
    }
    assert!(pool.try_lease(SIZE).is_ok());
}

/// Each step counts where the slot is, and each end of work counts once.
#[test]
fn counts_are_exact_at_each_step() {
    let (pool, ledger) = frames(4);
    let landed = || pool.stats().classes[0].landed_total;
    let oldest = || pool.stats().classes[0].oldest_in_flight;
    let fences: [ManualFence; 4] = Default::default();
    assert_eq!((counts(&pool), landed(), oldest()), ([4, 0, 0, 0], 0, None));
    let lease = pool.try_lease(SIZE).unwrap();
    assert_eq!((counts(&pool), oldest()), ([3, 1, 0, 0], None));
    let flight = lease.in_flight_until(fences[0].clone());
    assert_eq!((counts(&pool), landed()), ([3, 0, 1, 0], 0));
    assert!(oldest().is_some());
    let flight = pending(flight.try_take());
    assert!(!flight.is_complete().unwrap());
    pool.try_lease(SIZE).unwrap().retire_after(fences[1].clone());
    assert_eq!((counts(&pool), landed()), ([2, 0, 2, 0], 0));
    let dropped = pool.try_lease(SIZE).unwrap().in_flight_until(fences[2].clone());
    drop(dropped);
    assert_eq!((counts(&pool), landed()), ([1, 0, 3, 0], 0), "a drop changes nothing");
    fences[0].complete();
    assert!(flight.is_complete().unwrap());
    assert_eq!((counts(&pool), landed()), ([1, 0, 3, 0], 0), "somebody still holds it");
    let lease = flight.try_take().unwrap();
    assert_eq!((counts(&pool), landed()), ([1, 1, 2, 0], 1));
    drop(lease);
    assert_eq!(counts(&pool), [2, 0, 2, 0]);
    fences[1].complete();
    until("one came home", || counts(&pool) == [3, 0, 1, 0]);
    fences[2].complete();
    until("both came home", || counts(&pool) == [4, 0, 0, 0]);
    assert_eq!((landed(), oldest()), (3, None));
    let waited = pool.try_lease(SIZE).unwrap().in_flight_until(fences[3].clone());
    fences[3].complete();
    drop(waited.wait().unwrap());
    assert_eq!((counts(&pool), landed()), ([4, 0, 0, 0], 4));
    let class = &pool.stats().classes[0];
    assert_eq!((class.high_water, class.leases_total), (3, 4), "in flight is out: {class:?}");
    assert!(pool.close(HANG).is_complete());
    ledger.assert_clean();
}

/// Kind of fault: one copy that hung was at the head of a queue, and nothing behind it came back.
///
/// Case wake-1.
#[test]
fn a_fence_that_never_completes_keeps_its_own_slot_only() {
    const ROUNDS: u64 = 10_000;
    let (pool, _ledger) = frames(64);
    pool.lease(SIZE).unwrap().retire_after(ManualFence::new());
    let age = || pool.stats().classes[0].oldest_in_flight.unwrap();
    let (mut slots, mut ages) = (BTreeMap::<u32, u64>::new(), vec![age()]);
    let mut batch = Vec::new();
    for round in 0..ROUNDS {
        let lease = pool.lease_timeout(SIZE, HANG).expect("63 slots keep cycling");
        *slots.entry(lease.slot()).or_default() += 1;
        let fence = ManualFence::new();
        lease.retire_after(fence.clone());
        batch.push(fence);
        if batch.len() == 63 {
            assert_eq!(counts(&pool), [0, 0, 64, 0], "round {round}");
            batch.drain(..).for_each(|fence| fence.complete());
            ages.push(age());
        }
    }
    batch.drain(..).for_each(|fence| fence.complete());
    assert!(ages.is_sorted_by(|a, b| a < b), "the oldest grows older: {ages:?}");
    assert_eq!(slots.len(), 63, "every slot but the stuck one was used");
    until("63 came home", || counts(&pool) == [63, 0, 1, 0]);
    assert_eq!(pool.stats().classes[0].landed_total, ROUNDS);
}

/// Kind of fault: a producer faster than its copies grew the pool without end.
///
/// Case empty-3.
#[test]
fn a_producer_faster_than_its_copies_meets_an_error_with_the_count_or_waits() {
    let (pool, ledger) = frames(8);
    let pinned = ledger.pinned_bytes();
    let mut fences = std::collections::VecDeque::new();
    for _ in 0..200 {
        for lease in (0..9).map_while(|_| pool.try_lease(SIZE).ok()) {
            let fence = ManualFence::new();
            lease.retire_after(fence.clone());
            fences.push_back(fence);
        }
        let error = pool.try_lease(SIZE).unwrap_err();
        assert!(error.to_string().contains("8 in flight"), "{error}");
        let empty = exhausted(Err(error));
        assert_eq!((empty.in_flight, empty.slots, empty.quarantined), (8, 8, 0));
        assert_eq!(fences.len(), 8);
        let error = pool.lease_timeout(SIZE, Duration::from_micros(100)).unwrap_err();
        assert!(matches!(error, LeaseError::Timeout { .. }), "{error}");
        std::thread::scope(|scope| {
            let waits = pool.stats().classes[0].waits_total;
            let producer = scope.spawn(|| pool.lease_timeout(SIZE, HANG).map(drop));
            until("it waits", || pool.stats().classes[0].waits_total > waits);
            fences.pop_front().unwrap().complete();
            producer.join().unwrap().expect("a copy was over");
        });
    }
    assert_eq!((ledger.pinned_bytes(), ledger.pinned_bytes_peak()), (pinned, pinned));
    assert_eq!(pool.stats().pinned_bytes, pinned as u64);
}

/// Fences complete in any order, and each brings home its own slot.
#[test]
fn fences_complete_out_of_order() {
    const SLOTS: usize = 200;
    let (pool, _ledger) = frames(SLOTS);
    let mut random = 1u32;
    for _ in 0..20 {
        let mut out = Vec::new();
        for lease in (0..=SLOTS).map_while(|_| pool.try_lease(SIZE).ok()) {
            let fence = ManualFence::new();
            out.push((lease.slot(), fence.clone()));
            lease.retire_after(fence);
        }
        assert_eq!(out.len(), SLOTS);
        let mut held = Vec::new();
        while !out.is_empty() {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (slot, fence) = out.swap_remove((random >> 8) as usize % out.len());
            fence.complete();
            let lease = pool.try_lease(SIZE).expect("one is complete");
            assert_eq!(lease.slot(), slot, "and it is the one whose fence is");
            held.push(lease);
        }
        drop(held);
        assert_eq!(counts(&pool), [200, 0, 0, 0]);
    }
}
