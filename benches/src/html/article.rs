//! What the article on pinned memory says, beside the same figures of these results.

use crate::copy::DIRECTIONS;
use crate::copy::report::CopyReport;
use crate::frames::report::FramesReport;
use crate::gigabyte::report::GigabyteReport;
use crate::report::Report;
use crate::section::SectionTable;
use crate::text;

/// Every claim that a result here has a figure for, ratios first; none where there is no claim.
pub(super) fn tables(reports: &[&Report]) -> Vec<SectionTable> {
    let (mut ratios, mut figures) = (Vec::new(), Vec::new());
    for report in reports {
        match report {
            Report::Copy(report) => of_copies(report, &mut ratios, &mut figures),
            Report::Gigabyte(report) => of_gigabyte(report, &mut ratios, &mut figures),
            Report::Frames(report) => of_frames(report, &mut ratios, &mut figures),
            // The article says nothing that these could answer.
            _ => {}
        }
    }
    // Frames alone run without a device, and say nothing of what the article has figures of.
    let has_claims = ratios.iter().any(|row| row[1] != NO_FIGURE);
    if !has_claims {
        return Vec::new();
    }
    let header = ["claim", "the article", "here"];
    let tables = [("The article's ratios", ratios), ("The article's figures", figures)];
    let table = |(caption, rows): (&str, Vec<Row>)| {
        SectionTable::new(caption, header, rows.into_iter().map(Vec::from).collect())
    };
    tables.into_iter().map(table).collect()
}

fn of_copies(report: &CopyReport, ratios: &mut Vec<Row>, figures: &mut Vec<Row>) {
    for (direction, name, [pageable, pinned]) in BANDWIDTHS {
        let Some((bytes, here)) = bandwidths(report, direction) else { continue };
        let size = text::bytes(bytes);
        let said = text::ratio(pinned / pageable);
        ratios.push([
            format!("{name}, {size}: pinned over pageable, bandwidth"),
            said,
            text::ratio(here[1] / here[0]),
        ]);
        for (memory, said, here) in [(PAGEABLE, pageable, here[0]), (PINNED, pinned, here[1])] {
            figures.push([
                format!("{name}, {size}: {memory}"),
                format!("{said:.0} GB/s"),
                format!("{} GB/s", text::number(here)),
            ]);
        }
    }
}

/// The largest size of which both were copied, and the gigabytes a second of pageable and pinned
/// memory.
fn bandwidths(report: &CopyReport, direction: &str) -> Option<(u64, [f64; 2])> {
    let kinds = report.kinds.iter().flat_map(|kinds| &kinds.rows);
    let kinds = kinds.filter(|row| row.direction == direction);
    let kinds = kinds.map(|row| (row.kind.as_str(), row.bytes, row.gb_per_s));
    let rows = report.rows.iter().filter(|row| row.direction == direction);
    let rows = rows.map(|row| (row.name.as_str(), row.bytes, row.gb_per_s));
    let all: Vec<(&str, u64, f64)> = kinds.chain(rows).collect();
    let of = |name: [&str; 2], bytes: u64| {
        let found = all.iter().find(|(kind, size, _)| name.contains(kind) && *size == bytes);
        found.map(|(.., gb_per_s)| *gb_per_s)
    };
    let both = all.iter().filter_map(|&(_, bytes, _)| {
        let pageable = of([PAGEABLE, PAGEABLE], bytes)?;
        Some((bytes, [pageable, of([PINNED, RAW], bytes)?]))
    });
    both.max_by_key(|(bytes, _)| *bytes)
}

fn of_gigabyte(report: &GigabyteReport, ratios: &mut Vec<Row>, figures: &mut Vec<Row>) {
    let of = |memory| report.copy(memory, DIRECTIONS[0]);
    let (Some(pageable), Some(pinned)) = (of(PAGEABLE), of(PINNED)) else { return };
    let name = format!("One copy of {}, host to device", text::bytes(report.bytes));
    let over = [
        pageable.first_ms.median / pinned.first_ms.median,
        pageable.later_ms.median / pinned.later_ms.median,
    ];
    let [first, later] = over.map(text::ratio);
    ratios.push([
        format!("{name}: pageable over pinned, time"),
        text::ratio(ONE_COPY_MS[0] / ONE_COPY_MS[1]),
        format!("{first} first, {later} later"),
    ]);
    for (row, said) in [pageable, pinned].into_iter().zip(ONE_COPY_MS) {
        let [first, later] = [row.first_ms, row.later_ms].map(|ms| text::number(ms.median));
        figures.push([
            format!("{name}: {}", row.memory),
            format!("{said:.0} ms"),
            format!("{first} ms first, {later} ms later"),
        ]);
    }
}

/// The article says that the rate of frames rises when memory is pinned once, and gives no figure.
fn of_frames(report: &FramesReport, ratios: &mut Vec<Row>, figures: &mut Vec<Row>) {
    let name = format!("Frames of {}", report.frame.spec);
    let said = || NO_FIGURE.to_owned();
    let over = &report.ratios;
    for (before, ratio) in [
        ("pinned for each frame", over.lease_over_pinned_per_frame),
        ("malloc for each frame", over.lease_over_malloc_per_frame),
    ] {
        ratios.push([format!("{name}: leases over {before}"), said(), text::ratio(ratio)]);
    }
    for (source, when) in [
        ("pinned-per-frame", "before: pinned for each frame"),
        ("malloc-per-frame", "before: malloc for each frame"),
        ("lease", "after: leases"),
    ] {
        if let Some(row) = report.row(source) {
            let here = format!("{} frames/s", text::number(row.fps));
            figures.push([format!("{name}, {when}"), said(), here]);
        }
    }
}

/// A claim, the article's figure, and the one here.
type Row = [String; 3];

const PAGEABLE: &str = "pageable";
const PINNED: &str = "pinned";
/// Pinned memory in results of before there were all kinds.
const RAW: &str = "cuMemHostAlloc";
const NO_FIGURE: &str = "-";
/// Gigabytes a second of pageable and of pinned memory, as the article has them.
const BANDWIDTHS: [(&str, &str, [f64; 2]); 2] = [
    (DIRECTIONS[0], "Host to device", [6.0, 12.0]),
    (DIRECTIONS[1], "Device to host", [5.0, 11.0]),
];
/// Milliseconds of one copy of a gigabyte from pageable and from pinned memory, as the article has
/// them.
const ONE_COPY_MS: [f64; 2] = [800.0, 200.0];
