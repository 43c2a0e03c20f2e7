//! Scrubbed classes: the next owner finds every byte zeroed or poisoned, whoever had the slot before and
//! however it was lost (I16), and not before the work on it is over.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test reports by panicking"
)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use pinpool::{ClassConfig, Heap, Lease, ManualFence, OnEmpty, Pool, Scrub};
use pinpool_testkit::scripted::{Counted, Ledger};
use pinpool_testkit::soon::{HANG, until};

/// Not a whole number of words.
const SIZE: usize = 1000;
/// What the previous owner wrote.
const SECRET: u8 = 0x5e;

/// What a scrubbed slot holds.
fn clean(scrub: Scrub) -> u8 {
    match scrub {
        Scrub::Zero => 0,
        Scrub::Poison => 0xdb,
        _ => panic!("{scrub:?} promises nothing"),
    }
}

const SCRUBS: [Scrub; 2] = [Scrub::Zero, Scrub::Poison];

fn open(class: ClassConfig) -> (Pool, Ledger) {
    let (memory, ledger) = Counted::new(Heap::claiming_locked());
    let builder = Pool::builder().env(false).max_pinned(1 << 20).class_config(class);
    (builder.memory(memory).open().unwrap(), ledger)
}

fn class(scrub: Scrub, count: usize) -> ClassConfig {
    ClassConfig::new("secret", SIZE, count).scrub(scrub)
}

/// Every byte of the whole slot is clean; then it is not.
fn found_clean(lease: &mut Lease, scrub: Scrub, what: &str) {
    lease.set_len(lease.capacity()).unwrap();
    let dirty = lease.as_slice().iter().position(|byte| *byte != clean(scrub));
    assert_eq!(dirty, None, "{scrub:?}, {what}: a byte of the owner before");
    lease.as_mut_slice().fill(SECRET);
}

/// How a lease ends.
type Way = (&'static str, fn(Lease));

/// Fresh slots are clean, and so are all that come home: by a drop, out of flight, from several holders,
/// by a panic with half of the bytes written. Whoever takes one: at once, out of a line, as a task.
#[test]
fn the_next_owner_finds_every_byte_clean() {
    let ways: [Way; 5] = [
        ("dropped", drop),
        ("in flight", |lease| {
            let work = ManualFence::new();
            let flight = lease.in_flight_until(work.clone());
            work.complete();
            drop(flight);
        }),
        ("in flight and given back", |lease| {
            let work = ManualFence::new();
            let flight = lease.in_flight_until(work.clone());
            work.complete();
            let lease = flight.wait().unwrap();
            assert!(lease.as_slice().iter().all(|byte| *byte == SECRET), "its own bytes");
        }),
        ("shared", |lease| {
            let shared = lease.share();
            let again = shared.clone();
            drop(shared);
            assert!(again.as_slice().iter().all(|byte| *byte == SECRET));
        }),
        ("panicked", |mut lease| {
            let thrown = catch_unwind(AssertUnwindSafe(move || {
                let half = lease.len() / 2;
                lease.as_mut_slice()[..half].fill(0x77);
                resume_unwind(Box::new("planted"))
            }));
            assert!(thrown.is_err());
        }),
    ];
    for scrub in SCRUBS {
        let (pool, ledger) = open(class(scrub, 3));
        for round in 0..300 {
            for (what, end) in ways {
                // Beside others, whose bytes stay theirs.
                let mut others = [pool.lease(SIZE).unwrap(), pool.lease(1).unwrap()];
                for other in &mut others {
                    found_clean(other, scrub, what);
                }
                let mut lease = match round % 3 {
                    0 => pool.lease_timeout(1, HANG).unwrap(),
                    1 => pool.lease_priority_timeout(SIZE, HANG).unwrap(),
                    _ => pool.lease_many_timeout(&[SIZE], HANG).unwrap().remove(0),
                };
                found_clean(&mut lease, scrub, what);
                end(lease);
                for other in others {
                    assert!(other.as_slice().iter().all(|byte| *byte == SECRET), "{what}");
                }
            }
        }
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let mut lease = pool.lease_timeout(SIZE, HANG).unwrap();
                        found_clean(&mut lease, scrub, "among threads");
                    }
                });
            }
        });
        until("all is home", || pool.stats().classes[0].free == 3);
        assert!(pool.close(HANG).is_complete());
        ledger.assert_clean();
    }
}

