//! Ends that go wrong: slots that are lost, foreign code that blocks, a process that forks.

use std::future::{Future, IntoFuture};
use std::time::{Duration, Instant};

use pinpool::{LeaseError, ManualFence};
use pinpool_testkit::scripted::counted_pool;

use super::{HANG, SIZE, frames, until};

/// Where every slot is lost, whoever waits is told instead of waiting for ever.
#[test]
fn nobody_waits_for_slots_that_are_all_lost() {
    let (pool, _ledger) = frames(1);
    let lost = ManualFence::new();
    pool.lease(SIZE).unwrap().retire_after(lost.clone());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| pool.lease(SIZE));
        std::thread::sleep(Duration::from_millis(20));
        lost.fail("the cable was pulled");
        let error = waiter.join().unwrap().expect_err("its only slot is lost");
        let LeaseError::Exhausted(exhausted) = error else { panic!("{error}") };
        assert_eq!(exhausted.quarantined, 1);
        assert!(error.to_string().contains("open a new pool"), "{error}");
    });
    assert!(matches!(pool.lease(SIZE), Err(LeaseError::Exhausted(_))), "no wait at all");
    let report = pool.close(Duration::from_millis(10));
    assert_eq!(report.quarantined, 1);
    assert!(report.to_string().contains("quarantined"), "{report}");
}

/// The last slot that is out is lost while somebody closes, or after the pool is gone: the close ends
/// in its time, and so does the keeper.
#[test]
fn a_slot_lost_during_close_keeps_nobody() {
    let (pool, _ledger) = frames(1);
    let fence = ManualFence::new();
    let flight = pool.lease(SIZE).unwrap().in_flight_until(fence.clone());
    std::thread::scope(|scope| {
        let closer = scope.spawn(|| {
            let start = Instant::now();
            (pool.close(Duration::from_millis(600)), start.elapsed())
        });
        // The keeper has gone to sleep by then.
        std::thread::sleep(Duration::from_millis(300));
        fence.fail("the cable was pulled");
        assert!(flight.wait().is_err());
        let (report, took) = closer.join().unwrap();
        assert_eq!(report.quarantined, 1);
        assert!(took < HANG, "{took:?}");
    });
}

/// Foreign code that blocks the keeper, here a waker, does not hold up a close beyond its time.
#[test]
fn a_waker_that_blocks_holds_up_no_close() {
    struct Blocks(std::sync::Mutex<()>);
    impl std::task::Wake for Blocks {
        fn wake(self: std::sync::Arc<Self>) {
            drop(self.0.lock());
        }
    }
    let (pool, _ledger) = frames(1);
    let blocks = std::sync::Arc::new(Blocks(std::sync::Mutex::new(())));
    let held = blocks.0.lock().unwrap();
    let waker = std::task::Waker::from(std::sync::Arc::clone(&blocks));
    let fence = ManualFence::new();
    let flight = pool.lease(SIZE).unwrap().in_flight_until(fence.clone());
    let mut landing = std::pin::pin!(flight.into_future());
    let mut context = std::task::Context::from_waker(&waker);
    assert!(landing.as_mut().poll(&mut context).is_pending());
    fence.complete();
    std::thread::sleep(Duration::from_millis(100));
    let std::task::Poll::Ready(lease) = landing.as_mut().poll(&mut context) else {
        panic!("the fence is complete")
    };
    drop(lease.unwrap());
    // This thread holds the lock that the waker waits for on the keeper: it must get here.
    assert!(pool.close(Duration::ZERO).is_complete());
    drop(pool);
    drop(held);
}

/// A forked child that drops the pool, closes it or reads its statistics, while the parent's keeper
/// is busy with many retired slots: it does not hang, and the parent is unharmed.
#[test]
fn a_forked_child_waits_for_nothing_of_the_parent() {
    let (pool, _ledger) = counted_pool(&[("frame", SIZE, 500)]);
    let fence = ManualFence::new();
    for _ in 0..499 {
        pool.lease(SIZE).unwrap().retire_after(fence.clone());
    }
    for round in 0..150 {
        // SAFETY: the child calls this crate and `_exit`, and returns to nothing of the harness.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{}", std::io::Error::last_os_error());
        if child == 0 {
            match round % 3 {
                0 => drop(pool),
                1 => drop(pool.close(Duration::ZERO)),
                _ => drop(pool.stats()),
            }
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(0) };
        }
        assert_eq!(wait_for(child), Some(0), "round {round}: the child hangs");
    }
    fence.complete();
    until("the parent's slots are home", || pool.stats().classes[0].free == 500);
}

/// The child's status, or `None` after it was killed because it did not end.
fn wait_for(child: libc::pid_t) -> Option<i32> {
    let limit = Instant::now() + HANG;
    let mut status = 0;
    loop {
        // SAFETY: `child` is ours, and the status is written to.
        if unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == child {
            return Some(status);
        }
        if Instant::now() > limit {
            // SAFETY: `child` is ours.
            unsafe { libc::kill(child, libc::SIGKILL) };
            // SAFETY: as above.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
