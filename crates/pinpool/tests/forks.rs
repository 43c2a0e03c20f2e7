//! Forks while threads lease, wait, retire and close: a child is refused and hangs nowhere, whatever
//! lock some thread of the parent held at that moment, and the parent is unharmed (I12).
//!
//! A child says by its exit code which of its steps went wrong.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test reports by panicking"
)]

#[path = "forks/everything.rs"]
mod everything;
mod support;

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use pinpool::{
    BackendChoice, ClassConfig, ForkPolicy, LeaseError, LockMode, ManualFence, OnEmpty, Pool, Scrub,
};
use pinpool_testkit::fork::{Ended, fork_to};
use pinpool_testkit::scripted::counted_pool;
use pinpool_testkit::soon::{HANG, until};
use pinpool_testkit::{proc, stamp};

use everything::{Everything, uses};

const SIZE: usize = 4096;
const POLICIES: [ForkPolicy; 2] = [ForkPolicy::Deny, ForkPolicy::Inherit];

/// A class for leases, one for copies in flight, and one that is empty; the first grows, the second is
/// scrubbed.
fn open(policy: ForkPolicy) -> Pool {
    let copies = ClassConfig::new("copies", 2 * SIZE, 8).scrub(Scrub::Zero);
    let frames = ClassConfig::new("frames", SIZE, 4).on_empty(OnEmpty::Grow).grow_max(2);
    Pool::builder()
        .env(false)
        .backend(BackendChoice::Host)
        .lock(LockMode::Try)
        .max_pinned(1 << 20)
        .fork(policy)
        .track_holders(true)
        .class_config(frames)
        .class_config(copies)
        .class("empty", 3 * SIZE, 1)
        .devices(0, [1])
        .class_config(ClassConfig::new("other-device", 4 * SIZE, 1).device(1))
        .open()
        .unwrap()
}

/// Leases, stamps, checks and returns, until it is told to stop.
fn leases(pool: &Pool, owner: u64, stop: &AtomicBool, done: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let mut lease = pool.lease_timeout(SIZE, HANG).unwrap();
        stamp::write_slot(&mut lease, owner);
        let _ = lease.device_ptr();
        stamp::verify(lease.as_slice(), owner);
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Retires, so that the keeper and whoever waits are busy; names tags, and asks for statistics.
fn retires(pool: &Pool, stop: &AtomicBool) {
    for round in 0_u32.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let mut lease = pool.lease_timeout(2 * SIZE, HANG).unwrap();
        lease.set_tag(pool.tag(&format!("stage {}", round % 500)));
        let fence = ManualFence::new();
        let mut landing = pin!(lease.in_flight_until(fence.clone()).into_future());
        let mut context = Context::from_waker(Waker::noop());
        let _ = landing.as_mut().poll(&mut context);
        drop((pool.stats(), pool.holders()));
        fence.complete();
    }
}

/// Opens and closes pools, and closes one that stays open for it; new threads come and go, while it
/// has `births`.
fn closes(closing: &Pool, births: &Mutex<()>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        closing.close(Duration::ZERO);
        let _births = births.lock().unwrap();
        let (pool, _ledger) = counted_pool(&[("frame", 256, 2)]);
        let fence = ManualFence::new();
        pool.try_lease(256).unwrap().retire_after(fence.clone());
        std::thread::scope(|scope| {
            let both = [pool.try_lease(256).unwrap()];
            let waits =
                scope.spawn(|| pool.lease_timeout(256, Duration::from_micros(200)).map(drop));
            drop(both);
            // The scope itself waits for what a thread does, not until it is gone.
            let _ = waits.join().unwrap();
        });
        fence.complete();
        assert!(pool.close(HANG).is_complete());
    }
}

/// What a child does with what it inherits. The last two never come back.
fn child(way: u32, all: &mut Everything, inherits: bool) -> i32 {
    match way {
        0 => uses(all, inherits),
        1 => {
            all.drop_all();
            0
        }
        OPENS => opens_its_own(all),
        // SAFETY: the process ends, its exit handlers run.
        3 => unsafe { libc::exit(0) },
        _ => {
            let arguments = [c"/bin/true".as_ptr(), std::ptr::null()];
            // SAFETY: the arguments end with a null.
            unsafe { libc::execv(arguments[0], arguments.as_ptr()) };
            127
        }
    }
}

