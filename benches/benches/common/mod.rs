//! What the targets for leases share: their times, a source in several threads.

#![allow(dead_code, reason = "each target uses its part")]

use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use pinpool_bench::churn::Side;
use pinpool_bench::churn::run::together;

/// Benchmarks the round trips of each side with each number of threads; the throughput is that of all
/// threads together.
pub(crate) fn round_trips(
    criterion: &mut Criterion,
    name: &str,
    sides: &[(String, Side)],
    expected: bool,
    threads: &[usize],
) {
    let mut group = criterion.benchmark_group(name);
    quick(&mut group);
    for (name, side) in sides {
        for &threads in threads {
            group.throughput(Throughput::Elements(threads as u64));
            let id = BenchmarkId::new(name, format!("{threads}-threads"));
            group.bench_function(id, |bencher| {
                bencher.iter_custom(|count| {
                    together(side.source.as_ref(), threads, count, expected)
                        .unwrap_or_else(|error| panic!("{name}: {error}"))
                });
            });
        }
    }
    group.finish();
}

pub(crate) fn quick(group: &mut BenchmarkGroup<'_, WallTime>) {
    group.warm_up_time(Duration::from_millis(200));
    group.measurement_time(Duration::from_millis(500));
    group.sample_size(10);
}
