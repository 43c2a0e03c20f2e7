//! Tasks in line: what a future does when it is polled, woken, forgotten or dropped at any moment.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use pinpool::{ClassConfig, Lease, LeaseError, LeaseFuture, ManualFence, Pool};
use pinpool_testkit::scripted::Ledger;
use pinpool_testkit::soon::{HANG, until};

use crate::{assert_all_home, counted, stats, until_in_line};

const SIZE: usize = 512;

fn frames(count: usize) -> (Pool, Ledger) {
    counted([ClassConfig::new("frame", SIZE, count)])
}

/// Runs one future on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Parked(Thread);
    impl Wake for Parked {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Parked(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Counts its wakes, and writes down whose they are.
#[derive(Default)]
struct Bell {
    name: usize,
    wakes: AtomicUsize,
    rung: Arc<Mutex<Vec<usize>>>,
}

impl Bell {
    fn wakes(&self) -> usize {
        self.wakes.load(Ordering::Acquire)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::AcqRel);
        self.rung.lock().unwrap().push(self.name);
    }
}

fn poll(future: &mut LeaseFuture, bell: &Arc<Bell>) -> Poll<Result<Lease, LeaseError>> {
    let waker = Waker::from(Arc::clone(bell));
    Pin::new(future).poll(&mut Context::from_waker(&waker))
}

/// A task that is in line.
fn in_line(pool: &Pool) -> (LeaseFuture, Arc<Bell>) {
    let (mut future, bell) = (pool.lease_async(SIZE), Arc::default());
    assert!(poll(&mut future, &bell).is_pending());
    (future, bell)
}

fn ready(future: &mut LeaseFuture, bell: &Arc<Bell>) -> Lease {
    match poll(future, bell) {
        Poll::Ready(lease) => lease.unwrap(),
        Poll::Pending => panic!("it has no slot"),
    }
}

/// Kind of fault: the second lease of a task starves behind newcomers.
///
/// A thousand tasks on one thread, three leases each, fifty slots: one at a time is returned, and each
/// return wakes exactly the task that has waited for the longest.
///
/// Case wake-3.
#[test]
fn a_thousand_tasks_are_woken_in_the_order_of_their_arrival() {
    const TASKS: usize = 1000;
    const SLOTS: usize = 50;
    let (pool, ledger) = frames(SLOTS);
    let rung = Arc::<Mutex<Vec<usize>>>::default();
    let bells: Vec<_> = (0..TASKS)
        .map(|name| Arc::new(Bell { name, rung: Arc::clone(&rung), ..Bell::default() }))
        .collect();
    let mut tasks: Vec<LeaseFuture> = (0..TASKS).map(|_| pool.lease_async(SIZE)).collect();
    let mut left = [3; TASKS];
    let mut held = std::collections::VecDeque::new();
    let mut arrived = std::collections::VecDeque::new();
    for name in 0..TASKS {
        match poll(&mut tasks[name], &bells[name]) {
            Poll::Ready(lease) => held.push_back((name, lease.unwrap())),
            Poll::Pending => arrived.push_back(name),
        }
    }
    assert_eq!((held.len(), arrived.len()), (SLOTS, TASKS - SLOTS));
    while let Some((name, lease)) = held.pop_front() {
        drop(lease);
        let woken = std::mem::take(&mut *rung.lock().unwrap());
        let first = arrived.pop_front();
        assert_eq!(woken, Vec::from_iter(first), "the first in line, alone");
        if let Some(first) = first {
            held.push_back((first, ready(&mut tasks[first], &bells[first])));
        }
        left[name] -= 1;
        if left[name] > 0 {
            tasks[name] = pool.lease_async(SIZE);
            match poll(&mut tasks[name], &bells[name]) {
                Poll::Ready(lease) => held.push_back((name, lease.unwrap())),
                Poll::Pending => arrived.push_back(name),
            }
        }
    }
    assert!(left.iter().all(|left| *left == 0) && arrived.is_empty());
    let class = stats(&pool, "frame");
    assert_eq!((class.leases_total, class.cancelled_total), (3 * TASKS as u64, 0));
    drop(tasks);
    assert_all_home(pool, &ledger);
}

/// Nothing happens before the first poll, and a future dropped before it was never there.
#[test]
fn a_future_that_is_not_polled_does_nothing() {
    let (pool, ledger) = frames(1);
    let before = pool.stats();
    let idle = pool.lease_async(SIZE);
    drop(pool.lease_async(SIZE));
    assert_eq!(pool.stats(), before);
    let lease = pool.try_lease(SIZE).expect("it is in nobody's line");
    drop((idle, lease));
    let class = stats(&pool, "frame");
    assert_eq!((class.waits_total, class.cancelled_total), (0, 0));
    assert_all_home(pool, &ledger);
}

/// A future that ends at its first poll never waits: with a slot, with a wish that nobody can serve.
#[test]
fn a_future_with_an_answer_is_ready_at_once() {
    let (pool, ledger) = frames(1);
    let bell = Arc::default();
    let mut future = pool.lease_async(SIZE);
    let lease = ready(&mut future, &bell);
    assert!(poll(&mut future, &bell).is_pending(), "it was ready once");
    for (wish, error) in [(0, LeaseError::ZeroLen), (SIZE + 1, largest(SIZE + 1))] {
        let mut future = pool.lease_async(wish);
        let Poll::Ready(answer) = poll(&mut future, &bell) else { panic!("{wish}") };
        assert_eq!(answer.map(drop), Err(error));
    }
    drop(future);
    assert!(pool.try_lease(SIZE).is_err(), "the lease is its own, whatever becomes of the future");
    drop(lease);
    assert_eq!(bell.wakes(), 0);
    assert_eq!(stats(&pool, "frame").waits_total, 0);
    assert_all_home(pool, &ledger);
}

fn largest(requested: usize) -> LeaseError {
    LeaseError::TooLarge { requested, largest: SIZE }
}

/// A task that is dropped with a slot in its hands, unseen, or in line: the one behind it is served, be it
/// a task or a thread, and with nobody behind it the slot is free.
#[test]
fn a_cancelled_task_hands_its_slot_on() {
    let (pool, ledger) = frames(1);
    // To a task behind it: of one that was served, and of one that was not.
    let held = pool.try_lease(SIZE).unwrap();
    let (first, bell) = in_line(&pool);
    let (unserved, _) = in_line(&pool);
    let (mut last, behind) = in_line(&pool);
    drop(unserved);
    drop(held);
    assert_eq!((bell.wakes(), behind.wakes()), (1, 0));
    drop(first);
    assert_eq!(behind.wakes(), 1);
    drop(ready(&mut last, &behind));
    assert_eq!(stats(&pool, "frame").cancelled_total, 2);
    // To a thread behind it.
    let held = pool.try_lease(SIZE).unwrap();
    let (first, bell) = in_line(&pool);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| pool.lease_timeout(SIZE, HANG).map(drop));
        until_in_line(&pool, "frame", 2);
        drop(held);
        assert_eq!(bell.wakes(), 1);
        std::thread::sleep(Duration::from_millis(5));
        assert!(!second.is_finished(), "the slot is the first one's");
        drop(first);
        assert_eq!(second.join().unwrap(), Ok(()));
    });
    // To nobody.
    let held = pool.try_lease(SIZE).unwrap();
    let (alone, _bell) = in_line(&pool);
    drop(held);
    assert!(pool.try_lease(SIZE).is_err(), "it is the task's");
    drop(alone);
    drop(pool.try_lease(SIZE).expect("it is free"));
    assert_all_home(pool, &ledger);
}

