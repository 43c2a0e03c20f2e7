//! The part of the page about what pinned memory is worth and what pinning it costs; empty where there
//! are no such results.

use super::Committed;
use crate::alloc::Side;
use crate::alloc::report::{AllocRatio, AllocReport};
use crate::gigabyte::report::GigabyteReport;
use crate::machine::Gpu;
use crate::neighbours::report::NeighboursReport;
use crate::overlap::report::OverlapReport;
use crate::report::Report;
use crate::text;
use crate::timing::Range;

/// A row for each fact, from the first result of each scenario on the first GPU that has any; nothing where
/// there is none.
pub(super) fn table(results: &[Committed]) -> String {
    let reports = || results.iter().map(|committed| &committed.report);
    let has_facts = |report: &&Report| FACTS.iter().any(|facts| facts(report).is_some());
    let Some(gpu) = reports().filter(has_facts).find_map(gpu) else { return String::new() };
    let is_here = |report: &&Report| self::gpu(report).is_some_and(|other| other.name == gpu.name);
    let here: Vec<&Report> = reports().filter(is_here).collect();
    let rows: Vec<Fact> = FACTS
        .iter()
        .filter_map(|facts| here.iter().find_map(|report| facts(report)))
        .flatten()
        .collect();
    let first = format!("{}, time", gpu.name);
    let header = [first.as_str(), "without", "with", "as fast"];
    text::markdown_section(&header, &rows.into_iter().map(Vec::from).collect::<Vec<_>>())
}

/// What it is, the times without and with pinning once, and how many times as fast.
type Fact = [String; 4];
/// What a result shows; nothing of results of other scenarios and of those without a GPU.
type Facts = fn(&Report) -> Option<Vec<Fact>>;

const FACTS: [Facts; 4] = [
    |report| match report {
        Report::Gigabyte(report) => gigabyte(report),
        _ => None,
    },
    |report| match report {
        Report::Alloc(report) => alloc(report),
        _ => None,
    },
    |report| match report {
        Report::Neighbours(report) => neighbours(report),
        _ => None,
    },
    |report| match report {
        Report::Overlap(report) => overlap(report),
        _ => None,
    },
];

/// A copy of a gigabyte: of memory that was copied before, and into memory that nobody touched.
fn gigabyte(report: &GigabyteReport) -> Option<Vec<Fact>> {
    let fact = |what: &str, direction: &str, ratio: &Option<Range>, first: bool| {
        let us = |memory| {
            let copy = report.copy(memory, direction)?;
            Some(1000.0 * if first { copy.first_ms.median } else { copy.later_ms.median })
        };
        let [pageable, pinned] = [us("pageable")?, us("pinned")?].map(time);
        let name = format!("{} {what} memory", text::bytes(report.bytes));
        Some([name, pageable, pinned, text::ratio(ratio.as_ref()?.median)])
    };
    let ratios = &report.ratios;
    Some(vec![
        fact("to the GPU, pageable and pinned", "h2d", &ratios.h2d_later, false)?,
        fact("from the GPU, pageable and pinned", "d2h", &ratios.d2h_later, false)?,
        fact("from the GPU into new pageable and pinned", "d2h", &ratios.d2h_first, true)?,
    ])
}

/// A buffer of its own for each use, of a middle size and of a large one.
fn alloc(report: &AllocReport) -> Option<Vec<Fact>> {
    report.header.machine.gpu.as_ref()?;
    let fact = |ratio: &AllocRatio| {
        let us = |side: Side| {
            let mut rows = report.rows.iter();
            let row = rows.find(|row| row.bytes == ratio.bytes && row.way == side.name())?;
            Some(row.us.median)
        };
        let bytes = text::bytes(ratio.bytes);
        let name = format!("{bytes} got and given back, `cuMemHostAlloc` and a lease");
        let [pinned, lease] = [us(Side::HostAlloc)?, us(Side::Lease)?].map(time);
        Some([name, pinned, lease, text::ratio(ratio.pinned_over_lease?)])
    };
    let ratios = report.ratios.iter().filter(|ratio| [1 << 20, 16 << 20].contains(&ratio.bytes));
    Some(ratios.filter_map(fact).collect()).filter(|facts: &Vec<_>| !facts.is_empty())
}

