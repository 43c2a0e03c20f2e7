//! What does a fence cost that is complete by the time its lease is dropped?
//!
//! `retire_after` such a fence, beside a plain drop: the slot comes home by way of the class's inbox
//! and a pass over it.

#![allow(missing_docs, clippy::panic, reason = "a benchmark may stop loudly; macros lack docs")]

use criterion::{Criterion, criterion_group, criterion_main};
use pinpool_bench::churn::run::thread_counts;
use pinpool_bench::churn::{Leases, Retired, SLOTS, Side};

mod common;

fn in_flight(criterion: &mut Criterion) {
    let leases = Leases::open(SLOTS, 1).unwrap_or_else(|error| panic!("opening a pool: {error}"));
    let retired = Retired::open(SLOTS).unwrap_or_else(|error| panic!("opening a pool: {error}"));
    let sides = [
        ("plain".to_owned(), Side::leases(leases)),
        ("after-a-fence".to_owned(), Side::retired(retired)),
    ];
    common::round_trips(criterion, "in_flight", &sides, true, &thread_counts());
}

criterion_group!(benches, in_flight);
criterion_main!(benches);