/// A device that still writes after its slot was let go of, up to the moment when its fence completes:
/// nothing of it is seen by the next owner, and what it wrote was not scrubbed away under it.
#[test]
fn scrubbing_comes_after_the_work() {
    for scrub in SCRUBS {
        for count in [1_u32, 2] {
            let (pool, ledger) = open(class(scrub, count as usize));
            for round in 0..300 {
                let mut lease = pool.lease_timeout(SIZE, HANG).unwrap();
                found_clean(&mut lease, scrub, "late writes");
                let work = ManualFence::new();
                let (bytes, len) = (lease.as_mut_ptr(), lease.len());
                lease.retire_after(work.clone());
                if round % 4 == 0 {
                    // The keeper has seen it by then.
                    until("it is in flight", || pool.stats().classes[0].oldest_in_flight.is_some());
                    std::thread::sleep(Duration::from_millis(2));
                }
                if count == 1 {
                    assert!(pool.try_lease(SIZE).is_err(), "in flight");
                }
                for byte in 0..len {
                    // SAFETY: within the slot, which is in flight and nobody else's.
                    let byte = unsafe { bytes.add(byte) };
                    // SAFETY: as above.
                    assert_eq!(unsafe { byte.read() }, SECRET, "scrubbed under the device");
                    // SAFETY: as above.
                    unsafe { byte.write(0x99) };
                }
                work.complete();
            }
            until("all is home", || pool.stats().classes[0].free == count);
            drop(pool);
            until("the memory goes", || ledger.regions() == 0);
        }
    }
}

/// Memory that comes later is clean as well: grown slabs, pageable buffers, and both when they went and
/// came again.
#[test]
fn added_memory_is_clean() {
    for scrub in SCRUBS {
        let added = [
            class(scrub, 1).on_empty(OnEmpty::Grow).grow_max(2),
            class(scrub, 1).on_empty(OnEmpty::Pageable).pageable_max(2),
        ];
        for class in added {
            let (pool, ledger) = open(class);
            for round in 0..40 {
                let mut leases: Vec<_> =
                    (0..3).map(|_| pool.lease_timeout(SIZE, HANG).unwrap()).collect();
                for lease in &mut leases {
                    found_clean(lease, scrub, "added");
                }
                drop(leases);
                if round % 2 == 0 {
                    let class = || pool.stats().classes[0].clone();
                    until("all is washed", || class().in_flight == 0 && class().leased == 0);
                    pool.trim();
                }
            }
            assert!(pool.close(HANG).is_complete());
            ledger.assert_clean();
        }
    }
}

/// A scrubbed class takes no slot of a larger class that scrubs otherwise: the bytes would be seen.
#[test]
fn a_spill_stays_among_classes_that_scrub_alike() {
    for (scrub, larger, spills) in [
        (Scrub::Zero, Scrub::None, false),
        (Scrub::Zero, Scrub::Poison, false),
        (Scrub::Poison, Scrub::Zero, false),
        (Scrub::Zero, Scrub::Zero, true),
        (Scrub::None, Scrub::Zero, true),
        (Scrub::None, Scrub::None, true),
    ] {
        let pool = Pool::builder()
            .env(false)
            .memory(Heap::claiming_locked())
            .class_config(class(scrub, 1).max_spill(4))
            .class_config(ClassConfig::new("larger", 2 * SIZE, 1).scrub(larger))
            .open()
            .unwrap();
        let _held = pool.try_lease(SIZE).unwrap();
        assert_eq!(pool.try_lease(SIZE).is_ok(), spills, "{scrub:?} to {larger:?}");
        assert_eq!(pool.stats().classes[0].spilled_total, u64::from(spills));
    }
}
