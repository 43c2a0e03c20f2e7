//! The result of the scenario `copy` as a section of a page, and its part on all kinds of memory for
//! people.

use std::fmt::Write as _;

use super::report::{COPY, CopyRatio, CopyReport, KindRow, Kinds, Link};
use super::{DIRECTIONS, METHOD_KINDS};
use crate::section::{Axis, Bar, Plot, Section, SectionTable};
use crate::tables::Table;
use crate::text;

impl CopyReport {
    /// The result as a section of a page.
    pub fn section(&self) -> Section {
        if let Some(reason) = &self.not_run {
            return Section::not_run(COPY, TITLE, reason, &self.method);
        }
        let (ratio_header, ratios) = self.ratio_cells();
        let (header, rows) = self.cells();
        let mut tables = vec![
            SectionTable::new(
                "Bandwidth over that of raw pinned memory (more is better)",
                ratio_header,
                ratios,
            ),
            SectionTable::new("Bandwidth of leases and what they are compared with", header, rows),
        ];
        let mut method = self.method.clone();
        let mut plots = self.source_plots();
        if let Some(kinds) = &self.kinds {
            let more = kinds.tables().into_iter();
            tables.extend(
                more.map(|(caption, header, rows)| SectionTable::new(caption, header, rows)),
            );
            plots = kinds.plots();
            let _ = write!(method, "; {METHOD_KINDS}");
            for note in &kinds.notes {
                // Writing to a `String` cannot fail.
                let _ = write!(method, "\nNote: {note}");
            }
        }
        let (headline, conclusion) = (self.headline(), self.conclusion());
        Section {
            id: COPY,
            title: TITLE.to_owned(),
            headline,
            conclusion,
            method,
            tables,
            plots,
            not_run: None,
        }
    }

    /// Leases and what they are compared with: all that results have which know no other kinds.
    fn source_plots(&self) -> Vec<Plot> {
        let plot = |(direction, title): (&str, &str)| {
            let rows = self.rows.iter().filter(|row| row.direction == direction);
            let points = rows.map(|row| (row.name.as_str(), row.bytes as f64, row.gb_per_s));
            Plot::lines(title, Axis::log("bytes"), Axis::linear("GB/s"), points)
        };
        DIRECTIONS.into_iter().zip(["Uploads", "Downloads"]).map(plot).collect()
    }

    /// What it comes to, of the largest copies that were made of both.
    fn headline(&self) -> String {
        let largest = self.ratios.iter().max_by_key(|ratio| ratio.bytes);
        let Some(bytes) = largest.map(|ratio| ratio.bytes) else { return self.conclusion() };
        let over = DIRECTIONS.map(|direction| {
            let is_it = |row: &&CopyRatio| row.bytes == bytes && row.direction == direction;
            let row = self.ratios.iter().find(is_it);
            row.map_or_else(|| "-".to_owned(), |row| text::ratio(1.0 / row.pageable_over_raw))
        });
        let [up, down] = over;
        format!(
            "Pinned memory is copied to the GPU {up} as fast as pageable memory, and back {down} \
             ({}).",
            text::bytes(bytes),
        )
    }

    /// What the run shows.
    pub fn conclusion(&self) -> String {
        let largest = self.ratios.iter().map(|ratio| ratio.bytes).max().unwrap_or(0);
        let of = |direction: &str| {
            self.ratios.iter().find(|row| row.bytes == largest && row.direction == direction)
        };
        let (Some(up), Some(down)) = (of(DIRECTIONS[0]), of(DIRECTIONS[1])) else {
            return "Nothing was measured.".to_owned();
        };
        let mut conclusion = format!(
            "Of {}, uploads from a lease reach {:.3} of the bandwidth of raw pinned memory and from \
             pageable memory {:.3}; downloads {:.3} and {:.3}.",
            text::bytes(largest),
            up.lease_over_raw,
            up.pageable_over_raw,
            down.lease_over_raw,
            down.pageable_over_raw,
        );
        if let Some(kinds) = &self.kinds {
            // Writing to a `String` cannot fail.
            let _ = write!(conclusion, " {}", kinds.conclusion());
        }
        conclusion
    }
}

