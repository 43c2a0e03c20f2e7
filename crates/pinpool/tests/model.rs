//! Random operation sequences against a plain model (`pinpool_testkit::model`), by the hundred
//! million: two threads, each with its own pools and its own random numbers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test reports by panicking, and its figures by printing"
)]

use std::time::{Duration, Instant};

use arbtest::arbtest;
use pinpool_testkit::model::{self, Totals};

/// Each operation is checked against the model as it is made, each slot's every byte when it changes
/// hands. To repeat a failure: `MODEL_SEED=` with the printed seed, `MODEL_TIMES=` as it takes the pool's
/// own thread to be in step.
#[test]
fn operations_agree_with_the_model() {
    if let Ok(seed) = std::env::var("MODEL_SEED") {
        return repeat(&seed);
    }
    let start = Instant::now();
    let wanted = std::env::var("MODEL_OPS").ok().and_then(|ops| ops.parse().ok()).unwrap_or(OPS);
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            std::thread::spawn(move || {
                let mut totals = Totals::default();
                while totals.ops < wanted / THREADS {
                    // In slices of time, because arbtest counts time and we count operations.
                    arbtest(|u| model::run(u, &mut totals))
                        .size_min(SIZE_MIN)
                        .size_max(SIZE_MAX)
                        .budget(Duration::from_millis(500))
                        .run();
                }
                totals
            })
        })
        .collect();
    let mut all = Totals::default();
    for thread in threads {
        let totals = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        all.add(totals);
    }
    let mean = all.ops / all.cases.max(1);
    println!("{all:?}, {mean} ops/case, {:?}", start.elapsed());
    assert!(all.ops >= wanted, "{} of {wanted} operations", all.ops);
    assert!(mean >= 500, "sequences are too short to reach far: {mean}");
    // The sequences must reach what they are for.
    assert!(all.misses > all.ops / 1000 && all.leases > all.ops / 10, "{all:?}");
    assert!(all.refused_closed > 0 && all.pools >= all.cases, "{all:?}");
    assert!(all.flights > all.ops / 50 && all.taken > all.ops / 200, "{all:?}");
    assert!(all.lost > 0 || all.ops < OPS, "{all:?}");
}

fn repeat(seed: &str) {
    let seed = u64::from_str_radix(seed.trim_start_matches("0x"), 16).expect("a seed in hex");
    let times = std::env::var("MODEL_TIMES").ok().and_then(|times| times.parse().ok());
    for _ in 0..times.unwrap_or(1) {
        arbtest(|u| model::run(u, &mut Totals::default())).seed(seed).run();
    }
}

/// One per processor of the smallest machine that runs this.
const THREADS: u64 = 2;
/// Model-checked operations per run.
const OPS: u64 = 100_000_000;
/// Random bytes per sequence; an operation takes three.
const SIZE_MIN: u32 = 4 << 10;
/// The most, about 20,000 operations.
const SIZE_MAX: u32 = 64 << 10;
