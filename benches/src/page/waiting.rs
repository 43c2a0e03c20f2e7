//! The part of the page about waiting in line; empty where there is no such result.

use super::Committed;
use super::render::hardware;
use crate::report::Report;
use crate::text;
use crate::waiting::report::WaitingReport;

/// One row for each run of `waiting`, with a line before it; nothing where there is none.
pub(super) fn ratios(results: &[Committed]) -> String {
    let header = [
        "waiting in line for a lease",
        "p99.9 of a wait over p50, tasks",
        "threads",
        "leases/s of those who wait over those who never do, tasks",
        "threads",
        "slots lost",
    ];
    let rows: Vec<Vec<String>> = results
        .iter()
        .filter_map(|committed| match &committed.report {
            Report::Waiting(report) => Some(row(report)),
            _ => None,
        })
        .collect();
    text::markdown_section(&header, &rows)
}

fn row(report: &WaitingReport) -> Vec<String> {
    let ratios = &report.ratios;
    vec![
        hardware(&report.header.machine),
        text::ratio(ratios.tail_tasks.median),
        text::ratio(ratios.tail_threads.median),
        text::ratio(ratios.waiting_over_free_tasks.median),
        text::ratio(ratios.waiting_over_free_threads.median),
        report.lost.to_string(),
    ]
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::header::tests::header;
    use crate::tables::to_markdown;
    use crate::timing::Range;
    use crate::waiting::report::{
        FREE, HandoverRow, LEASE, LoadRow, ShortRow, THREAD, WAITING, WAITING_SCENARIO,
        WaitingRatios,
    };

    pub(crate) fn report() -> WaitingReport {
        let range = |median| Range { median, low: median - 0.125, high: median + 0.125 };
        let load = |case: &str, rate, tail| LoadRow {
            case: case.into(),
            pool: LEASE.into(),
            waiters: 1000,
            slots: 50,
            leases_per_s: range(rate),
            rounds: vec![rate],
            in_line_percent: Some(99.75),
            waits: 10_000,
            p50_us: 20_000.0,
            p99_us: 21_000.0,
            p999_us: 22_000.0,
            p9999_us: 23_000.0,
            max_us: 24_000.0,
            tail: range(tail),
            cancelled: 7,
            lost: 0,
        };
        WaitingReport {
            header: header(WAITING_SCENARIO, false),
            rounds: 5,
            counted_seconds: 5.0,
            executor_threads: 2,
            ratios: WaitingRatios {
                tail_tasks: range(1.25),
                tail_threads: range(2.25),
                waiting_over_free_tasks: range(0.95),
                waiting_over_free_threads: range(0.85),
                ..WaitingRatios::default()
            },
            lost: 0,
            tasks: vec![load(WAITING, 47_000.0, 1.25), load(FREE, 48_000.0, 0.0)],
            threads: vec![load(WAITING, 45_000.0, 5000.0)],
            short: vec![ShortRow {
                case: WAITING.into(),
                pool: LEASE.into(),
                threads: 4,
                slots: 2,
                work_ns: 300.0,
                leases_per_s: range(400_000.0),
                rounds: vec![400_000.0],
                lost: 0,
            }],
            handover: vec![HandoverRow {
                waiter: THREAD.into(),
                pool: LEASE.into(),
                count: 5000,
                p50_us: 6.5,
                p99_us: 32.0,
                max_us: 500.0,
            }],
        }
    }

    #[test]
    fn every_part_has_its_figures_and_its_ratio() {
        let committed = Committed {
            path: "results/host/waiting.json".into(),
            report: Report::Waiting(Box::new(report())),
        };
        let text = ratios(&[committed]);
        let row = "| 16 cores, no GPU | 1.25x | 2.25x | 0.95x | 0.85x | 0 |\n";
        assert!(text.contains(row), "{text}");
        assert_eq!(ratios(&[]), "");

        let text = to_markdown(&report());
        for row in [
            "| lease: waiting, 1000 on 50 | 47,000 | 47,000 | 47,000 | 99.8 % | 7 | 0 |",
            "| lease: waiting, 1000 on 50 | 20.0 | 21.0 | 22.0 | 23.0 | 24.0 | 1.25x |",
            "| lease: waiting, 1000 on 50 | 20.0 | 21.0 | 22.0 | 23.0 | 24.0 | >1000x |",
            "| lease: waiting, 4 on 2 | 400,000 | 400,000 | 400,000 |",
            "| lease: thread | 6.50 | 32.0 | 500 |",
            "tasks lease at 0.95x (0.82x to 1.07x)",
        ] {
            assert!(text.contains(row), "{row}\n{text}");
        }
        // Who never waits has no row of waits.
        assert_eq!(text.matches("| lease: free, 1000 on 50 |").count(), 1, "{text}");
    }
}
