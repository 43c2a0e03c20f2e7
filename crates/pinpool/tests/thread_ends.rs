//! Threads that end with slots in their hands: every slot comes home, and nothing is kept of a thread.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test reports by panicking, and its figures by printing"
)]

mod support;

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::task::{Context, Waker};

use pinpool::{Lease, LeaseError, LeaseFuture, ManualFence, Pool, SharedLease};
use pinpool_testkit::proc;
use pinpool_testkit::sampler::Sampler;
use pinpool_testkit::scripted::{assert_all_home, counted_pool as pool};
use pinpool_testkit::soon::until;
use pinpool_testkit::stamp;

const SIZE: usize = 512;
/// Threads that live at the same time.
const ALIVE: usize = 64;
/// Slots that one of them may have at once.
const EACH: usize = 2;
/// Threads that come and go.
const LIVES: usize = 50_000;
/// Lives after which all is as it stays.
const WARM: usize = 5_000;
/// Leases after which a thread has whatever is given to those that lease often.
const OFTEN: usize = 2_000;

/// What a thread keeps until after its end. Its destructor leases once more.
#[derive(Default)]
struct Kept {
    leases: Vec<Lease>,
    shared: Option<SharedLease>,
    pool: Option<Pool>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(pool) = self.pool.take() else { return };
        self.leases.clear();
        self.shared = None;
        // A panic in the destructor of a thread-local aborts the whole test program.
        let mut lease = pool.try_lease(SIZE).expect("this thread has returned its slots");
        stamp::write_slot(&mut lease, 1);
        stamp::verify(lease.as_slice(), 1);
    }
}

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

/// One of the ways in which a thread may end. It has at most [`EACH`] slots at a time.
fn live(pool: &Pool, life: usize, fence: &ManualFence) {
    let lease = || {
        let mut lease = pool.try_lease(SIZE).expect("two slots for each thread");
        stamp::write_slot(&mut lease, life as u64);
        lease
    };
    // Destructors run in the reverse order of first use: what the pool keeps per thread, if anything,
    // is gone before the kept leases in even lives, and there in odd ones.
    if life.is_multiple_of(2) {
        KEPT.with_borrow_mut(|kept| kept.pool = None);
    }
    if life.is_multiple_of(7) {
        lease_often(pool);
    }
    let held = (lease(), lease());
    match life / 2 % 5 {
        0 => KEPT.with_borrow_mut(|kept| {
            kept.leases.extend([held.0, held.1]);
            kept.pool = Some(pool.clone());
        }),
        1 => KEPT.with_borrow_mut(|kept| {
            kept.shared = Some(held.0.share());
            kept.leases.push(held.1);
        }),
        // Left in flight: they come home without the thread.
        2 => held.0.retire_after(fence.clone()),
        3 => {
            drop(held.0.in_flight_until(fence.clone()));
            KEPT.with_borrow_mut(|kept| kept.leases.push(held.1));
        }
        _ => {
            stamp::verify(held.0.as_slice(), life as u64);
            if [9, 108].contains(&(life % 200)) {
                // Unwinds without the hook that prints.
                std::panic::resume_unwind(Box::new(held));
            }
        }
    }
}

/// So many lives, [`ALIVE`] at a time; returns how many ended by a panic.
fn lives(pool: &Pool, count: usize) -> usize {
    let mut panics = 0;
    for wave in 0..count / ALIVE {
        let all_alive = Arc::new(Barrier::new(ALIVE));
        let fence = ManualFence::new();
        let threads: Vec<_> = (0..ALIVE)
            .map(|thread| {
                let (pool, all_alive, fence) =
                    (pool.clone(), Arc::clone(&all_alive), fence.clone());
                std::thread::spawn(move || {
                    all_alive.wait();
                    live(&pool, wave * ALIVE + thread, &fence);
                })
            })
            .collect();
        panics += threads.into_iter().filter_map(|thread| thread.join().err()).count();
        fence.complete();
        // Each slot can be had, those that the threads left in flight too.
        drop((0..ALIVE * EACH).map(|_| pool.try_lease(SIZE).unwrap()).collect::<Vec<_>>());
    }
    panics
}

/// Bytes in use of the C library's allocator.
fn heap_bytes() -> usize {
    // SAFETY: reads the allocator's counts.
    unsafe { libc::mallinfo2() }.uordblks
}

