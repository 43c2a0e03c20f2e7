//! Classes that grow: by the pool's own thread only, never past a limit, and what they added goes again.

mod ends;

use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use pinpool::{
    BackendKind, ClassConfig, Heap, Lease, LeaseError, LockMode, ManualFence, MemoryError,
    MemoryStep, OnEmpty, PageLock, Pinned, Pool, Region,
};
use pinpool_testkit::sampler::Sampler;
use pinpool_testkit::scripted::{Counted, Fault, Faulty};
use pinpool_testkit::soon::{HANG, until};
use tracing::Level;

use crate::tasks::block_on;
use crate::{assert_all_home, builder, counted, log, stats, until_in_line};

const SIZE: usize = 4096;

/// A class of two slots that grows by two, never ahead of need, and keeps what it has.
fn growing() -> ClassConfig {
    growing_as("frame", SIZE)
}

fn growing_as(name: &str, size: usize) -> ClassConfig {
    ClassConfig::new(name, size, 2)
        .on_empty(OnEmpty::Grow)
        .grow_by(2)
        .grow_max(6)
        .grow_at(0)
        .idle_after(Duration::from_secs(3600))
}

/// Takes so many, waiting for growth where it must.
fn take(pool: &Pool, count: usize) -> Vec<Lease> {
    (0..count).map(|_| pool.lease_timeout(SIZE, HANG).expect("the class grows")).collect()
}

/// Memory that writes down which threads call it.
#[derive(Debug)]
struct Witnessed<M>(M, Arc<Mutex<HashSet<ThreadId>>>);

impl<M> Witnessed<M> {
    fn note(&self) -> &M {
        self.1.lock().unwrap().insert(std::thread::current().id());
        &self.0
    }
}

// SAFETY: every duty is the inner memory's.
unsafe impl<M: PageLock> PageLock for Witnessed<M> {
    fn kind(&self) -> BackendKind {
        self.0.kind()
    }

    fn takes_system_memory(&self) -> bool {
        self.0.takes_system_memory()
    }

    fn needs_memlock(&self) -> bool {
        self.0.needs_memlock()
    }

    fn reserve(&self, bytes: usize) -> Result<NonNull<u8>, MemoryError> {
        self.note().reserve(bytes)
    }

    unsafe fn populate(&self, part: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.0.populate(part) }
    }

    unsafe fn pin(&self, chunk: Region) -> Result<Pinned, MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.note().pin(chunk) }
    }

    unsafe fn unpin(&self, chunk: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.note().unpin(chunk) }
    }

    unsafe fn release(&self, region: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.note().release(region) }
    }
}

/// No thread that leases or returns calls the memory: a slab comes and goes by another one, and it is
/// always the same.
#[test]
fn only_the_pools_own_thread_adds_memory_and_takes_it_away() {
    let threads = Arc::<Mutex<HashSet<ThreadId>>>::default();
    let (memory, ledger) = Counted::new(Heap::claiming_locked());
    let pool = builder()
        .memory(Witnessed(memory, Arc::clone(&threads)))
        .class_config(growing().idle_after(Duration::from_millis(20)))
        .max_pinned(1 << 30)
        .open()
        .unwrap();
    // The opener called it.
    threads.lock().unwrap().clear();
    let mut lessees = HashSet::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let pool = &pool;
            let lessee = scope.spawn(move || drop(take(pool, 2)));
            lessees.insert(lessee.thread().id());
        }
    });
    let held = take(&pool, 8);
    assert_eq!(stats(&pool, "frame").grown, 6);
    drop(held);
    until("what is idle goes", || stats(&pool, "frame").grown == 0);
    lessees.insert(std::thread::current().id());
    let callers = threads.lock().unwrap().clone();
    assert_eq!(callers.len(), 1, "one thread of the pool's own");
    assert!(callers.is_disjoint(&lessees), "a lessee called the memory");
    assert_all_home(pool, &ledger);
}

/// A waiter, be it a thread or a task, is served by the growth that it caused; at the most the class has
/// `grow_max` slots more, and then who finds nothing waits, or is told.
#[test]
fn a_class_grows_for_its_waiters_and_no_further_than_it_may() {
    let (pool, ledger) = counted([growing()]);
    let mut held = take(&pool, 4);
    held.extend([block_on(pool.lease_async(SIZE)).unwrap(), pool.lease(SIZE).unwrap()]);
    held.extend(pool.lease_many_timeout(&[SIZE; 2], HANG).unwrap());
    let addresses: HashSet<_> = held.iter().map(|lease| lease.as_ptr().addr()).collect();
    assert_eq!(addresses.len(), 8);
    let full = stats(&pool, "frame");
    assert_eq!((full.slots, full.grown, full.leased, full.grown_total), (8, 6, 8, 3));
    assert!(held.iter().all(|lease| lease.is_pinned() && !lease.is_pageable()));
    for _ in 0..50 {
        assert!(matches!(pool.try_lease(SIZE), Err(LeaseError::Exhausted(_))));
    }
    let error = pool.lease_timeout(SIZE, Duration::from_millis(50)).unwrap_err();
    let LeaseError::Timeout { exhausted, .. } = error else { panic!("{error}") };
    assert_eq!(exhausted.slots, 8);
    assert_eq!((stats(&pool, "frame").grown_total, ledger.regions()), (3, 4));
    drop(held);
    assert_all_home(pool, &ledger);
}

