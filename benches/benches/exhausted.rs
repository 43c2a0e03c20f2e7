//! What does it cost to be told that nothing is free?
//!
//! The pool's only slot is out; the vector, the queue and deadpool hold nothing. The others that
//! `lease` measures make a new buffer instead.

#![allow(missing_docs, clippy::panic, reason = "a benchmark may stop loudly; macros lack docs")]

use criterion::{Criterion, criterion_group, criterion_main};
use pinpool_bench::churn::run::thread_counts;
use pinpool_bench::churn::{Exhausted, Side};

mod common;

fn exhausted(criterion: &mut Criterion) {
    let ours = Exhausted::open().unwrap_or_else(|error| panic!("exhausting a pool: {error}"));
    let mut sides = vec![("pinpool".to_owned(), Side::exhausted(ours))];
    let rivals = Side::exhausted_rivals().into_iter();
    sides.extend(rivals.map(|side| (side.name.to_owned(), side)));
    common::round_trips(criterion, "exhausted", &sides, false, &thread_counts());
}

criterion_group!(benches, exhausted);
criterion_main!(benches);
