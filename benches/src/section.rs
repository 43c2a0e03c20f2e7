//! What a scenario says of itself on a page: the document model between the results, which know
//! no layout, and the page, which knows no scenario.

use serde::Serialize;

use crate::compare::{Better, Ratio};
use crate::tables::Tabled;
use crate::text;
use crate::timing::Range;

/// One scenario on a page: a sentence, tables, plots, and how it was measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Section {
    /// The name of the scenario; also the anchor on the page.
    pub id: &'static str,
    /// What it is about, in a few words.
    pub title: String,
    /// What it comes to, in one short sentence.
    pub headline: String,
    /// What the run shows, in a few sentences.
    pub conclusion: String,
    /// How the figures were made.
    pub method: String,
    /// Ratios first, absolute figures after them.
    pub tables: Vec<SectionTable>,
    /// The figures as pictures.
    pub plots: Vec<Plot>,
    /// Why nothing was measured, where nothing was.
    pub not_run: Option<String>,
}

/// A table; the first cell of each row is its name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SectionTable {
    /// What the table shows.
    pub caption: String,
    /// The header.
    pub columns: Vec<String>,
    /// The cells, as they are printed.
    pub rows: Vec<Vec<String>>,
}

/// A picture of figures.
#[derive(Debug, Clone, PartialEq)]
pub enum Plot {
    /// Curves over a common axis.
    Lines {
        /// What the picture shows.
        title: String,
        /// The horizontal axis.
        x: Axis,
        /// The vertical axis.
        y: Axis,
        /// The curves.
        series: Vec<Series>,
    },
    /// One value for each of several names.
    Bars {
        /// What the picture shows.
        title: String,
        /// The unit of all values.
        unit: String,
        /// The values.
        bars: Vec<Bar>,
    },
    /// What ran when.
    Timeline {
        /// What the picture shows.
        title: String,
        /// The unit of all times.
        unit: String,
        /// The streams or threads, from top to bottom.
        lanes: Vec<Lane>,
    },
    /// The way of a copy, step by step, from one kind of memory against another.
    Flow {
        /// What the picture shows.
        title: String,
        /// The ways, from top to bottom.
        rows: Vec<FlowRow>,
    },
}

/// An axis of [`Plot::Lines`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Axis {
    /// The quantity, with its unit.
    pub title: String,
    /// Whether equal steps are equal factors.
    pub log: bool,
}

/// A curve of [`Plot::Lines`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    /// What the curve is of.
    pub name: String,
    /// The points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// A value of [`Plot::Bars`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bar {
    /// What the value is of.
    pub name: String,
    /// The value.
    pub value: f64,
    /// The lower end of its spread, where it has one.
    pub low: Option<f64>,
    /// The upper end of its spread, where it has one.
    pub high: Option<f64>,
}

/// A stream or thread of [`Plot::Timeline`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lane {
    /// What it is.
    pub name: String,
    /// What it did, and when.
    pub spans: Vec<Span>,
}

/// A stretch of time in a [`Lane`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Span {
    /// When it began.
    pub start: f64,
    /// When it ended.
    pub end: f64,
    /// What was done.
    pub label: String,
}

/// A way of [`Plot::Flow`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FlowRow {
    /// Which way it is.
    pub name: String,
    /// Its steps, from left to right.
    pub steps: Vec<FlowStep>,
}

/// A step of a [`FlowRow`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FlowStep {
    /// What happens.
    pub name: String,
    /// How long it took in this run, in milliseconds; `None` where it is not timed by itself.
    pub ms: Option<f64>,
}

impl Section {
    /// What a result of several tables says: its ratios, then its tables, then `plots`.
    pub(crate) fn of(
        id: &'static str,
        title: &str,
        report: &impl Tabled,
        ratios: &impl Serialize,
        plots: Vec<Plot>,
    ) -> Self {
        let header = report.header();
        if let Some(reason) = &header.not_run {
            return Self::not_run(id, title, reason, &header.method);
        }
        let ratios = SectionTable::of_ratios(id, ratios);
        let tables = report.tables().into_iter().filter(|(_, _, rows)| !rows.is_empty());
        let tables = tables.map(|(caption, header, rows)| SectionTable::new(caption, header, rows));
        let notes = report.notes().iter().map(|note| format!("\nNote: {note}"));
        Self {
            id,
            title: title.to_owned(),
            headline: report.headline(),
            conclusion: report.conclusion(),
            method: std::iter::once(header.method.clone()).chain(notes).collect(),
            tables: ratios.into_iter().chain(tables).collect(),
            plots: plots.into_iter().filter(Plot::has_figures).collect(),
            not_run: None,
        }
    }

