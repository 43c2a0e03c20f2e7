//! The result of the scenario `neighbours`: its JSON form, and what the rounds come to.

use serde::{Deserialize, Serialize};

use super::beside::{Case, Phase, Way};
use super::turns::Work;
use crate::BenchError;
use crate::header::Header;
use crate::json::to_json;
use crate::timing::{Range, Times, rounded};

/// A result of the scenario `neighbours`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NeighboursReport {
    /// Where it comes from; the scenario is always [`NEIGHBOURS`].
    #[serde(flatten)]
    pub header: Header,
    /// Each case over nothing beside, for each kind of turn.
    pub ratios: Vec<CaseRatios>,
    /// "cuda" or "host".
    pub backend: String,
    /// Whether memory was really locked.
    pub locked: bool,
    /// What the reader must know about this run.
    pub notes: Vec<String>,
    /// Rounds of each case.
    pub rounds: u64,
    /// Milliseconds of a case in a round.
    pub phase_ms: u64,
    /// One row for each case.
    pub rows: Vec<NeighboursRow>,
}

/// A case over nothing beside; medians and extremes of the rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseRatios {
    /// The case.
    pub case: String,
    /// The kind of turn.
    pub work: String,
    /// Turns that fit into the time.
    pub turns_over_alone: Range,
    /// Median over median.
    pub p50_over_alone: Range,
    /// The time that 99 of 100 turns keep to, over the same; `None` where a round had too few turns to tell.
    pub p99_over_alone: Option<Range>,
}

/// A case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NeighboursRow {
    /// Its name; [`ALONE`] where nothing is beside.
    pub case: String,
    /// Bytes of a frame.
    pub frame_bytes: u64,
    /// Frames that are due in a second; `None` is as many as possible.
    pub rate_fps: Option<f64>,
    /// Frames taken and given back, in all rounds.
    pub frames: u64,
    /// Those in a second.
    pub frames_per_s: f64,
    /// The longest frame, in microseconds.
    pub frame_max_us: f64,
    /// The median of a frame by round, in microseconds.
    pub frame_p50_us: Range,
    /// What the thread felt that is watched, by kind of turn.
    pub felt: Vec<Felt>,
}

/// Turns of a kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Felt {
    /// The kind.
    pub work: String,
    /// Turns counted, in all rounds.
    pub turns: u64,
    /// The median by round, in microseconds.
    pub p50_us: Range,
    /// The time that 99 of 100 turns of a round keep to, in microseconds.
    pub p99_us: Range,
    /// The longest of each round, in microseconds.
    pub max_us: Range,
    /// Percent of the time that went into turns of this kind of more than 1 ms, by round.
    pub long_percent: Range,
}

/// Turns of a kind in one round.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoundFelt {
    pub(super) work: Work,
    pub(super) turns: u64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) max_us: f64,
    pub(super) long_percent: f64,
}

/// Frames of one round.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FrameTimes {
    count: u64,
    seconds: f64,
    p50_us: f64,
    max_us: f64,
}

impl FrameTimes {
    pub(super) fn of(times: &Times, seconds: f64) -> Self {
        let (p50_us, max_us) = (times.quantile_us(0.5), times.max_us());
        Self { count: times.count(), seconds, p50_us, max_us }
    }
}

/// The row of a case.
pub(super) fn row(case: &Case, phases: &[Phase]) -> NeighboursRow {
    let frames: u64 = phases.iter().map(|phase| phase.frames.count).sum();
    let seconds: f64 = phases.iter().map(|phase| phase.frames.seconds).sum();
    let frame_p50: Vec<f64> = phases.iter().map(|phase| phase.frames.p50_us).collect();
    NeighboursRow {
        case: case.name(),
        frame_bytes: case.bytes as u64,
        rate_fps: case.rate,
        frames,
        frames_per_s: if seconds > 0.0 { rounded(frames as f64 / seconds) } else { 0.0 },
        frame_max_us: rounded(phases.iter().map(|phase| phase.frames.max_us).fold(0.0, f64::max)),
        frame_p50_us: Range::of(&frame_p50),
        felt: works(phases).map(|which| felt(phases, which)).collect(),
    }
}

