//! Holders, tasks and fences that panic: each costs at most its own slot, and no lock is poisoned.
//!
//! What a fence does that panics at once is in `cases/in_flight/foreign.rs`, a waker that panics in
//! `futures.rs`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test reports by panicking"
)]

#[path = "panics/sites.rs"]
mod sites;

use std::future::{Future, IntoFuture};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pinpool::{
    Error, Fence, FenceError, FenceStatus, InFlight, Lease, LeaseError, ManualFence, Pool,
};
use pinpool_testkit::scripted::counted_pool;
use pinpool_testkit::soon::{HANG, until};
use pinpool_testkit::stamp;

const SIZE: usize = 512;

/// Unwinds without the hook that prints.
fn panics() -> ! {
    resume_unwind(Box::new("planted"))
}

/// Runs what must panic with the planted payload, and with no other.
fn planted(call: impl FnOnce()) {
    let thrown = catch_unwind(AssertUnwindSafe(call)).expect_err("it panics");
    assert_eq!(thrown.downcast_ref::<&str>(), Some(&"planted"), "another panic");
}

/// Free, leased, in flight and quarantined slots.
fn counts(pool: &Pool) -> [u32; 4] {
    let class = &pool.stats().classes[0];
    assert_eq!(class.stale_returns_total, 0);
    [class.free, class.leased, class.in_flight, class.quarantined]
}

/// All but `lost` slots can be had, a waiter is woken, tasks are, and a close ends.
fn assert_works(pool: &Pool, lost: u32) {
    let slots = pool.stats().classes[0].slots;
    until("all came home", || counts(pool) == [slots - lost, 0, 0, lost]);
    let mut held: Vec<_> = (lost..slots).map(|_| pool.try_lease(SIZE).unwrap()).collect();
    assert!(matches!(pool.try_lease(SIZE), Err(LeaseError::Exhausted(_))));
    for (owner, lease) in (0..).zip(&mut held) {
        stamp::write_slot(lease, owner);
    }
    for (owner, lease) in (0..).zip(&held) {
        stamp::verify(lease.as_slice(), owner);
    }
    std::thread::scope(|scope| {
        let waits = pool.stats().classes[0].waits_total;
        let waiter = scope.spawn(|| pool.lease_timeout(SIZE, HANG).map(drop));
        until("it waits", || pool.stats().classes[0].waits_total > waits);
        drop(held.pop());
        waiter.join().unwrap().unwrap();
    });
    drop(held);
    let fence = ManualFence::new();
    let flight = pool.try_lease(SIZE).unwrap().in_flight_until(fence.clone());
    fence.complete();
    drop(flight.wait().unwrap());
    let report = pool.close(if lost > 0 { Duration::ZERO } else { HANG });
    assert_eq!((report.is_complete(), report.quarantined), (lost == 0, lost.into()), "{report}");
    assert!(matches!(pool.try_lease(SIZE), Err(LeaseError::Closed)));
}

/// A thousand threads panic with a lease in their hands, in every form of one, while the others go
/// on: each slot comes home, and whoever waits has it.
#[test]
fn panicking_holders_give_their_slots_back() {
    let (pool, ledger) = counted_pool(&[("frame", SIZE, 2)]);
    for round in 0..1000u64 {
        let fence = ManualFence::new();
        let mut lease = pool.lease_timeout(SIZE, HANG).unwrap();
        stamp::write_slot(&mut lease, round);
        let work = fence.clone();
        let holder = std::thread::spawn(move || match round % 4 {
            0 => {
                let _held = lease;
                panics()
            }
            1 => {
                let _held = lease.in_flight_until(work);
                panics()
            }
            2 => {
                let shared = lease.share();
                let _both = (shared.clone(), shared);
                panics()
            }
            _ => {
                // Waits while another thread completes it, and panics with what it was given.
                let _held = lease.in_flight_until(work).wait();
                panics()
            }
        });
        // One is held or in flight; the other one is for this thread.
        stamp::write_slot(&mut pool.lease_timeout(SIZE, HANG).unwrap(), !round);
        fence.complete();
        assert!(holder.join().is_err());
    }
    assert_works(&pool, 0);
    ledger.assert_clean();
}

