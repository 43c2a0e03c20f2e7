//! Part `tail`: every round trip timed by itself, in as many threads as there are processors.

use std::time::Duration;

use super::Scale;
use super::growth::{SLOTS_MANY, Shuffled};
use super::report::{PINPOOL_MANY, STAMPS, TailRow};
use crate::BenchError;
use crate::churn::run::processors;
use crate::churn::{IN_A_ROW, Integers, Leases, SLOTS, Side};
use crate::stamp::{Clock, Ticks};
use crate::timing::{Progress, median, order, rounded};
use crate::window::{Tally, Window};

/// Measures the pool, one with many slots, what is used in its place and the stamps alone, interleaved.
pub(super) fn measure(
    clock: &Clock,
    scale: &Scale,
    progress: &mut Progress<'_>,
) -> Result<Vec<TailRow>, BenchError> {
    let threads = processors();
    // Four for each thread, if there are more than 16.
    let slots = SLOTS.max(4 * threads);
    // Each slot was out before, and they came back in a random order, as in a pool that has run for long.
    let mut many = Shuffled::new(Leases::open(SLOTS_MANY, 1)?);
    many.shuffle();
    let many = Side { name: PINPOOL_MANY, ..Side::leases(many.into_leases()) };
    let mut sides = vec![Side::leases(Leases::open(slots, 1)?), many];
    sides.extend(Side::rivals(slots));
    sides.push(Side {
        name: STAMPS,
        has_classes: false,
        is_bounded: false,
        source: Box::new(Integers),
    });
    let mut times: Vec<Vec<Ticks>> = sides.iter().map(|_| Vec::new()).collect();
    let counted = scale.counted * COUNTED_OF / COUNTED_PARTS;
    for round in 0..scale.rounds {
        for at in order(round, sides.len()) {
            times[at].push(timed(&sides[at], threads, counted)?);
        }
        progress.step();
    }
    let row = |(side, rounds): (Side, Vec<Ticks>)| {
        // A round in which the machine was elsewhere must not decide.
        let quantile = |q| {
            let of_rounds: Vec<_> =
                rounds.iter().map(|times| clock.quantile_ns(times, q)).collect();
            rounded(median(&of_rounds))
        };
        TailRow {
            source: side.name.to_owned(),
            threads: threads as u64,
            count: rounds.iter().map(Ticks::count).sum(),
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            p9999_ns: quantile(0.9999),
            max_ns: rounded(
                rounds.iter().map(|times| clock.quantile_ns(times, 1.0)).fold(0.0, f64::max),
            ),
        }
    };
    Ok(sides.into_iter().zip(times).map(row).collect())
}

/// One round of a side.
fn timed(side: &Side, threads: usize, counted: Duration) -> Result<Ticks, BenchError> {
    let mut by_thread = (0..threads).map(|_| Ticks::new()).collect::<Result<Vec<_>, _>>()?;
    let work = |times: &mut Ticks, window: &Window| {
        let mut before = Ticks::new()?;
        let mut tally = Tally::default();
        while let Some(counts) = window.counts() {
            side.source.timed(IN_A_ROW, if counts { times } else { &mut before });
            tally.done += IN_A_ROW;
        }
        Ok(tally)
    };
    let work = &work;
    let works = by_thread.iter_mut().map(|times| move |window: &Window| work(times, window));
    Window::run(works.collect(), counted)?;
    let mut times = Ticks::new()?;
    by_thread.iter().try_for_each(|thread| times.merge(thread))?;
    Ok(times)
}

/// The part takes as long with the pool of many slots as without: 13 sources share the time of 12.
const COUNTED_OF: u32 = 12;
const COUNTED_PARTS: u32 = 13;
