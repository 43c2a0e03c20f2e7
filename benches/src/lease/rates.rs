//! The parts that measure rates: rounds in which every source runs with every number of threads.

use std::time::Duration;

use super::Scale;
use super::report::RateRow;
use crate::BenchError;
use crate::churn::run::{self, pair_counts, thread_counts};
use crate::churn::{Exhausted, Goods, Leases, Retired, SLOTS, Side};
use crate::timing::{Progress, Range, order, rounded};

/// Taking and giving back.
pub(super) fn by_threads(
    scale: &Scale,
    progress: &mut Progress<'_>,
) -> Result<Vec<RateRow>, BenchError> {
    let mut sides = Vec::new();
    for (more, slots, classes) in POOLS {
        let side = Side::leases(Leases::open(slots, classes)?);
        sides.push((format!("{}{more}", side.name), side));
    }
    sides.extend(Side::rivals(SLOTS).into_iter().map(|side| (side.name.to_owned(), side)));
    rounds(cells(&sides, true), scale, progress)
}

/// Being told that there is none.
pub(super) fn exhausted(
    scale: &Scale,
    progress: &mut Progress<'_>,
) -> Result<Vec<RateRow>, BenchError> {
    let mut sides = vec![Side::exhausted(Exhausted::open()?)];
    sides.extend(Side::exhausted_rivals());
    let sides: Vec<_> = sides.into_iter().map(|side| (side.name.to_owned(), side)).collect();
    rounds(cells(&sides, false), scale, progress)
}

/// Drops with a fence that is complete, beside plain ones.
pub(super) fn after_a_fence(
    scale: &Scale,
    progress: &mut Progress<'_>,
) -> Result<Vec<RateRow>, BenchError> {
    let sides = [Side::leases(Leases::open(SLOTS, 1)?), Side::retired(Retired::open(SLOTS)?)];
    let sides = sides.map(|side| (side.name.to_owned(), side));
    rounds(cells(&sides, true), scale, progress)
}

/// One thread takes, another gives back.
pub(super) fn from_thread_to_thread(
    scale: &Scale,
    progress: &mut Progress<'_>,
) -> Result<Vec<RateRow>, BenchError> {
    let mut cells = Vec::new();
    for pairs in pair_counts() {
        for goods in Goods::all(pairs)? {
            let name = goods.name.to_owned();
            let run = Box::new(move |counted| goods.source.rate(pairs, counted));
            cells.push(Cell::new(name, true, true, pairs, run));
        }
    }
    rounds(cells, &Scale { counted: scale.handoff_counted, ..*scale }, progress)
}

/// Every side with every number of threads, neighbours with as many.
fn cells(sides: &[(String, Side)], expected: bool) -> Vec<Cell<'_>> {
    let mut cells = Vec::new();
    for threads in thread_counts() {
        for (name, side) in sides {
            let source = side.source.as_ref();
            let run = Box::new(move |counted| run::rate(source, threads, counted, expected));
            cells.push(Cell::new(name.clone(), side.has_classes, side.is_bounded, threads, run));
        }
    }
    cells
}

fn rounds(
    mut cells: Vec<Cell<'_>>,
    scale: &Scale,
    progress: &mut Progress<'_>,
) -> Result<Vec<RateRow>, BenchError> {
    for round in 0..scale.rounds {
        for at in order(round, cells.len()) {
            let cell = &mut cells[at];
            let (rate, missed) = (cell.run)(scale.counted)?;
            cell.rates.push(rate / 1e6);
            cell.row.missed += missed;
        }
        progress.step();
    }
    Ok(cells.into_iter().map(Cell::row).collect())
}

/// One source with one number of threads, and what came of it so far.
struct Cell<'a> {
    row: RateRow,
    run: Measure<'a>,
    /// In millions a second.
    rates: Vec<f64>,
}

impl<'a> Cell<'a> {
    fn new(
        source: String,
        has_classes: bool,
        is_bounded: bool,
        threads: usize,
        run: Measure<'a>,
    ) -> Self {
        let row = RateRow {
            source,
            has_classes,
            is_bounded,
            threads: threads as u64,
            mops: Range::default(),
            ns: 0.0,
            rounds: Vec::new(),
            missed: 0,
        };
        Self { row, run, rates: Vec::new() }
    }

    fn row(self) -> RateRow {
        let mops = Range::of(&self.rates);
        let ns = if mops.median > 0.0 { self.row.threads as f64 * 1e3 / mops.median } else { 0.0 };
        RateRow {
            mops,
            ns: rounded(ns),
            rounds: self.rates.iter().map(|&rate| rounded(rate)).collect(),
            ..self.row
        }
    }
}

/// Measures for so long: a rate a second, and what was missed.
type Measure<'a> = Box<dyn Fn(Duration) -> Result<(f64, u64), BenchError> + 'a>;

/// What the names of pools end in, slots and classes.
const POOLS: [(&str, usize, usize); 4] = [
    ("", SLOTS, 1),
    (", 4096 slots", 4096, 1),
    (", 12 classes", SLOTS, 12),
    (", 4096 slots, 12 classes", 4096, 12),
];
