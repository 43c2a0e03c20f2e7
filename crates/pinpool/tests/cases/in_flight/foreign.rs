//! Fences are foreign code: whatever one does, it costs at most its own slot.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pinpool::{Error, Fence, FenceError, FenceStatus, ManualFence, Pool, TryTakeError};
use pinpool_testkit::proc;
use pinpool_testkit::scripted::counted_pool;

use super::{HANG, SIZE, counts, exhausted, frames, pending, until};
use crate::support::alone;

/// Asserts that one of the pool's two slots is lost, and that all else goes on and is told.
fn assert_costs_one_slot(pool: &Pool) {
    until("the slot is quarantined", || counts(pool) == [1, 0, 0, 1]);
    for _ in 0..100 {
        let lease = pool.try_lease(SIZE).unwrap();
        let empty = exhausted(pool.try_lease(SIZE));
        assert_eq!((empty.in_flight, empty.quarantined, empty.slots), (0, 1, 2));
        drop(lease);
        let fence = ManualFence::new();
        pool.try_lease(SIZE).unwrap().retire_after(fence.clone());
        let empty = exhausted(pool.try_lease(SIZE));
        assert_eq!((empty.in_flight, empty.quarantined), (1, 1));
        fence.complete();
    }
    until("the good one came home", || counts(pool) == [1, 0, 0, 1]);
    let class = &pool.stats().classes[0];
    assert_eq!((class.landed_total, class.oldest_in_flight), (101, None), "{class:?}");
    let report = pool.close(Duration::from_millis(20));
    assert!(!report.is_complete(), "the slot never comes home");
    let out: Vec<_> = report.still_out.iter().map(|(name, out)| (name.as_str(), *out)).collect();
    assert_eq!((out, report.slabs_left, report.stuck_bytes), (vec![("frame", 1)], 1, 0));
    assert_eq!(report.in_flight, [], "it is not in flight, it is lost");
    assert_eq!(counts(pool), [1, 0, 0, 1]);
}

/// A retired slot whose fence fails is quarantined by the keeper, with nobody asking.
#[test]
fn a_failed_fence_costs_its_slot() {
    let (pool, ledger) = frames(2);
    let fence = ManualFence::new();
    pool.lease(SIZE).unwrap().retire_after(fence.clone());
    fence.fail("cable pulled");
    assert_costs_one_slot(&pool);
    drop(pool);
    assert_eq!(ledger.regions(), 1, "memory that something may still write is never given back");
    assert_eq!(ledger.violations(), [""; 0]);
}

/// What is lost is memory, and not a thread for each pool that lost some. In a process of its own,
/// which counts its threads.
#[test]
fn a_pool_that_lost_a_slot_leaves_no_thread() {
    alone("in_flight::foreign::a_pool_that_lost_a_slot_leaves_no_thread", &[], || {
        let before = proc::threads();
        for round in 0..20 {
            let (pool, ledger) = frames(2);
            let fence = ManualFence::new();
            pool.lease(SIZE).unwrap().retire_after(fence.clone());
            let other = ManualFence::new();
            let flight = pool.lease(SIZE).unwrap().in_flight_until(other.clone());
            fence.fail("cable pulled");
            if round % 2 == 0 {
                until("the slot is quarantined", || counts(&pool)[3] == 1);
            }
            drop(pool);
            assert!(proc::threads() > before, "the other slot is still in flight");
            other.complete();
            drop(flight.wait().unwrap());
            assert_eq!(ledger.regions(), 1, "what is lost stays mapped");
        }
        until("every keeper has ended", || proc::threads() == before);
    });
}

/// Whoever waits for the lease is told why there is none.
#[test]
fn a_failed_fence_is_told_to_whoever_waits_for_the_lease() {
    let ask: [fn(pinpool::InFlight) -> Error; 2] = [
        |flight| flight.wait().unwrap_err(),
        |flight| match flight.try_take() {
            Err(TryTakeError::Failed(error)) => error,
            other => panic!("not failed: {other:?}"),
        },
    ];
    for ask in ask {
        let (pool, _ledger) = frames(2);
        let fence = ManualFence::new();
        let flight = pending(pool.lease(SIZE).unwrap().in_flight_until(fence.clone()).try_take());
        fence.fail("cable pulled");
        assert!(matches!(flight.is_complete(), Err(Error::Fence(_))), "asking costs nothing yet");
        assert_eq!(counts(&pool), [1, 0, 1, 0]);
        let error = ask(flight);
        assert!(matches!(error, Error::Fence(_)) && error.to_string().contains("cable pulled"));
        assert_eq!(counts(&pool), [1, 0, 0, 1]);
        assert_costs_one_slot(&pool);
    }
}

