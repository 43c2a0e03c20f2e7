//! Pools that open beside their caller: class by class, told how far they are, stopped at any step, with a
//! deadline, and smaller than configured.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed unwrap is a failed test"
)]

#[path = "opening/gate.rs"]
mod gate;
#[path = "opening/partial.rs"]
mod partial;

use std::future::{Future, IntoFuture};
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use pinpool::{
    Error, Heap, LeaseError, LockMode, MemoryStep, OpenProgress, Opening, Pool, PoolBuilder,
};
use pinpool_testkit::fork::{Ended, fork_to};
use pinpool_testkit::scripted::{Counted, Delayed, Ledger};
use pinpool_testkit::soon::{HANG, until};

use gate::{Gate, Gated};

const PAGE: usize = 4096;

/// Two classes, the larger one first; each is pinned by one call.
fn large_then_small() -> PoolBuilder {
    Pool::builder().env(false).class("large", 16 * PAGE, 2).class("small", PAGE, 4)
}

/// Memory whose pinning waits for the test.
fn gated() -> (Gated<Counted<Heap>>, Gate, Ledger) {
    let (counted, ledger) = Counted::new(Heap::claiming_locked());
    let gate = Gate::default();
    (Gated::new(counted, gate.clone()), gate, ledger)
}

fn begin() -> (Opening, Gate, Ledger) {
    let (memory, gate, ledger) = gated();
    (large_then_small().memory(memory).open_async().unwrap(), gate, ledger)
}

/// The pool of an opening that has chosen its memory.
fn pool_of(opening: &Opening) -> Pool {
    until("the pool is there", || opening.pool().is_some());
    opening.pool().unwrap()
}

struct Idle;

impl Wake for Idle {
    fn wake(self: Arc<Self>) {}
}

