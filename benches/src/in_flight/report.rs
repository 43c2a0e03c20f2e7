//! The result of the scenario `in-flight`: its JSON form, which is committed.

use serde::{Deserialize, Serialize};

use super::pytorch::PyTorch;
use crate::BenchError;
use crate::header::Header;
use crate::json::to_json;
use crate::timing::{self, rounded};

/// A result of the scenario `in-flight`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InFlightReport {
    /// Where it comes from.
    #[serde(flatten)]
    pub header: Header,
    /// What the parts come to.
    pub ratios: InFlightRatios,
    /// Copies of the storm that did not arrive as they were sent; `None` where it did not run.
    pub mismatches: Option<u64>,
    /// Slots of the storm that did not come home; `None` where it did not run.
    pub leaks: Option<u64>,
    /// One round of lease, upload and drop, with cudarc's event tracking off and on.
    pub round: Vec<RoundRow>,
    /// PyTorch's figures, where they were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pytorch: Option<PyTorch>,
    /// Rounds beside pending fences.
    pub pending: Vec<PendingRow>,
    /// Many threads, every copy checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storm: Option<Storm>,
    /// From the end of a copy to the next owner of its slot.
    pub reclaim: Vec<ReclaimRow>,
    /// What the keeper thread costs.
    pub keeper: Vec<KeeperRow>,
}

/// Figures over figures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InFlightRatios {
    /// What a round adds to its copy call, with event tracking off, over what PyTorch's adds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours_over_pytorch: Option<f64>,
    /// The 99th percentile of a round with 512 fences pending over that with 8: 8 threads, stream
    /// fences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_512_over_8: Option<f64>,
    /// The same with one thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_512_over_8_one_thread: Option<f64>,
    /// The same with 8 threads and fences that the program completes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_512_over_8_manual: Option<f64>,
    /// The same with one thread and fences that the program completes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_512_over_8_manual_one_thread: Option<f64>,
}

/// How values spread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// What nine of ten keep to.
    pub p90: f64,
    /// What 99 of 100 keep to.
    pub p99: f64,
}

impl Spread {
    /// Of these values; zeros where there are none.
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        // The smallest value that the share of all values keeps to.
        let at = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
            rounded(sorted.get(rank).copied().unwrap_or(0.0))
        };
        Self { median: rounded(timing::median(values)), p90: at(90), p99: at(99) }
    }
}

/// What one round costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundRow {
    /// Whether cudarc records an event of its own for each use of the device memory.
    pub event_tracking: bool,
    /// Batches counted.
    pub batches: u64,
    /// Rounds in a batch.
    pub rounds_per_batch: u64,
    /// `try_lease`, `upload`, drop: nanoseconds a round, by batch.
    pub round_ns: Spread,
    /// The raw copy call alone: nanoseconds a call, by batch.
    pub copy_call_ns: Spread,
    /// What the round adds to the copy call, pair of batches by pair.
    pub added_ns: Spread,
}

/// Rounds without a copy, beside pending fences.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingRow {
    /// [`STREAM`], [`MANUAL`] or [`BARE`].
    pub fence: String,
    /// Threads at once, each with its own stream.
    pub threads: u64,
    /// Fences pending all the while.
    pub pending: u64,
    /// Rounds counted, over all threads.
    pub rounds: u64,
    /// Median of a round.
    pub p50_ns: f64,
    /// What 99 of 100 rounds keep to.
    pub p99_ns: f64,
    /// The longest round.
    pub max_ns: f64,
}

/// Many threads copy and drop, every copy is checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Storm {
    /// Threads.
    pub threads: u64,
    /// Streams that they share.
    pub streams: u64,
    /// Slots that they share.
    pub slots: u64,
    /// Bytes of one copy.
    pub bytes: u64,
    /// Uploads and drops, all read back and compared.
    pub rounds: u64,
    /// How long they took, with filling, reading back and comparing.
    pub seconds: f64,
    /// Rounds a second.
    pub rounds_per_s: f64,
    /// Copies that did not arrive as they were sent.
    pub mismatches: u64,
    /// Slots that did not come home.
    pub leaks: u64,
    /// How the process's memory in RAM changed between an untimed start and the end.
    pub resident_drift_bytes: i64,
}

/// From the end of a copy to the return of another thread's `lease`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReclaimRow {
    /// Bytes of the copy.
    pub bytes: u64,
    /// How long the stream was held back before the copy.
    pub delay_us: u64,
    /// Rounds counted.
    pub rounds: u64,
    /// Until the slot can be leased: it is counted as come home.
    pub leasable: ReclaimTimes,
    /// Until the waiting thread has it: that, and the thread's waking up.
    pub leased: ReclaimTimes,
}

/// Times after the end of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ReclaimTimes {
    /// Median.
    pub p50_us: f64,
    /// What 99 of 100 keep to.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// What the keeper thread costs in one case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeeperRow {
    /// [`IDLE`], [`FRAMES`] or [`FRAMES_AND_WAITER`].
    pub case: String,
    /// How long it was watched.
    pub seconds: f64,
    /// Copies started meanwhile.
    pub frames: u64,
    /// Its time on a processor, in per cent of one.
    pub cpu_percent: f64,
    /// How often it went to sleep, and so woke, in a second.
    pub wakes_per_s: f64,
}

impl InFlightReport {
    /// The result as the JSON that is committed.
    ///
    /// # Errors
    /// Never for a result of a run; the writer's reason else.
    pub fn to_json(&self) -> Result<String, BenchError> {
        to_json(self)
    }
}

/// The name of the scenario of [`InFlightReport`].
pub const IN_FLIGHT: &str = "in-flight";
/// Fences that a stream completes.
pub const STREAM: &str = "stream";
/// Fences that the program completes.
pub const MANUAL: &str = "manual";
/// No fence and no lease, only the driver's call to record an event: what others are made of.
pub const BARE: &str = "bare";
/// The keeper with nothing in flight.
pub const IDLE: &str = "idle";
/// The keeper with a thousand copies a second and slots to spare.
pub const FRAMES: &str = "1000 frames/s";
/// The keeper with a thousand copies a second and a thread that waits for the only slot.
pub const FRAMES_AND_WAITER: &str = "1000 frames/s, a waiter";

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "the values are exact")]
mod tests {
    use super::*;

    #[test]
    fn a_spread_names_values_that_were_there() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(Spread::of(&hundred), Spread { median: 50.5, p90: 90.0, p99: 99.0 });
        assert_eq!(Spread::of(&[7.0]), Spread { median: 7.0, p90: 7.0, p99: 7.0 });
        assert_eq!(Spread::of(&[]), Spread::default());
    }
}
