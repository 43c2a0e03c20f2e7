//! A panic at every place where the pool calls users' code, a thousand times each: in the holder's own
//! thread, in the keeper, in whoever returns a slot, and in a drop while another panic unwinds.

use std::cell::Cell;
use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

use pinpool::{Fence, FenceError, FenceStatus, LeaseError, LeaseFuture, ManualFence, Pool};
use pinpool_testkit::scripted::counted_pool;
use pinpool_testkit::soon::{HANG, until};

use super::{SIZE, assert_works, counts, panics, planted};

/// Which call of a waker panics.
#[derive(Default)]
struct Site {
    clone: AtomicBool,
    wake: AtomicBool,
    drop: AtomicBool,
    panicked: AtomicU32,
}

impl Site {
    fn hit(&self, armed: &AtomicBool) {
        if armed.load(Ordering::Relaxed) {
            self.panicked.fetch_add(1, Ordering::Relaxed);
            panics();
        }
    }

    fn count(&self) -> u32 {
        self.panicked.load(Ordering::Relaxed)
    }

    /// A waker of this site. Calls of this thread's own do not panic.
    fn waker(self: &Arc<Self>) -> Waker {
        // SAFETY: the table keeps the rules of `RawWaker` over an `Arc`.
        unsafe { Waker::from_raw(RawWaker::new(Arc::into_raw(Arc::clone(self)).cast(), &TABLE)) }
    }
}

static TABLE: RawWakerVTable = RawWakerVTable::new(
    |site| {
        // SAFETY: a waker's data is an `Arc<Site>` that it owns.
        let site = unsafe { borrow(site) };
        site.hit(&site.clone);
        RawWaker::new(Arc::into_raw(site).cast(), &TABLE)
    },
    |site| {
        // SAFETY: as above; waking by value ends the waker.
        let site = unsafe { Arc::from_raw(site.cast::<Site>()) };
        site.hit(&site.wake);
    },
    |site| {
        // SAFETY: as above.
        let site = unsafe { borrow(site) };
        site.hit(&site.wake);
    },
    |site| {
        // SAFETY: as above; dropping ends the waker.
        let site = unsafe { Arc::from_raw(site.cast::<Site>()) };
        if !OWN.get() {
            site.hit(&site.drop);
        }
    },
);

