//! The result of the scenario `gigabyte`: its JSON form, which is committed.

use serde::{Deserialize, Serialize};

use super::copies::Took;
use crate::BenchError;
use crate::copy::Direction;
use crate::header::Header;
use crate::json::to_json;
use crate::timing::Range;

/// A result of the scenario `gigabyte`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GigabyteReport {
    /// Where it comes from; the scenario is always [`GIGABYTE`].
    #[serde(flatten)]
    pub header: Header,
    /// What the reader must know about this run.
    pub notes: Vec<String>,
    /// Why nothing was copied to a device, where nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies_not_measured: Option<String>,
    /// Bytes of each copy.
    pub bytes: u64,
    /// The figures that say most.
    pub ratios: GigabyteRatios,
    /// One row for each kind of memory and direction.
    pub copies: Vec<CopyTimes>,
    /// What the host does, by itself.
    pub host: Vec<StepRow>,
}

/// Times of pageable memory over those of pinned memory, round by round; `None` without a device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GigabyteRatios {
    /// The first upload.
    pub h2d_first: Option<Range>,
    /// Later uploads of the same memory.
    pub h2d_later: Option<Range>,
    /// Getting the memory, writing it and uploading it once.
    pub h2d_all: Option<Range>,
    /// The first download, into memory that nobody touched.
    pub d2h_first: Option<Range>,
    /// Later downloads into the same memory.
    pub d2h_later: Option<Range>,
    /// Getting the memory and downloading into it once.
    pub d2h_all: Option<Range>,
    /// A memcpy to memory without pages over one to memory that has them.
    pub host_fresh_over_touched: Option<f64>,
}

/// Copies of one kind of memory in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopyTimes {
    /// "pageable" or "pinned".
    pub memory: String,
    /// "h2d" or "d2h".
    pub direction: String,
    /// Milliseconds of the first copy.
    pub first_ms: Range,
    /// Milliseconds of later ones.
    pub later_ms: Range,
    /// Decimal gigabytes a second at the first one's median.
    pub first_gb_per_s: f64,
    /// The same of later ones.
    pub later_gb_per_s: f64,
    /// Milliseconds to get the memory.
    pub get_ms: Range,
    /// Milliseconds to write all of it once; only before uploads.
    pub write_ms: Option<Range>,
    /// Milliseconds of getting, writing and the first copy.
    pub all_ms: Range,
}

/// What the host does, by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRow {
    /// What it is.
    pub step: String,
    /// Milliseconds.
    pub ms: Range,
    /// Decimal gigabytes a second at the median.
    pub gb_per_s: f64,
}

impl GigabyteReport {
    /// Of a run that has not begun.
    pub(super) fn new(header: Header) -> Self {
        let (notes, copies_not_measured, ratios, copies, host) = Default::default();
        Self { header, notes, copies_not_measured, bytes: 0, ratios, copies, host }
    }

    /// The copies of a kind of memory in a direction.
    pub fn copy(&self, memory: &str, direction: &str) -> Option<&CopyTimes> {
        self.copies.iter().find(|row| row.memory == memory && row.direction == direction)
    }

    /// The result as the JSON that is committed.
    ///
    /// # Errors
    /// Never for a result of a run; the writer's reason else.
    pub fn to_json(&self) -> Result<String, BenchError> {
        to_json(self)
    }
}

impl GigabyteRatios {
    /// Sets those of a direction to what `over` says of a part of a round.
    pub(super) fn set(&mut self, direction: Direction, over: impl Fn(fn(&Took) -> f64) -> Range) {
        let [first, later, all] =
            [Took::first, Took::later, Took::all].map(|part| Some(over(part)));
        match direction {
            Direction::HostToDevice => {
                (self.h2d_first, self.h2d_later, self.h2d_all) = (first, later, all);
            }
            Direction::DeviceToHost => {
                (self.d2h_first, self.d2h_later, self.d2h_all) = (first, later, all);
            }
        }
    }
}

/// The name of the scenario.
pub const GIGABYTE: &str = "gigabyte";