/// 50,000 threads end in every way: with leases in local variables, in thread-locals of either order,
/// in flight, by a panic. Alone in a process, whose memory is counted: not a byte a thread is kept.
#[test]
fn a_storm_of_threads_leaves_nothing() {
    const STEADY: [(&str, &str); 2] =
        [("MALLOC_ARENA_MAX", "1"), ("GLIBC_TUNABLES", "glibc.pthread.stack_cache_size=0")];
    support::alone("a_storm_of_threads_leaves_nothing", &STEADY, || {
        let (pool, ledger) = pool(&[("frame", SIZE, ALIVE * EACH)]);
        let sampler = Sampler::start(&pool);
        lives(&pool, WARM);
        let readings = || (proc::threads(), proc::maps(), proc::open_files());
        let (before, heap) = (readings(), heap_bytes());
        let panics = lives(&pool, LIVES);
        assert_eq!(readings(), before, "threads, maps, files");
        let grown = heap_bytes().saturating_sub(heap);
        println!("{LIVES} lives, {panics} ended by a panic, {grown} bytes more in use");
        // The smallest block has 32 bytes: of 40,000 threads it would be a million.
        assert!(grown < LIVES, "{grown} bytes are left of {LIVES} threads");
        assert!(panics >= LIVES / 100, "{panics} panics");
        assert!(sampler.stop() > 100);
        assert_all_home(pool, &ledger);
    });
}

/// Hundreds of threads that live at the same time, more than a pool could keep anything for, all lease often and
/// hold their slots at the end together; then the one thread that is left finds all slots.
#[test]
fn hundreds_of_threads_lease_often() {
    const CROWD: usize = 400;
    let (pool, ledger) = pool(&[("frame", SIZE, CROWD * EACH)]);
    let together = Arc::new(Barrier::new(CROWD));
    let threads: Vec<_> = (0..CROWD)
        .map(|thread| {
            let (pool, together) = (pool.clone(), Arc::clone(&together));
            std::thread::spawn(move || {
                together.wait();
                // Whoever panics must not keep the others waiting.
                let held = catch_unwind(AssertUnwindSafe(|| {
                    lease_often(&pool);
                    let mut held = [pool.try_lease(SIZE).unwrap(), pool.try_lease(SIZE).unwrap()];
                    for lease in &mut held {
                        stamp::write_slot(lease, thread as u64);
                    }
                    held
                }));
                together.wait();
                for lease in held.unwrap() {
                    stamp::verify(lease.as_slice(), thread as u64);
                }
            })
        })
        .collect();
    let panics = threads.into_iter().filter_map(|thread| thread.join().err()).count();
    assert_eq!(panics, 0);
    assert_all_home(pool, &ledger);
}

/// A thread that ends while its tasks are in line, or have a slot that they do not know of yet, leaves the
/// line: others get the slots.
#[test]
fn tasks_of_a_thread_that_ends_leave_the_line() {
    thread_local! {
        static TASKS: RefCell<Vec<LeaseFuture>> = const { RefCell::new(Vec::new()) };
    }
    let (pool, ledger) = pool(&[("frame", SIZE, 2)]);
    let ask = |task: &mut LeaseFuture| {
        Pin::new(task).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    };
    for round in 0..1000 {
        let mut held = vec![pool.try_lease(SIZE).unwrap(), pool.try_lease(SIZE).unwrap()];
        let returned = if round % 2 == 0 { held.pop() } else { None };
        let user = pool.clone();
        let ended = std::thread::spawn(move || {
            let mut returned = returned;
            let mut tasks: Vec<_> = (0..3).map(|_| user.lease_async(SIZE)).collect();
            assert!(!tasks.iter_mut().any(ask));
            // One of them is served, and is never polled again.
            returned.take();
            TASKS.set(tasks);
        });
        ended.join().unwrap();
        drop(held);
        let numbers = &pool.stats().classes[0];
        assert_eq!((numbers.waiting, numbers.free), (0, 2), "round {round}");
    }
    assert_eq!(pool.stats().classes[0].cancelled_total, 3000);
    assert_all_home(pool, &ledger);
}

