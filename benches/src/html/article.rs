//! What the article on pinned memory says, beside the same figures of these results.

use crate::report::{CopyReport, DIRECTIONS, Report};
use crate::section::SectionTable;
use crate::text;

/// Every claim that a result here has a figure for; `None` where there is none.
pub(super) fn table(reports: &[&Report]) -> Option<SectionTable> {
    let mut rows = Vec::new();
    for report in reports {
        if let Report::Copy(report) = report {
            rows.extend(of_copies(report));
        }
    }
    let table =
        || SectionTable::new("The article's figures", ["claim", "article", "here"], rows.clone());
    (!rows.is_empty()).then(table)
}

fn of_copies(report: &CopyReport) -> Vec<Vec<String>> {
    let rows = BANDWIDTHS.iter().filter_map(|&(what, kind, direction, article)| {
        let of_kind =
            |row: &&crate::report::CopyRow| row.name.contains(kind) && row.direction == direction;
        let largest = report.rows.iter().filter(of_kind).max_by_key(|row| row.bytes)?;
        let here = format!("{} GB/s", text::number(largest.gb_per_s));
        Some(vec![
            format!("{what} ({})", text::bytes(largest.bytes)),
            format!("{article} GB/s"),
            here,
        ])
    });
    rows.collect()
}

/// What is copied from where, and how fast the article says it goes.
const BANDWIDTHS: [(&str, &str, &str, u32); 4] = [
    ("Pageable, host to device", "pageable", DIRECTIONS[0], 6),
    ("Pinned, host to device", "cuMemHostAlloc", DIRECTIONS[0], 12),
    ("Pageable, device to host", "pageable", DIRECTIONS[1], 5),
    ("Pinned, device to host", "cuMemHostAlloc", DIRECTIONS[1], 11),
];