/// The order is that of the configuration, not that of sizes. Whoever does not wait is told; threads and
/// tasks wait for the class as they wait for a slot.
#[test]
fn classes_can_be_leased_from_in_the_order_of_the_configuration() {
    let (opening, gate, ledger) = begin();
    let pool = pool_of(&opening);
    assert_eq!(pool.try_lease(PAGE).unwrap_err(), LeaseError::NotReady);
    assert_eq!(pool.try_lease(2 * PAGE).unwrap_err(), LeaseError::NotReady);
    let soon = Duration::from_millis(10);
    assert_eq!(pool.lease_timeout(PAGE, soon).unwrap_err(), LeaseError::NotReady);
    assert!(pool.stats().classes.is_empty() && !pool.is_pinned());
    assert_eq!(pool.startup().total, Duration::ZERO);

    gate.let_pass(1);
    let large = pool.lease_timeout(16 * PAGE, HANG).expect("the first class is there");
    assert_eq!(large.class_name().to_string(), "large");
    assert_eq!(pool.try_lease(PAGE).unwrap_err(), LeaseError::NotReady);
    assert_eq!(opening.progress().classes_ready, 1);
    assert!(!opening.is_over());

    let waits = {
        let pool = pool.clone();
        thread::spawn(move || pool.lease(PAGE).map(|lease| lease.class_name().to_string()))
    };
    let many = {
        let pool = pool.clone();
        thread::spawn(move || pool.lease_many(&[PAGE, 2 * PAGE]).map(|leases| leases.len()))
    };
    let waker = Waker::from(Arc::new(Idle));
    let mut context = Context::from_waker(&waker);
    let mut task = pin!(pool.lease_async(PAGE));
    assert!(task.as_mut().poll(&mut context).is_pending());

    gate.let_pass(1);
    assert_eq!(waits.join().unwrap().as_deref(), Ok("small"));
    assert_eq!(many.join().unwrap(), Ok(2));
    assert!(matches!(task.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
    drop(large);
    let whole = opening.wait().unwrap();
    assert!(whole.is_pinned() && pool.is_pinned());
    assert!(pool.startup().total > Duration::ZERO);
    drop((whole, pool));
    assert!(ledger.pinned_bytes() > 0, "the task's lease is out");
}

/// A task that waits for a class is woken once it is there, and once it never comes.
#[test]
fn a_task_is_woken_when_its_class_comes() {
    struct Told(thread::Thread);
    impl Wake for Told {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    for comes in [true, false] {
        let (opening, gate, ledger) = begin();
        let pool = pool_of(&opening);
        let waker = Waker::from(Arc::new(Told(thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut task = Box::pin(pool.lease_async(PAGE));
        assert!(task.as_mut().poll(&mut context).is_pending());
        if !comes {
            opening.cancel();
        }
        gate.let_pass(2);
        let began = Instant::now();
        let got = loop {
            if let Poll::Ready(got) = task.as_mut().poll(&mut context) {
                break got;
            }
            assert!(began.elapsed() < HANG, "nobody woke the task");
            thread::park_timeout(HANG);
        };
        match got {
            Ok(lease) => assert!(comes && lease.len() == PAGE),
            Err(error) => assert!(!comes && error == LeaseError::Closed, "{error}"),
        }
        drop((task, pool));
        assert_eq!(opening.wait().is_ok(), comes);
        ledger.assert_clean();
    }
}

#[test]
fn progress_never_falls_and_ends_at_all() {
    let (counted, ledger) = Counted::new(Heap::claiming_locked());
    let memory = Delayed::new(counted).on(MemoryStep::Pin, Duration::from_millis(3));
    let mut seen: Vec<OpenProgress> = Vec::new();
    let builder = large_then_small().class("many", 4 * PAGE, 64).pin_chunk(32 * PAGE as u64);
    let pool = builder
        .memory(memory)
        .open_with(|progress| {
            seen.push(progress);
            ControlFlow::Continue(())
        })
        .unwrap();
    let total = (32 + 4 + 256) * PAGE as u64;
    for pair in seen.windows(2) {
        assert!(pair[0].populated_bytes <= pair[1].populated_bytes, "{pair:?}");
        assert!(pair[0].pinned_bytes <= pair[1].pinned_bytes, "{pair:?}");
        assert!(pair[0].classes_ready <= pair[1].classes_ready, "{pair:?}");
    }
    for progress in &seen {
        assert!((0.0..=1.0).contains(&progress.fraction()), "{progress:?}");
        assert_eq!((progress.total_bytes, progress.to_pin_bytes), (total, total));
        assert_eq!(progress.classes, 3);
    }
    let last = seen.last().unwrap();
    assert_eq!((last.populated_bytes, last.pinned_bytes), (total, total));
    assert_eq!(last.classes_ready, 3);
    assert!((last.fraction() - 1.0).abs() < f64::EPSILON);
    assert!(seen.len() >= 2, "10 calls of 3 ms: {seen:?}");
    drop(pool);
    ledger.assert_clean();
}

#[test]
fn nobody_wakes_a_task_whose_future_is_gone() {
    let (opening, gate, ledger) = begin();
    let pool = pool_of(&opening);
    let tasks = [Arc::new(Idle), Arc::new(Idle)];
    for _ in 0..100 {
        let mut future = Box::pin(pool.lease_async(PAGE));
        for task in &tasks {
            let waker = Waker::from(Arc::clone(task));
            assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        assert_eq!(tasks.each_ref().map(Arc::strong_count), [1, 2], "the last waker is kept");
    }
    assert_eq!(tasks.each_ref().map(Arc::strong_count), [1, 1]);
    gate.let_pass(usize::MAX / 2);
    drop((opening.wait().unwrap(), pool));
    ledger.assert_clean();
}

/// A child has no thread that opens: nothing in it waits for one (I12).
#[test]
fn an_opening_is_over_in_a_forked_child() {
    let (opening, gate, ledger) = begin();
    let pool = pool_of(&opening);
    let mut opening = Some(opening);
    for awaits in [false, true] {
        let ended = fork_to(|| {
            let inherited = opening.take().unwrap();
            let answers = inherited.is_over() && inherited.pool().is_none();
            let _ = (inherited.progress(), inherited.cancel());
            let forked = |result: Result<Pool, Error>| {
                matches!(result, Err(Error::Lease(LeaseError::Forked)))
            };
            let told = if awaits {
                let mut context = Context::from_waker(Waker::noop());
                let polled = pin!(inherited.into_future()).poll(&mut context);
                polled.map(forked) == Poll::Ready(true)
            } else {
                forked(inherited.wait())
            };
            let lease = pool.lease(PAGE).is_err_and(|error| error == LeaseError::Forked);
            i32::from(!(answers && told && lease))
        });
        assert_eq!(ended, Ended::Code(0));
    }
    gate.let_pass(usize::MAX / 2);
    let opened = opening.take().unwrap().wait().unwrap();
    drop((opened, pool));
    ledger.assert_clean();
}

#[test]
fn a_cancelled_opening_gives_everything_back() {
    // Before its first chunk, and after it.
    for passed in [0, 1] {
        let (opening, gate, ledger) = begin();
        let pool = pool_of(&opening);
        gate.let_pass(passed);
        until("it stands at the next chunk", || gate.arrived() > passed);
        opening.cancel();
        gate.let_pass(1);
        let error = opening.wait().unwrap_err();
        let Error::OpenCancelled { pinned, total, .. } = &error else { panic!("{error}") };
        assert_eq!(*total, 36 * PAGE as u64);
        assert!(*pinned <= *total);
        assert_eq!(pool.try_lease(PAGE).unwrap_err(), LeaseError::Closed);
        assert_eq!(pool.lease(16 * PAGE).unwrap_err(), LeaseError::Closed);
        assert_eq!(ledger.pinned_bytes() + ledger.reserved_bytes(), 0, "{error}");
        drop(pool);
        ledger.assert_clean();
    }
}

#[test]
fn a_progress_function_may_break_it_off() {
    let (counted, ledger) = Counted::new(Heap::claiming_locked());
    let memory = Delayed::new(counted).on(MemoryStep::Pin, Duration::from_millis(20));
    let builder = Pool::builder().env(false).class("frame", PAGE, 64).pin_chunk(1);
    let error = builder.memory(memory).open_with(|_| ControlFlow::Break(())).unwrap_err();
    assert!(matches!(error, Error::OpenCancelled { .. }), "{error}");
    assert!(ledger.calls(MemoryStep::Pin) < 64);
    ledger.assert_clean();
}

/// Leases of classes that were there stay valid, and the last one of a class gives its memory back.
#[test]
fn leases_outlive_an_opening_that_fails() {
    let (opening, gate, ledger) = begin();
    let pool = pool_of(&opening);
    gate.let_pass(1);
    let mut lease = pool.lease_timeout(16 * PAGE, HANG).unwrap();
    opening.cancel();
    gate.let_pass(1);
    assert!(opening.wait().is_err());
    assert_eq!(pool.try_lease(16 * PAGE).unwrap_err(), LeaseError::Closed);
    lease.as_mut_slice().fill(7);
    assert!(lease.as_slice().iter().all(|byte| *byte == 7));
    drop(pool);
    assert_eq!(ledger.regions(), 1);
    drop(lease);
    ledger.assert_clean();
}

#[test]
fn who_drops_an_opening_cancels_it_unless_somebody_has_the_pool() {
    let (opening, gate, ledger) = begin();
    until("it stands at the first chunk", || gate.arrived() > 0);
    drop(opening);
    gate.let_pass(2);
    until("it gave everything back", || ledger.regions() == 0);

    let (opening, gate, ledger) = begin();
    let pool = pool_of(&opening);
    drop(opening);
    gate.let_pass(2);
    assert!(pool.lease_timeout(PAGE, HANG).is_ok());
    drop(pool);
    until("it gave everything back", || ledger.regions() == 0);
    ledger.assert_clean();
}

/// A close waits for the opening to give back what it has, within its time.
#[test]
fn a_pool_that_opens_can_be_closed() {
    let (opening, gate, ledger) = begin();
    let pool = pool_of(&opening);
    gate.let_pass(1);
    drop(pool.lease_timeout(16 * PAGE, HANG).unwrap());
    until("it stands at the second chunk", || gate.arrived() > 1);
    let report = pool.close(Duration::from_millis(20));
    assert!(report.slabs_left > 0, "{report:?}");
    gate.let_pass(1);
    let report = pool.close(HANG);
    assert!(report.is_complete(), "{report:?}");
    assert!(matches!(opening.wait(), Err(Error::OpenCancelled { .. })));
    ledger.assert_clean();
}

/// And cancelled by whoever has the means, while somebody awaits it.
#[test]
fn an_opening_can_be_awaited() {
    let waker = Waker::from(Arc::new(Idle));
    let mut context = Context::from_waker(&waker);
    for cancels in [false, true] {
        let (opening, gate, ledger) = begin();
        let canceller = opening.canceller();
        let mut task = pin!(opening.into_future());
        assert!(task.as_mut().poll(&mut context).is_pending());
        if cancels {
            until("it stands at the first chunk", || gate.arrived() > 0);
            canceller.clone().cancel();
        }
        gate.let_pass(2);
        let began = Instant::now();
        let opened = loop {
            if let Poll::Ready(opened) = task.as_mut().poll(&mut context) {
                break opened;
            }
            assert!(began.elapsed() < HANG, "it does not end");
            thread::yield_now();
        };
        match opened {
            Ok(pool) => assert!(!cancels && pool.try_lease(PAGE).is_ok()),
            Err(error) => assert!(cancels && matches!(error, Error::OpenCancelled { .. })),
        }
        // Without effect now.
        canceller.cancel();
        ledger.assert_clean();
    }
}

/// Every failing pin takes its time, and all after the first fail: one try, within the deadline, and the first
/// reason is told.
///
/// Case limits-4.
#[test]
fn an_opening_ends_by_its_deadline() {
    let (counted, ledger) = Counted::new(Heap::claiming_locked());
    let memory = Delayed::new(counted).on(MemoryStep::Pin, Duration::from_millis(30));
    let timeout = Duration::from_millis(100);
    let builder = Pool::builder().env(false).class("frame", PAGE, 1000).pin_chunk(1);
    let began = Instant::now();
    let error = builder.memory(memory).open_timeout(timeout).open().unwrap_err();
    let Error::OpenTimeout { class, timeout: told, pinned, total } = &error else {
        panic!("{error}");
    };
    assert_eq!((class.as_str(), *told, *total), ("frame", timeout, 1000 * PAGE as u64));
    assert!(*pinned > 0 && *pinned < *total);
    assert!(error.to_string().contains("open_timeout"), "{error}");
    // It would have taken 30 seconds.
    assert!(began.elapsed() < HANG.min(Duration::from_secs(20)));
    ledger.assert_clean();
}

/// A lenient pool that opens in the background says what it became.
#[test]
fn an_unlocked_pool_opens_without_pinning() {
    let mut last = OpenProgress::default();
    let pool = large_then_small()
        .lock(LockMode::Off)
        .open_with(|progress| {
            last = progress;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((last.to_pin_bytes, last.pinned_bytes), (0, 0));
    assert_eq!(last.populated_bytes, last.total_bytes);
    assert!(!pool.is_pinned());
}