/// A pool of the child's own works: it waits, retires and closes. Then the parent's goes.
fn opens_its_own(all: &mut Everything) -> i32 {
    let pool = Pool::builder().env(false).lock(LockMode::Try).class("own", SIZE, 1).open();
    let Ok(pool) = pool else { return 1 };
    let Ok(mut lease) = pool.try_lease(SIZE) else { return 2 };
    lease.set_tag(pool.tag("child"));
    stamp::write_slot(&mut lease, 7);
    if !stamp::is_whole(lease.as_slice(), 7) || lease.tag().as_deref() != Some("child") {
        return 3;
    }
    if pool.lease_timeout(SIZE, Duration::from_millis(1)).is_ok() {
        return 4;
    }
    let fence = ManualFence::new();
    lease.retire_after(fence.clone());
    all.drop_all();
    fence.complete();
    match pool.lease_timeout(SIZE, HANG) {
        Ok(lease) => drop(lease),
        Err(_) => return 5,
    }
    let report = pool.close(HANG);
    if report.is_complete() { 0 } else { 6 }
}

/// A thousand forks, five hundred with each policy, while two threads lease and others wait, retire
/// and close. The child uses everything, drops it, opens a pool of its own, exits or becomes another
/// program; it ends within seconds, and of the parent's bytes, locks and counts nothing changes.
#[test]
fn children_of_a_busy_parent() {
    support::alone("children_of_a_busy_parent", &[], || {
        for policy in POLICIES {
            storm(policy, FORKS / 2);
        }
    });
}

fn storm(policy: ForkPolicy, forks: u32) {
    let pool = open(policy);
    let (closing, ledger) = counted_pool(&[("held", 256, 1)]);
    let held = closing.try_lease(256).unwrap();
    let mut all = Everything::new(&pool, &closing);
    let mapped = pool.stats().mapped_bytes;
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let births = Mutex::new(());
    std::thread::scope(|scope| {
        let (pool, stop, done, closing, births) = (&pool, &stop, &done, &closing, &births);
        for owner in 1..3 {
            scope.spawn(move || leases(pool, owner, stop, done));
        }
        scope.spawn(move || retires(pool, stop));
        scope.spawn(move || closes(closing, births, stop));
        let _stops = Stops(stop);
        for number in 0..forks {
            let inherits = policy == ForkPolicy::Inherit;
            let before = proc::locked_bytes();
            // A child that starts a thread hangs in the standard library if another thread was just being
            // born or dying at the fork, pool or no pool.
            let starts = (number % WAYS == OPENS).then(|| births.lock().unwrap());
            let ended = fork_to(|| child(number % WAYS, &mut all, inherits));
            drop(starts);
            assert_eq!(ended, Ended::Code(0), "{policy}, child {number}, way {}", number % WAYS);
            assert!(all.is_whole(), "{policy}: child {number} wrote to the parent");
            let grown = pool.stats().classes[0].grown;
            if grown == 0 || pool.stats().mapped_bytes == mapped {
                assert!(proc::locked_bytes() >= before.min(mapped), "{policy}: {number} unlocked");
            }
        }
    });
    assert!(done.into_inner() > u64::from(forks), "the parent's threads were at work meanwhile");
    drop(all);
    until("all is home", || pool.stats().classes.iter().all(|class| class.free == class.slots));
    assert!(pool.close(HANG).is_complete());
    drop(held);
    assert!(closing.close(HANG).is_complete());
    ledger.assert_clean();
}

/// Ends the threads of a scope also when the test panics.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A child's exit gives back nothing of the parent's: locked bytes stay locked, also while both run, and
/// so does what the child itself maps and locks.
#[test]
fn locked_bytes_stay_the_parents() {
    support::alone("locked_bytes_stay_the_parents", &[], || {
        for policy in POLICIES {
            let before = proc::locked_bytes();
            let pool = open(policy);
            let locked = proc::locked_bytes() - before;
            if !pool.is_pinned() {
                support::not_run("locked bytes across forks: this process may not lock memory");
                return;
            }
            assert_eq!(locked, pool.stats().pinned_bytes);
            let mut last = Some(pool.clone());
            let ended = fork_to(|| {
                drop(last.take());
                i32::from(proc::locked_bytes() != 0)
            });
            assert_eq!(ended, Ended::Code(0), "a child locks nothing");
            assert_eq!(proc::locked_bytes() - before, locked, "{policy}");
            drop((last, pool));
            assert_eq!(proc::locked_bytes(), before, "{policy}");
        }
    });
}

