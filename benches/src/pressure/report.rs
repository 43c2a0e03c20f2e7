//! The result of the scenario `pressure`: its JSON form, and what the rounds come to.

use serde::{Deserialize, Serialize};

use super::plan::Plan;
use crate::BenchError;
use crate::header::Header;
use crate::json::to_json;
use crate::text;
use crate::timing::{Range, median, rounded};

/// What there was, and what the neighbour has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PressureFigures {
    /// Bytes that could be taken when the run began.
    pub available_bytes: u64,
    /// Bytes of them that nobody took.
    pub kept_free_bytes: u64,
    /// Bytes that the neighbour maps.
    pub working_bytes: u64,
    /// Bytes of the file that it reads; `None` where there is none.
    pub file_bytes: Option<u64>,
}

/// A result of the scenario `pressure`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PressureReport {
    /// Where it comes from; the scenario is always [`PRESSURE`].
    #[serde(flatten)]
    pub header: Header,
    /// Each case over that of nothing pinned: times over times.
    pub ratios: Vec<PressureRatios>,
    /// What the reader must know about this run.
    pub notes: Vec<String>,
    /// What there was.
    #[serde(flatten)]
    pub figures: PressureFigures,
    /// One row for each case; nothing pinned first.
    pub rows: Vec<PressureRow>,
}

/// A case over nothing pinned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PressureRatios {
    /// What is pinned.
    pub pinned: String,
    /// The time to map and touch the working set.
    pub map_over_none: Range,
    /// The time to go through it.
    pub stream_over_none: Range,
    /// The time to read the file again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_over_none: Option<Range>,
}

/// A case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PressureRow {
    /// Bytes that are pinned.
    pub pinned_bytes: u64,
    /// Percent of what was available.
    pub pinned_percent: f64,
    /// Milliseconds to map and touch the working set, by round.
    pub map_ms: Range,
    /// Milliseconds to go through it.
    pub stream_ms: Range,
    /// Decimal gigabytes a second at that median.
    pub stream_gb_per_s: f64,
    /// Milliseconds to read the file again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ms: Option<Range>,
    /// Percent of the file in the page cache before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_percent: Option<Range>,
    /// Rounds that were run.
    pub rounds: u64,
}

/// One round of a case.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) map_ms: f64,
    pub(super) stream_ms: f64,
    /// Milliseconds of the second reading, and the percent that was cached before it.
    pub(super) read: Option<(f64, f64)>,
}

impl PressureReport {
    /// Of a run that cannot show anything.
    pub(super) fn not_run(mut header: Header, reason: String) -> Self {
        header.not_run = Some(reason);
        let figures = PressureFigures::default();
        Self { header, ratios: Vec::new(), notes: Vec::new(), figures, rows: Vec::new() }
    }

    /// Of the rounds of each case.
    pub(super) fn of(
        header: Header,
        plan: &Plan,
        file_bytes: Option<u64>,
        mut notes: Vec<String>,
        rounds: &[Vec<Round>],
    ) -> Self {
        notes.dedup();
        let cases = plan.pinned.iter().zip(rounds).filter(|(_, rounds)| !rounds.is_empty());
        let rows: Vec<PressureRow> =
            cases.map(|(pinned, rounds)| row(*pinned, plan, rounds)).collect();
        let others =
            plan.pinned.iter().zip(rounds).skip(1).filter(|(_, rounds)| !rounds.is_empty());
        let none = rounds.first().map_or(&[][..], Vec::as_slice);
        let ratios = others.map(|(pinned, rounds)| ratios(*pinned, none, rounds)).collect();
        let figures = PressureFigures {
            available_bytes: plan.available_bytes,
            kept_free_bytes: plan.kept_free_bytes,
            working_bytes: plan.working_bytes,
            file_bytes,
        };
        let mut report = Self { header, ratios, notes, figures, rows };
        report.notes.extend(report.doubts());
        report
    }

    /// What makes the figures doubtful.
    fn doubts(&self) -> Option<String> {
        let unsteady = self.rows.iter().find(|row| row.map_ms.high > row.map_ms.low * STEADY)?;
        let Range { low, high, .. } = unsteady.map_ms;
        let pinned = text::bytes(unsteady.pinned_bytes);
        Some(format!(
            "mapping beside {pinned} took {low} ms in one round and {high} ms in another: others were \
             at work on this machine, ratios mean little"
        ))
    }

