//! What was added goes again: when it is idle, by `trim`, with the pool; and never under a lease.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pinpool::{Heap, LeaseError, ManualFence, MemoryStep};
use pinpool_testkit::sampler::Sampler;
use pinpool_testkit::scripted::{Counted, Delayed, Fault, Faulty};
use pinpool_testkit::soon::{HANG, until};
use pinpool_testkit::stamp;

use super::{SIZE, growing, growing_as, take};
use crate::{assert_all_home, builder, counted, stats};

/// Kind of fault: one busy minute inflates the pool for life.
///
/// Classes of rising sizes grow under load; then only the smallest is used. What is idle goes by itself
/// after its time, and at once by `trim`; the slabs of the beginning stay, and so does what is leased.
///
/// Case waste-5.
#[test]
fn what_was_added_goes_when_it_is_idle_and_the_first_slabs_stay() {
    const MIB: usize = 1 << 20;
    let sizes = [1, 4, 16, 64].map(|size| size * MIB);
    for idle in [Duration::from_millis(50), Duration::from_secs(3600)] {
        let by_itself = idle < HANG;
        let (memory, ledger) = Counted::new(Heap::new());
        let pool = sizes.iter().fold(builder().memory(memory), |builder, size| {
            builder.class_config(growing_as(&format!("c{size}"), *size).idle_after(idle))
        });
        let pool = pool.max_pinned(1 << 40).open().unwrap();
        let base = pool.stats().mapped_bytes;
        let mut firsts = Vec::new();
        for size in sizes {
            let held: Vec<_> =
                (0..6).map(|_| pool.lease_timeout(size, HANG).expect("it grows")).collect();
            firsts.push(held[0].as_ptr().addr());
        }
        let peak = pool.stats().mapped_bytes;
        assert!(peak >= 2 * base, "{peak} of {base}");
        let small = || drop(pool.try_lease(MIB).unwrap());
        if by_itself {
            until("what is idle goes", || {
                small();
                pool.stats().classes[1..].iter().all(|class| class.grown == 0)
            });
        } else {
            small();
            let trimmed = pool.trim();
            assert_eq!(trimmed, peak - base);
            assert_eq!(pool.trim(), 0, "there is no more");
        }
        until("all are gone", || {
            pool.trim();
            pool.stats().mapped_bytes == base
        });
        for (class, size) in pool.stats().classes.iter().zip(sizes) {
            assert_eq!((class.slots, class.free, class.trimmed_total), (2, 2, class.grown_total));
            let both = [pool.try_lease(size).unwrap(), pool.try_lease(size).unwrap()];
            assert!(both.iter().any(|lease| firsts.contains(&lease.as_ptr().addr())));
        }
        assert_all_home(pool, &ledger);
    }
}

/// Kind of fault: memory that could not be unpinned was forgotten, and its share of the limit refunded.
///
/// A trim and a close meet it. What stays pinned is counted as stuck, stays mapped, is not used again, and
/// its bytes are not there for growth.
///
/// Case register-3.
#[test]
fn what_cannot_be_unpinned_is_neither_reused_nor_refunded() {
    let bytes = 2 * SIZE as u64;
    for closes in [false, true] {
        let (counted, ledger) = Counted::new(Heap::claiming_locked());
        let (memory, faults) = Faulty::new(counted, Fault::nth(u64::MAX));
        // Room for one slab that grows, not for two.
        let builder = builder().memory(memory).max_pinned(2 * bytes);
        let pool = builder.class_config(growing()).open().unwrap();
        let mut held = take(&pool, 4);
        let slots: Vec<_> =
            held.iter_mut().map(|lease| (lease.slot(), lease.as_mut_ptr())).collect();
        drop(held);
        faults.arm(Some(Fault::nth(1).of(MemoryStep::Unpin)));
        if closes {
            let report = pool.close(HANG);
            assert_eq!((report.stuck_bytes, report.is_complete()), (bytes, false), "{report}");
        } else {
            until("what grew goes", || pool.trim() > 0 || stats(&pool, "frame").grown == 0);
            let held = take(&pool, 2);
            assert!(held.iter().all(|lease| lease.slot() < 2), "those of the first slab");
            assert!(pool.lease_timeout(SIZE, Duration::from_millis(30)).is_err(), "no room");
            assert_eq!(stats(&pool, "frame").grown, 0);
        }
        let pool_stats = pool.stats();
        let pinned = if closes { bytes } else { 2 * bytes };
        assert_eq!((pool_stats.stuck_bytes, pool_stats.pinned_bytes), (bytes, pinned), "{closes}");
        pool.close(HANG);
        assert_eq!((pool.stats().stuck_bytes, pool.stats().pinned_bytes), (bytes, bytes));
        drop(pool);
        let left = ledger.pinned_chunks();
        assert_eq!(left.iter().map(|(_, bytes)| *bytes as u64).sum::<u64>(), bytes);
        assert_eq!((ledger.regions(), ledger.violations()), (1, Vec::<String>::new()));
        let stuck = slots.iter().filter(|(_, first)| {
            left.iter().any(|(start, bytes)| (*start..start + bytes).contains(&first.addr()))
        });
        let stuck: Vec<_> = stuck.collect();
        assert_eq!(stuck.len(), 2, "{left:?}");
        for (slot, first) in stuck {
            assert!(closes || *slot >= 2, "slot {slot} is of the first slab");
            // SAFETY: it is still mapped, and used by nobody.
            unsafe { first.write_volatile(1) };
        }
        ledger.give_back(&Heap::claiming_locked());
    }
}

