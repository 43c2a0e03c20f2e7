//! Part `short`: holds far shorter than a thread takes to wake, with more threads than buffers and
//! with as many.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::Scale;
use super::pools::{Census, Guarded, Leases, ThreadPool};
use super::report::{CONDVAR, FREE, LEASE, ShortRow, WAITING};
use crate::BenchError;
use crate::timing::{Progress, Range, order, rounded};
use crate::window::{Tally, Window};

/// Measures all cases, interleaved.
pub(super) fn measure(
    scale: &Scale,
    progress: &mut Progress<'_>,
) -> Result<Vec<ShortRow>, BenchError> {
    let leases = Leases::open(SLOTS)?;
    let guarded = Guarded::new(SLOTS);
    let cases = [(WAITING, LEASE), (WAITING, CONDVAR), (FREE, LEASE), (FREE, CONDVAR)];
    let mut rates = vec![Vec::new(); cases.len()];
    for round in 0..scale.short_rounds {
        for at in order(round, cases.len()) {
            let (case, pool) = cases[at];
            let threads = if case == WAITING { THREADS } else { SLOTS };
            rates[at].push(match pool {
                LEASE => run(&leases, threads, scale.short_round)?,
                _ => run(&guarded, threads, scale.short_round)?,
            });
        }
        progress.step();
    }
    let work_ns = rounded(work_ns());
    let lost = |pool: &str| if pool == LEASE { leases.lost() } else { guarded.lost() };
    let row = |((case, pool), rates): ((&str, &str), Vec<f64>)| ShortRow {
        case: case.to_owned(),
        pool: pool.to_owned(),
        threads: if case == WAITING { THREADS } else { SLOTS } as u64,
        slots: SLOTS as u64,
        work_ns,
        leases_per_s: Range::of(&rates),
        rounds: rates.iter().map(|&rate| rounded(rate)).collect(),
        lost: lost(pool),
    };
    Ok(cases.into_iter().zip(rates).map(row).collect())
}

/// Leases a second of all threads.
fn run<P: ThreadPool>(pool: &P, threads: usize, counted: Duration) -> Result<f64, BenchError> {
    let works = (0..threads).map(|_| |window: &Window| work_on(pool, window)).collect();
    Window::run(works, counted).map(|(rate, _)| rate)
}

fn work_on<P: ThreadPool>(pool: &P, window: &Window) -> Result<Tally, BenchError> {
    let mut tally = Tally::default();
    while let Some(counts) = window.counts() {
        let _held = pool.take()?;
        work();
        tally.done += u64::from(counts);
    }
    Ok(tally)
}

/// A few hundred nanoseconds of a processor's time.
fn work() {
    let mut value = black_box(1u64);
    for _ in 0..WORK_STEPS {
        value = black_box(value.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    }
    black_box(value);
}

/// What [`work`] takes.
fn work_ns() -> f64 {
    let from = Instant::now();
    (0..REPEATS).for_each(|_| work());
    from.elapsed().as_secs_f64() * 1e9 / f64::from(REPEATS)
}

const SLOTS: usize = 2;
const THREADS: usize = 4;
const WORK_STEPS: u32 = 400;
const REPEATS: u32 = 10_000;
