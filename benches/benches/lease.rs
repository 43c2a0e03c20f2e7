//! What does taking and giving back a buffer cost, with one thread and with several at once?
//!
//! A lease and its drop, from small and large pools of one class and of twelve, against what people write
//! by hand (`mutex-vec`, `array-queue`: one size, bounded), object pools that others published
//! (`deadpool`: one size, bounded; `opool`, `lockfree-object-pool`, `sharded-slab`: one size, unbounded)
//! and general allocators (`mimalloc`, `malloc`: all sizes, unbounded), which touch no page here.

#![allow(missing_docs, clippy::panic, reason = "a benchmark may stop loudly; macros lack docs")]

use criterion::{Criterion, criterion_group, criterion_main};
use pinpool_bench::churn::run::thread_counts;
use pinpool_bench::churn::{Leases, SLOTS, Side};

mod common;

const POOLS: [(usize, usize); 4] = [(SLOTS, 1), (4096, 1), (SLOTS, 12), (4096, 12)];

fn lease(criterion: &mut Criterion) {
    let mut sides = Vec::new();
    for (slots, classes) in POOLS {
        let leases = Leases::open(slots, classes)
            .unwrap_or_else(|error| panic!("{slots} slots, {classes} classes: {error}"));
        sides.push((format!("pinpool/{slots}-slots/{classes}-classes"), Side::leases(leases)));
    }
    sides.extend(Side::rivals(SLOTS).into_iter().map(|side| (side.name.to_owned(), side)));
    common::round_trips(criterion, "lease_drop", &sides, true, &thread_counts());
}

criterion_group!(benches, lease);
criterion_main!(benches);
