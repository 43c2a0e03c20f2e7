//! Awaiting work in flight without a runtime: the pool's own thread wakes the tasks.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed unwrap is a failed test"
)]

use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use pinpool::{Error, InFlight, Lease, ManualFence, Pool};
use pinpool_testkit::scripted::{Ledger, counted_pool};
use pinpool_testkit::soon::{HANG, until};
use pinpool_testkit::stamp;

const SIZE: usize = 1024;

fn frames(count: usize) -> (Pool, Ledger) {
    counted_pool(&[("frame", SIZE, count)])
}

/// Sends a stamped lease into flight.
fn flight(pool: &Pool, owner: u64) -> (InFlight, ManualFence) {
    let mut lease = pool.lease_timeout(SIZE, HANG).expect("a slot comes home in time");
    stamp::write_slot(&mut lease, owner);
    let fence = ManualFence::new();
    (lease.in_flight_until(fence.clone()), fence)
}

/// Free, leased, in flight and quarantined slots.
fn counts(pool: &Pool) -> [u32; 4] {
    let class = &pool.stats().classes[0];
    assert_eq!(class.stale_returns_total, 0);
    [class.free, class.leased, class.in_flight, class.quarantined]
}

/// Wakes a sleeping thread and counts how often.
struct Sleeper {
    thread: Thread,
    wakes: AtomicUsize,
}

impl Sleeper {
    fn new() -> Arc<Self> {
        Arc::new(Self { thread: std::thread::current(), wakes: AtomicUsize::new(0) })
    }

    fn wakes(&self) -> usize {
        self.wakes.load(Ordering::Acquire)
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::AcqRel);
        self.thread.unpark();
    }
}

/// The smallest executor: polls when woken and only then. A task that nobody wakes is a failure.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let sleeper = Sleeper::new();
    let waker = Waker::from(Arc::clone(&sleeper));
    let mut future = pin!(future);
    loop {
        let seen = sleeper.wakes();
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let start = Instant::now();
        while sleeper.wakes() == seen {
            assert!(start.elapsed() < HANG, "nobody wakes the task");
            std::thread::park_timeout(HANG);
        }
    }
}

fn poll_once(future: &mut (impl Future + Unpin), waker: &Waker) -> bool {
    Pin::new(future).poll(&mut Context::from_waker(waker)).is_ready()
}

/// A fence completed in another thread wakes the task, every time.
#[test]
fn a_task_awaits_work_that_another_thread_completes() {
    let (pool, ledger) = frames(2);
    let (send, receive) = std::sync::mpsc::channel::<ManualFence>();
    let worker = std::thread::spawn(move || {
        for (round, fence) in receive.iter().enumerate() {
            // Now and then the task is surely asleep; mostly it is just about to be.
            if round % 64 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            fence.complete();
        }
    });
    block_on(async {
        for round in 0..1_000 {
            let (flight, fence) = flight(&pool, round);
            send.send(fence).unwrap();
            let lease = flight.await.unwrap();
            stamp::verify(lease.as_slice(), round);
        }
    });
    drop(send);
    worker.join().unwrap();
    assert_eq!((counts(&pool), pool.stats().classes[0].landed_total), ([2, 0, 0, 0], 1_000));
    assert!(pool.close(HANG).is_complete());
    ledger.assert_clean();
}

/// Work that is over is had at the first poll, and nobody is woken for it.
#[test]
fn work_that_is_over_needs_no_waking() {
    let (pool, _ledger) = frames(1);
    let (flight, fence) = flight(&pool, 1);
    fence.complete();
    let sleeper = Sleeper::new();
    let waker = Waker::from(Arc::clone(&sleeper));
    let mut landing = pin!(flight.into_future());
    let Poll::Ready(lease) = landing.as_mut().poll(&mut Context::from_waker(&waker)) else {
        panic!("its work is over");
    };
    stamp::verify(lease.unwrap().as_slice(), 1);
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(sleeper.wakes(), 0);
}

