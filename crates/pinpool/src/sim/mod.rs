//! A simulator: one thread, a virtual clock and a seed drive the real pool and the rounds of its
//! keeper through leases, tasks, work in flight and faults, and audit everything after each step.
//!
//! A failure prints its seed: `SIM_SEED=… cargo test -p pinpool --lib sim` plays it again.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod audit;
mod ending;
mod fence;
mod memory;
mod ops;
mod options;
mod rng;
mod shadow;
mod world;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::clock;
use crate::sync::{AtomicU64, Mutex, Ordering};
use rng::Rng;
use world::World;

std::thread_local! {
    static STEP: Cell<u64> = const { Cell::new(0) };
}

/// What happened in all worlds.
type Tally = [(&'static str, u64); 16];

/// Seeds that are run one after another, on as many threads as there are processors.
#[test]
fn seeds() {
    let steps = number("SIM_STEPS").unwrap_or(STEPS);
    let (first, seeds) = match number("SIM_SEED") {
        Some(seed) => (seed, 1),
        None => (number("SIM_FIRST").unwrap_or(1), number("SIM_SEEDS").unwrap_or(SEEDS)),
    };
    let next = AtomicU64::new(first);
    let failed = Mutex::new(Vec::new());
    let sums = Mutex::new(None::<Tally>);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while failed.lock().len() < FAILURES_MAX {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
                        return;
                    }
                    if let Ok(tally) = catch_unwind(AssertUnwindSafe(|| run(seed, steps))) {
                        add(&mut sums.lock(), tally.as_ref());
                    } else {
                        report(seed);
                        failed.lock().push(seed);
                    }
                }
            });
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    let sums = sums.lock().unwrap_or_default();
    println!("{seeds} seeds of {steps} steps in {seconds:.1} s: {sums:?}");
    let failed = failed.lock().clone();
    assert!(failed.is_empty(), "seeds {failed:?} failed");
    if seeds * steps >= ENOUGH {
        let missing: Vec<_> = sums.iter().filter(|(_, count)| *count == 0).collect();
        assert!(missing.is_empty(), "the simulator never saw {missing:?}");
    }
}

/// Runs one seed. `None` if its pool could not be opened, which some are made for.
fn run(seed: u64, steps: u64) -> Option<Tally> {
    STEP.set(0);
    let mut world = World::open(Rng::new(seed)).ok()?;
    for step in 1..=steps {
        STEP.set(step);
        world.step();
        world.audit(step);
    }
    STEP.set(u64::MAX);
    let mut sums = None;
    world.classes.iter().for_each(|shadow| add(&mut sums, Some(&shadow.tally())));
    world.end();
    clock::simulated::go_by();
    sums
}

fn add(sums: &mut Option<Tally>, tally: Option<&Tally>) {
    let Some(tally) = tally else { return };
    match sums {
        None => *sums = Some(*tally),
        Some(sums) => sums.iter_mut().zip(tally).for_each(|(sum, (_, count))| sum.1 += *count),
    }
}

fn report(seed: u64) {
    let commit = std::process::Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let commit = commit.unwrap_or_else(|_| "unknown".into());
    let step = STEP.get();
    let step = if step == u64::MAX { "end".into() } else { step.to_string() };
    eprintln!("SEED={seed} COMMIT={commit} STEP={step}");
}

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value}")))
}

const SEEDS: u64 = 10_000;
const STEPS: u64 = 10_000;
/// So many steps see everything that can happen.
const ENOUGH: u64 = 5_000_000;
const FAILURES_MAX: usize = 5;