/// A grown slab of which one slot is out stays, by itself and by `trim`.
#[test]
fn a_grown_slab_in_use_stays() {
    let (pool, ledger) = counted([growing().idle_after(Duration::from_millis(10))]);
    let mut held = take(&pool, 4);
    let mut last = held.pop().unwrap();
    stamp::write_slot(&mut last, 7);
    drop(held);
    // One more may have been added when the last of four was taken.
    until("what is idle goes", || stats(&pool, "frame").grown == 2);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!((pool.trim(), stats(&pool, "frame").grown), (0, 2));
    stamp::verify(last.as_slice(), 7);
    let fence = ManualFence::new();
    last.retire_after(fence.clone());
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!((pool.trim(), stats(&pool, "frame").grown), (0, 2), "work in flight is use");
    fence.complete();
    until("it goes", || stats(&pool, "frame").grown == 0);
    assert_all_home(pool, &ledger);
}

/// Kind of fault: evicted buffers are lost on the way.
///
/// Two classes take turns in growing under a cap that the growth of either one nearly fills, so that each
/// turn must wait until what the other added is gone, by itself or by `trim`.
///
/// Case leak-2.
#[test]
fn two_classes_that_take_turns_lose_nothing() {
    let (memory, ledger) = Counted::new(Heap::claiming_locked());
    let sizes = [20 * SIZE, 24 * SIZE];
    let cap = 4 * sizes[0] + 4 * sizes[1];
    let mut pool = builder().memory(memory).max_pinned(cap as u64);
    for size in sizes {
        let class = growing_as(&format!("c{size}"), size).grow_by(1).grow_max(4);
        pool = pool.class_config(class.idle_after(Duration::from_millis(1)));
    }
    let pool = pool.open().unwrap();
    for turn in 0..200 {
        let size = sizes[turn % 2];
        // Two of the first slab and three grown ones: more than half of what is left of the cap.
        let held: Vec<_> =
            (0..5).map(|_| pool.lease_timeout(size, HANG).expect("room comes")).collect();
        assert!(ledger.pinned_bytes() <= cap, "turn {turn}");
        drop(held);
        if turn % 8 != 0 {
            assert!(pool.trim() > 0, "turn {turn}");
        }
    }
    assert!(ledger.pinned_bytes_peak() <= cap);
    until("all that was grown is gone", || {
        let stats = pool.stats();
        stats.classes.iter().all(|class| class.grown_total == class.trimmed_total)
    });
    let grown: u64 = pool.stats().classes.iter().map(|class| class.grown_total).sum();
    assert!(grown >= 600, "{grown}");
    assert_all_home(pool, &ledger);
    assert_eq!(ledger.calls(MemoryStep::Pin), ledger.calls(MemoryStep::Unpin));
    assert_eq!(ledger.calls(MemoryStep::Pin), 2 + grown);
}

/// Slabs come and go while threads lease, stamp and return: a lease out of a slab that is being taken
/// away stays valid, and its memory goes with it.
#[test]
fn leases_stay_valid_while_slabs_come_and_go() {
    let (pool, ledger) = counted([growing().idle_after(Duration::from_millis(1))]);
    let sampler = Sampler::start(&pool);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let lessees: Vec<_> = (0..4u64)
            .map(|thread| {
                let pool = &pool;
                scope.spawn(move || {
                    for round in 0..5_000 {
                        let owner = thread << 32 | round;
                        let mut held = take(pool, 1 + usize::from(round % 3 == 0));
                        for lease in &mut held {
                            stamp::write_slot(lease, owner);
                        }
                        std::thread::yield_now();
                        for lease in &held {
                            stamp::verify(lease.as_slice(), owner);
                        }
                        if round % 64 == 0 {
                            drop(held);
                            std::thread::sleep(Duration::from_millis(2));
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                pool.trim();
                std::thread::yield_now();
            }
        });
        for lessee in lessees {
            lessee.join().unwrap();
        }
        over.store(true, Ordering::Release);
    });
    assert!(sampler.stop() > 0);
    let class = stats(&pool, "frame");
    assert!(class.grown_total > 3 && class.trimmed_total > 3, "they came and went: {class:?}");
    until("all that was grown is gone", || {
        pool.trim();
        ledger.regions() == 1
    });
    assert_all_home(pool, &ledger);
}

/// A pool that closes while it grows: nothing is left, whether the slab was just coming or a waiter for
/// it is in line; a lease out of a grown slab stays valid after the close.
#[test]
fn growth_and_a_close_leave_nothing() {
    for round in 0..100 {
        let (memory, ledger) = Counted::new(Heap::claiming_locked());
        let delay = Duration::from_micros(50 * (round % 10));
        let memory = Delayed::new(memory).on(MemoryStep::Populate, delay);
        let class = growing().grow_by(1 + (round % 3) as usize);
        let pool = builder().memory(memory).max_pinned(1 << 30).class_config(class);
        let pool = pool.open().unwrap();
        let mut held = take(&pool, 2 + (round % 2) as usize);
        for lease in &mut held {
            stamp::write_slot(lease, round);
        }
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pool.lease_timeout(SIZE, HANG).map(drop));
            std::thread::sleep(Duration::from_micros(37 * (round % 13)));
            pool.close(Duration::ZERO);
            let ended = waiter.join().unwrap();
            assert!(matches!(ended, Ok(()) | Err(LeaseError::Closed)), "{ended:?}");
        });
        for lease in &held {
            stamp::verify(lease.as_slice(), round);
        }
        drop(held);
        assert_all_home(pool, &ledger);
    }
}
