//! The part of the page about leases by themselves; empty where there is no such result.

use super::Committed;
use super::render::hardware;
use crate::lease::report::LeaseReport;
use crate::report::Report;
use crate::text;

/// One row for each run of `lease`, with a line before it; nothing where there is none.
pub(super) fn ratios(results: &[Committed]) -> String {
    let header = [
        "lease and drop",
        "ns, 1 thread",
        "over PyTorch's allocator",
        "over mimalloc, 64 B",
        "M/s, most threads",
        "over PyTorch's",
        "over 1 thread",
        "through a channel over integers, 1 pair",
        "8 pairs",
        "p99.99 ns under load",
    ];
    let rows: Vec<Vec<String>> = results
        .iter()
        .filter_map(|committed| match &committed.report {
            Report::Lease(report) => Some(row(report)),
            Report::Frames(_) | Report::Copy(_) | Report::InFlight(_) | Report::Waiting(_) => None,
        })
        .collect();
    text::markdown_section(&header, &rows)
}

fn row(report: &LeaseReport) -> Vec<String> {
    let ratios = &report.ratios;
    let ratio = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), text::ratio);
    vec![
        hardware(&report.machine),
        text::number(report.ns_one_thread),
        ratio(ratios.one_thread_over_pytorch),
        ratio(ratios.one_thread_over_mimalloc64),
        format!("{} ({})", text::number(report.mops_16), report.mops_16_threads),
        ratio(ratios.total16_over_pytorch),
        ratio(ratios.total16_over_one_thread),
        ratio(ratios.handoff_1_over_integers),
        ratio(ratios.handoff_8_over_integers),
        text::number(report.p9999_ns),
    ]
}
