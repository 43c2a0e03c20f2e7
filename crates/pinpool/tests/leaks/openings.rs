//! Lives that begin in every way there is, and some that end before they began.

use std::time::Duration;

use pinpool::{
    BackendChoice, Error, Heap, HugePages, MemoryStep, Mlock, Opening, Pool, PoolBuilder,
};
use pinpool_testkit::proc;
use pinpool_testkit::scripted::{Counted, Delayed, Fault, Faulty};
use pinpool_testkit::soon::{HANG, until};

use super::support::reserved::{Reserved, huge_page, meminfo};
use super::{Readings, alone, assert_settles};

/// Of every kind.
const ROUNDS: u64 = 30;
const CHUNK: usize = 256 << 10;
const SLOT: usize = 64 << 10;
const SLOTS: usize = 64;
/// On reserved huge pages, where there are some.
const HUGE_PAGES: usize = 3;

fn builder() -> PoolBuilder {
    Pool::builder()
        .env(false)
        .backend(BackendChoice::Host)
        .lock(proc::lock_mode_for(SLOT * SLOTS + 3 * SLOT))
        .huge_pages(HugePages::Off)
        .prefault_threads(2)
        .pin_chunk(CHUNK as u64)
        .class("frame", SLOT, SLOTS)
        .class("small", 4096, 8)
}

/// Takes each slot once and writes to it, then closes.
fn use_up(pool: &Pool) {
    for class in pool.stats().classes {
        let mut held = Vec::new();
        for _ in 0..class.slots {
            let mut lease = pool.try_lease(class.size).unwrap();
            lease.as_mut_slice().fill(1);
            held.push(lease);
        }
    }
    assert!(pool.close(HANG).is_complete());
}

/// It opened, or somebody stopped it.
fn either(outcome: Result<Pool, Error>) {
    match outcome {
        Ok(pool) => use_up(&pool),
        Err(Error::OpenCancelled { .. } | Error::OpenTimeout { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

fn on_huge_pages(_: u64) {
    // Odd, so that the region is longer than what was asked for.
    let bytes = HUGE_PAGES * huge_page().max(2 << 20) - 4096;
    let builder = Pool::builder().env(false).backend(BackendChoice::Host);
    let builder = builder.lock(proc::lock_mode_for(bytes)).huge_pages(HugePages::Try);
    use_up(&builder.class("huge", bytes, 1).open().unwrap());
}

fn beside_its_caller(_: u64) {
    use_up(&builder().open_async().and_then(Opening::wait).unwrap());
}

/// At another moment each time: before there is a pool, while it is made, after all.
fn cancelled(round: u64) {
    let opening = builder().open_async().unwrap();
    std::thread::sleep(Duration::from_micros(round * round * 4));
    opening.cancel();
    either(opening.wait());
}

fn dropped(round: u64) {
    let opening = builder().open_async().unwrap();
    std::thread::sleep(Duration::from_micros(round * round * 4));
    let pool = opening.pool();
    drop(opening);
    drop(pool);
}

/// A lease of the first class outlives the opening, which is stopped at the second.
fn with_a_lease_out(_: u64) {
    let memory =
        Delayed::new(Heap::claiming_locked()).on(MemoryStep::Pin, Duration::from_millis(1));
    let opening = builder().memory(memory).open_async().unwrap();
    until("the pool is there", || opening.pool().is_some());
    let pool = opening.pool().unwrap();
    let lease = pool.lease_timeout(SLOT, HANG).unwrap();
    opening.cancel();
    // It may have been quicker.
    assert!(matches!(opening.wait(), Ok(_) | Err(Error::OpenCancelled { .. })));
    drop(pool);
    drop(lease);
}

/// Smaller each time, down to nothing.
fn smaller(round: u64) {
    let (counted, ledger) = Counted::new(Mlock::new(proc::lock_mode_for(SLOT * SLOTS + 3 * SLOT)));
    ledger.expect_less();
    let chunks = (SLOT * SLOTS / CHUNK) as u64;
    let fault = Fault::nth(chunks - round % chunks).of(MemoryStep::Pin).os(libc::ENOMEM);
    let (memory, log) = Faulty::new(counted, fault);
    match builder().memory(memory).min_bytes(1).open() {
        Ok(pool) => {
            assert_eq!(pool.startup().cut.len(), 1);
            use_up(&pool);
        }
        Err(error) => assert_eq!(round % chunks, chunks - 1, "there was room for some: {error}"),
    }
    assert_eq!(log.injected().len(), 1);
    ledger.assert_clean();
}

fn too_late(round: u64) {
    let timeout = Duration::from_micros(1 + round * round * 4);
    either(builder().open_timeout(timeout).open());
}

/// A name for messages, and a life, which is told its round.
type Kind = (&'static str, fn(u64));

const KINDS: &[Kind] = &[
    ("on huge pages", on_huge_pages),
    ("beside its caller", beside_its_caller),
    ("cancelled", cancelled),
    ("dropped", dropped),
    ("with a lease out", with_a_lease_out),
    ("smaller", smaller),
    ("too late", too_late),
];

#[test]
fn two_hundred_openings_of_every_kind_leave_nothing_behind() {
    const NAME: &str = "openings::two_hundred_openings_of_every_kind_leave_nothing_behind";
    alone(NAME, || {
        // Without them it goes on, on other pages.
        let reserved = Reserved::pages(HUGE_PAGES as u64, NAME);
        let threads = proc::threads();
        for (_, live) in KINDS {
            (0..3).for_each(live);
        }
        until("openings that were dropped are over", || proc::threads() == threads);
        let before = Readings::now();
        let (resident, free) = (proc::resident_bytes(), meminfo("HugePages_Free"));
        let mut lives = 0;
        for round in 0..ROUNDS {
            for (kind, live) in KINDS {
                live(round);
                lives += 1;
                eprintln!("{kind}, round {round}");
                assert_settles(&before);
            }
        }
        assert!(lives >= 200, "{lives}");
        let grown = proc::resident_bytes().saturating_sub(resident);
        assert!(grown < 2 << 20, "{grown} bytes more in RAM after {lives} lives");
        if reserved.is_some() {
            until("the huge pages are free", || meminfo("HugePages_Free") >= free);
        }
    });
}
