//! What an attack on the pool found, each as the promise that it broke.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use pinpool::{Fence, FenceError, FenceStatus, LeaseFuture, LockMode, ManualFence, Pool};
use pinpool_testkit::soon::{HANG, until};

const SIZE: usize = 512;

fn pool(count: usize) -> Pool {
    Pool::builder().env(false).lock(LockMode::Off).class("frame", SIZE, count).open().unwrap()
}

/// Runs its task where it is woken, which drops the lease at once and so wakes the next in line.
struct OnTheSpot {
    future: Mutex<Option<LeaseFuture>>,
    served: Arc<AtomicUsize>,
}

impl Wake for OnTheSpot {
    fn wake(self: Arc<Self>) {
        let Some(mut future) = self.future.lock().unwrap().take() else { return };
        let waker = Waker::from(Arc::clone(&self));
        if let Poll::Ready(lease) = Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            self.served.fetch_add(1, Ordering::Relaxed);
            drop(lease);
        }
    }
}

/// A long line of tasks that run in their wakers is served on any stack, the keeper's included.
#[test]
fn a_long_line_of_tasks_that_run_where_they_are_woken() {
    const TASKS: usize = 20_000;
    for in_keeper in [false, true] {
        let pool = pool(1);
        let lease = pool.lease(SIZE).unwrap();
        let served = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let task = OnTheSpot { future: Mutex::new(None), served: Arc::clone(&served) };
                let task = Arc::new(task);
                let mut future = pool.lease_async(SIZE);
                let waker = Waker::from(Arc::clone(&task));
                let polled = Pin::new(&mut future).poll(&mut Context::from_waker(&waker));
                assert!(polled.is_pending());
                *task.future.lock().unwrap() = Some(future);
                task
            })
            .collect();
        if in_keeper {
            let work = ManualFence::new();
            lease.retire_after(work.clone());
            work.complete();
        } else {
            drop(lease);
        }
        until("all were served", || served.load(Ordering::Relaxed) == TASKS);
        drop(tasks);
    }
}

/// A fence that failed.
struct Failed;

impl Fence for Failed {
    fn poll(&self) -> Result<FenceStatus, FenceError> {
        Err(FenceError::new("cable pulled"))
    }
}

/// A quarantined slot never comes home, so that a close does not wait for it, even where it has no
/// deadline.
#[test]
fn a_close_does_not_wait_for_what_never_comes_home() {
    let pool = pool(3);
    pool.lease(SIZE).unwrap().retire_after(Failed);
    until("one is lost", || pool.stats().classes[0].quarantined == 1);
    let [first, second] = [(); 2].map(|()| pool.lease(SIZE).unwrap());
    let began = Instant::now();
    let closer = std::thread::spawn({
        let pool = pool.clone();
        move || pool.close(Duration::MAX)
    });
    drop(first);
    std::thread::sleep(Duration::from_millis(50));
    assert!(!closer.is_finished(), "a lease is out");
    drop(second);
    let report = until_joined(closer);
    assert_eq!((report.quarantined, report.slabs_left), (1, 1));
    let again = pool.close(HANG);
    assert_eq!((again.quarantined, again.slabs_left), (1, 1));
    assert!(began.elapsed() < HANG);
}

fn until_joined<T>(thread: std::thread::JoinHandle<T>) -> T {
    until("it ends", || thread.is_finished());
    thread.join().unwrap()
}

/// `lease_priority` stands in front of all others, whether or not the class has a reserve.
#[test]
fn priority_is_in_front_without_a_reserve() {
    let pool = pool(1);
    let lease = pool.lease(SIZE).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut plain = pool.lease_async(SIZE);
    assert!(Pin::new(&mut plain).poll(&mut context).is_pending());
    let mut urgent = pool.lease_priority_async(SIZE);
    assert!(Pin::new(&mut urgent).poll(&mut context).is_pending());
    drop(lease);
    assert!(
        Pin::new(&mut plain).poll(&mut context).is_pending(),
        "it came first, without priority"
    );
    assert!(Pin::new(&mut urgent).poll(&mut context).is_ready());
}

/// A slot that was given to a task which did not fetch it before the close is home, and the task is told.
#[test]
fn a_close_takes_back_what_was_not_fetched() {
    let pool = pool(2);
    let leases = [(); 2].map(|()| pool.lease(SIZE).unwrap());
    let mut context = Context::from_waker(Waker::noop());
    let [mut stalled, mut forgotten] = [(); 2].map(|()| pool.lease_async(SIZE));
    assert!(Pin::new(&mut stalled).poll(&mut context).is_pending());
    assert!(Pin::new(&mut forgotten).poll(&mut context).is_pending());
    std::mem::forget(forgotten);
    drop(leases);
    assert!(pool.close(HANG).is_complete());
    let Poll::Ready(Err(error)) = Pin::new(&mut stalled).poll(&mut context) else {
        panic!("no lease succeeds after a close");
    };
    assert_eq!(error.to_string(), pool.try_lease(SIZE).unwrap_err().to_string());
}
