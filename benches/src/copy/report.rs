//! The result of the scenario `copy`: its JSON form, which is committed.

use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::json::{is_false, to_json};
use crate::link::Rate;
use crate::machine::Machine;
use crate::timing::{Range, rounded};

/// A result of the scenario `copy`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopyReport {
    /// Always [`COPY`].
    pub scenario: String,
    /// Why nothing was measured, where nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_run: Option<String>,
    /// The machine of the run.
    pub machine: Machine,
    /// The command that was run.
    pub command: String,
    /// The commit that was built.
    pub commit: String,
    /// How the figures were made.
    pub method: String,
    /// The sizes copied, in bytes.
    pub sizes: Vec<u64>,
    /// One row for each size, direction and source.
    pub rows: Vec<CopyRow>,
    /// Bandwidth against raw pinned memory, for each size and direction.
    pub ratios: Vec<CopyRatio>,
    /// Whether every part ran in a small size, whose figures mean little.
    #[serde(default, skip_serializing_if = "is_false")]
    pub quick: bool,
    /// All kinds of host memory and the link; results of before they were compared have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<Box<Kinds>>,
}

/// The bandwidth of one kind of memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopyRow {
    /// The kind of host memory, and for leases whether the pool's own calls copy.
    pub name: String,
    /// "h2d" or "d2h".
    pub direction: String,
    /// Bytes of one copy.
    pub bytes: u64,
    /// Decimal gigabytes per second, at the median time.
    pub gb_per_s: f64,
    /// Median time of one copy and its wait.
    pub p50_us: f64,
    /// Copies counted.
    pub repeats: u64,
}

/// Bandwidths over that of raw `cuMemHostAlloc` memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopyRatio {
    /// "h2d" or "d2h".
    pub direction: String,
    /// Bytes of one copy.
    pub bytes: u64,
    /// `upload` and `download` of a lease, with all that they keep track of.
    pub lease_over_raw: f64,
    /// The same raw copy call, from the memory of a lease.
    pub lease_memory_over_raw: f64,
    /// The same raw copy call, from pageable memory.
    pub pageable_over_raw: f64,
}

/// Every kind of host memory over many sizes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Kinds {
    /// The link's ceiling, and how near copies of pinned memory come to it.
    pub link: Option<Link>,
    /// What pageable copies take more than pinned ones.
    pub staging: Vec<StagingRow>,
    /// One row for each size, direction and kind.
    pub rows: Vec<KindRow>,
    /// What was taken off every time for the clock itself, in nanoseconds.
    pub clock_ns: f64,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

/// What the link can carry, and what it carries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The share of the ceiling that the best pinned upload reached.
    pub h2d_over_ceiling: Option<f64>,
    /// The share of the ceiling that the best pinned download reached.
    pub d2h_over_ceiling: Option<f64>,
    /// Decimal gigabytes a second in one direction by generation and width, before packet headers.
    pub ceiling_gb_per_s: Option<f64>,
    /// The generation of PCIe.
    pub generation: Option<u32>,
    /// Lanes in use.
    pub lanes: Option<u32>,
    /// Why the ceiling is not known, where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// The best of all sizes of pinned uploads, at their medians.
    pub h2d_gb_per_s: f64,
    /// The best of all sizes of pinned downloads.
    pub d2h_gb_per_s: f64,
}

/// A pageable copy against a pinned one. The driver moves pageable bytes through pinned memory of
/// its own: what that costs shows as the difference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StagingRow {
    /// "h2d" or "d2h".
    pub direction: String,
    /// Bytes of one copy.
    pub bytes: u64,
    /// Median of a pageable copy, in microseconds.
    pub pageable_us: f64,
    /// Median of a pinned copy.
    pub pinned_us: f64,
    /// The difference as a share of the pageable copy; below zero where that is the faster one.
    pub share_percent: f64,
}

/// Copies of one kind, size and direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KindRow {
    /// The kind of memory.
    pub kind: String,
    /// "h2d" or "d2h".
    pub direction: String,
    /// Bytes of one copy.
    pub bytes: u64,
    /// Decimal gigabytes a second at the median.
    pub gb_per_s: f64,
    /// Microseconds of a copy and its wait.
    pub us: Range,
    /// Copies counted.
    pub repeats: u64,
    /// Whether they spread so much that the figure says little.
    pub unsteady: bool,
}

impl CopyReport {
    /// The result as the JSON that is committed.
    ///
    /// # Errors
    /// Never for a result of a run; the writer's reason else.
    pub fn to_json(&self) -> Result<String, BenchError> {
        to_json(self)
    }
}

impl Link {
    /// Of a link, or of why it is not known, and the best bandwidths of both directions.
    pub(super) fn new(rate: Result<Rate, String>, best: [f64; 2]) -> Self {
        let (rate, unknown) = match rate {
            Ok(rate) => (Some(rate), None),
            Err(why) => (None, Some(why)),
        };
        let ceiling = rate.map(Rate::gigabytes);
        let [h2d, d2h] = best.map(|best| ceiling.map(|ceiling| rounded(best / ceiling)));
        Self {
            h2d_over_ceiling: h2d,
            d2h_over_ceiling: d2h,
            ceiling_gb_per_s: ceiling.map(rounded),
            generation: rate.and_then(Rate::generation),
            lanes: rate.map(|rate| rate.lanes),
            unknown,
            h2d_gb_per_s: best[0],
            d2h_gb_per_s: best[1],
        }
    }
}

/// The name of the scenario.
pub const COPY: &str = "copy";