    /// The result as the JSON that is committed.
    ///
    /// # Errors
    /// Never for a result of a run; the writer's reason else.
    pub fn to_json(&self) -> Result<String, BenchError> {
        to_json(self)
    }
}

fn row(pinned: u64, plan: &Plan, rounds: &[Round]) -> PressureRow {
    let stream_ms = values(rounds, |round| Some(round.stream_ms));
    let read = |of: fn((f64, f64)) -> f64| {
        let values = values(rounds, |round| round.read.map(of));
        (!values.is_empty()).then(|| Range::of(&values))
    };
    PressureRow {
        pinned_bytes: pinned,
        pinned_percent: rounded(pinned as f64 * 100.0 / plan.available_bytes.max(1) as f64),
        map_ms: Range::of(&values(rounds, |round| Some(round.map_ms))),
        stream_gb_per_s: rounded(plan.working_bytes as f64 / median(&stream_ms) / 1e6),
        stream_ms: Range::of(&stream_ms),
        read_ms: read(|(ms, _)| ms),
        cached_percent: read(|(_, percent)| percent),
        rounds: rounds.len() as u64,
    }
}

fn ratios(pinned: u64, none: &[Round], rounds: &[Round]) -> PressureRatios {
    let over =
        |of: fn(&Round) -> Option<f64>| Range::of_ratios(&values(rounds, of), &values(none, of));
    let has_read = rounds.iter().chain(none).all(|round| round.read.is_some());
    PressureRatios {
        pinned: text::bytes(pinned),
        map_over_none: over(|round| Some(round.map_ms)),
        stream_over_none: over(|round| Some(round.stream_ms)),
        read_over_none: has_read.then(|| over(|round| round.read.map(|(ms, _)| ms))),
    }
}

fn values(rounds: &[Round], of: impl Fn(&Round) -> Option<f64>) -> Vec<f64> {
    rounds.iter().filter_map(of).collect()
}

/// The scenario's name.
pub const PRESSURE: &str = "pressure";
/// Rounds that differ by more are not of the same machine.
const STEADY: f64 = 2.0;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp, reason = "tests may fail loudly")]
pub(super) mod tests {
    use super::*;
    use crate::header::tests::header;

    /// With half of 16 GiB pinned, mapping takes twice as long, and the file is read from the disk.
    pub(in super::super) fn report() -> PressureReport {
        let plan = Plan {
            pinned: vec![0, 4 << 30, 8 << 30],
            working_bytes: 6 << 30,
            file_bytes: 4 << 30,
            available_bytes: 16 << 30,
            kept_free_bytes: 2 << 30,
            notes: Vec::new(),
        };
        let round = |map_ms, read_ms, cached| {
            vec![Round { map_ms, stream_ms: 300.0, read: Some((read_ms, cached)) }; 3]
        };
        let rounds =
            [round(1000.0, 500.0, 100.0), round(1000.0, 500.0, 100.0), round(2000.0, 5000.0, 40.0)];
        let header = header(PRESSURE, false);
        PressureReport::of(header, &plan, Some(4 << 30), Vec::new(), &rounds)
    }

    #[test]
    fn ratios_are_over_nothing_pinned_and_json_comes_back() {
        let report = report();
        assert_eq!((report.ratios.len(), report.rows.len()), (2, 3));
        let half = &report.ratios[1];
        let read = half.read_over_none.unwrap().median;
        assert_eq!(
            [half.map_over_none.median, half.stream_over_none.median, read],
            [2.0, 1.0, 10.0]
        );
        assert_eq!(report.rows[2].pinned_percent, 50.0);
        assert_eq!(report.notes, [""; 0]);
        let json = report.to_json().unwrap();
        assert_eq!(serde_json::from_str::<PressureReport>(&json).unwrap(), report, "{json}");
    }

    #[test]
    fn rounds_that_differ_make_a_doubt() {
        let mut report = report();
        report.rows[1].map_ms.high = 2500.0;
        let doubt = report.doubts().unwrap();
        assert!(
            doubt.starts_with("mapping beside 4 GiB took 1000 ms in one round and 2500"),
            "{doubt}"
        );
    }
}