/// Complete or not as another says; it is asked through `poll` and ends with `end`.
struct Odd {
    inner: ManualFence,
    poll: fn(),
    end: fn(),
}

impl Fence for Odd {
    fn poll(&self) -> Result<FenceStatus, FenceError> {
        (self.poll)();
        self.inner.poll()
    }
}

impl Drop for Odd {
    fn drop(&mut self) {
        (self.end)();
    }
}

/// Unwinds without the hook that prints.
fn panics() {
    std::panic::resume_unwind(Box::new("planted"));
}

/// Nobody knows what a fence would have said that panics instead.
#[test]
fn a_fence_that_panics_when_asked_costs_its_slot() {
    let (pool, _ledger) = frames(2);
    let odd = || Odd { inner: ManualFence::new(), poll: panics, end: || () };
    pool.lease(SIZE).unwrap().retire_after(odd());
    assert_costs_one_slot(&pool);
    let (pool, _ledger) = frames(2);
    let error = pool.lease(SIZE).unwrap().in_flight_until(odd()).wait().unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    assert_costs_one_slot(&pool);
}

/// A fence that panics when it is dropped costs nothing: its work was over.
#[test]
fn a_fence_that_panics_when_dropped_costs_nothing() {
    let (pool, ledger) = frames(2);
    let odd = |inner: &ManualFence| Odd { inner: inner.clone(), poll: || (), end: panics };
    for round in 0..100 {
        let fence = ManualFence::new();
        let retired = pool.try_lease(SIZE).unwrap();
        let held = pool.try_lease(SIZE).unwrap().in_flight_until(odd(&fence));
        retired.retire_after(odd(&fence));
        fence.complete();
        if round % 2 == 0 {
            until("the keeper has dropped one", || counts(&pool) == [1, 0, 1, 0]);
        }
        drop(held.wait().unwrap());
        drop((pool.try_lease(SIZE).unwrap(), pool.try_lease(SIZE).unwrap()));
    }
    assert_eq!((counts(&pool), pool.stats().classes[0].landed_total), ([2, 0, 0, 0], 200));
    assert!(pool.close(HANG).is_complete());
    ledger.assert_clean();
}

/// Panics when dropped and fails when asked: its slot is lost, the error comes as an error.
#[test]
fn a_failed_fence_that_panics_when_dropped_costs_its_slot() {
    let odd = || {
        let inner = ManualFence::new();
        inner.fail("cable pulled");
        Odd { inner, poll: || (), end: panics }
    };
    let (pool, _ledger) = frames(2);
    pool.lease(SIZE).unwrap().retire_after(odd());
    assert_costs_one_slot(&pool);
    let (pool, _ledger) = frames(2);
    assert!(pool.lease(SIZE).unwrap().in_flight_until(odd()).wait().is_err());
    assert_costs_one_slot(&pool);
}

/// Leases and drops from its own pool whenever it is asked or dropped.
struct Leases {
    inner: ManualFence,
    pool: Pool,
    asked: Arc<AtomicUsize>,
}

impl Fence for Leases {
    fn poll(&self) -> Result<FenceStatus, FenceError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        drop(self.pool.try_lease(SIZE));
        drop(self.pool.lease_timeout(2 * SIZE, Duration::ZERO));
        let _ = self.pool.stats();
        self.inner.poll()
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        drop(self.pool.try_lease(SIZE));
    }
}

