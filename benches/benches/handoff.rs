//! What does a buffer cost that one thread takes and another gives back?
//!
//! Pairs of threads with a bounded channel of 16 between them, as a capture thread and a consumer
//! have. `integers` through the same channel are what it costs without buffers, `messages-32B` what it
//! costs with messages of a lease's size.

#![allow(missing_docs, clippy::panic, reason = "a benchmark may stop loudly; macros lack docs")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pinpool_bench::churn::Goods;
use pinpool_bench::churn::run::pair_counts;

mod common;

fn handoff(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("handoff");
    common::quick(&mut group);
    for pairs in pair_counts() {
        let all = Goods::all(pairs).unwrap_or_else(|error| panic!("opening a pool: {error}"));
        for Goods { name, source } in all {
            // The rate of all pairs together.
            group.throughput(Throughput::Elements(pairs as u64));
            let id = BenchmarkId::new(name, format!("{pairs}-pairs"));
            group.bench_function(id, |bencher| {
                bencher.iter_custom(|count| {
                    source.together(pairs, count).unwrap_or_else(|error| panic!("{name}: {error}"))
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, handoff);
criterion_main!(benches);