/// Every case but the first over the first.
pub(super) fn ratios(cases: &[Case], phases: &[Vec<Phase>]) -> Vec<CaseRatios> {
    let Some((alone, others)) = phases.split_first() else { return Vec::new() };
    let of_case = |(case, phases): (&Case, &Vec<Phase>)| {
        let case = case.name();
        let of_work = |which| {
            let over = |of: fn(&RoundFelt) -> f64| {
                Range::of_ratios(&values(phases, which, of), &values(alone, which, of))
            };
            let turns = values(phases, which, |felt| felt.turns as f64);
            let has_p99 = turns.iter().all(|turns| *turns >= TURNS_MIN);
            CaseRatios {
                case: case.clone(),
                work: phases[0].felt[which].work.name().to_owned(),
                turns_over_alone: over(|felt| felt.turns as f64),
                p50_over_alone: over(|felt| felt.p50_us),
                p99_over_alone: has_p99.then(|| over(|felt| felt.p99_us)),
            }
        };
        works(phases).map(of_work).collect::<Vec<_>>()
    };
    cases.iter().skip(1).zip(others).flat_map(of_case).collect()
}

fn works(phases: &[Phase]) -> std::ops::Range<usize> {
    0..phases.first().map_or(0, |phase| phase.felt.len())
}

fn felt(phases: &[Phase], which: usize) -> Felt {
    let range = |of: fn(&RoundFelt) -> f64| Range::of(&values(phases, which, of));
    Felt {
        work: phases[0].felt[which].work.name().to_owned(),
        turns: phases.iter().map(|phase| phase.felt[which].turns).sum(),
        p50_us: range(|felt| felt.p50_us),
        p99_us: range(|felt| felt.p99_us),
        max_us: range(|felt| felt.max_us),
        long_percent: range(|felt| felt.long_percent),
    }
}

fn values(phases: &[Phase], which: usize, of: fn(&RoundFelt) -> f64) -> Vec<f64> {
    phases.iter().filter_map(|phase| phase.felt.get(which)).map(of).collect()
}

/// What makes the figures doubtful.
pub(super) fn doubts(rows: &[NeighboursRow]) -> Vec<String> {
    let mut doubts = Vec::new();
    for felt in rows.iter().filter(|row| row.case == ALONE).flat_map(|row| &row.felt) {
        let Range { low, high, .. } = felt.p50_us;
        if high > low * STEADY {
            doubts.push(format!(
                "a {} alone took {low} us in one round and {high} us in another: others were at \
                 work on this machine, ratios mean little",
                felt.work
            ));
        }
    }
    let busy = rows.iter().filter(|row| row.case == ALONE).flat_map(|row| &row.felt);
    let most = busy.map(|felt| felt.long_percent.median).fold(0.0, f64::max);
    if most > LONG_ALONE_MAX {
        doubts.push(format!(
            "{most}% of the time alone went into turns of more than 1 ms: others were at work on this \
             machine, and the longest turns of all cases are theirs in part"
        ));
    }
    doubts
}

impl NeighboursReport {
    /// The result as the JSON that is committed.
    ///
    /// # Errors
    /// Never for a result of a run; the writer's reason else.
    pub fn to_json(&self) -> Result<String, BenchError> {
        to_json(self)
    }

    /// The turns of a kind in a case.
    pub fn felt(&self, case: &str, work: &str) -> Option<&Felt> {
        let row = self.rows.iter().find(|row| row.case == case)?;
        row.felt.iter().find(|felt| felt.work == work)
    }

    /// The cases of pinning, each with the same frames from the pool.
    pub(super) fn pairs(&self) -> Vec<(String, String)> {
        let there = |case: &Case| self.rows.iter().any(|row| row.case == case.name());
        let cases: Vec<Case> = Case::all().into_iter().filter(there).collect();
        let pool = |pinning: &Case| Case { way: Way::Pool, ..*pinning }.name();
        let pinning = cases.iter().filter(|case| case.way == Way::Pinning);
        pinning.map(|case| (case.name(), pool(case))).collect()
    }
}

/// The scenario's name.
pub const NEIGHBOURS: &str = "neighbours";
/// The case of nothing beside.
pub const ALONE: &str = "alone";
/// Medians of rounds that differ by more are not of the same machine.
const STEADY: f64 = 1.5;
/// Percent of the time that turns alone may be held up for.
const LONG_ALONE_MAX: f64 = 1.0;
/// With fewer turns in a round their p99 is one of the longest three.
const TURNS_MIN: f64 = 300.0;