/// Only the waker of the last poll is woken, once, by whoever serves the task.
#[test]
fn the_last_waker_is_woken_once() {
    let (pool, ledger) = frames(1);
    let held = pool.try_lease(SIZE).unwrap();
    let (mut future, old) = in_line(&pool);
    let bells: [Arc<Bell>; 3] = Default::default();
    for bell in &bells {
        assert!(poll(&mut future, bell).is_pending());
    }
    let fence = ManualFence::new();
    held.retire_after(fence.clone());
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(bells[2].wakes(), 0, "the work is not over");
    fence.complete();
    until("it is woken", || bells[2].wakes() == 1);
    // Polled by another waker meanwhile, it has its slot all the same.
    drop(ready(&mut future, &Arc::default()));
    let wakes = [&old, &bells[0], &bells[1], &bells[2]].map(|bell| bell.wakes());
    assert_eq!(wakes, [0, 0, 0, 1]);
    assert!(poll(&mut future, &bells[2]).is_pending(), "it was ready once");
    drop(pool.try_lease(SIZE).expect("a future that is over is not in line"));
    assert_all_home(pool, &ledger);
}

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
        |data| gone(data),
        // SAFETY: as above.
        |data| look(unsafe { &*data.cast::<Pool>() }),
        |data| gone(data),
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

/// A future in line keeps the pool open, as a handle does; an idle one too.
#[test]
fn a_waiting_future_keeps_the_pool_open() {
    let (pool, ledger) = frames(1);
    let held = pool.try_lease(SIZE).unwrap();
    let (mut future, bell) = in_line(&pool);
    let mut idle = pool.lease_async(SIZE);
    drop(pool);
    assert_eq!(bell.wakes(), 0, "it is not closed");
    drop(held);
    drop(ready(&mut future, &bell));
    drop(future);
    drop(ready(&mut idle, &bell));
    assert_eq!(ledger.regions(), 1);
    drop(idle);
    until("the pool is closed", || ledger.regions() == 0);
    ledger.assert_clean();
}

/// A close wakes every task; each finds out why, whether it is polled or just dropped.
#[test]
fn a_close_wakes_every_task() {
    let (pool, ledger) = frames(1);
    let held = pool.try_lease(SIZE).unwrap();
    let mut tasks: Vec<_> = (0..10).map(|_| in_line(&pool)).collect();
    pool.close(Duration::ZERO);
    assert!(tasks.iter().all(|(_, bell)| bell.wakes() == 1));
    for (future, bell) in tasks.iter_mut().step_by(2) {
        let Poll::Ready(answer) = poll(future, bell) else { panic!("it is over") };
        assert_eq!(answer.map(drop), Err(LeaseError::Closed));
    }
    drop(tasks);
    let late = block_on(pool.lease_async(SIZE));
    assert_eq!(late.map(drop), Err(LeaseError::Closed));
    drop(held);
    assert_all_home(pool, &ledger);
}

/// Tasks are dropped at every moment of their wait while slots come and go: none is lost, and who stays
/// in line is served.
#[test]
fn tasks_cancelled_at_any_moment_lose_no_slot() {
    const ROUNDS: usize = 3_000;
    let (pool, ledger) = frames(2);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let bell = Arc::default();
                    let mut future = pool.lease_async(SIZE);
                    for _ in 0..(round + thread) % 5 {
                        if let Poll::Ready(lease) = poll(&mut future, &bell) {
                            drop(lease.unwrap());
                            break;
                        }
                        std::thread::yield_now();
                    }
                    drop(future);
                    if round % 8 == 0 {
                        drop(block_on(pool.lease_async(SIZE)).unwrap());
                    }
                }
            });
        }
    });
    assert_all_home(pool, &ledger);
}
