//! The result of the scenario `pressure` for people: tables, pictures, and what follows from them.

use super::report::{PRESSURE, PressureReport, PressureRow};
use crate::header::Header;
use crate::section::{Axis, Plot, Section};
use crate::tables::{self, Table, Tabled};
use crate::text;
use crate::timing::Range;

impl PressureReport {
    /// The result for people.
    pub fn to_text(&self) -> String {
        let Some(reason) = &self.header.not_run else { return tables::to_text(self) };
        format!(
            "not run: {reason}\n\
             This scenario measures what pinned memory costs the rest of the system: a neighbour that \
             maps memory, goes through it and reads a file, beside more and more memory that is \
             locked. It needs some gigabytes that nobody uses, and the right to lock a part of them.\n"
        )
    }

    /// The result on a page.
    pub fn section(&self) -> Section {
        let title = "What pinned memory costs the rest of the system";
        let percent = "percent of the available memory that is pinned";
        let over = |name: &'static str, of: fn(&PressureRow) -> Option<f64>| {
            let none = self.rows.first().and_then(of).filter(|none| *none > 0.0);
            let rows = self.rows.iter();
            rows.filter_map(move |row| Some((name, row.pinned_percent, of(row)? / none?)))
        };
        let times = over("mapping", |row| Some(row.map_ms.median))
            .chain(over("going through it", |row| Some(row.stream_ms.median)))
            .chain(over("reading a file again", |row| Some(row.read_ms?.median)));
        let cached = self.rows.iter().filter_map(|row| {
            Some(("of the file", row.pinned_percent, row.cached_percent?.median))
        });
        let plots = vec![
            Plot::lines(
                "The neighbour's times over those beside nothing pinned",
                Axis::linear(percent),
                Axis::linear("time over time"),
                times,
            ),
            Plot::lines(
                "What stays in the page cache",
                Axis::linear(percent),
                Axis::linear("percent"),
                cached,
            ),
        ];
        Section::of(PRESSURE, title, self, &(), plots)
    }

    fn ratio_rows(&self) -> Vec<Vec<String>> {
        let cell = |range: Option<Range>| range.map_or_else(|| "-".to_owned(), text::ratio_range);
        let rows = self.ratios.iter().map(|ratios| {
            let cells =
                [Some(ratios.map_over_none), Some(ratios.stream_over_none), ratios.read_over_none];
            std::iter::once(ratios.pinned.clone()).chain(cells.map(cell)).collect()
        });
        rows.collect()
    }

    fn figure_rows(&self) -> Vec<Vec<String>> {
        let row = |row: &PressureRow| {
            let median = |range: Option<Range>| {
                range.map_or_else(|| "-".to_owned(), |range| text::number(range.median))
            };
            vec![
                text::bytes(row.pinned_bytes),
                format!("{}%", text::number(row.pinned_percent)),
                text::number(row.map_ms.median),
                text::number(row.stream_ms.median),
                text::number(row.stream_gb_per_s),
                median(row.read_ms),
                median(row.cached_percent) + if row.cached_percent.is_some() { "%" } else { "" },
                text::count(row.rounds),
            ]
        };
        self.rows.iter().map(row).collect()
    }
}

impl Tabled for PressureReport {
    fn header(&self) -> &Header {
        &self.header
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn tables(&self) -> Vec<Table> {
        let ratios = vec!["pinned", "mapping", "going through it", "reading the file again"];
        let figures = vec![
            "pinned",
            "of what is available",
            "map ms",
            "through ms",
            "GB/s",
            "file ms",
            "in the page cache",
            "rounds",
        ];
        vec![
            (OVER_NOTHING, ratios, self.ratio_rows()),
            ("The neighbour", figures, self.figure_rows()),
        ]
    }

    fn headline(&self) -> String {
        let Some(ratios) = self.ratios.last() else { return self.conclusion() };
        format!(
            "Beside {} that is pinned, a neighbour takes {} of the time to map memory and {} to go \
             through it.",
            ratios.pinned,
            text::ratio(ratios.map_over_none.median),
            text::ratio(ratios.stream_over_none.median),
        )
    }

    fn conclusion(&self) -> String {
        let (Some(most), Some(ratios)) = (self.rows.last(), self.ratios.last()) else {
            return "No case could be run.".to_owned();
        };
        let file = match (self.figures.file_bytes, ratios.read_over_none, most.cached_percent) {
            (Some(bytes), Some(read), Some(cached)) => format!(
                ", and {} the time to read a file of {} again, of which {}% is still in the page cache",
                text::ratio(read.median),
                text::bytes(bytes),
                text::number(cached.median)
            ),
            _ => String::new(),
        };
        format!(
            "Beside {} that is pinned, {}% of what is available, a neighbour takes {} the time to map \
             {}, {} to go through it{file}.",
            ratios.pinned,
            text::number(most.pinned_percent),
            text::ratio(ratios.map_over_none.median),
            text::bytes(self.figures.working_bytes),
            text::ratio(ratios.stream_over_none.median),
        )
    }
}

/// Which way the columns are better.
const OVER_NOTHING: &str = "The neighbour's times over those beside nothing pinned (above 1.00x it \
                            is slowed down)";

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn tables_pictures_and_the_sentence_say_the_same() {
        let text = report().to_text();
        for words in [
            "8 GiB     2.00x             1.00x                   10.0x",
            "Beside 8 GiB that is pinned, 50.0% of what is available, a neighbour takes 2.00x the time \
             to map 6 GiB, 1.00x to go through it, and 10.0x the time to read a file of 4 GiB again, \
             of which 40.0% is still in the page cache.",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        let section = report().section();
        assert_eq!(section.plots.len(), 2);
        let Plot::Lines { series, .. } = &section.plots[0] else { unreachable!() };
        assert_eq!(series[2].points, [(0.0, 1.0), (25.0, 1.0), (50.0, 10.0)]);
    }
}