/// What is forgotten counts as held for ever: it costs its slot, can be seen, and a close says so.
#[test]
fn forgotten_holders_stay_visible() {
    let forget: [fn(Lease); 3] = [
        std::mem::forget,
        |lease| std::mem::forget(lease.share()),
        |lease| {
            let work = ManualFence::new();
            let flight = lease.in_flight_until(work.clone());
            work.complete();
            std::mem::forget(flight);
        },
    ];
    for (way, forget) in forget.into_iter().enumerate() {
        let (pool, ledger) = counted_pool(&[("frame", SIZE, 3)]);
        forget(pool.try_lease(SIZE).unwrap());
        for _ in 0..1000 {
            drop((pool.try_lease(SIZE).unwrap(), pool.try_lease(SIZE).unwrap()));
        }
        let [free, leased, in_flight, lost] = counts(&pool);
        assert_eq!((free, leased + in_flight, lost), (2, 1, 0), "way {way}");
        assert_eq!(leased, u32::from(way < 2), "way {way}");
        let report = pool.close(Duration::from_millis(20));
        assert_eq!(report.still_out.iter().map(|(_, slots)| slots).sum::<usize>(), 1, "{report}");
        assert!(!report.is_complete() && report.to_string().contains("frame"), "{report}");
        drop(pool);
        assert_eq!(ledger.regions(), 1, "its memory stays: it may be written to");
    }
}

/// Leases when it is dropped, and drops what it holds: in unwinding too.
struct Busy {
    pool: Pool,
    held: Option<Lease>,
    flight: Option<InFlight>,
    done: Arc<AtomicU32>,
}