/// A class grows ahead of need: when few are left it has more before anybody finds it empty.
#[test]
fn a_class_grows_before_it_is_empty() {
    let (pool, ledger) =
        counted([ClassConfig::new("frame", SIZE, 4).on_empty(OnEmpty::Grow).grow_at(2).grow_by(2)]);
    let mut held = vec![pool.try_lease(SIZE).unwrap()];
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(stats(&pool, "frame").grown_total, 0, "three are free");
    for taken in 2..=4 {
        held.push(pool.try_lease(SIZE).unwrap());
        let slabs = u64::from(taken > 1) + u64::from(taken > 3);
        until("it grows", || stats(&pool, "frame").grown_total == slabs);
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(stats(&pool, "frame").grown_total, slabs, "and by no more");
    }
    assert_eq!(stats(&pool, "frame").misses_total, 0);
    drop(held);
    assert_all_home(pool, &ledger);
}

/// The reserve does not count as free for those who cannot have it.
#[test]
fn a_class_with_a_reserve_grows_ahead_of_need_too() {
    let class = ClassConfig::new("frame", SIZE, 4).reserve(2).on_empty(OnEmpty::Grow).grow_at(1);
    let (pool, ledger) = counted([class]);
    let held = pool.try_lease(SIZE).unwrap();
    until("it grows", || stats(&pool, "frame").grown_total == 1);
    assert_eq!((stats(&pool, "frame").misses_total, stats(&pool, "frame").reserved), (0, 2));
    drop(held);
    assert_all_home(pool, &ledger);
}

/// A class in a steady state at the edge of growth neither grows nor shrinks again and again.
#[test]
fn a_steady_demand_pins_nothing_again_and_again() {
    let class = ClassConfig::new("frame", SIZE, 4)
        .on_empty(OnEmpty::Grow)
        .grow_at(1)
        .grow_by(1)
        .idle_after(Duration::from_millis(20));
    let (pool, ledger) = counted([class]);
    let held = take(&pool, 3);
    until("it grows", || stats(&pool, "frame").grown_total == 1);
    std::thread::sleep(Duration::from_millis(300));
    let class = stats(&pool, "frame");
    assert_eq!((class.grown_total, class.trimmed_total), (1, 0), "it is needed to be ahead");
    drop(held);
    until("it goes when it is not", || stats(&pool, "frame").trimmed_total == 1);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(stats(&pool, "frame").grown_total, 1);
    assert_all_home(pool, &ledger);
}

/// Kind of fault: a producer faster than its copies grows pinned memory until the system ends it.
///
/// Two classes fight for a cap that holds a part of their growth; the sum of what is pinned never exceeds it,
/// as the memory itself has seen it, and who finds nothing waits.
///
/// Case empty-3.
#[test]
fn pinned_bytes_never_exceed_the_cap() {
    const CAP: usize = 12 * SIZE;
    let (memory, ledger) = Counted::new(Heap::claiming_locked());
    let class = |name, size| growing_as(name, size).idle_after(Duration::from_millis(5));
    let pool = builder()
        .memory(memory)
        .max_pinned(CAP as u64)
        .class_config(class("frame", SIZE))
        .class_config(class("half", SIZE / 2).grow_max(20))
        .open()
        .unwrap();
    let sampler = Sampler::start(&pool);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (send, fences) = std::sync::mpsc::channel::<ManualFence>();
        scope.spawn(move || {
            for fence in fences {
                std::thread::sleep(Duration::from_micros(200));
                fence.complete();
            }
        });
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                assert!(pool.stats().pinned_bytes <= CAP as u64);
                pool.trim();
                std::thread::yield_now();
            }
        });
        let producers: Vec<_> = [SIZE, SIZE / 2]
            .map(|size| {
                let (pool, send) = (&pool, send.clone());
                scope.spawn(move || {
                    for _ in 0..2_000 {
                        let lease = pool.lease_timeout(size, HANG).expect("a copy ends");
                        let fence = ManualFence::new();
                        lease.retire_after(fence.clone());
                        send.send(fence).unwrap();
                    }
                })
            })
            .into();
        drop(send);
        for producer in producers {
            producer.join().unwrap();
        }
        over.store(true, Ordering::Release);
    });
    assert!(sampler.stop() > 0);
    assert!(ledger.pinned_bytes_peak() <= CAP, "{} of {CAP}", ledger.pinned_bytes_peak());
    assert!(ledger.pinned_bytes_peak() > 3 * SIZE, "it did grow");
    assert_all_home(pool, &ledger);
}

