//! The result of the scenario `overlap` for people: tables, pictures, and what follows from them.

use super::report::{Alone, OVERLAP, OverlapReport, OverlapRow, Timeline};
use crate::header::Header;
use crate::section::{Axis, Lane, Plot, Section, Span};
use crate::tables::{self, Table, Tabled};
use crate::text;
use crate::timing::Range;

impl OverlapReport {
    /// The result for people.
    pub fn to_text(&self) -> String {
        let Some(reason) = &self.header.not_run else { return tables::to_text(self) };
        format!(
            "not run: {reason}\n\
             This scenario measures how much of copies to the device, kernels and copies back goes on at \
             once, from pageable and from pinned memory, in one stream and in several. It needs an \
             NVIDIA GPU and its driver.\n"
        )
    }

    /// The result on a page.
    pub fn section(&self) -> Section {
        let timelines = self.timelines.iter().map(timeline);
        let plots = std::iter::once(self.lines()).chain(timelines).collect();
        Section::of(OVERLAP, "Copies and kernels at once", self, &(), plots)
    }

    /// Speed-ups by the number of streams.
    fn lines(&self) -> Plot {
        let points = self
            .rows
            .iter()
            .filter_map(|row| Some((row.memory.as_str(), row.streams? as f64, row.speedup.median)));
        let title = "Serial time over that in streams";
        Plot::lines(title, Axis::linear("streams"), Axis::linear("speed-up"), points)
    }

    fn rows_table(&self) -> Vec<Vec<String>> {
        let row = |row: &OverlapRow| {
            let name = match row.streams {
                None => format!("{}, serial", row.memory),
                Some(1) => format!("{}, 1 stream", row.memory),
                Some(streams) => format!("{}, {streams} streams", row.memory),
            };
            let ratios = [row.speedup, row.pageable_over_this].map(text::ratio_range);
            let ms = [row.ms.median, row.ms.low, row.ms.high].map(text::number);
            std::iter::once(name).chain(ratios).chain(ms).collect()
        };
        self.rows.iter().map(row).collect()
    }

    fn alone_table(&self) -> Vec<Vec<String>> {
        let Some(alone) = &self.alone else { return Vec::new() };
        let Alone { kernel_us, pinned_in_us, pinned_out_us, .. } = alone;
        let rows = [
            ("pinned", *pinned_in_us, *pinned_out_us),
            ("pageable", alone.pageable_in_us, alone.pageable_out_us),
        ];
        let row = |(name, copy_in, copy_out): (&str, f64, f64)| {
            let cells = [copy_in, *kernel_us, copy_out].map(text::number);
            std::iter::once(name.to_owned()).chain(cells).collect()
        };
        rows.into_iter().map(row).collect()
    }
}

fn timeline(run: &Timeline) -> Plot {
    let lane = |stream| Lane {
        name: format!("stream {}", stream + 1),
        spans: run
            .spans
            .iter()
            .filter(|span| span.stream == stream)
            .map(|span| Span { start: span.start_ms, end: span.end_ms, label: span.step.clone() })
            .collect(),
    };
    Plot::Timeline {
        title: format!("{} memory in {} streams", run.memory, run.streams),
        unit: "ms".to_owned(),
        lanes: (0..run.streams.min(LANES_MAX)).map(lane).collect(),
    }
}

impl Tabled for OverlapReport {
    fn header(&self) -> &Header {
        &self.header
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn tables(&self) -> Vec<Table> {
        let rows = vec!["course", "over serial", "over pageable", "ms", "lowest", "highest"];
        let alone = vec!["one chunk, us", "copy in", "kernel", "copy out"];
        vec![
            (ALL_CHUNKS, rows, self.rows_table()),
            ("Each step by itself", alone, self.alone_table()),
        ]
    }

    fn headline(&self) -> String {
        let ratios = &self.ratios;
        let (Some(pinned), Some(pageable)) = (ratios.pinned_speedup, ratios.pageable_speedup)
        else {
            return self.conclusion();
        };
        format!(
            "From pinned memory, copies and kernels in {} streams are {} as fast as one after the \
             other; from pageable memory {}.",
            ratios.pinned_streams.unwrap_or(0),
            text::ratio(pinned.median),
            text::ratio(pageable.median),
        )
    }

    fn conclusion(&self) -> String {
        let median = |range: Option<Range>| range.map(|range| text::ratio(range.median));
        let ratios = &self.ratios;
        let (Some(pinned), Some(pageable), Some(over)) = (
            median(ratios.pinned_speedup),
            median(ratios.pageable_speedup),
            median(ratios.pinned_over_pageable),
        ) else {
            return String::new();
        };
        format!(
            "{} chunks of {} go to the device, through a kernel and back {pinned} as fast in {} streams \
             as step by step from pinned memory, and {pageable} in {} from pageable memory; pinned \
             memory is {over} as fast as pageable memory.",
            self.chunks,
            text::bytes(self.chunk_bytes),
            ratios.pinned_streams.unwrap_or(0),
            ratios.pageable_streams.unwrap_or(0),
        )
    }
}

/// Which way the columns are better.
const ALL_CHUNKS: &str = "All chunks to the device, through the kernel and back (how many times as \
                          fast; ms: less is better)";
/// The most that are drawn, whatever a file says.
const LANES_MAX: u64 = 64;

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn the_table_and_the_pictures_hold_all_rows() {
        let text = report().to_text();
        for words in [
            "pinned, 2 streams          3.00x          5.00x  4.00    4.00     4.00",
            "16 chunks of 16 MiB go to the device, through a kernel and back 3.00x as fast in 2 streams",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        let section = report().section();
        let Some(Plot::Lines { series, .. }) = section.plots.first() else { unreachable!() };
        assert_eq!(
            series[1].points,
            [(1.0, 12.0 / 9.0), (2.0, 3.0)].map(|(x, y)| (x, crate::timing::rounded(y)))
        );
        let Some(Plot::Timeline { lanes, title, .. }) = section.plots.get(1) else {
            unreachable!()
        };
        assert_eq!((lanes.len(), title.as_str()), (2, "pinned memory in 2 streams"));
        assert_eq!(lanes[1].spans[0].label, "copy in");
    }
}