/// With `fork = "inherit"` a child reads the bytes as they were at the fork, and what it writes is its
/// own; with `"deny"` there is nothing to read, and the child is killed rather than served.
#[test]
fn a_child_reads_the_bytes_of_the_fork() {
    for policy in POLICIES {
        let pool = open(policy);
        let mut lease = pool.try_lease(SIZE).unwrap();
        stamp::write_slot(&mut lease, 11);
        let ended = fork_to(|| {
            if !stamp::is_whole(lease.as_slice(), 11) {
                return 1;
            }
            stamp::write(lease.as_mut_slice(), 12);
            i32::from(!stamp::is_whole(lease.as_slice(), 12))
        });
        let wanted = match policy {
            ForkPolicy::Inherit => Ended::Code(0),
            ForkPolicy::Deny => Ended::Signal(libc::SIGSEGV),
        };
        assert_eq!(ended, wanted, "{policy}");
        stamp::verify(lease.as_slice(), 11);
    }
}

/// Memory of the child is given back by nobody but the system: neither by the last lease of a closed
/// pool, nor by that of a grown slab, nor by a pageable buffer.
#[test]
fn a_child_unmaps_nothing() {
    let (memory, ledger) =
        pinpool_testkit::scripted::Counted::new(pinpool::Heap::claiming_locked());
    let growing = ClassConfig::new("growing", 256, 1).on_empty(OnEmpty::Grow).grow_max(1);
    let pageable = ClassConfig::new("odd", 512, 1).on_empty(OnEmpty::Pageable);
    let builder = Pool::builder().env(false).max_pinned(1 << 20).memory(memory);
    let pool = builder.class_config(growing).class_config(pageable).open().unwrap();
    let sizes = [256, 256, 512, 512];
    let mut held: Vec<_> =
        sizes.iter().map(|size| Some(pool.lease_timeout(*size, HANG).unwrap())).collect();
    assert!(held.last().unwrap().as_ref().unwrap().is_pageable());
    assert!(!pool.close(Duration::ZERO).is_complete());
    let calls = ledger.calls_total();
    let mut last = Some(pool);
    let ended = fork_to(|| {
        for lease in &mut held {
            drop(lease.take());
        }
        drop(last.take());
        i32::from(ledger.calls_total() != calls || ledger.regions() != 3)
    });
    assert_eq!(ended, Ended::Code(0), "the memory is called in the child");
    for lease in held.iter_mut().flatten() {
        stamp::write_slot(lease, 3);
    }
    drop(held);
    assert!(last.unwrap().close(HANG).is_complete());
    ledger.assert_clean();
}

/// A child of a child is refused by both pools that it inherits, and has its own.
#[test]
fn grandchildren_are_refused_as_well() {
    let (pool, _ledger) = counted_pool(&[("frame", 256, 1)]);
    let ended = fork_to(|| {
        let (own, _ledger) = counted_pool(&[("frame", 256, 1)]);
        let ended = fork_to(|| {
            let refused = [&pool, &own].map(|pool| pool.try_lease(256).map(drop));
            let (third, _ledger) = counted_pool(&[("frame", 256, 1)]);
            i32::from(refused != [Err(LeaseError::Forked), Err(LeaseError::Forked)])
                + 2 * i32::from(third.try_lease(256).is_err())
        });
        i32::from(ended != Ended::Code(0) || own.try_lease(256).is_err())
    });
    assert_eq!(ended, Ended::Code(0));
    assert!(pool.try_lease(256).is_ok());
}

/// Forks in all.
const FORKS: u32 = 1000;
/// What children do, and which of it starts a thread.
const WAYS: u32 = 5;
const OPENS: u32 = 2;
