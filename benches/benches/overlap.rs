//! How much of copies to the device, kernels and copies back goes on at once?
//!
//! Eight chunks of 4 MiB, step by step and in one to three streams, from pageable memory and from leases,
//! as `pinpool bench overlap` does. Without a GPU there is nothing to copy to.

#![allow(missing_docs, clippy::panic, reason = "a benchmark may stop loudly; macros lack docs")]

use std::time::Duration;

use criterion::{
    BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
};
use pinpool_bench::BenchError;
use pinpool_bench::cuda_rig::CudaRig;
use pinpool_bench::kernels::Kernels;
use pinpool_bench::overlap::{Course, Host, Lanes, Memory};

mod common;

const CHUNKS: usize = 8;
const CHUNK_BYTES: usize = 4 << 20;

fn overlap(criterion: &mut Criterion) {
    let (mut lanes, hosts) = match open() {
        Ok(opened) => opened,
        Err(BenchError::Input(reason)) => return not_run(&reason),
        Err(error) => panic!("opening a device: {error}"),
    };
    let courses = [
        ("serial", Course::Serial),
        ("1-stream", Course::Streams(1)),
        ("2-streams", Course::Streams(2)),
        ("3-streams", Course::Streams(3)),
    ];
    let mut group = criterion.benchmark_group("overlap/8-chunks");
    common::quick(&mut group);
    group.sampling_mode(SamplingMode::Flat);
    group.throughput(Throughput::Bytes((CHUNKS * CHUNK_BYTES) as u64));
    for mut host in hosts {
        for (name, course) in courses {
            group.bench_function(BenchmarkId::new(host.memory.name(), name), |bencher| {
                bencher.iter_custom(|count| {
                    let mut took = Duration::ZERO;
                    for _ in 0..count {
                        took += lanes
                            .run(&mut host, course)
                            .unwrap_or_else(|error| panic!("{name}: {error}"));
                    }
                    took
                });
            });
        }
    }
    group.finish();
}

fn open() -> Result<(Lanes, [Host; 2]), BenchError> {
    let rig = CudaRig::open()?;
    let kernels = Kernels::load(&rig)?;
    let [pageable, pinned] = Memory::ALL.map(|memory| Host::open(memory, CHUNKS, CHUNK_BYTES));
    let mut hosts = [pageable?, pinned?];
    // Opening the pool may have made another context current on this thread.
    rig.bind()?;
    let mut lanes = Lanes::open(&rig, kernels, 3, CHUNK_BYTES)?;
    lanes.tune(&mut hosts)?;
    Ok((lanes, hosts))
}

#[allow(clippy::print_stdout, reason = "it says what it does not do")]
fn not_run(reason: &str) {
    println!("overlap: not run: {reason}");
}

criterion_group!(benches, overlap);
criterion_main!(benches);
