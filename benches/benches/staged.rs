//! How fast does ordinary memory go to and from the device?
//!
//! 64 MiB by the driver's own copy, registered in place, through a stager as it is by default, and from a
//! lease, as `pinpool bench staged` does. Without a GPU there is nothing to copy to.

#![allow(missing_docs, clippy::panic, reason = "a benchmark may stop loudly; macros lack docs")]

use std::time::Duration;

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use pinpool_bench::BenchError;
use pinpool_bench::copy::Direction;
use pinpool_bench::cuda_rig::CudaRig;
use pinpool_bench::staged::{Copier, Crew, Ends, Side, Stagers};

mod common;

const BYTES: usize = 64 << 20;

fn staged(criterion: &mut Criterion) {
    let rig = match CudaRig::open() {
        Ok(rig) => rig,
        Err(BenchError::Input(reason)) => return not_run(&reason),
        Err(error) => panic!("opening a device: {error}"),
    };
    let opened = open(&rig).unwrap_or_else(|error| panic!("opening stagers: {error}"));
    let (mut copier, mut ends, crew) = opened;
    let sides = [Side::Pageable, Side::Register, Side::Staged(crew), Side::Pinned];
    for direction in Direction::ALL {
        let mut group = criterion.benchmark_group(format!("staged/{}/64-MiB", direction.name()));
        common::quick(&mut group);
        group.sampling_mode(SamplingMode::Flat);
        group.throughput(Throughput::Bytes(BYTES as u64));
        for side in sides {
            group.bench_function(side.name(), |bencher| {
                bencher.iter_custom(|count| {
                    let mut took = Duration::ZERO;
                    for _ in 0..count {
                        took += copier
                            .copy(side, direction, &mut ends)
                            .unwrap_or_else(|error| panic!("{}: {error}", side.name()));
                    }
                    took
                });
            });
        }
        group.finish();
    }
}

fn open(rig: &CudaRig) -> Result<(Copier, Ends, Crew), BenchError> {
    let crew = Crew::by_default()?;
    let copier = Copier::new(rig, Stagers::open(&[crew], BYTES)?)?;
    Ok((copier, Ends::new(rig, BYTES)?, crew))
}

#[allow(clippy::print_stdout, reason = "it says what it does not do")]
fn not_run(reason: &str) {
    println!("staged: not run: {reason}");
}

criterion_group!(benches, staged);
criterion_main!(benches);