/// Another thread's copies, beside one that pins each frame and beside one that leases it.
fn neighbours(report: &NeighboursReport) -> Option<Vec<Fact>> {
    report.header.machine.gpu.as_ref()?;
    let longest = |case: String| {
        let row = report.rows.iter().find(|row| row.case == case)?;
        row.felt.first().map(|felt| felt.max_us.high)
    };
    let fact = |load: &str| {
        let [pinning, pool] = [format!("pinning, {load}"), format!("pool, {load}")].map(longest);
        let (pinning, pool) = (pinning?, pool?);
        let name =
            format!("the longest 1 MiB copy beside a thread that pins or leases frames, {load}");
        Some([name, time(pinning), time(pool), text::ratio(pinning / pool)])
    };
    let loads = report.rows.iter().filter_map(|row| row.case.strip_prefix("pinning, "));
    Some(loads.filter_map(fact).collect())
}

/// Copies and kernels at once.
fn overlap(report: &OverlapReport) -> Option<Vec<Fact>> {
    let ratios = &report.ratios;
    let us = |memory: &str, streams: Option<u64>| {
        let mut rows = report.rows.iter();
        let row = rows.find(|row| row.memory == memory && row.streams == streams)?;
        Some(1000.0 * row.ms.median)
    };
    let pageable = time(us("pageable", Some(ratios.pageable_streams?))?);
    let pinned = time(us("pinned", Some(ratios.pinned_streams?))?);
    let chunks = format!("{} chunks of {}", report.chunks, text::bytes(report.chunk_bytes));
    let name =
        format!("{chunks} in, through a kernel and out in streams, pageable and pinned memory");
    Some(vec![[name, pageable, pinned, text::ratio(ratios.pinned_over_pageable?.median)]])
}

fn gpu(report: &Report) -> Option<&Gpu> {
    report.origin().machine.gpu.as_ref()
}

/// A time in the unit that suits it.
fn time(us: f64) -> String {
    match us {
        ..1.0 => format!("{:.0} ns", us * 1000.0),
        1.0..1000.0 => format!("{} us", text::number(us)),
        _ => format!("{} ms", text::number(us / 1000.0)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;
    use crate::header::tests::{header, machine};
    use crate::overlap::report::{OverlapRatios, OverlapRow};

    fn committed(has_gpu: bool) -> Committed {
        let even = |median| Range { median, low: median, high: median };
        let row = |memory: &str, streams, ms| OverlapRow {
            memory: memory.into(),
            streams,
            ms: even(ms),
            speedup: even(1.0),
            pageable_over_this: even(1.0),
            rounds: Vec::new(),
        };
        let ratios = OverlapRatios {
            pinned_over_pageable: Some(even(10.7)),
            pinned_streams: Some(3),
            pageable_streams: Some(4),
            ..OverlapRatios::default()
        };
        let report = OverlapReport {
            header: header("overlap", has_gpu),
            ratios,
            notes: Vec::new(),
            chunk_bytes: 16 << 20,
            chunks: 16,
            steps: 1,
            alone: None,
            rows: vec![
                row("pinned", None, 15.0),
                row("pinned", Some(3), 6.02),
                row("pageable", Some(4), 65.8),
            ],
            timelines: Vec::new(),
        };
        let path = "results/x/overlap.json".to_owned();
        Committed { path, report: Report::Overlap(Box::new(report)) }
    }

    #[test]
    fn facts_come_from_results_of_a_gpu() {
        let found = table(&[committed(false), committed(true)]);
        let gpu = machine(true).gpu.unwrap().name;
        assert!(
            found.starts_with(&format!("\n| {gpu}, time | without | with | as fast |\n")),
            "{found}"
        );
        let last = found.lines().last().unwrap();
        assert!(last.starts_with("| 16 chunks of 16 MiB in, through a kernel"), "{last}");
        assert!(last.ends_with(" | 65.8 ms | 6.02 ms | 10.7x |"), "{last}");
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn times_have_the_unit_that_suits_them() {
        assert_eq!(
            [0.0144, 1.0, 846.6, 14_038.0].map(time),
            ["14 ns", "1.00 us", "847 us", "14.0 ms"]
        );
    }
}