impl Drop for Busy {
    fn drop(&mut self) {
        assert!(std::thread::panicking());
        drop(self.held.take());
        let mut lease = self.pool.try_lease(SIZE).expect("its own slot is free again");
        stamp::write_slot(&mut lease, 3);
        drop(self.flight.take());
        let again = self.pool.lease_timeout(SIZE, HANG).expect("what is complete is had");
        stamp::verify(lease.as_slice(), 3);
        assert!(matches!(self.pool.try_lease(SIZE), Err(LeaseError::Exhausted(_))));
        drop((lease, again, self.pool.stats()));
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Destructors that run while a panic unwinds may lease, wait and drop. A panic in one would abort.
#[test]
fn unwinding_destructors_use_the_pool() {
    let (pool, ledger) = counted_pool(&[("frame", SIZE, 2)]);
    let done = Arc::new(AtomicU32::new(0));
    for _ in 0..1000 {
        let fence = ManualFence::new();
        let busy = Busy {
            held: Some(pool.try_lease(SIZE).unwrap()),
            flight: Some(pool.lease_timeout(SIZE, HANG).unwrap().in_flight_until(fence.clone())),
            pool: pool.clone(),
            done: Arc::clone(&done),
        };
        fence.complete();
        planted(move || {
            let _busy = busy;
            panics();
        });
    }
    assert_eq!(done.load(Ordering::Relaxed), 1000);
    assert_works(&pool, 0);
    ledger.assert_clean();
}

/// A pool's last handle, and its close, while a panic unwinds: the memory goes all the same.
#[test]
fn a_pool_ends_in_unwinding() {
    for round in 0..200 {
        let (pool, ledger) = counted_pool(&[("frame", SIZE, 2)]);
        let work = ManualFence::new();
        pool.try_lease(SIZE).unwrap().retire_after(work.clone());
        work.complete();
        planted(move || {
            let last = (pool.try_lease(SIZE).unwrap(), pool);
            if round % 2 == 0 {
                last.1.close(Duration::ZERO);
            }
            panics();
        });
        until("the memory is given back", || ledger.regions() == 0);
        ledger.assert_clean();
    }
}

/// A task that panics beside a lease that it awaits, before or after the work is over: the slot comes
/// home after the work, and the task is forgotten.
#[test]
fn tasks_that_panic_while_awaiting() {
    let (pool, ledger) = counted_pool(&[("frame", SIZE, 2)]);
    for round in 0..1000 {
        let work = ManualFence::new();
        let lease = pool.lease_timeout(SIZE, HANG).unwrap();
        let task = async {
            let mut landing = pin!(lease.in_flight_until(work.clone()).into_future());
            let mut polls = 0;
            std::future::poll_fn(|context| {
                polls += 1;
                let answer = landing.as_mut().poll(context).map(Result::unwrap);
                // With the waker registered, or with the lease in its hands.
                if polls == 1 && round % 2 == 0 || answer.is_ready() {
                    let _held = answer;
                    panics();
                }
                Poll::<()>::Pending
            })
            .await;
        };
        planted(|| {
            let mut task = pin!(task);
            let mut context = Context::from_waker(Waker::noop());
            assert!(task.as_mut().poll(&mut context).is_pending());
            work.complete();
            let _ = task.as_mut().poll(&mut context);
        });
        if round % 2 == 0 {
            assert!(counts(&pool)[2] > 0, "the work goes on");
        }
        work.complete();
    }
    assert_works(&pool, 0);
    ledger.assert_clean();
}

/// Pending for some questions, and then a panic; some fences panic when they are dropped as well.
struct Late {
    asked: AtomicU32,
    panics_at: u32,
    also_at_the_end: bool,
}

impl Late {
    fn new(panics_at: u32, also_at_the_end: bool) -> Self {
        Self { asked: AtomicU32::new(0), panics_at, also_at_the_end }
    }
}

impl Fence for Late {
    fn poll(&self) -> Result<FenceStatus, FenceError> {
        if self.asked.fetch_add(1, Ordering::Relaxed) >= self.panics_at {
            panics();
        }
        Ok(FenceStatus::Pending)
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        if self.also_at_the_end {
            panics();
        }
    }
}

/// Asks a fence that is on a lease until it panics, and checks the answer.
type Ask = fn(&Pool, Lease, Late);

/// All who ask.
const ASKERS: [(&str, Ask); 8] = [
    ("wait", |_, lease, fence| {
        assert!(matches!(lease.in_flight_until(fence).wait(), Err(Error::Fence(_))));
    }),
    ("look", |_, lease, fence| {
        let flight = lease.in_flight_until(fence);
        until("it is told", || flight.is_complete().is_err());
    }),
    ("take", |_, lease, fence| {
        let mut flight = Some(lease.in_flight_until(fence));
        let mut tries = 0;
        while let Some(again) = flight.take() {
            tries += 1;
            flight = match again.try_take() {
                Err(pinpool::TryTakeError::Pending(again)) => Some(again),
                other => {
                    assert!(other.is_err());
                    None
                }
            };
            assert!(tries < 1000);
        }
    }),
    ("await", |_, lease, fence| {
        let mut landing = pin!(lease.in_flight_until(fence).into_future());
        let mut context = Context::from_waker(Waker::noop());
        let mut polls = 0;
        while landing.as_mut().poll(&mut context).map(|lease| assert!(lease.is_err())).is_pending()
        {
            polls += 1;
            assert!(polls < 1000);
        }
    }),
    ("lessee", |pool, lease, fence| {
        lease.retire_after(fence);
        let _other = pool.try_lease(SIZE).unwrap();
        for _ in 0..10 {
            assert!(matches!(pool.try_lease(SIZE), Err(LeaseError::Exhausted(_))));
        }
    }),
    ("waiter", |pool, lease, fence| {
        lease.retire_after(fence);
        let _other = pool.try_lease(SIZE).unwrap();
        assert!(pool.lease_timeout(SIZE, Duration::from_millis(2)).is_err());
    }),
    ("shared", |_, lease, fence| {
        let shared = lease.share();
        shared.clone().retire_after(fence);
        assert!(shared.wait().is_err());
    }),
    ("keeper", |_, lease, fence| lease.retire_after(fence)),
];

/// Whoever asks a fence that panics, here after some good answers: a waiting holder, one that looks, a
/// task, a lessee of an empty class, the holders of a shared lease, the keeper, a close. Nobody
/// unwinds, who wants to know has an error, and the slot is lost alone.
#[test]
fn a_panicking_fence_unwinds_nobody() {
    for (name, ask) in ASKERS {
        for (panics_at, also_at_the_end) in [(0, false), (1, false), (5, false), (1, true)] {
            let (pool, _ledger) = counted_pool(&[("frame", SIZE, 2)]);
            let lease = pool.try_lease(SIZE).unwrap();
            let late = Late::new(panics_at, also_at_the_end);
            let asked = catch_unwind(AssertUnwindSafe(|| ask(&pool, lease, late)));
            assert!(asked.is_ok(), "{name}, a panic at question {panics_at}");
            until("the slot is lost", || counts(&pool) == [1, 0, 0, 1]);
            assert_works(&pool, 1);
        }
    }
}