std::thread_local! {
    /// The test drops a waker of its own.
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// One more reference.
///
/// # Safety
///
/// The data is that of a waker that lives.
unsafe fn borrow(site: *const ()) -> Arc<Site> {
    // SAFETY: the caller's duty.
    unsafe { Arc::increment_strong_count(site.cast::<Site>()) };
    // SAFETY: counted above.
    unsafe { Arc::from_raw(site.cast()) }
}

fn own<R>(call: impl FnOnce() -> R) -> R {
    OWN.set(true);
    let result = call();
    OWN.set(false);
    result
}

/// Polls with a waker of the site, and drops that waker quietly.
fn poll<F: Future + Unpin>(future: &mut F, site: &Arc<Site>) -> Poll<F::Output> {
    /// Also if the poll panics.
    struct Quietly(Option<Waker>);
    impl Drop for Quietly {
        fn drop(&mut self) {
            own(|| drop(self.0.take()));
        }
    }
    let waker = Quietly(Some(site.waker()));
    let mut context = Context::from_waker(waker.0.as_ref().unwrap());
    Pin::new(future).poll(&mut context)
}

/// A pool whose only two slots are held by the first of the pair; a task waits in line for one.
fn in_line(pool: &Pool, site: &Arc<Site>) -> ([pinpool::Lease; 2], LeaseFuture) {
    let held = [(); 2].map(|()| pool.lease_timeout(SIZE, HANG).unwrap());
    let mut future = pool.lease_async(SIZE);
    assert!(poll(&mut future, site).is_pending());
    (held, future)
}

/// A waker that panics when it is called: whoever returned the slot, or closed, goes on, and the task
/// finds its lease when it looks.
#[test]
fn wakers_that_panic_when_called() {
    let (pool, ledger) = counted_pool(&[("frame", SIZE, 2)]);
    let site = Arc::new(Site::default());
    site.wake.store(true, Ordering::Relaxed);
    for round in 0..1000 {
        let (held, mut future) = in_line(&pool, &site);
        if round % 2 == 0 {
            drop(held);
        } else {
            // In unwinding a second panic would abort.
            planted(move || {
                let _held = held;
                panics();
            });
        }
        assert_eq!(site.count(), round + 1, "it was called");
        let Poll::Ready(Ok(lease)) = poll(&mut future, &site) else { panic!("a lease is there") };
        drop(lease);
    }
    // The keeper wakes who awaits a copy.
    for round in 0..1000 {
        let work = ManualFence::new();
        let flight = pool.lease_timeout(SIZE, HANG).unwrap().in_flight_until(work.clone());
        let mut landing = flight.into_future();
        assert!(poll(&mut landing, &site).is_pending());
        work.complete();
        until("the keeper called it", || site.count() == 1001 + round);
        assert!(poll(&mut landing, &site).is_ready());
    }
    assert_works(&pool, 0);
    drop(pool);
    ledger.assert_clean();
}

/// A close whose tasks' wakers panic tells all of them.
#[test]
fn a_close_among_wakers_that_panic() {
    for _ in 0..1000 {
        let (pool, ledger) = counted_pool(&[("frame", SIZE, 2)]);
        let site = Arc::new(Site::default());
        site.wake.store(true, Ordering::Relaxed);
        let (held, mut first) = in_line(&pool, &site);
        let mut second = pool.lease_async(SIZE);
        assert!(poll(&mut second, &site).is_pending());
        pool.close(Duration::ZERO);
        assert_eq!(site.count(), 2);
        for future in [&mut first, &mut second] {
            assert!(matches!(poll(future, &site), Poll::Ready(Err(LeaseError::Closed))));
        }
        drop(held);
        assert!(pool.close(HANG).is_complete());
        ledger.assert_clean();
    }
}

/// A waker that panics when it is cloned, which is in its task's own poll: that task's panic, and
/// nobody else's. The future can be polled again, or dropped; no slot is lost.
#[test]
fn wakers_that_panic_when_cloned() {
    let (pool, ledger) = counted_pool(&[("frame", SIZE, 2)]);
    // A task that asks with the waker it left makes no clone: it comes with another one.
    let [site, other] = [(); 2].map(|()| Arc::new(Site::default()));
    let clone = |armed| [&site, &other].map(|site| site.clone.store(armed, Ordering::Relaxed));
    for round in 0..1000 {
        let (held, mut waits) = in_line(&pool, &site);
        let mut begins = pool.lease_async(SIZE);
        clone(true);
        planted(|| drop(poll(&mut waits, &other)));
        planted(|| drop(poll(&mut begins, &site)));
        if round % 2 == 0 {
            // Served meanwhile: no clone is needed, and none is made.
            drop(held);
            assert!(matches!(poll(&mut waits, &other), Poll::Ready(Ok(_))));
        } else {
            clone(false);
            assert!(poll(&mut waits, &other).is_pending());
        }
        clone(false);
        drop((waits, begins));
    }
    for _ in 0..1000 {
        let work = ManualFence::new();
        let flight = pool.lease_timeout(SIZE, HANG).unwrap().in_flight_until(work.clone());
        let mut landing = flight.into_future();
        clone(true);
        planted(|| drop(poll(&mut landing, &site)));
        clone(false);
        work.complete();
    }
    assert_works(&pool, 0);
    drop(pool);
    ledger.assert_clean();
}

/// A waker that panics when it is dropped: as the old one of a task that is polled again, as that of a
/// task that was served or gave up, in the keeper, and while another panic unwinds.
#[test]
fn wakers_that_panic_when_dropped() {
    let (pool, ledger) = counted_pool(&[("frame", SIZE, 2)]);
    let [site, other] = [(); 2].map(|()| Arc::new(Site::default()));
    for site in [&site, &other] {
        site.drop.store(true, Ordering::Relaxed);
    }
    for round in 0..1000 {
        let (held, mut future) = in_line(&pool, &site);
        let before = site.count();
        assert!(poll(&mut future, &other).is_pending(), "the old waker went");
        assert_eq!(site.count(), before + 1);
        let before = other.count();
        match round % 3 {
            0 => {
                drop(held);
                let Poll::Ready(Ok(_lease)) = poll(&mut future, &other) else { panic!("served") };
            }
            1 => drop(future),
            _ => planted(move || {
                let _both = (future, held);
                panics();
            }),
        }
        // The waker of a task that was served was called, which ended it.
        assert_eq!(other.count(), before + u32::from(round % 3 != 0), "round {round}");
    }
    for round in 0..1000 {
        let before = site.count();
        let work = ManualFence::new();
        let flight = pool.lease_timeout(SIZE, HANG).unwrap().in_flight_until(work.clone());
        let mut landing = flight.into_future();
        assert!(poll(&mut landing, &site).is_pending());
        assert!(poll(&mut landing, &site).is_pending());
        assert_eq!(site.count(), before + 1);
        if round % 2 == 0 {
            drop(landing);
        } else {
            planted(move || {
                let _landing = landing;
                panics();
            });
        }
        assert_eq!(site.count(), before + 2);
        work.complete();
    }
    assert_works(&pool, 0);
    drop(pool);
    ledger.assert_clean();
}

/// Panics where it is told to, after its work is over or instead.
struct Breaks {
    work: ManualFence,
    asked: bool,
    dropped: bool,
}

impl Fence for Breaks {
    fn poll(&self) -> Result<FenceStatus, FenceError> {
        if self.asked {
            panics();
        }
        self.work.poll()
    }
}

impl Drop for Breaks {
    fn drop(&mut self) {
        if self.dropped {
            panics();
        }
    }
}

/// A thousand fences that panic when they are dropped, in the hands of a waiting holder, of the keeper,
/// of a lessee, of a task that gave up, and in unwinding: no slot is lost.
#[test]
fn fences_that_panic_when_dropped() {
    let (pool, ledger) = counted_pool(&[("frame", SIZE, 2)]);
    for round in 0..1000 {
        let work = ManualFence::new();
        let fence = Breaks { work: work.clone(), asked: false, dropped: true };
        let lease = pool.lease_timeout(SIZE, HANG).unwrap();
        match round % 5 {
            0 => {
                let flight = lease.in_flight_until(fence);
                work.complete();
                drop(flight.wait().unwrap());
            }
            1 => lease.retire_after(fence),
            2 => {
                lease.retire_after(fence);
                let other = pool.lease_timeout(SIZE, HANG).unwrap();
                work.complete();
                drop((pool.lease_timeout(SIZE, HANG).unwrap(), other));
            }
            3 => {
                let mut landing = pin!(lease.in_flight_until(fence).into_future());
                let mut context = Context::from_waker(Waker::noop());
                assert!(landing.as_mut().poll(&mut context).is_pending());
            }
            _ => {
                let shared = lease.share();
                shared.clone().retire_after(fence);
                let closing = work.clone();
                planted(move || {
                    let _shared = shared;
                    closing.complete();
                    panics();
                });
            }
        }
        work.complete();
    }
    assert_works(&pool, 0);
    drop(pool);
    ledger.assert_clean();
}

/// A thousand fences that panic when they are asked, by the keeper, a holder and a lessee: each loses its
/// own slot of a thousand and two, and the last two go on.
#[test]
fn fences_that_panic_when_asked() {
    let (pool, _ledger) = counted_pool(&[("frame", SIZE, 1002)]);
    for round in 0..1000 {
        let fence = Breaks { work: ManualFence::new(), asked: true, dropped: round % 2 == 0 };
        let lease = pool.lease_timeout(SIZE, HANG).unwrap();
        match round % 3 {
            0 => lease.retire_after(fence),
            1 => assert!(lease.in_flight_until(fence).wait().is_err()),
            _ => planted(move || {
                let _flight = lease.in_flight_until(fence);
                panics();
            }),
        }
    }
    until("a thousand are lost", || counts(&pool) == [2, 0, 0, 1000]);
    assert_works(&pool, 1000);
}

/// Tasks that are forgotten in line: one that was served keeps its slot, as a forgotten lease does, one
/// that was not keeps only its place; the others go on, and a close takes the slot back.
#[test]
fn forgotten_tasks_cost_their_own_slot() {
    let (pool, _ledger) = counted_pool(&[("frame", SIZE, 2)]);
    let site = Arc::new(Site::default());
    let (held, future) = in_line(&pool, &site);
    std::mem::forget(future);
    let [first, second] = held;
    drop(first);
    drop(second);
    // The first that came home was its.
    for _ in 0..1000 {
        drop(pool.lease_timeout(SIZE, HANG).unwrap());
        assert!(pool.try_lease_many(&[SIZE, SIZE]).is_err());
    }
    let report = pool.close(Duration::ZERO);
    assert!(report.is_complete(), "{report}");
    // Each holds a handle: the pools stay, which a close ends.
    for _ in 0..200 {
        let (pool, ledger) = counted_pool(&[("frame", SIZE, 2)]);
        let (held, future) = in_line(&pool, &site);
        std::mem::forget(future);
        assert!(!pool.close(Duration::ZERO).is_complete());
        drop(held);
        assert!(pool.close(HANG).is_complete());
        ledger.assert_clean();
    }
}
