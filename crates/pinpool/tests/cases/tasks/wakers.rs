//! Wakers are foreign code: they may panic, and they may use the pool.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Duration;

use pinpool::{LeaseFuture, ManualFence, Pool};
use pinpool_testkit::soon::{HANG, until};

use super::{SIZE, frames, in_line, ready};
use crate::{assert_all_home, stats};

/// Wakes by panicking.
struct Grenade;

impl Wake for Grenade {
    fn wake(self: Arc<Self>) {
        std::panic::resume_unwind(Box::new("a planted panic"));
    }
}

/// A waker that panics costs the returner nothing: its task is served, and so is who comes behind it.
#[test]
fn a_waker_that_panics_costs_nothing() {
    let (pool, ledger) = frames(1);
    for retired in [false, true] {
        let held = pool.try_lease(SIZE).unwrap();
        let mut future = pool.lease_async(SIZE);
        let waker = Waker::from(Arc::new(Grenade));
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
        let (mut second, behind) = in_line(&pool);
        if retired {
            let fence = ManualFence::new();
            fence.complete();
            held.retire_after(fence);
            until("it is served", || stats(&pool, "frame").waiting == 1);
        } else {
            drop(held);
        }
        drop(ready(&mut future, &Arc::default()));
        assert_eq!(behind.wakes(), 1);
        drop(ready(&mut second, &behind));
    }
    assert_all_home(pool, &ledger);
}

/// Looks at the line of waiters, and asks for a slot.
fn look(pool: &Pool) {
    let _ = stats(pool, "frame");
    drop(pool.try_lease(SIZE));
}

/// A waker that uses the pool when it is cloned, woken and dropped.
fn nosy(pool: &Pool) -> Waker {
    const TABLE: RawWakerVTable = RawWakerVTable::new(
        |data| {
            // SAFETY: every waker of this table has a pool of its own, leaked in `raw`.
            let pool = unsafe { &*data.cast::<Pool>() };
            look(pool);
            raw(pool)
        },
        gone,
        // SAFETY: as above.
        |data| look(unsafe { &*data.cast::<Pool>() }),
        gone,
    );
    fn gone(data: *const ()) {
        // SAFETY: as above; the waker goes with this call.
        let pool = unsafe { Box::from_raw(data.cast::<Pool>().cast_mut()) };
        look(&pool);
    }
    fn raw(pool: &Pool) -> RawWaker {
        RawWaker::new(Box::into_raw(Box::new(pool.clone())).cast(), &TABLE)
    }
    // SAFETY: the table keeps a waker's contract: each has its own data, and a pool is shared freely.
    unsafe { Waker::from_raw(raw(pool)) }
}

/// A waker is foreign code: it may use the pool when it is cloned, woken and dropped, at any moment of
/// a wait (I17).
#[test]
fn a_waker_may_use_the_pool_even_when_it_is_dropped() {
    let (pool, ledger) = frames(1);
    let step = |pool: &Pool, future: &mut LeaseFuture| {
        Pin::new(future).poll(&mut Context::from_waker(&nosy(pool)))
    };
    let (done, ended) = std::sync::mpsc::channel();
    let user = pool.clone();
    let thread = std::thread::spawn(move || {
        let pool = user;
        // Somebody else is in line throughout, so that every look takes the line's lock.
        let held = pool.try_lease(SIZE).unwrap();
        let mut tasks: Vec<_> = (0..4).map(|_| pool.lease_async(SIZE)).collect();
        for _ in 0..3 {
            assert!(tasks.iter_mut().all(|task| step(&pool, task).is_pending()));
        }
        drop(held);
        // Served, and polled with one more waker, which nobody needs any more.
        let Poll::Ready(lease) = step(&pool, &mut tasks[0]) else { panic!("it is the first") };
        // Cancelled in line, cancelled with a slot, and closed.
        drop(tasks.remove(2));
        drop(lease);
        drop(tasks.remove(1));
        pool.close(Duration::ZERO);
        let answer = step(&pool, &mut tasks[1]);
        drop((answer, tasks));
        done.send(()).unwrap();
    });
    let ended = ended.recv_timeout(HANG);
    assert!(!matches!(ended, Err(RecvTimeoutError::Timeout)), "a waker's code runs under a lock");
    thread.join().unwrap();
    assert_all_home(pool, &ledger);
}
