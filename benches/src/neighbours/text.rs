//! The result of the scenario `neighbours` for people: tables, pictures, and what follows from them.

use super::report::{ALONE, Felt, NEIGHBOURS, NeighboursReport};
use crate::header::Header;
use crate::section::{Bar, Plot, Section};
use crate::tables::{self, Table, Tabled};
use crate::text;
use crate::timing::Range;

impl NeighboursReport {
    /// The result for people.
    pub fn to_text(&self) -> String {
        tables::to_text(self)
    }

    /// The result on a page.
    pub fn section(&self) -> Section {
        let plots = self.works().into_iter().flat_map(|work| self.bars(&work)).collect();
        let title = "What pinning for each frame does to other threads";
        Section::of(NEIGHBOURS, title, self, &(), plots)
    }

    /// The kinds of turn, in their order.
    fn works(&self) -> Vec<String> {
        let first = self.rows.first().into_iter().flat_map(|row| &row.felt);
        first.map(|felt| felt.work.clone()).collect()
    }

    fn bars(&self, work: &str) -> [Plot; 2] {
        let bars = |of: fn(&Felt) -> Range| {
            let rows = self.rows.iter().filter_map(|row| {
                let range = of(self.felt(&row.case, work)?);
                let milliseconds = Range {
                    median: range.median / 1e3,
                    low: range.low / 1e3,
                    high: range.high / 1e3,
                };
                Some(Bar::of(&row.case, milliseconds))
            });
            rows.collect()
        };
        let plot = |what: &str, bars| Plot::Bars {
            title: format!("{work}: {what}, by what is beside"),
            unit: "ms".to_owned(),
            bars,
        };
        [
            plot("the longest of a round", bars(|felt| felt.max_us)),
            plot("the median", bars(|felt| felt.p50_us)),
        ]
    }

    /// Kind by kind: the cases over nothing beside.
    fn ratio_rows(&self) -> Vec<Vec<String>> {
        let row = |ratios: &super::report::CaseRatios| {
            let some = [ratios.turns_over_alone, ratios.p50_over_alone].map(Some);
            let cells = some.into_iter().chain([ratios.p99_over_alone]);
            let cell = |range: Option<Range>| range.map_or_else(|| "-".to_owned(), share);
            let name = format!("{}: {}", ratios.work, ratios.case);
            std::iter::once(name).chain(cells.map(cell)).collect()
        };
        let works = self.works().into_iter();
        works
            .flat_map(|work| self.ratios.iter().filter(move |ratios| ratios.work == work))
            .map(row)
            .collect()
    }

    fn felt_rows(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for work in self.works() {
            for row in &self.rows {
                let Some(felt) = self.felt(&row.case, &work) else { continue };
                let mut cells = vec![format!("{work}: {}", row.case)];
                let times = [felt.p50_us.median, felt.p99_us.median, felt.max_us.high];
                cells.extend(times.map(text::number));
                cells.push(format!("{}%", text::number(felt.long_percent.median)));
                cells.push(text::count(felt.turns));
                rows.push(cells);
            }
        }
        rows
    }

    fn frame_rows(&self) -> Vec<Vec<String>> {
        let beside = self.rows.iter().filter(|row| row.case != ALONE);
        let row = |row: &super::report::NeighboursRow| {
            let figures = [row.frames_per_s, row.frame_p50_us.median, row.frame_max_us];
            std::iter::once(row.case.clone()).chain(figures.map(text::number)).collect()
        };
        beside.map(row).collect()
    }
}

impl Tabled for NeighboursReport {
    fn header(&self) -> &Header {
        &self.header
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn tables(&self) -> Vec<Table> {
        let ratios = vec!["over alone", "turns", "p50", "p99"];
        let felt = vec!["us", "p50", "p99", "longest", "in turns of more than 1 ms", "turns"];
        let frames = vec!["frames", "a second", "p50 us", "longest us"];
        vec![
            (OVER_ALONE, ratios, self.ratio_rows()),
            ("The thread that is watched", felt, self.felt_rows()),
            ("The thread beside: taking a frame and giving it back", frames, self.frame_rows()),
        ]
    }

    fn headline(&self) -> String {
        let Some(work) = self.works().into_iter().next() else { return String::new() };
        let longest = |case: &str| self.felt(case, &work).map(|felt| felt.max_us.high / 1e3);
        // The pair of the case that is felt most.
        let pairs = self.pairs().into_iter();
        let felt = pairs
            .filter_map(|(pinning, pool)| Some((longest(&pinning)?, longest(&pool)?, pinning)));
        let felt = felt.max_by(|one, other| one.0.total_cmp(&other.0));
        let (Some((pinning, pool, case)), Some(alone)) = (felt, longest(ALONE)) else {
            return self.conclusion();
        };
        format!(
            "A {work} takes up to {} ms beside a thread that pins each frame ({}), {} ms beside one that \
             leases them, {} ms alone.",
            text::number(pinning),
            case.trim_start_matches("pinning, "),
            text::number(pool),
            text::number(alone),
        )
    }

    fn conclusion(&self) -> String {
        let Some(work) = self.works().into_iter().next() else { return String::new() };
        let longest = |case: &str| self.felt(case, &work).map(|felt| felt.max_us.high);
        let Some(alone) = longest(ALONE) else { return String::new() };
        let ms = |us: f64| format!("{} ms", text::number(us / 1e3));
        let pair = |(pinning, pool): &(String, String)| {
            let name = pinning.trim_start_matches("pinning, ");
            let medians =
                [pinning, pool].map(|case| self.felt(case, &work).map(|felt| felt.p50_us));
            let [Some(pinning_p50), Some(pool_p50)] = medians else { return None };
            Some(format!(
                "{name} up to {} (p50 {}), from the pool up to {} (p50 {})",
                ms(longest(pinning)?),
                ms(pinning_p50.median),
                ms(longest(pool)?),
                ms(pool_p50.median),
            ))
        };
        let pairs: Vec<String> = self.pairs().iter().filter_map(pair).collect();
        format!(
            "A {work} takes up to {} alone; beside a thread that pins each frame: {}.",
            ms(alone),
            pairs.join("; ")
        )
    }
}

/// A ratio with its ends; a small one by its digits.
fn share(range: Range) -> String {
    let Range { median, low, high } = range;
    if median < 0.1 {
        format!("{median:.4}x ({low:.4}x to {high:.4}x)")
    } else {
        text::ratio_range(range)
    }
}

/// Which way the columns are better.
const OVER_ALONE: &str = "The watched thread over itself alone (more turns are better, and less of \
                          p50 and p99)";
