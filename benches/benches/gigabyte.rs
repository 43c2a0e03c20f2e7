//! How long does one copy of a gigabyte take from pageable and from pinned memory, each way?
//!
//! Copies of memory that was copied before, by the code of `pinpool bench copy`. Without a GPU there is
//! nothing to copy to.

#![allow(missing_docs, clippy::panic, reason = "a benchmark may stop loudly; macros lack docs")]

use std::time::Duration;

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use pinpool_bench::BenchError;
use pinpool_bench::copy::{Buffers, Direction, Source};
use pinpool_bench::cuda_rig::CudaRig;

mod common;

const BYTES: usize = 1_000_000_000;

fn gigabyte(criterion: &mut Criterion) {
    let rig = match CudaRig::open() {
        Ok(rig) => rig,
        Err(BenchError::Input(reason)) => return not_run(&reason),
        Err(error) => panic!("opening a device: {error}"),
    };
    let buffers = Buffers::open(&rig, BYTES);
    let mut buffers = buffers.unwrap_or_else(|error| panic!("opening buffers: {error}"));
    for direction in Direction::ALL {
        let mut group = criterion.benchmark_group(format!("gigabyte/{}", direction.name()));
        common::quick(&mut group);
        group.sampling_mode(SamplingMode::Flat);
        group.throughput(Throughput::Bytes(BYTES as u64));
        for source in [Source::Pageable, Source::Raw, Source::Lease] {
            group.bench_function(source.name(), |bencher| {
                bencher.iter_custom(|count| {
                    let mut took = Duration::ZERO;
                    for _ in 0..count {
                        took += buffers
                            .copy(source, direction)
                            .unwrap_or_else(|error| panic!("{}: {error}", source.name()));
                    }
                    took
                });
            });
        }
        group.finish();
    }
}

#[allow(clippy::print_stdout, reason = "it says what it does not do")]
fn not_run(reason: &str) {
    println!("gigabyte: not run: {reason}");
}

criterion_group!(benches, gigabyte);
criterion_main!(benches);
