//! The part of the page about staged copies; empty where there is no such result.

use super::Committed;
use super::render::hardware;
use crate::report::Report;
use crate::staged::report::StagedReport;
use crate::text;

/// One row for each run of `staged`, in two tables; nothing where there is none.
pub(super) fn ratios(results: &[Committed]) -> String {
    let reports: Vec<&StagedReport> = results
        .iter()
        .filter_map(|committed| match &committed.report {
            Report::Staged(report) => Some(report.as_ref()),
            _ => None,
        })
        .collect();
    let memory: Vec<Vec<String>> = reports.iter().map(|report| memory(report)).collect();
    let others: Vec<Vec<String>> = reports.iter().map(|report| others(report)).collect();
    text::markdown_section(&MEMORY, &memory) + &text::markdown_section(&OTHERS, &others)
}

fn memory(report: &StagedReport) -> Vec<String> {
    let ratios = &report.ratios;
    let cells = [
        ratios.h2d_over_pinned,
        ratios.h2d_over_pageable,
        ratios.h2d_over_register,
        ratios.d2h_over_pinned,
        ratios.d2h_over_pageable,
        ratios.d2h_over_register,
    ];
    row(report, cells)
}

fn others(report: &StagedReport) -> Vec<String> {
    let ratios = &report.ratios;
    let cells = [
        ratios.h2d_4_threads_over_pageable,
        ratios.h2d_over_pytorch_to,
        ratios.h2d_over_pytorch_pin_memory,
        ratios.file_over_read_then_copy,
        ratios.cold_file_over_read_then_copy,
        ratios.small_over_plain,
    ];
    row(report, cells)
}

fn row(report: &StagedReport, ratios: [Option<f64>; 6]) -> Vec<String> {
    let machine = hardware(&report.header.machine);
    let name = format!("{}, {machine}", text::bytes(report.ratios_bytes));
    let cells = ratios.map(|value| value.map_or_else(|| "-".to_owned(), text::ratio));
    std::iter::once(name).chain(cells).collect()
}

const MEMORY: [&str; 7] = [
    "bandwidth of ordinary memory through a stager",
    "H2D, over a lease's",
    "the driver's own copy",
    "registered in place",
    "D2H, over a lease's",
    "the driver's own copy",
    "registered in place",
];
const OTHERS: [&str; 7] = [
    "staged uploads of memory and files",
    "4 threads, over the driver's own copy",
    "PyTorch `to`",
    "PyTorch `pin_memory().to`",
    "cached file, over read and copy",
    "cold file",
    "time of small uploads over the plain call",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staged::ratios::tests::report;
    use crate::tables::to_markdown;

    #[test]
    fn every_part_has_its_figures_and_its_ratio() {
        let committed = Committed {
            path: "results/h200/staged.json".into(),
            report: Report::Staged(Box::new(report())),
        };
        let text = ratios(&[committed]);
        for row in [
            "| 1 GiB, NVIDIA H200 | 0.90x | 6.00x | 12.0x | 0.50x | 2.50x | - |\n",
            "| 1 GiB, NVIDIA H200 | 4.00x | 6.71x | 26.8x | 10.0x | 1.50x | 1.06x |\n",
        ] {
            assert!(text.contains(row), "{row}\n{text}");
        }
        assert_eq!(ratios(&[]), "");
        let json = report().to_json().unwrap_or_default();
        assert_eq!(Report::parse(&json), Ok(Report::Staged(Box::new(report()))), "{json}");

        let text = to_markdown(&report());
        for row in [
            "| 1 GiB | 8.95 | 4.47 | 59.7 | 53.7 | - | - | 35.8 | 53.7 | - | - |",
            "| 1 GiB | 10.7 | - | 53.7 | 26.8 | - | - | - | 26.8 | - | - |",
            "| H2D 1 GiB | 53.7 | 26.8 | 53.7 | 6.00x | 12.0x | 0.90x | 3 |",
            "| 4 MiB (default) | 53.7 | 26.8 |",
            "| 16 KiB, 1000 times | 10.0 | 10.6 | 1.060x | 1.060x | 1.060x |",
            "| 1 GiB, in the page cache: upload_file | 25.0 | 25.0 | 25.0 | 43.0 | 100% |",
            "| 1 GiB: pin_memory | 537 | 500 | 600 | 2.00 |",
            "| H2D over pinned | 0.90x | at least 0.85x | met |",
            "| D2H over pageable | 2.50x | at least 3.50x | MISSED |",
            "brings 1 GiB of ordinary memory to the device at 53.7 GB/s: 0.90x of what a lease",
            "at 6.71x of the rate of PyTorch 2.11.0's to(\"cuda\"), and at 26.8x of that",
        ] {
            assert!(text.contains(row), "{row}\n{text}");
        }
        let mut alone = report();
        alone.pytorch_not_measured = Some("it is not here".into());
        let text = to_markdown(&alone);
        assert!(text.contains("PyTorch NOT RUN: it is not here."), "{text}");
    }
}
