//! The result of the scenario `alloc`: its JSON form, which is committed.

use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::header::Header;
use crate::json::to_json;
use crate::timing::Range;

/// A result of the scenario `alloc`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AllocReport {
    /// Where it comes from; the scenario is always [`ALLOC_SCENARIO`].
    #[serde(flatten)]
    pub header: Header,
    /// "cuda", or "host" where there is no device.
    pub backend: String,
    /// What the reader must know about this run.
    pub notes: Vec<String>,
    /// What was taken off every time for the clock itself, in nanoseconds.
    pub clock_ns: f64,
    /// The most that might be pinned at a time.
    pub max_pinned_bytes: u64,
    /// Time over time, for each size.
    pub ratios: Vec<AllocRatio>,
    /// One row for each size and way.
    pub rows: Vec<AllocRow>,
}

/// Round trips over round trips, medians of those of the rounds. Pinned is `cuMemHostAlloc`, or
/// `mlock` where there is no device; `None` where a way was not measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AllocRatio {
    /// The size in bytes.
    pub bytes: u64,
    /// Pinned memory over `malloc` and a write to each page.
    pub pinned_over_malloc: Option<f64>,
    /// Pinned memory over a lease.
    pub pinned_over_lease: Option<f64>,
    /// `malloc` and a write to each page over a lease.
    pub malloc_over_lease: Option<f64>,
}

/// One way to a buffer of one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AllocRow {
    /// A name of [`Side`](super::Side).
    pub way: String,
    /// The size in bytes.
    pub bytes: u64,
    /// Microseconds to get one and to give it back.
    pub us: Range,
    /// Microseconds to get one, where that was timed by itself.
    pub get_us: Option<Range>,
    /// Microseconds to give it back, likewise.
    pub give_back_us: Option<Range>,
    /// Rounds counted.
    pub rounds: u64,
    /// Whether the rounds spread so much that the figure says little.
    pub unsteady: bool,
}

impl AllocReport {
    /// The result as the JSON that is committed.
    ///
    /// # Errors
    /// Never for a result of a run; the writer's reason else.
    pub fn to_json(&self) -> Result<String, BenchError> {
        to_json(self)
    }
}

/// The name of the scenario.
pub const ALLOC_SCENARIO: &str = "alloc";
