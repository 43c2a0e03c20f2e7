//! How long does pinned memory take to open and to close, by the way there?
//!
//! 64 MiB by each way of `pinpool bench startup`: pools, the same calls without a pool, `cuMemHostAlloc`
//! where there is a GPU, and memory that the call that pins it has to back as well.

#![allow(missing_docs, clippy::panic, reason = "a benchmark may stop loudly; macros lack docs")]

use std::time::Instant;

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use pinpool_bench::BenchError;
use pinpool_bench::startup::{Ground, Strategy};

mod common;

const BYTES: usize = 64 << 20;

fn startup(criterion: &mut Criterion) {
    let (ground, _) = Ground::find().unwrap_or_else(|error| panic!("opening a device: {error}"));
    let mut group = criterion.benchmark_group(format!("open_close/{}/64-MiB", ground.name()));
    common::quick(&mut group);
    group.sampling_mode(SamplingMode::Flat);
    group.throughput(Throughput::Bytes(BYTES as u64));
    for strategy in Strategy::all(&ground) {
        group.bench_function(strategy.name(), |bencher| {
            bencher.iter_custom(|count| {
                let started = Instant::now();
                for _ in 0..count {
                    open_and_close(strategy, &ground)
                        .unwrap_or_else(|error| panic!("{}: {error}", strategy.name()));
                }
                started.elapsed()
            });
        });
    }
    group.finish();
}

fn open_and_close(strategy: Strategy, ground: &Ground) -> Result<(), BenchError> {
    strategy.open(ground, BYTES)?.close().map(drop)
}

criterion_group!(benches, startup);
criterion_main!(benches);
