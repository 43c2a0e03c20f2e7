//! The result of the scenario `alloc` for people and as a section of a page.

use super::report::{ALLOC_SCENARIO, AllocReport};
use crate::header::Header;
use crate::section::{Axis, Plot, Section};
use crate::tables::{self, Table, Tabled};
use crate::text;
use crate::timing::Range;

impl AllocReport {
    /// The result for people.
    pub fn to_text(&self) -> String {
        tables::to_text(self)
    }

    /// The result as a section of a page.
    pub fn section(&self) -> Section {
        let points =
            self.rows.iter().map(|row| (row.way.as_str(), row.bytes as f64, row.us.median));
        let (x, y) = (Axis::log("bytes"), Axis::log("microseconds"));
        let plot = Plot::lines("Getting a buffer and giving it back", x, y, points);
        Section::of(ALLOC_SCENARIO, "What a buffer costs", self, &(), vec![plot])
    }

    fn ratio_table(&self) -> Table {
        let header = vec!["time over time", "pinned/malloc", "pinned/lease", "malloc/lease"];
        let rows = self.ratios.iter().map(|ratio| {
            let values =
                [ratio.pinned_over_malloc, ratio.pinned_over_lease, ratio.malloc_over_lease];
            let cells = values.map(|value| value.map_or_else(|| "-".to_owned(), text::ratio));
            std::iter::once(text::bytes(ratio.bytes)).chain(cells).collect()
        });
        ("Ratios (how many times the cost of the second)", header, rows.collect())
    }

    fn time_table(&self) -> Table {
        let header = vec!["way", "us", "get us", "give back us", "shortest us", "longest us"];
        let rows = self.rows.iter().map(|row| {
            let part = |range: Option<Range>| {
                range.map_or_else(|| "-".to_owned(), |range| time(range.median))
            };
            let mark = if row.unsteady { "~" } else { "" };
            vec![
                format!("{} {}", text::bytes(row.bytes), row.way),
                format!("{mark}{}", time(row.us.median)),
                part(row.get_us),
                part(row.give_back_us),
                time(row.us.low),
                time(row.us.high),
            ]
        });
        ("Getting a buffer and giving it back", header, rows.collect())
    }
}

impl Tabled for AllocReport {
    fn header(&self) -> &Header {
        &self.header
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn tables(&self) -> Vec<Table> {
        vec![self.ratio_table(), self.time_table()]
    }

    fn conclusion(&self) -> String {
        let pinned = if self.backend == "cuda" { "cuMemHostAlloc" } else { "locked memory" };
        let Some(largest) = self.ratios.iter().max_by_key(|ratio| ratio.bytes) else {
            return "Nothing was measured.".to_owned();
        };
        let over = |value: Option<f64>, of: &str| {
            value.map(|value| format!("{} of {of}", text::ratio(value)))
        };
        let pinned_cost: Vec<String> = [
            over(largest.pinned_over_malloc, "malloc and a touch"),
            over(largest.pinned_over_lease, "a lease"),
        ]
        .into_iter()
        .flatten()
        .collect();
        let malloc = over(largest.malloc_over_lease, "a lease").unwrap_or_default();
        if pinned_cost.is_empty() {
            return format!(
                "For {} malloc and a touch cost {malloc}; nothing was pinned.",
                text::bytes(largest.bytes)
            );
        }
        format!(
            "For {} {pinned} costs {}; malloc and a touch cost {malloc}.",
            text::bytes(largest.bytes),
            pinned_cost.join(" and "),
        )
    }
}

/// Microseconds for people, down to nanoseconds.
fn time(us: f64) -> String {
    if us < 1.0 { format!("{us:.3}") } else { text::number(us) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::report::{AllocRatio, AllocRow};
    use super::*;
    use crate::header::tests::header;

    fn report(pinned_over_malloc: Option<f64>) -> AllocReport {
        let row = |way: &str, us: f64, unsteady| AllocRow {
            way: way.to_owned(),
            bytes: 1 << 20,
            us: Range { median: us, low: us / 2.0, high: us * 2.0 },
            get_us: None,
            give_back_us: None,
            rounds: 5,
            unsteady,
        };
        AllocReport {
            header: header(ALLOC_SCENARIO, true),
            backend: "cuda".to_owned(),
            notes: vec!["a note".to_owned()],
            clock_ns: 20.0,
            max_pinned_bytes: 1 << 30,
            ratios: vec![AllocRatio {
                bytes: 1 << 20,
                pinned_over_malloc,
                pinned_over_lease: pinned_over_malloc.map(|ratio| ratio * 1000.0),
                malloc_over_lease: Some(1000.0),
            }],
            rows: vec![row("lease", 0.031, false), row("cuMemHostAlloc", 310.0, true)],
        }
    }

    #[test]
    fn the_text_says_what_pinning_costs_and_marks_what_is_unsteady() {
        let text = report(Some(10.0)).to_text();
        assert!(text.contains("cuMemHostAlloc costs 10.0x of malloc and a touch"), "{text}");
        assert!(text.contains("0.031") && text.contains("~310"), "{text}");
        assert!(text.contains("Note: a note"), "{text}");
        assert!(report(None).to_text().contains("nothing was pinned"));
    }

    #[test]
    fn the_section_has_a_curve_for_each_way() {
        let section = report(Some(10.0)).section();
        assert_eq!(section.tables[0].rows[0], ["1 MiB", "10.0x", "10,000x", "1000x"]);
        let Plot::Lines { series, .. } = &section.plots[0] else { panic!("{section:?}") };
        let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["lease", "cuMemHostAlloc"]);
        assert_eq!(series[1].points, [(1_048_576.0, 310.0)]);
    }
}