impl Kinds {
    /// This part for people.
    pub(crate) fn to_text(&self) -> String {
        let mut lines = String::new();
        for (title, header, rows) in self.tables() {
            // Writing to a `String` cannot fail.
            let _ = write!(lines, "\n{title}\n{}", text::table(&header, &rows));
        }
        for note in &self.notes {
            let _ = write!(lines, "\nNote: {note}");
        }
        let _ = write!(lines, "\n{}\n{METHOD_KINDS}\n", self.conclusion());
        lines
    }

    /// How near pinned memory comes to the link's ceiling, and what pageable memory loses.
    pub(crate) fn conclusion(&self) -> String {
        let link = self.link.as_ref().map_or_else(String::new, Link::sentence);
        let largest = self.staging.iter().map(|row| row.bytes).max().unwrap_or(0);
        let share = |direction: &str| {
            let row = |row: &&super::report::StagingRow| {
                row.bytes == largest && row.direction == direction
            };
            self.staging.iter().find(row).map_or(0.0, |row| row.share_percent)
        };
        // Where pageable copies are the faster ones, nothing of them is staging.
        let [up, down] = DIRECTIONS.map(|direction| share(direction).max(0.0));
        format!(
            "{link}Staging is {up:.0} % of a pageable upload of {} and {down:.0} % of a download.",
            text::bytes(largest),
        )
    }

    fn tables(&self) -> Vec<Table> {
        let mut tables: Vec<Table> = self.link.iter().map(Link::table).collect();
        tables.push(self.staging_table());
        let titles = ["Uploads by kind of host memory", "Downloads by kind of host memory"];
        for (direction, title) in DIRECTIONS.into_iter().zip(titles) {
            tables.push(self.kind_table(direction, title));
        }
        tables
    }

    fn staging_table(&self) -> Table {
        let header = vec!["staging", "share of pageable", "pageable us", "pinned us"];
        let rows = self.staging.iter().map(|row| {
            vec![
                format!("{} {}", row.direction, text::bytes(row.bytes)),
                format!("{:.0} %", row.share_percent),
                text::number(row.pageable_us),
                text::number(row.pinned_us),
            ]
        });
        ("What pageable copies take more than pinned ones", header, rows.collect())
    }

    fn kind_table(&self, direction: &str, title: &'static str) -> Table {
        let header = vec!["from", "GB/s", "us", "shortest us", "longest us", "copies"];
        let rows = self.of(direction).map(|row| {
            let mark = if row.unsteady { "~" } else { "" };
            vec![
                format!("{} {}", text::bytes(row.bytes), row.kind),
                format!("{mark}{}", text::number(row.gb_per_s)),
                text::number(row.us.median),
                text::number(row.us.low),
                text::number(row.us.high),
                text::count(row.repeats),
            ]
        });
        (title, header, rows.collect())
    }

    fn of<'a>(&'a self, direction: &'a str) -> impl Iterator<Item = &'a KindRow> {
        self.rows.iter().filter(move |row| row.direction == direction)
    }

    fn plots(&self) -> Vec<Plot> {
        let mut plots = Vec::new();
        for (direction, title) in DIRECTIONS.into_iter().zip(["Uploads", "Downloads"]) {
            let points = |y: fn(&KindRow) -> f64| {
                self.of(direction).map(move |row| (row.kind.as_str(), row.bytes as f64, y(row)))
            };
            let bytes = || Axis::log("bytes");
            let name = format!("{title} by kind of host memory");
            let rates = points(|row| row.gb_per_s);
            plots.push(Plot::lines(&name, bytes(), Axis::linear("GB/s"), rates));
            let name = format!("{title}: the time of one copy");
            let times = points(|row| row.us.median);
            plots.push(Plot::lines(&name, bytes(), Axis::log("microseconds"), times));
        }
        plots.extend(self.link.iter().map(Link::plot));
        plots
    }
}

impl Link {
    fn sentence(&self) -> String {
        match (self.ceiling_gb_per_s, self.h2d_over_ceiling, self.d2h_over_ceiling) {
            (Some(ceiling), Some(up), Some(down)) => format!(
                "Pinned memory reaches {:.0} % of the link's {ceiling:.1} GB/s up and {:.0} % down. ",
                up * 100.0,
                down * 100.0,
            ),
            _ => format!(
                "Pinned memory reaches {:.1} GB/s up and {:.1} down; what the link can carry is not \
                 known. ",
                self.h2d_gb_per_s, self.d2h_gb_per_s,
            ),
        }
    }

