//! Faults that users of other pools met in the field, turned into tests of the right behaviour.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed unwrap is a failed test"
)]

#[path = "../support/mod.rs"]
mod support;

mod counters;
mod devices;
mod exhaustion;
mod growth;
mod growth_fails;
mod holders;
mod in_flight;
mod latency;
mod log;
mod many;
mod memory;
mod pageable;
mod priority;
mod reports;
mod sizes;
mod slots;
mod tasks;
mod waiting;

use pinpool::{BackendChoice, ClassConfig, ClassStats, Heap, Pool, PoolBuilder};
use pinpool_testkit::scripted::{Counted, Ledger};
use pinpool_testkit::soon::{HANG, until};

/// A pool on host memory that the environment of the test run cannot disturb.
fn builder() -> PoolBuilder {
    Pool::builder().env(false).backend(BackendChoice::Host)
}

/// A pool of these classes on memory that claims to be locked and whose calls are booked.
fn counted(classes: impl IntoIterator<Item = ClassConfig>) -> (Pool, Ledger) {
    let (memory, ledger) = Counted::new(Heap::claiming_locked());
    let builder = builder().memory(memory).max_pinned(1 << 40);
    let builder = classes.into_iter().fold(builder, PoolBuilder::class_config);
    (builder.open().expect("a pool on the heap opens"), ledger)
}

/// The numbers of one class.
fn stats(pool: &Pool, class: &str) -> ClassStats {
    pool.stats().class(class).expect("there is such a class").clone()
}

/// Waits until so many are in line for a class.
fn until_in_line(pool: &Pool, class: &str, count: usize) {
    until("they are in line", || stats(pool, class).waiting == count);
}

/// Every slot of the pool is free, and closing gives all memory back.
fn assert_all_home(pool: Pool, ledger: &Ledger) {
    until("all are home", || {
        pool.stats().classes.iter().all(|class| class.free + class.quarantined == class.slots)
    });
    for class in pool.stats().classes {
        assert_eq!((class.stale_returns_total, class.waiting), (0, 0), "{class:?}");
    }
    let report = pool.close(HANG);
    assert!(report.is_complete(), "{report}");
    drop(pool);
    ledger.assert_clean();
}
