//! Pools that end inside the calls they make of users' code: a fence or a waker that closes the pool or
//! drops its last handle, on the pool's own thread and on those of holders.

use std::any::Any;
use std::future::{Future, IntoFuture};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use pinpool::{Fence, FenceError, FenceStatus, LeaseError, ManualFence, Pool};
use pinpool_testkit::scripted::counted_pool;
use pinpool_testkit::soon::{HANG, until};
use pinpool_testkit::stamp;

const SIZE: usize = 512;

/// Ends a pool once it is told to, in whatever call of the pool comes next.
struct Ender {
    pool: Mutex<Option<Pool>>,
    end: End,
    go: AtomicBool,
    /// On the pool's own thread only.
    in_keeper: bool,
    done: AtomicUsize,
}

impl Ender {
    fn new(pool: &Pool, end: End, in_keeper: bool) -> Arc<Self> {
        Arc::new(Self {
            pool: Mutex::new(Some(pool.clone())),
            end,
            go: AtomicBool::new(false),
            in_keeper,
            done: AtomicUsize::new(0),
        })
    }

    /// Ends the pool here and now, if this is the time and place. True once it is over.
    fn acts(&self) -> bool {
        let keeper = std::thread::current().name() == Some("pinpool-keeper");
        if !self.go.load(Ordering::Acquire) || self.in_keeper && !keeper {
            return self.done.load(Ordering::Acquire) > 0;
        }
        if let Some(pool) = self.pool.lock().unwrap().take() {
            (self.end)(pool);
            self.done.fetch_add(1, Ordering::Release);
        }
        true
    }

    fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) > 0
    }
}

/// Acts when it is asked.
struct Asked(Arc<Ender>);

impl Fence for Asked {
    fn poll(&self) -> Result<FenceStatus, FenceError> {
        Ok(if self.0.acts() { FenceStatus::Complete } else { FenceStatus::Pending })
    }
}

/// Is complete, and acts when it is dropped.
struct Dropped(Arc<Ender>, ManualFence);

impl Fence for Dropped {
    fn poll(&self) -> Result<FenceStatus, FenceError> {
        self.1.poll()
    }
}

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.acts();
    }
}

/// Acts when it wakes.
struct Woken(Arc<Ender>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.acts();
    }
}

type End = fn(Pool);

/// Ways to end a pool, with a lease of it out and others in flight.
const ENDS: [(&str, End); 4] = [
    ("a drop", drop),
    ("a close", |pool| {
        assert!(!pool.close(Duration::ZERO).is_complete(), "the slot of this call is out");
    }),
    ("a close with time", |pool| {
        assert!(!pool.close(Duration::from_millis(3)).is_complete());
        assert!(matches!(pool.try_lease(SIZE), Err(LeaseError::Closed)));
    }),
    ("a close and more", |pool| {
        let again = pool.clone();
        drop((pool.close(Duration::ZERO), pool.stats(), pool.holders(), pool.trim()));
        assert!(matches!(again.lease(SIZE), Err(LeaseError::Closed)));
    }),
];

/// What happens once the pool may end, and what is kept until it did.
struct Begun {
    act: Box<dyn FnOnce(&Pool)>,
    kept: Option<Box<dyn Any>>,
}

/// Every end, in the keeper or in this thread; by one handle of two and by the last one. Afterwards
/// leases are refused, the lease that was out is whole, and all memory goes.
fn each_end(what: &str, in_keeper: bool, begin: fn(&Pool, &Arc<Ender>) -> Begun) {
    for (name, end) in ENDS {
        for keeps in [true, false] {
            for round in 0..ROUNDS {
                let what = format!("{what}, {name}, in the keeper {in_keeper}, kept {keeps}");
                let (pool, ledger) = counted_pool(&[("frame", SIZE, 2)]);
                let ender = Ender::new(&pool, end, in_keeper);
                let mut held = pool.try_lease(SIZE).unwrap();
                stamp::write_slot(&mut held, round);
                let Begun { act, kept } = begin(&pool, &ender);
                ender.go.store(true, Ordering::Release);
                act(&pool);
                // Where it is not kept, whichever goes last of the two handles ends it.
                let pool = keeps.then_some(pool);
                until(&what, || ender.is_done());
                drop(kept);
                stamp::verify(held.as_slice(), round);
                drop(held);
                if let Some(pool) = pool {
                    assert!(
                        matches!(pool.try_lease(SIZE), Err(LeaseError::Closed)) || name == "a drop"
                    );
                    assert!(pool.close(HANG).is_complete(), "{what}");
                }
                until(&what, || ledger.regions() == 0);
                ledger.assert_clean();
            }
        }
    }
}

#[test]
fn a_fence_that_is_asked_ends_the_pool() {
    for in_keeper in [true, false] {
        each_end("asked", in_keeper, |pool, ender| {
            pool.try_lease(SIZE).unwrap().retire_after(Asked(Arc::clone(ender)));
            // The class is empty: whoever misses asks.
            let act = |pool: &Pool| drop(pool.lease_timeout(SIZE, Duration::from_millis(1)));
            Begun { act: Box::new(act), kept: None }
        });
    }
}

#[test]
fn a_fence_that_is_dropped_ends_the_pool() {
    each_end("dropped by the keeper", true, |pool, ender| {
        let work = ManualFence::new();
        pool.try_lease(SIZE).unwrap().retire_after(Dropped(Arc::clone(ender), work.clone()));
        Begun { act: Box::new(move |_| work.complete()), kept: None }
    });
    each_end("dropped by its holder", false, |pool, ender| {
        let work = ManualFence::new();
        let flight =
            pool.try_lease(SIZE).unwrap().in_flight_until(Dropped(Arc::clone(ender), work.clone()));
        let act = move |_: &Pool| {
            work.complete();
            drop(flight.wait().unwrap());
        };
        Begun { act: Box::new(act), kept: None }
    });
}

/// Tasks: one that awaits a copy is woken by the keeper, one that awaits a lease by whoever returns one.
#[test]
fn a_waker_ends_the_pool() {
    each_end("a landing's waker", true, |pool, ender| {
        let work = ManualFence::new();
        let flight = pool.try_lease(SIZE).unwrap().in_flight_until(work.clone());
        let waker = Waker::from(Arc::new(Woken(Arc::clone(ender))));
        let mut landing = Box::pin(flight.into_future());
        assert!(landing.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        Begun { act: Box::new(move |_| work.complete()), kept: Some(Box::new(landing)) }
    });
    each_end("a lease's waker", false, |pool, ender| {
        let second = pool.try_lease(SIZE).unwrap();
        let waker = Waker::from(Arc::new(Woken(Arc::clone(ender))));
        let mut future = Box::pin(pool.lease_async(SIZE));
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        Begun { act: Box::new(move |_| drop(second)), kept: Some(Box::new(future)) }
    });
}

/// Of each end in each place.
const ROUNDS: u64 = 60;