    fn table(&self) -> Table {
        let share = |share: Option<f64>| {
            share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
        };
        let name = match (self.generation, self.lanes, &self.unknown) {
            (Some(generation), Some(lanes), _) => format!("PCIe {generation} x{lanes}"),
            (_, _, Some(why)) => format!("unknown: {why}"),
            _ => "unknown".to_owned(),
        };
        let ceiling = self.ceiling_gb_per_s.map_or_else(|| "-".to_owned(), text::number);
        let rows = vec![
            vec!["the link".to_owned(), "100 %".to_owned(), ceiling, name],
            vec![
                "best pinned upload".to_owned(),
                share(self.h2d_over_ceiling),
                text::number(self.h2d_gb_per_s),
                "measured".to_owned(),
            ],
            vec![
                "best pinned download".to_owned(),
                share(self.d2h_over_ceiling),
                text::number(self.d2h_gb_per_s),
                "measured".to_owned(),
            ],
        ];
        ("The link's ceiling", vec!["ceiling", "share", "GB/s", "from"], rows)
    }

    fn plot(&self) -> Plot {
        let mut bars: Vec<Bar> = self
            .ceiling_gb_per_s
            .iter()
            .map(|&ceiling| Bar::new("what the link can carry", ceiling))
            .collect();
        bars.push(Bar::new("best pinned upload", self.h2d_gb_per_s));
        bars.push(Bar::new("best pinned download", self.d2h_gb_per_s));
        Plot::Bars { title: "The link's ceiling".to_owned(), unit: "GB/s".to_owned(), bars }
    }
}

const TITLE: &str = "Copies by kind of host memory";

#[cfg(test)]
mod tests {
    use super::super::report::StagingRow;
    use super::*;
    use crate::link::Rate;
    use crate::timing::Range;

    fn kinds(rate: Result<Rate, String>) -> Kinds {
        let row = |kind: &str, direction: &str, gb_per_s, unsteady| KindRow {
            kind: kind.to_owned(),
            direction: direction.to_owned(),
            bytes: 1 << 30,
            gb_per_s,
            us: Range::of(&[20_000.0]),
            repeats: 5,
            unsteady,
        };
        let staging = |direction: &str, share_percent| StagingRow {
            direction: direction.to_owned(),
            bytes: 1 << 30,
            pageable_us: 100_000.0,
            pinned_us: 20_000.0,
            share_percent,
        };
        Kinds {
            link: Some(Link::new(rate, [55.0, 54.0])),
            staging: vec![staging("h2d", 80.0), staging("d2h", 60.0)],
            rows: vec![row("pinned", "h2d", 55.0, false), row("pageable", "h2d", 11.0, true)],
            clock_ns: 20.0,
            notes: vec!["managed was left out: why".to_owned()],
        }
    }

    #[test]
    fn the_text_sets_pinned_memory_against_the_link() {
        let text = kinds(Ok(Rate { transfers: 32.0, lanes: 16 })).to_text();
        for words in [
            "Pinned memory reaches 87 % of the link's 63.0 GB/s up and 86 % down.",
            "Staging is 80 % of a pageable upload of 1 GiB and 60 % of a download.",
            "PCIe 5 x16",
            "~11.0",
            "Note: managed was left out: why",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let text = kinds(Err("sysfs is mute".to_owned())).to_text();
        assert!(text.contains("unknown: sysfs is mute"), "{text}");
        assert!(text.contains("what the link can carry is not known"), "{text}");
    }

    #[test]
    fn curves_and_bars_are_drawn_of_what_was_measured() {
        let plots = kinds(Err("why".to_owned())).plots();
        let Plot::Lines { series, .. } = &plots[0] else { panic!("{plots:?}") };
        assert_eq!(series[0].points, [(f64::from(1 << 30), 55.0)]);
        let Some(Plot::Bars { bars, .. }) = plots.last() else { panic!("{plots:?}") };
        assert_eq!(bars.len(), 2, "a ceiling that is not known is no bar");
    }
}
