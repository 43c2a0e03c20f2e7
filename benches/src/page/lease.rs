//! The part of the page about leases by themselves; empty where there is no such result.

use super::Committed;
use super::render::hardware;
use crate::lease::report::LeaseReport;
use crate::report::Report;
use crate::text;

/// One row for each run of `lease`, with a line before it; nothing where there is none.
pub(super) fn ratios(results: &[Committed]) -> String {
    table(results, &COLUMNS)
}

/// The same with the columns that say most.
pub(super) fn readme(results: &[Committed]) -> String {
    table(results, &README_COLUMNS)
}

fn table(results: &[Committed], columns: &[Column]) -> String {
    let header: Vec<&str> =
        std::iter::once("lease and drop").chain(columns.iter().map(|(name, _)| *name)).collect();
    let rows: Vec<Vec<String>> = results
        .iter()
        .filter_map(|committed| match &committed.report {
            Report::Lease(report) => Some(report),
            _ => None,
        })
        .map(|report| {
            let cells = columns.iter().map(|(_, cell)| cell(report));
            std::iter::once(hardware(&report.header.machine)).chain(cells).collect()
        })
        .collect();
    text::markdown_section(&header, &rows)
}

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), text::ratio)
}

/// A column's title, and what it says of a run.
type Column = (&'static str, fn(&LeaseReport) -> String);

const NS: Column = ("ns, 1 thread", |report| text::number(report.ns_one_thread));
const OVER_PYTORCH: Column =
    ("time over PyTorch's allocator", |report| ratio(report.ratios.one_thread_over_pytorch));
const OVER_MIMALLOC: Column =
    ("over mimalloc, 64 B", |report| ratio(report.ratios.one_thread_over_mimalloc64));
const TOTAL: Column = ("M/s (threads)", |report| {
    format!("{} ({})", text::number(report.mops_16), report.mops_16_threads)
});
const TOTAL_OVER_PYTORCH: Column =
    ("rate over PyTorch's", |report| ratio(report.ratios.total16_over_pytorch));
const OVER_ONE: Column = ("over 1 thread", |report| ratio(report.ratios.total16_over_one_thread));
const HANDOFF_1: Column = ("through a channel over integers, 1 pair", |report| {
    ratio(report.ratios.handoff_1_over_integers)
});
const HANDOFF_8: Column = ("8 pairs", |report| ratio(report.ratios.handoff_8_over_integers));
const SAME_SIZE_1: Column = ("over messages of a lease's size, 1 pair", |report| {
    ratio(report.ratios.handoff_1_over_same_size)
});
const SAME_SIZE_8: Column = ("8 pairs", |report| ratio(report.ratios.handoff_8_over_same_size));
const P9999: Column = ("p99.99 ns under load", |report| text::number(report.p9999_ns));
const TAIL_MANY: Column =
    ("with 65,536 slots over 64", |report| ratio(report.ratios.tail_65536_over_64));
const COLUMNS: [Column; 12] = [
    NS,
    OVER_PYTORCH,
    OVER_MIMALLOC,
    TOTAL,
    TOTAL_OVER_PYTORCH,
    OVER_ONE,
    HANDOFF_1,
    HANDOFF_8,
    SAME_SIZE_1,
    SAME_SIZE_8,
    P9999,
    TAIL_MANY,
];
const README_COLUMNS: [Column; 6] =
    [NS, OVER_PYTORCH, OVER_MIMALLOC, TOTAL, TOTAL_OVER_PYTORCH, HANDOFF_1];

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::churn::{INTEGERS, MESSAGES, MUTEX_VEC, PINPOOL};
    use crate::header::tests::header;
    use crate::lease::pytorch;
    use crate::lease::ratios::tests::tail_row;
    use crate::lease::report::{
        GrowthRow, HALF_OUT, LEASE_AND_DROP, LEASE_SCENARIO, LeaseRatios, PINPOOL_MANY, RateRow,
    };
    use crate::tables::to_markdown;
    use crate::timing::Range;

    pub(crate) fn report() -> LeaseReport {
        let rate = |source: &str, is_bounded, threads: u64, mops: f64| RateRow {
            source: source.into(),
            has_classes: source == PINPOOL,
            is_bounded,
            threads,
            mops: Range { median: mops, low: mops, high: mops },
            ns: threads as f64 * 1e3 / mops,
            rounds: vec![mops],
            missed: 0,
        };
        let growth = |case: &str, slots, p50_ns: f64| GrowthRow {
            case: case.into(),
            slots,
            count: 1000,
            p50_ns,
            p99_ns: 2.0 * p50_ns,
            p50_rounds: vec![p50_ns],
            p99_rounds: vec![2.0 * p50_ns],
        };
        let threads = vec![
            rate(PINPOOL, true, 1, 100.0),
            rate(PINPOOL, true, 16, 1250.0),
            rate(MUTEX_VEC, true, 1, 25.0),
            RateRow { missed: 3, ..rate("opool", false, 16, 2.5) },
        ];
        let handoff = vec![
            rate(PINPOOL, true, 8, 10.0),
            rate(INTEGERS, true, 8, 20.0),
            rate(MESSAGES, true, 8, 12.5),
        ];
        let growth = vec![
            growth(LEASE_AND_DROP, 64, 10.0),
            growth(LEASE_AND_DROP, 65_536, 12.5),
            growth(HALF_OUT, 65_536, 40.0),
        ];
        let tail = vec![tail_row(PINPOOL, 75.0), tail_row(PINPOOL_MANY, 150.0)];
        let pytorch = pytorch::tests::figures();
        LeaseReport {
            header: header(LEASE_SCENARIO, true),
            rounds: 7,
            slots: 64,
            ns_one_thread: 10.0,
            mops_16: 1250.0,
            mops_16_threads: 16,
            p9999_ns: 75.0,
            stamps_ns: 20.0,
            ratios: LeaseRatios::of(&threads, &handoff, &tail, &growth, 16, Some(&pytorch)),
            pytorch_not_measured: None,
            threads,
            exhausted: vec![rate(PINPOOL, true, 2, 40.0)],
            after_fence: vec![rate(PINPOOL, true, 4, 8.0)],
            handoff,
            tail,
            growth,
            pytorch: Some(pytorch),
        }
    }

    #[test]
    fn every_part_has_its_figures_and_its_ratio() {
        let committed = |report| Committed {
            path: "results/h200/lease.json".into(),
            report: Report::Lease(Box::new(report)),
        };
        let text = ratios(&[committed(report())]);
        let row = "| NVIDIA H200 | 10.0 | 0.05x | - | 1250 (16) | 2500x | 12.5x | - | 0.50x | - | \
                   0.80x | 75.0 | 2.00x |\n";
        assert!(text.contains(row), "{text}");
        let text = readme(&[committed(report())]);
        let row = "| NVIDIA H200 | 10.0 | 0.05x | - | 1250 (16) | 2500x | - |\n";
        assert!(text.contains(row), "{text}");
        assert_eq!((ratios(&[]), readme(&[])), (String::new(), String::new()));

        let text = to_markdown(&report());
        for row in [
            "| pinpool | 10.0 / 100 | 12.8 / 1250 |",
            "| mutex-vec (one size) | 40.0 / 25.0 | - |",
            "| opool (one size, unbounded), 3 MISSED | - | 6400 / 2.50 |",
            "| PyTorch 2.11.0 (all sizes, unbounded) | 200 / 5.00 | 32,000 / 0.50 |",
            "| ns of a thread / M a second of all | 8 pairs |",
            "| integers | 400 / 20.0 |",
            "| messages-32B | 640 / 12.5 |",
            "with one pair of threads and at 0.50x with eight, and at - and 0.80x of the rate of plain",
            "| pinpool, 16 threads | 11.0 | 12.0 | 13.0 | 75.0 | 90,000 |",
            "| pinpool, 65536 slots, 16 threads | 11.0 | 12.0 | 13.0 | 150 | 90,000 |",
            "9,999 keep to 75.0 ns, and to 2.00x of that with 65,536 slots. With",
            "| 65536 slots: half out, a random one dropped | 40.0 | 80.0 |",
            "instead of 64 the median is 1.25x and the 99th percentile 1.25x; with half of them out",
        ] {
            assert!(text.contains(row), "{row}\n{text}");
        }
    }

    #[test]
    fn eight_pairs_are_left_out_where_they_were_not_run() {
        let mut small = report();
        small.ratios.handoff_1_over_integers = Some(0.5);
        small.ratios.handoff_1_over_same_size = Some(0.75);
        small.ratios.handoff_8_over_integers = None;
        small.ratios.handoff_8_over_same_size = None;
        let text = to_markdown(&small);
        let says =
            "0.50x of the rate of integers with one pair of threads, and at 0.75x of the rate";
        assert!(text.contains(says), "{text}");
        assert!(!text.contains("eight"), "{text}");
    }

    #[test]
    fn without_pytorch_it_says_why() {
        let mut alone = report();
        alone.pytorch = None;
        alone.pytorch_not_measured = Some("no GPU".into());
        let text = to_markdown(&alone);
        assert!(
            text.contains("PyTorch NOT RUN: no GPU. ") && !text.contains("PyTorch 2"),
            "{text}"
        );
    }
}
