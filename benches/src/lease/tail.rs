//! Part `tail`: every round trip timed by itself, in as many threads as there are processors.

use super::Scale;
use super::report::{STAMPS, TailRow};
use crate::BenchError;
use crate::churn::run::processors;
use crate::churn::{IN_A_ROW, Integers, Leases, SLOTS, Side};
use crate::stamp::{Clock, Ticks};
use crate::timing::{Progress, order, rounded};
use crate::window::{Tally, Window};

/// Measures the pool, its bounded rivals, an allocator and the stamps alone, interleaved.
pub(super) fn measure(
    clock: &Clock,
    scale: &Scale,
    progress: &mut Progress<'_>,
) -> Result<Vec<TailRow>, BenchError> {
    let threads = processors();
    // Four for each thread, if there are more than 16.
    let slots = SLOTS.max(4 * threads);
    let mut sides = vec![Side::leases(Leases::open(slots, 1)?)];
    sides.extend(Side::rivals(slots));
    sides.push(Side {
        name: STAMPS,
        has_classes: false,
        is_bounded: false,
        source: Box::new(Integers),
    });
    let mut times = sides.iter().map(|_| Ticks::new()).collect::<Result<Vec<_>, _>>()?;
    for round in 0..scale.rounds {
        for at in order(round, sides.len()) {
            timed(&sides[at], threads, scale, &mut times[at])?;
        }
        progress.step();
    }
    let row = |(side, times): (Side, Ticks)| {
        let quantile = |q| rounded(clock.quantile_ns(&times, q));
        TailRow {
            source: side.name.to_owned(),
            threads: threads as u64,
            count: times.count(),
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            p9999_ns: quantile(0.9999),
            max_ns: quantile(1.0),
        }
    };
    Ok(sides.into_iter().zip(times).map(row).collect())
}

fn timed(side: &Side, threads: usize, scale: &Scale, times: &mut Ticks) -> Result<(), BenchError> {
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
    Window::run(works.collect(), scale.counted)?;
    by_thread.iter().try_for_each(|thread| times.merge(thread))
}