/// A cap without room for all growth is told of once, and is no failure.
#[test]
fn a_full_cap_stops_growth() {
    log::listen();
    let (memory, ledger) = Counted::new(Heap::claiming_locked());
    let class = growing_as("capped", SIZE);
    let pool = builder().memory(memory).max_pinned(4 * SIZE as u64).class_config(class);
    let pool = pool.open().unwrap();
    let held = take(&pool, 4);
    for _ in 0..3 {
        assert!(pool.lease_timeout(SIZE, Duration::from_millis(30)).is_err());
    }
    let class = stats(&pool, "capped");
    assert_eq!((class.slots, class.grown_total, class.grow_failures_total), (4, 1, 0));
    assert_eq!(pool.stats().pinned_bytes, pool.stats().cap_bytes);
    let lines = log::lines(Level::WARN, "max_pinned leaves no room to grow");
    assert_eq!(lines.iter().filter(|line| line.contains("capped")).count(), 1, "{lines:#?}");
    drop(held);
    assert_all_home(pool, &ledger);
}

/// Memory that fails for a while: counted, told, tried again, and the waiter gets its slot all the same;
/// whatever step fails leaves nothing behind.
#[test]
fn growth_that_fails_is_tried_again_and_loses_no_waiter() {
    for step in [MemoryStep::Reserve, MemoryStep::Populate, MemoryStep::Pin] {
        let (memory, ledger) = Counted::new(Heap::claiming_locked());
        let (memory, faults) = Faulty::new(memory, Fault::nth(u64::MAX));
        let pool = builder().memory(memory).max_pinned(1 << 30).class_config(growing());
        let pool = pool.open().unwrap();
        // First: it grows ahead of need.
        faults.arm(Some(Fault::nth(1).of(step).persistent()));
        let held = take(&pool, 2);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pool.lease_timeout(SIZE, HANG).map(drop));
            let task = scope.spawn(|| block_on(pool.lease_async(SIZE)).map(drop));
            until_in_line(&pool, "frame", 2);
            until("two attempts failed", || stats(&pool, "frame").grow_failures_total >= 2);
            assert_eq!(ledger.regions(), 1, "{step:?}: a failed slab leaves nothing");
            assert_eq!((stats(&pool, "frame").slots, stats(&pool, "frame").waiting), (2, 2));
            // It pauses between attempts: a memory that fails is not asked all the time.
            assert!(stats(&pool, "frame").grow_failures_total < 10);
            faults.arm(None);
            assert_eq!((waiter.join().unwrap(), task.join().unwrap()), (Ok(()), Ok(())));
        });
        assert!(stats(&pool, "frame").grown_total >= 1);
        drop(held);
        assert_all_home(pool, &ledger);
    }
}

/// Growth that keeps failing is given up by nobody but the waiter's own patience; a return serves it.
#[test]
fn a_waiter_of_a_class_that_cannot_grow_is_served_by_a_return() {
    let (memory, ledger) = Counted::new(Heap::claiming_locked());
    let (memory, faults) = Faulty::new(memory, Fault::nth(u64::MAX));
    let pool = builder().memory(memory).max_pinned(1 << 30).class_config(growing()).open().unwrap();
    faults.arm(Some(Fault::nth(1).of(MemoryStep::Reserve).persistent()));
    let held = take(&pool, 2);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| pool.lease_timeout(SIZE, HANG).map(drop));
        until("it failed", || stats(&pool, "frame").grow_failures_total >= 1);
        drop(held);
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
    assert_all_home(pool, &ledger);
}

/// An unlocked pool grows as well, and pins nothing.
#[test]
fn a_class_grows_without_locks() {
    let (memory, ledger) = Counted::new(Heap::claiming_locked());
    let pool = builder().memory(memory).lock(LockMode::Off).class_config(growing());
    let pool = pool.open().unwrap();
    let held = take(&pool, 8);
    assert!(held.iter().all(|lease| !lease.is_pinned()));
    assert_eq!((pool.stats().pinned_bytes, ledger.calls(MemoryStep::Pin)), (0, 0));
    assert_eq!(pool.stats().mapped_bytes, 8 * SIZE as u64);
    drop(held);
    assert_eq!(pool.trim(), 6 * SIZE as u64);
    assert_all_home(pool, &ledger);
}
