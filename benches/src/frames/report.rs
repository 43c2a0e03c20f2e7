//! The result of the scenario `frames`: its JSON form, which is committed.

use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::json::to_json;
use crate::machine::Machine;

/// A result of the scenario `frames`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FramesReport {
    /// Always [`FRAMES`].
    pub scenario: String,
    /// The memory backend, "cuda" or "host".
    pub backend: String,
    /// Whether every rival that locks its memory really did.
    pub locked: bool,
    /// The machine of the run.
    pub machine: Machine,
    /// The command that was run.
    pub command: String,
    /// The commit that was built.
    pub commit: String,
    /// The frame that was moved.
    pub frame: FrameInfo,
    /// Frames counted for each rival.
    pub frames: u64,
    /// Frames kept live, as in a capture queue.
    pub depth: u64,
    /// Interleaved rounds that the frames were cut into.
    pub rounds: u64,
    /// The rate the frames were paced at; `None` is as fast as possible.
    pub rate_fps: Option<f64>,
    /// How the figures were made.
    pub method: String,
    /// What the reader must know about this run.
    pub notes: Vec<String>,
    /// One row for each rival.
    pub rows: Vec<FramesRow>,
    /// Leases against each of the others.
    pub ratios: FramesRatios,
    /// Which frame rates each rival holds; results of before they were looked at have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<RateRow>,
}

/// A frame's format and size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameInfo {
    /// The frame as the option `--frame` takes it.
    pub spec: String,
    /// Pixels in a row.
    pub width: u64,
    /// Rows.
    pub height: u64,
    /// The memory layout.
    pub format: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// One rival's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FramesRow {
    /// The rival's name.
    pub name: String,
    /// Frames per second of busy time.
    pub fps: f64,
    /// Median time of a frame.
    pub p50_us: f64,
    /// The time that 99 of 100 frames keep to.
    pub p99_us: f64,
    /// The longest frame.
    pub max_us: f64,
    /// Frames that ended after their deadline; only where they were paced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
}

/// Frames per second of leases over those of each rival.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FramesRatios {
    /// Against pinning and unpinning each frame.
    pub lease_over_pinned_per_frame: f64,
    /// Against `malloc` and `free` of each frame.
    pub lease_over_malloc_per_frame: f64,
    /// Against a fixed ring written by hand: the most that reuse can give.
    pub lease_over_fixed_ring: f64,
}

/// What becomes of the frames of a camera that waits for nobody, with one rival behind it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RateRow {
    /// The rival's name.
    pub name: String,
    /// Frames a second of the camera.
    pub target_fps: f64,
    /// The share of all frames that were done before the next one came.
    pub in_time_percent: f64,
    /// Frames that came while the last one was in work.
    pub dropped: u64,
    /// Frames that came.
    pub arrived: u64,
    /// Whether 99 of 100 frames are in time.
    pub holds: bool,
}

impl FramesReport {
    /// The result as the JSON that is committed.
    ///
    /// # Errors
    /// Never for a result of a run; the writer's reason else.
    pub fn to_json(&self) -> Result<String, BenchError> {
        to_json(self)
    }

    /// The row of one rival.
    pub fn row(&self, name: &str) -> Option<&FramesRow> {
        self.rows.iter().find(|row| row.name == name)
    }
}

/// The name of the scenario.
pub const FRAMES: &str = "frames";
