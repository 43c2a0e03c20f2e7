//! The part of the page about opening pools; empty where there is no such result.

use super::Committed;
use super::render::hardware;
use crate::report::Report;
use crate::startup::report::StartupReport;
use crate::text;

/// One row for each size of each run of `startup`, and one for each run with others beside it, each table
/// with a line before it; nothing where there is none.
pub(super) fn ratios(results: &[Committed]) -> String {
    let reports: Vec<&StartupReport> = results
        .iter()
        .filter_map(|committed| match &committed.report {
            Report::Startup(report) => Some(report.as_ref()),
            _ => None,
        })
        .collect();
    let sizes: Vec<Vec<String>> = reports.iter().flat_map(|report| sizes(report)).collect();
    let beside: Vec<Vec<String>> = reports.iter().map(|report| beside(report)).collect();
    text::markdown_section(&SIZES, &sizes) + &text::markdown_section(&BESIDE, &beside)
}

fn sizes(report: &StartupReport) -> impl Iterator<Item = Vec<String>> {
    report.sizes.iter().map(|size| {
        let name = format!("{}, {}", text::bytes(size.bytes), hardware(&report.header.machine));
        let ratios = [
            size.speedup_over_hostalloc,
            size.speedup_over_pytorch,
            size.speedup_over_pytorch16,
            size.speedup_over_one_thread,
            size.open_over_bare,
        ];
        let cells = [name, text::number(size.gib_per_s)].into_iter();
        cells.chain(ratios.map(|value| value.map_or_else(none, text::ratio))).collect()
    })
}

fn beside(report: &StartupReport) -> Vec<String> {
    let ratios = &report.ratios;
    let stalls = [
        ratios.neighbour_process_stall_ms,
        ratios.neighbour_process_stall_hostalloc_ms,
        ratios.own_copy_stall_ms,
        ratios.own_copy_stall_hostalloc_ms,
    ];
    let cells = stalls.map(|value| value.map_or_else(none, text::number));
    std::iter::once(hardware(&report.header.machine)).chain(cells).collect()
}

fn none() -> String {
    "-".to_owned()
}

const SIZES: [&str; 7] = [
    "opening a pool",
    "GiB/s",
    "as fast as `cuMemHostAlloc`",
    "PyTorch",
    "PyTorch, 16 threads",
    "1 prefault thread",
    "time over the same calls without a pool",
];
const BESIDE: [&str; 5] = [
    "longest ms of others meanwhile",
    "another process, a pool opens",
    "`cuMemHostAlloc`",
    "a copy by the same process, a pool opens",
    "`cuMemHostAlloc`",
];

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::header::tests::header;
    use crate::startup::Strategy;
    use crate::startup::pytorch;
    use crate::startup::ratios::tests::{neighbour_row, open_row};
    use crate::startup::report::{Left, NOTHING, PhaseRow, STARTUP, SizeRatios, StartupRatios};
    use crate::tables::to_markdown;
    use crate::timing::Range;

    pub(crate) fn report() -> StartupReport {
        let phase = |phase: &str, ms: f64| PhaseRow {
            phase: phase.into(),
            ms: Range::of(&[ms]),
            gib_per_s: 8e3 / ms,
        };
        let mut pool = open_row(Strategy::Pool, 8 << 30, &[400.0, 390.0, 410.0]);
        pool.phases = vec![phase("reserve", 0.005), phase("populate", 160.0), phase("pin", 200.0)];
        let opens = vec![
            pool,
            open_row(Strategy::PoolOneThread, 8 << 30, &[3200.0, 3120.0]),
            open_row(Strategy::Bare, 8 << 30, &[320.0, 312.0, 328.0]),
            open_row(Strategy::DriverAlloc, 8 << 30, &[3000.0, 2925.0]),
        ];
        let mut nothing = neighbour_row(NOTHING, 0.25, 0.5);
        (nothing.bytes, nothing.ms) = (0, None);
        let neighbours = vec![
            nothing,
            neighbour_row(Strategy::Pool.name(), 0.75, 1.5),
            neighbour_row(Strategy::Bare.name(), 122.0, 207.0),
            neighbour_row(Strategy::DriverAlloc.name(), 165.0, 3270.0),
        ];
        let theirs = pytorch::tests::figures();
        let sizes = vec![SizeRatios::of(&opens, 8 << 30, Some(&theirs))];
        StartupReport {
            header: header(STARTUP, true),
            backend: "cuda".into(),
            notes: vec!["a note".into()],
            rounds: 3,
            ratios: StartupRatios::of(&sizes, &neighbours, true),
            left: Left::default(),
            sizes,
            opens,
            process_not_watched: None,
            neighbours,
            pytorch_not_measured: None,
            pytorch: Some(theirs),
        }
    }

    #[test]
    fn every_part_has_its_figures_and_its_ratio() {
        let committed = |report| Committed {
            path: "results/h200/startup.json".into(),
            report: Report::Startup(Box::new(report)),
        };
        let text = ratios(&[committed(report())]);
        for row in [
            "| 8 GiB, NVIDIA H200 | 20.0 | 7.50x | 8.00x | 2.50x | 8.00x | 1.25x |\n",
            "| NVIDIA H200 | 0.75 | 165 | 1.50 | 3270 |\n",
        ] {
            assert!(text.contains(row), "{row}\n{text}");
        }
        assert_eq!(ratios(&[]), "");
        let json = report().to_json().unwrap_or_default();
        assert_eq!(Report::parse(&json), Ok(Report::Startup(Box::new(report()))), "{json}");

        let text = to_markdown(&report());
        for row in [
            "| 8 GiB: pool, 16 threads | transparent | 400 | 390 | 410 | 20.0 | 0.01 | 160 (50.0) | \
             200 (40.0) | 200 |",
            "| 8 GiB: cuMemHostAlloc | - | 2962 | 2925 | 3000 | 2.70 | - | - | - | 200 |",
            "| 8 GiB | 20.0 | 1.25x | - | - | 8.00x | - | 7.50x | 8.00x | 2.50x |",
            "| nothing | - | 0.25 / 0.25 | 0.50 / 0.50 | - | - | - |",
            "| 32 GiB: pool | 1400 | 0.75 / 0.75 | 1.50 / 1.50 | - | - | - |",
            "| 8 GiB: register16 | 1000 | 900 | 1500 | 5000 |",
            "A pool of 8 GiB opens in 400 ms, 20.0 GiB/s, 7.50x as fast as cuMemHostAlloc. That is 1.25x",
            "calls take 0.75 ms at most, and 165 ms while cuMemHostAlloc pins 32 GiB.",
            "take 1.50 ms at most, 207 ms where one call pins all and 3270 ms beside cuMemHostAlloc.",
            "Nothing is left after a close.",
        ] {
            assert!(text.contains(row), "{row}\n{text}");
        }
    }

    #[test]
    fn what_was_not_measured_or_is_left_is_said() {
        let mut alone = report();
        (alone.header, alone.backend) = (header(STARTUP, false), "host".into());
        alone.pytorch = None;
        alone.pytorch_not_measured = Some("it is not here".into());
        alone.process_not_watched = Some("no driver".into());
        alone.left = Left { resident_bytes: 64 << 20, locked_bytes: 4096 };
        let text = to_markdown(&alone);
        for words in [
            "PyTorch NOT RUN: it is not here.",
            "Another process was NOT WATCHED: no driver.",
            "Mappings by another thread",
            "After a close 64 MiB stayed in RAM, 4 KiB LOCKED.",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert!(!text.contains("PyTorch's pinned memory"), "{text}");
    }
}
