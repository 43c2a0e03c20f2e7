//! A thread that is stopped anywhere while it leases and returns, also in the middle of it: others wait no
//! longer than they said.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test reports by panicking, and its figures by printing"
)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use pinpool::{LeaseError, Pool};
use pinpool_testkit::scripted::{assert_all_home, counted_pool};

const SIZE: usize = 256;
/// Leases after which a thread has a desk.
const OFTEN: usize = 2_000;
/// For how long a thread is stopped: less than a second.
const STOPPED: Duration = Duration::from_millis(900);
const ROUNDS: usize = 4;

/// True while the handler runs.
static HERE: AtomicBool = AtomicBool::new(false);

/// Stops the thread that it runs on, as a scheduler would.
extern "C" fn stop(_: libc::c_int) {
    HERE.store(true, Ordering::SeqCst);
    let nanos = libc::c_long::from(i32::try_from(STOPPED.as_nanos()).unwrap_or(i32::MAX));
    let pause = libc::timespec { tv_sec: 0, tv_nsec: nanos };
    // SAFETY: may be called in a signal handler; it is given one readable value and no place for the rest.
    unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
    HERE.store(false, Ordering::SeqCst);
}

/// Runs `work` beside a thread that leases and returns one slot of three, keeps another, and is stopped; the
/// third is at the desk of a thread that has ended.
fn beside_a_stopped_thread(work: impl Fn(&Pool)) {
    let handler: extern "C" fn(libc::c_int) = stop;
    // SAFETY: the handler makes only calls that are allowed there.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    for _ in 0..ROUNDS {
        let (pool, ledger) = counted_pool(&[("frame", SIZE, 3)]);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (pool, done) = (&pool, &done);
            let (tell, told) = mpsc::channel();
            scope.spawn(move || {
                let _kept = pool.try_lease(SIZE).unwrap();
                (0..OFTEN).for_each(|_| drop(pool.try_lease(SIZE)));
                // SAFETY: takes nothing.
                tell.send(unsafe { libc::pthread_self() }).unwrap();
                while !done.load(Ordering::Relaxed) {
                    drop(pool.try_lease(SIZE));
                }
            });
            let busy = told.recv().unwrap();
            let idle = || (0..OFTEN).for_each(|_| drop(pool.try_lease(SIZE)));
            scope.spawn(idle).join().unwrap();
            // SAFETY: the thread lives until `done`.
            assert_eq!(unsafe { libc::pthread_kill(busy, libc::SIGUSR1) }, 0);
            while !HERE.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
            // A failure must not leave it running.
            let outcome = catch_unwind(AssertUnwindSafe(|| work(pool)));
            done.store(true, Ordering::Relaxed);
            outcome.unwrap_or_else(|panic| resume_unwind(panic));
        });
        assert_all_home(pool, &ledger);
    }
}

/// All that others can find is out: a wait is as long as was asked for, whether or not the slot at the stopped
/// thread's desk can be had.
#[test]
fn a_wait_beside_a_stopped_thread_ends_in_time() {
    beside_a_stopped_thread(|pool| {
        let _rest: Vec<_> = std::iter::from_fn(|| pool.try_lease(SIZE).ok()).collect();
        let start = Instant::now();
        let found = pool.lease_timeout(SIZE, Duration::from_millis(10));
        assert!(start.elapsed() < STOPPED / 2, "a wait of 10 ms took {:?}", start.elapsed());
        assert!(matches!(found, Ok(_) | Err(LeaseError::Timeout { .. })), "{found:?}");
    });
}