/// A flag that a task's waker sets.
struct Flag {
    set: AtomicBool,
    thread: Thread,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.set.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// A task of the little executor: its future, and the flag that its waker sets.
type Task<'a> = (Pin<Box<dyn Future<Output = ()> + 'a>>, Arc<Flag>);

/// Polls each task when it was woken, until all are done. Returns how often it polled.
fn run_all(mut tasks: Vec<Task<'_>>) -> usize {
    let mut polls = 0;
    let mut progress = Instant::now();
    while !tasks.is_empty() {
        tasks.retain_mut(|(future, flag)| {
            if !flag.set.swap(false, Ordering::AcqRel) {
                return true;
            }
            polls += 1;
            progress = Instant::now();
            let waker = Waker::from(Arc::clone(flag));
            future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
        });
        assert!(progress.elapsed() < HANG, "{} tasks are never woken", tasks.len());
        std::thread::park_timeout(Duration::from_millis(100));
    }
    polls
}

/// Many tasks on one thread, each with its own waker: each is woken for its own work, and seldom
/// for nothing.
#[test]
fn many_tasks_on_one_thread() {
    const ROUNDS: u32 = 50;
    let (pool, _ledger) = frames(32);
    let (send, receive) = std::sync::mpsc::channel::<ManualFence>();
    let worker = std::thread::spawn(move || {
        let mut waiting = Vec::new();
        for (round, fence) in receive.iter().enumerate() {
            waiting.push(fence);
            // In another order than they came in, and in bursts; the last ones one by one.
            if waiting.len() == 16 || round >= 32 * (ROUNDS as usize - 1) {
                waiting.drain(..).rev().for_each(|fence| fence.complete());
            }
        }
    });
    let done = AtomicUsize::new(0);
    let task = |owner: u32| {
        let (pool, send, done) = (&pool, send.clone(), &done);
        let future: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
            for round in 0..ROUNDS {
                let owner = u64::from(owner) << 32 | u64::from(round);
                let (flight, fence) = flight(pool, owner);
                send.send(fence).unwrap();
                let lease: Lease = flight.await.unwrap();
                stamp::verify(lease.as_slice(), owner);
            }
            done.fetch_add(1, Ordering::Relaxed);
        });
        let flag = Flag { set: AtomicBool::new(true), thread: std::thread::current() };
        (future, Arc::new(flag))
    };
    let polls = run_all((0..32).map(task).collect());
    drop(send);
    worker.join().unwrap();
    assert_eq!(done.into_inner(), 32);
    assert!(polls <= 2 * 32 * (ROUNDS as usize + 1), "{polls} polls");
    assert_eq!(counts(&pool), [32, 0, 0, 0]);
}

/// A future dropped early drops its lease in flight: the slot comes home after its work, and
/// nothing is kept of the task.
#[test]
fn a_dropped_future_gives_its_slot_back_later() {
    let (pool, ledger) = frames(1);
    for polled in [false, true] {
        let (flight, fence) = flight(&pool, 2);
        let sleeper = Sleeper::new();
        let mut landing = flight.into_future();
        if polled {
            assert!(!poll_once(&mut landing, &Waker::from(Arc::clone(&sleeper))));
        }
        drop(landing);
        until("the task is forgotten", || Arc::strong_count(&sleeper) == 1);
        assert_eq!(counts(&pool), [0, 0, 1, 0], "the work goes on");
        fence.complete();
        stamp::verify(pool.lease_timeout(SIZE, HANG).unwrap().as_slice(), 2);
        assert_eq!(sleeper.wakes(), 0, "nobody awaits it any more");
    }
    assert!(pool.close(HANG).is_complete());
    ledger.assert_clean();
}