    /// A scenario that did not run here, and why.
    pub fn not_run(id: &'static str, title: &str, reason: &str, method: &str) -> Self {
        Self {
            id,
            title: title.to_owned(),
            headline: format!("Not run: {reason}"),
            conclusion: format!("Not run: {reason}"),
            method: method.to_owned(),
            not_run: Some(reason.to_owned()),
            ..Self::default()
        }
    }
}

impl SectionTable {
    /// A table of `header` and `rows` under `caption`.
    pub fn new(
        caption: &str,
        header: impl IntoIterator<Item: Into<String>>,
        rows: Vec<Vec<String>>,
    ) -> Self {
        let columns = header.into_iter().map(Into::into).collect();
        Self { caption: caption.to_owned(), columns, rows }
    }
}

impl SectionTable {
    /// The ratios that were measured, as a result's JSON has them; `None` where there is none.
    pub(crate) fn of_ratios(scenario: &str, ratios: &impl Serialize) -> Option<Self> {
        // What cannot be JSON, which no result is, has no ratios to show.
        let json = serde_json::to_string(ratios).unwrap_or_default();
        let mut ratios = Ratio::all(&serde_json::from_str(&json).unwrap_or_default());
        // In the order of the result, which a value of JSON forgets.
        ratios.sort_by_key(|ratio| json.find(&format!("\"{}\":", ratio.name)));
        let has_rounds = ratios.iter().any(|ratio| ratio.low.is_some());
        let better = |ratio: &Ratio| Better::of(scenario, &ratio.name);
        let has_better = ratios.iter().any(|ratio| better(ratio) != Better::Unknown);
        let row = |ratio: &Ratio| {
            let mut cells = vec![ratio.name.replace('_', " "), text::number(ratio.value)];
            if has_rounds {
                let ends = [ratio.low, ratio.high];
                cells.extend(ends.map(|end| end.map_or_else(|| "-".to_owned(), text::number)));
            }
            cells.extend(has_better.then(|| better(ratio).words().to_owned()));
            cells
        };
        let rounds = if has_rounds { &["lowest round", "highest round"][..] } else { &[] };
        let better = if has_better { &["better"][..] } else { &[] };
        let header = ["ratio", "measured"].iter().chain(rounds).chain(better).copied();
        let table = || Self::new("Ratios that say most", header, ratios.iter().map(row).collect());
        (!ratios.is_empty()).then(table)
    }
}

impl Plot {
    /// Lines by a size or number, one for each name; `points` are a name and a point each.
    pub(crate) fn lines<'a>(
        title: &str,
        x: Axis,
        y: Axis,
        points: impl IntoIterator<Item = (&'a str, f64, f64)>,
    ) -> Self {
        let mut series: Vec<Series> = Vec::new();
        for (name, x, y) in points {
            match series.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push((x, y)),
                None => series.push(Series { name: name.to_owned(), points: vec![(x, y)] }),
            }
        }
        for series in &mut series {
            series.points.sort_by(|one, other| one.0.total_cmp(&other.0));
        }
        Self::Lines { title: title.to_owned(), x, y, series }
    }

    /// What the picture shows.
    pub fn title(&self) -> &str {
        match self {
            Self::Lines { title, .. }
            | Self::Bars { title, .. }
            | Self::Timeline { title, .. }
            | Self::Flow { title, .. } => title,
        }
    }

    /// Whether there is anything to draw.
    pub fn has_figures(&self) -> bool {
        match self {
            Self::Lines { series, .. } => series.iter().any(|series| !series.points.is_empty()),
            Self::Bars { bars, .. } => !bars.is_empty(),
            Self::Timeline { lanes, .. } => lanes.iter().any(|lane| !lane.spans.is_empty()),
            Self::Flow { rows, .. } => rows.iter().any(|row| !row.steps.is_empty()),
        }
    }
}

impl Series {
    /// What the curve is of.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl Axis {
    /// An axis of equal steps.
    pub fn linear(title: &str) -> Self {
        Self { title: title.to_owned(), log: false }
    }

    /// An axis of equal factors.
    pub fn log(title: &str) -> Self {
        Self { title: title.to_owned(), log: true }
    }
}

impl Bar {
    /// A value without a spread.
    pub fn new(name: &str, value: f64) -> Self {
        Self { name: name.to_owned(), value, low: None, high: None }
    }

    /// A median with the lowest and the highest round.
    pub(crate) fn of(name: &str, range: Range) -> Self {
        let Range { median, low, high } = range;
        Self { name: name.to_owned(), value: median, low: Some(low), high: Some(high) }
    }
}