/// A fence may use its own pool, whoever asks it and however little is free. In a process of its
/// own, because a fence that is asked again by its own lease, without end, ends a process.
#[test]
fn a_fence_may_lease_from_its_own_pool() {
    let name = "in_flight::foreign::a_fence_may_lease_from_its_own_pool";
    alone(name, &[], || {
        for slots in [1, 2, 4] {
            let (pool, _ledger) = counted_pool(&[("frame", SIZE, slots), ("large", 2 * SIZE, 1)]);
            let (inner, asked) = (ManualFence::new(), Arc::default());
            let fence =
                || Leases { inner: inner.clone(), pool: pool.clone(), asked: Arc::clone(&asked) };
            pool.lease(2 * SIZE).unwrap().retire_after(fence());
            pool.lease(SIZE).unwrap().retire_after(fence());
            for _ in 1..slots {
                assert!(pool.try_lease(SIZE).is_ok(), "one is free");
            }
            let flight = pool.lease_timeout(SIZE, Duration::from_millis(20)).map(|lease| {
                let flight = lease.in_flight_until(fence());
                assert!(!flight.is_complete().unwrap());
                flight
            });
            until("the keeper asks", || asked.load(Ordering::Relaxed) > 20);
            inner.complete();
            if let Ok(flight) = flight {
                drop(flight.wait().unwrap());
            }
            until("all came home", || {
                let stats = pool.stats();
                stats.classes.iter().all(|class| class.free == class.slots)
            });
            assert!(pool.close(HANG).is_complete());
        }
    });
}

/// Owns a handle of the pool.
struct Owns {
    inner: ManualFence,
    _pool: Pool,
}

impl Fence for Owns {
    fn poll(&self) -> Result<FenceStatus, FenceError> {
        self.inner.poll()
    }
}

/// The last handle of a pool goes with a fence, on the keeper's own thread: the keeper does not
/// wait for itself, and the memory goes home.
#[test]
fn the_last_handle_may_be_dropped_by_the_keeper() {
    for round in 0..100 {
        let (pool, ledger) = frames(2);
        let inner = ManualFence::new();
        let fence = Owns { inner: inner.clone(), _pool: pool.clone() };
        pool.lease(SIZE).unwrap().retire_after(fence);
        let lease = (round % 2 == 0).then(|| pool.lease(SIZE).unwrap());
        drop(pool);
        assert_eq!(ledger.regions(), 1, "the fence keeps the pool");
        inner.complete();
        if lease.is_some() {
            std::thread::sleep(Duration::from_millis(3));
            assert_eq!(ledger.regions(), 1, "a lease keeps the memory");
        }
        drop(lease);
        until("the memory is given back", || ledger.regions() == 0);
        ledger.assert_clean();
    }
}

/// The last handle goes with a fence that fails: the pool ends, its memory stays.
#[test]
fn the_last_handle_may_go_with_a_failed_fence() {
    let (pool, ledger) = frames(1);
    let inner = ManualFence::new();
    let ended = Arc::new(());
    let watch = Arc::downgrade(&ended);
    pool.lease(SIZE)
        .unwrap()
        .retire_after(Carries(Owns { inner: inner.clone(), _pool: pool.clone() }, ended));
    drop(pool);
    inner.fail("cable pulled");
    until("the keeper has dropped the fence", || watch.upgrade().is_none());
    assert_eq!(ledger.regions(), 1);
    assert_eq!(ledger.violations(), [""; 0]);
}

/// A fence with something whose end can be seen.
struct Carries<F>(F, #[expect(dead_code, reason = "it is only dropped")] Arc<()>);

impl<F: Fence> Fence for Carries<F> {
    fn poll(&self) -> Result<FenceStatus, FenceError> {
        self.0.poll()
    }
}

/// A fence is dropped once it is over: nobody needs the pool's end for it.
#[test]
fn a_fence_that_is_over_is_dropped() {
    let (pool, _ledger) = frames(3);
    let ended = Arc::new(());
    let watch = Arc::downgrade(&ended);
    let fence = ManualFence::new();
    let carries = || Carries(fence.clone(), Arc::clone(&ended));
    pool.lease(SIZE).unwrap().retire_after(carries());
    let flight = pool.lease(SIZE).unwrap().in_flight_until(carries());
    let dropped = pool.lease(SIZE).unwrap().in_flight_until(carries());
    drop((dropped, ended));
    fence.complete();
    let lease = flight.wait().unwrap();
    until("all three are dropped", || watch.upgrade().is_none());
    drop(lease);
}
