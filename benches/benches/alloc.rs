//! What does a buffer cost to get and to give back, by where it comes from and by size?
//!
//! The ways of `pinpool bench alloc`, by the same code: a lease, `malloc` and a touch, locked memory, and
//! on a GPU host the driver's own, registered memory, and registering alone.

#![allow(missing_docs, clippy::panic, reason = "a benchmark may stop loudly; macros lack docs")]

use std::time::Duration;

use criterion::{Criterion, SamplingMode, criterion_group, criterion_main};
use pinpool_bench::BenchError;
use pinpool_bench::alloc::{Bench, Side};
use pinpool_bench::startup::Ground;

mod common;

const SIZES: [(&str, usize); 3] = [("4-KiB", 4 << 10), ("1-MiB", 1 << 20), ("16-MiB", 16 << 20)];

fn alloc(criterion: &mut Criterion) {
    let (ground, why_host) = Ground::find().unwrap_or_else(|error| panic!("{error}"));
    let mut notes: Vec<String> = why_host.into_iter().collect();
    for (name, bytes) in SIZES {
        let bench = Bench::open(&ground, bytes, &mut notes);
        let mut bench = bench.unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut group = criterion.benchmark_group(format!("alloc/{}/{name}", ground.name()));
        common::quick(&mut group);
        group.sampling_mode(SamplingMode::Flat);
        for side in bench.sides() {
            group.bench_function(side.name(), |bencher| {
                bencher.iter_custom(|count| {
                    times(&mut bench, side, count)
                        .unwrap_or_else(|error| panic!("{}: {error}", side.name()))
                });
            });
        }
        group.finish();
    }
    say(&notes);
}

/// Of so many buffers; a way that counts many in a row at once gives the time of one.
fn times(bench: &mut Bench, side: Side, count: u64) -> Result<Duration, BenchError> {
    let mut all = 0.0;
    for _ in 0..count {
        all += bench.once(side)?.pair_s();
    }
    Ok(Duration::from_secs_f64(all))
}

#[allow(clippy::print_stdout, reason = "it says what it does not do")]
fn say(notes: &[String]) {
    for note in notes {
        println!("alloc: {note}");
    }
}

criterion_group!(benches, alloc);
criterion_main!(benches);
