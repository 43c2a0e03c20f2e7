//! What does a frame cost, by where its buffer comes from? The four rivals of `pinpool bench
//! frames`, by the same code: leases, pinned memory per frame, `malloc` per frame, a fixed ring.
//!
//! Uses the GPU where there is one, else locked host memory.

#![allow(missing_docs, clippy::panic, reason = "a benchmark may stop loudly; macros lack docs")]

use std::time::Duration;

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use pinpool::{BackendChoice, FrameSpec};
use pinpool_bench::BenchError;
use pinpool_bench::rig::FrameRig;
use pinpool_bench::rivals::Rival;

const DEPTH: usize = 8;
const FRAMES: [(&str, &str); 2] =
    [("1080p-nv12", "1920x1080:nv12"), ("1080p-rgb", "1920x1080:rgb8")];

fn frame_churn(criterion: &mut Criterion) {
    for (name, spec) in FRAMES {
        if let Err(error) = churn(criterion, name, spec) {
            panic!("{name}: {error}");
        }
    }
}

fn churn(criterion: &mut Criterion, name: &str, spec: &str) -> Result<(), BenchError> {
    let frame: FrameSpec = spec.parse().map_err(|cause| BenchError::failed(spec, cause))?;
    let bytes = frame.bytes().map_err(|cause| BenchError::failed(spec, cause))?;
    let mut rig = FrameRig::open(BackendChoice::Auto, bytes, DEPTH)?;
    let locked = if rig.locked { "" } else { "-unlocked" };
    let mut group =
        criterion.benchmark_group(format!("frame_churn/{}{locked}/{name}", rig.backend));
    group.throughput(Throughput::Bytes(bytes as u64));
    group.sampling_mode(SamplingMode::Flat);
    group.warm_up_time(Duration::from_millis(500));
    group.measurement_time(Duration::from_secs(3));
    group.sample_size(20);
    for rival in Rival::ALL {
        group.bench_function(rival.name(), |bencher| {
            bencher.iter_custom(|frames| {
                let mut busy = Duration::ZERO;
                for _ in 0..frames {
                    match rig.frame(rival) {
                        Ok(took) => busy += took,
                        Err(error) => panic!("{}: {error}", rival.name()),
                    }
                }
                busy
            });
        });
    }
    group.finish();
    Ok(())
}

criterion_group!(benches, frame_churn);
criterion_main!(benches);
