//! The part of the page about leases dropped in flight; empty where there is no such result.

use super::Committed;
use super::render::hardware;
use crate::in_flight::report::InFlightReport;
use crate::report::Report;
use crate::text;

/// One row for each run of `in-flight`, with a line before it; nothing where there is none.
pub(super) fn ratios(results: &[Committed]) -> String {
    let header = [
        "dropping a lease in flight",
        "added to a copy call, over PyTorch's allocator",
        "p99, 512 fences pending over 8",
        "copies checked",
        "wrong",
        "slots lost",
    ];
    let rows: Vec<Vec<String>> = results
        .iter()
        .filter_map(|committed| match &committed.report {
            Report::InFlight(report) => Some(row(report)),
            _ => None,
        })
        .collect();
    text::markdown_section(&header, &rows)
}

fn row(report: &InFlightReport) -> Vec<String> {
    let ratio = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), text::ratio);
    let count = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |n| n.to_string());
    vec![
        hardware(&report.header.machine),
        ratio(report.ratios.ours_over_pytorch),
        ratio(report.ratios.p99_512_over_8),
        count(report.storm.as_ref().map(|storm| storm.rounds)),
        count(report.mismatches),
        count(report.leaks),
    ]
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::header::tests::header;
    use crate::in_flight::pytorch;
    use crate::in_flight::report::{
        IDLE, IN_FLIGHT, InFlightRatios, KeeperRow, PendingRow, ReclaimRow, ReclaimTimes, RoundRow,
        STREAM, Spread, Storm,
    };
    use crate::tables::to_markdown;

    pub(crate) fn report() -> InFlightReport {
        let spread = |median| Spread { median, p90: median + 1.0, p99: median + 2.0 };
        InFlightReport {
            header: header(IN_FLIGHT, true),
            ratios: InFlightRatios {
                ours_over_pytorch: Some(0.456),
                p99_512_over_8: Some(1.234),
                ..InFlightRatios::default()
            },
            mismatches: Some(0),
            leaks: Some(0),
            round: vec![RoundRow {
                event_tracking: false,
                batches: 10,
                rounds_per_batch: 8,
                round_ns: spread(3000.0),
                copy_call_ns: spread(2000.0),
                added_ns: spread(1000.0),
            }],
            pytorch: Some(pytorch::tests::figures()),
            pending: vec![PendingRow {
                fence: STREAM.into(),
                threads: 8,
                pending: 512,
                rounds: 100,
                p50_ns: 700.0,
                p99_ns: 1500.0,
                max_ns: 90_000.0,
            }],
            storm: Some(Storm {
                threads: 8,
                streams: 4,
                slots: 64,
                bytes: 65536,
                rounds: 1_000_000,
                seconds: 12.5,
                rounds_per_s: 80_000.0,
                mismatches: 0,
                leaks: 0,
                resident_drift_bytes: -100_000,
            }),
            reclaim: vec![ReclaimRow {
                bytes: 65536,
                delay_us: 2000,
                rounds: 2000,
                leasable: ReclaimTimes { p50_us: 12.0, p99_us: 40.0, max_us: 120.0 },
                leased: ReclaimTimes { p50_us: 42.0, p99_us: 90.0, max_us: 180.0 },
            }],
            keeper: vec![KeeperRow {
                case: IDLE.into(),
                seconds: 3.0,
                frames: 0,
                cpu_percent: 0.01,
                wakes_per_s: 0.33,
            }],
        }
    }

    #[test]
    fn every_part_has_its_figures_and_its_ratio() {
        let committed = |report| Committed {
            path: "results/h200/in-flight.json".into(),
            report: Report::InFlight(Box::new(report)),
        };
        let text = ratios(&[committed(report())]);
        assert!(text.contains("| NVIDIA H200 | 0.46x | 1.23x | 1000000 | 0 | 0 |\n"), "{text}");
        assert_eq!(ratios(&[]), "");
        let mut alone = report();
        alone.pytorch = None;
        alone.ratios.ours_over_pytorch = None;
        assert!(ratios(&[committed(alone)]).contains("| NVIDIA H200 | - | 1.23x |"));

        let text = to_markdown(&report());
        for row in [
            "| lease, upload, drop; event tracking off | 3000 / 3002 | 2000 / 2002 | 1000 / 1002 |",
            "| PyTorch 2.11.0 | 4000 / 8000 | 2000 / 4000 | 2000 / 4000 |",
            "| lease, stream fences, 8 threads, 512 pending | 700 | 1500 | 90,000 |",
            "| PyTorch, stream fences, 8 threads, 512 pending | 1000 | 2000 | 3000 |",
            "| 1,000,000 | 12.5 | 80,000 | 0 | 0 | -0.1 MB |",
            "| 64 KiB, 2 ms later: leasable | 12.0 | 40.0 | 120 |",
            "| 64 KiB, 2 ms later: the waiter has it | 42.0 | 90.0 | 180 |",
            "| idle | 0.01 | 0.33 | 0 |",
        ] {
            assert!(text.contains(row), "{row}\n{text}");
        }
    }
}