/// A task that moves to another thread is polled with another waker: that one is woken.
#[test]
fn the_last_waker_is_woken() {
    let (pool, _ledger) = frames(1);
    let (flight, fence) = flight(&pool, 3);
    let wakers = [Sleeper::new(), Sleeper::new(), Sleeper::new()];
    let mut landing = flight.into_future();
    for sleeper in &wakers {
        assert!(!poll_once(&mut landing, &Waker::from(Arc::clone(sleeper))));
    }
    until("the first two are forgotten", || {
        wakers[..2].iter().all(|sleeper| Arc::strong_count(sleeper) == 1)
    });
    fence.complete();
    until("the last one is woken", || wakers[2].wakes() == 1);
    assert_eq!((wakers[0].wakes(), wakers[1].wakes()), (0, 0));
    assert!(poll_once(&mut landing, &Waker::from(Arc::clone(&wakers[2]))));
    drop(landing);
    assert_eq!(counts(&pool), [1, 0, 0, 0]);
}

/// Fails as soon as it is asked to wake.
struct Panics(AtomicUsize);

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::AcqRel);
        // Unwinds without the hook that prints.
        std::panic::resume_unwind(Box::new("planted"));
    }
}

/// A waker that panics costs nothing else: other tasks are woken, slots come home, the pool closes.
#[test]
fn a_waker_that_panics_costs_nothing_else() {
    let (pool, ledger) = frames(4);
    for _ in 0..20 {
        let (first, first_fence) = flight(&pool, 4);
        let (second, second_fence) = flight(&pool, 5);
        let panics = Arc::new(Panics(AtomicUsize::new(0)));
        let mut landing = first.into_future();
        assert!(!poll_once(&mut landing, &Waker::from(Arc::clone(&panics))));
        let other = std::thread::spawn(move || {
            let lease = block_on(second.into_future()).unwrap();
            stamp::verify(lease.as_slice(), 5);
        });
        first_fence.complete();
        until("it was woken", || panics.0.load(Ordering::Acquire) == 1);
        second_fence.complete();
        other.join().unwrap();
        let (third, third_fence) = flight(&pool, 6);
        drop(third);
        third_fence.complete();
        let lease = block_on(landing).unwrap();
        stamp::verify(lease.as_slice(), 4);
        drop(lease);
        until("all came home", || counts(&pool) == [4, 0, 0, 0]);
    }
    assert!(pool.close(HANG).is_complete());
    ledger.assert_clean();
}

/// A waker may use the pool: it runs without any lock of the pool's.
#[test]
fn a_waker_may_lease() {
    struct Leases(Pool, AtomicUsize);
    impl Wake for Leases {
        fn wake(self: Arc<Self>) {
            drop(self.0.try_lease(SIZE));
            let _ = self.0.stats();
            self.1.fetch_add(1, Ordering::AcqRel);
        }
    }
    let (pool, _ledger) = frames(1);
    let (flight, fence) = flight(&pool, 7);
    let leases = Arc::new(Leases(pool.clone(), AtomicUsize::new(0)));
    let mut landing = flight.into_future();
    let waker = Waker::from(Arc::clone(&leases));
    assert!(!poll_once(&mut landing, &waker));
    fence.complete();
    until("it was woken", || leases.1.load(Ordering::Acquire) == 1);
    assert!(poll_once(&mut landing, &waker));
}

/// A fence that fails wakes its task with the error, and its slot is quarantined.
#[test]
fn a_failed_fence_wakes_its_task() {
    let (pool, _ledger) = frames(2);
    let (flight, fence) = flight(&pool, 8);
    let worker = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(5));
        fence.fail("cable pulled");
    });
    let error = block_on(flight.into_future()).unwrap_err();
    assert!(matches!(error, Error::Fence(_)) && error.to_string().contains("cable pulled"));
    assert_eq!(counts(&pool), [1, 0, 0, 1]);
    worker.join().unwrap();
}

/// A task that awaits its lease beyond the pool's end is woken all the same.
#[test]
fn a_task_outlives_its_pool() {
    let (pool, ledger) = frames(1);
    let (flight, fence) = flight(&pool, 9);
    let landing = std::thread::spawn(move || {
        let lease = block_on(flight.into_future()).unwrap();
        stamp::verify(lease.as_slice(), 9);
    });
    drop(pool);
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(ledger.regions(), 1);
    fence.complete();
    landing.join().unwrap();
    until("the memory is given back", || ledger.regions() == 0);
    ledger.assert_clean();
}