/// Leases often, [`EACH`] at a time.
fn lease_often(pool: &Pool) {
    for _ in 0..OFTEN / EACH {
        let held = (pool.try_lease(SIZE).unwrap(), pool.try_lease(SIZE).unwrap());
        assert_ne!(held.0.slot(), held.1.slot());
    }
}

/// Kind of fault: a buffer that is dropped while thread-locals are destroyed meets a cache that is gone.
///
/// What keeps the lease is registered before the thread first leases and so destroyed last, after anything that
/// the pool may keep for a thread; in every other life the other way round.
///
/// Case thread-1.
#[test]
fn a_lease_outlives_what_the_pool_keeps_for_its_thread() {
    let (pool, ledger) = pool(&[("frame", SIZE, 4)]);
    for life in 0..1000 {
        let user = pool.clone();
        let ended = std::thread::spawn(move || {
            if life % 2 == 0 {
                KEPT.with_borrow_mut(|kept| kept.pool = None);
            }
            lease_often(&user);
            let leases = [user.try_lease(SIZE).unwrap(), user.try_lease(SIZE).unwrap()];
            KEPT.with_borrow_mut(|kept| {
                kept.leases.extend(leases);
                kept.pool = Some(user);
            });
        });
        ended.join().expect("the thread ends well");
        // All are anybody's at once, those that the thread had free as well.
        let held: Vec<_> = (0..4).map(|_| pool.try_lease(SIZE).unwrap()).collect();
        assert!(matches!(pool.try_lease(SIZE), Err(LeaseError::Exhausted(_))));
        drop(held);
    }
    assert_all_home(pool, &ledger);
}

/// A lease belongs to no thread: another one writes to it long after its maker has ended.
///
/// Case thread-3.
#[test]
fn a_lease_outlives_the_thread_that_made_it() {
    let (pool, ledger) = pool(&[("frame", SIZE, 4)]);
    let (send, receive) = mpsc::channel();
    for round in 0..1000u64 {
        let maker = {
            let (pool, send) = (pool.clone(), send.clone());
            std::thread::spawn(move || {
                if round % 2 == 0 {
                    lease_often(&pool);
                }
                let mut lease = pool.try_lease(SIZE).unwrap();
                stamp::write_slot(&mut lease, round);
                send.send(lease).unwrap();
            })
        };
        let mut lease = receive.recv().unwrap();
        maker.join().unwrap();
        stamp::verify(lease.as_slice(), round);
        // Others take the slots around it meanwhile, in threads of their own.
        let others = {
            let pool = pool.clone();
            std::thread::spawn(move || {
                let mut held: Vec<_> = (0..3).map(|_| pool.try_lease(SIZE).unwrap()).collect();
                for lease in &mut held {
                    stamp::write_slot(lease, 77);
                }
                for lease in &held {
                    stamp::verify(lease.as_slice(), 77);
                }
            })
        };
        for owner in round..round + 50 {
            stamp::write_slot(&mut lease, owner);
            std::hint::spin_loop();
            stamp::verify(lease.as_slice(), owner);
        }
        others.join().unwrap();
        stamp::verify(lease.as_slice(), round + 49);
    }
    assert_all_home(pool, &ledger);
}

/// Slots that went home to threads which ended are found by the one thread that is left (I13): threads that
/// leased once, and threads that leased often.
///
/// Case thread-2.
#[test]
fn slots_of_dead_threads_are_found() {
    let (pool, ledger) = pool(&[("frame", SIZE, ALIVE)]);
    for round in 0..200 {
        let all_hold = Arc::new(Barrier::new(ALIVE / EACH));
        let threads: Vec<_> = (0..ALIVE / EACH)
            .map(|_| {
                let (pool, all_hold) = (pool.clone(), Arc::clone(&all_hold));
                std::thread::spawn(move || {
                    if round % 2 == 0 {
                        lease_often(&pool);
                    }
                    let held = (pool.try_lease(SIZE).unwrap(), pool.try_lease(SIZE).unwrap());
                    all_hold.wait();
                    drop(held);
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let held: Vec<_> = (0..ALIVE).map(|_| pool.try_lease(SIZE).unwrap()).collect();
        assert!(matches!(pool.try_lease(SIZE), Err(LeaseError::Exhausted(_))));
        drop(held);
    }
    until("all are home", || pool.stats().classes[0].free as usize == ALIVE);
    assert_all_home(pool, &ledger);
}
