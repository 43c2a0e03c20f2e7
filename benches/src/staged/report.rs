//! The result of the scenario `staged`: its JSON form, which is committed.

use serde::{Deserialize, Serialize};

use super::pytorch::PyTorch;
use crate::BenchError;
use crate::header::Header;
use crate::json::to_json;
use crate::timing::Range;

/// A result of the scenario `staged`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StagedReport {
    /// Where it comes from; the scenario is always [`STAGED_SCENARIO`].
    #[serde(flatten)]
    pub header: Header,
    /// What the reader must know about this run.
    pub notes: Vec<String>,
    /// Threads of a stager as it is by default on this machine.
    pub default_threads: u64,
    /// Bytes of its chunks by default.
    pub default_chunk_bytes: u64,
    /// The size that the ratios are of: 1 GiB, or the largest that was measured.
    pub ratios_bytes: u64,
    /// What the parts come to.
    pub ratios: StagedRatios,
    /// Copies by size, direction and side.
    pub copies: Vec<SideRow>,
    /// Staged copies of `ratios_bytes` by the size of chunks, with the default threads.
    pub chunks: Vec<SideRow>,
    /// Copies that are too small to be staged.
    pub small: Vec<SmallRow>,
    /// A file to the device.
    pub file: Vec<FileRow>,
    /// Why there are no figures of PyTorch, where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pytorch_not_measured: Option<String>,
    /// PyTorch's figures, where they were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pytorch: Option<PyTorch>,
}

/// The figures that say most; `None` where a side was not measured. All but `small_over_plain` are
/// bandwidths over bandwidths, medians of those of the rounds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StagedRatios {
    /// Staged uploads over copies from a lease.
    pub h2d_over_pinned: Option<f64>,
    /// Staged uploads over the driver's own from pageable memory.
    pub h2d_over_pageable: Option<f64>,
    /// Staged uploads over registering the memory, copying and unregistering.
    pub h2d_over_register: Option<f64>,
    /// Staged downloads over the driver's own to pageable memory.
    pub d2h_over_pageable: Option<f64>,
    /// Staged downloads over copies to a lease.
    pub d2h_over_pinned: Option<f64>,
    /// Staged downloads over registering the memory, copying and unregistering.
    pub d2h_over_register: Option<f64>,
    /// Staged uploads with four threads over the driver's own.
    pub h2d_4_threads_over_pageable: Option<f64>,
    /// `upload_file` of a file in the page cache over reading it and copying.
    pub file_over_read_then_copy: Option<f64>,
    /// The same where the file is not in the page cache.
    pub cold_file_over_read_then_copy: Option<f64>,
    /// The time of small uploads by a stager over that of the plain call, the worst of the sizes.
    pub small_over_plain: Option<f64>,
    /// Staged uploads over PyTorch's `tensor.to("cuda")`.
    pub h2d_over_pytorch_to: Option<f64>,
    /// Staged uploads over PyTorch's `tensor.pin_memory().to("cuda", non_blocking=True)`.
    pub h2d_over_pytorch_pin_memory: Option<f64>,
}

/// One way to copy, of one size and direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SideRow {
    /// A name of [`Side`](super::Side).
    pub side: String,
    /// "h2d" or "d2h".
    pub direction: String,
    /// Bytes of one copy.
    pub bytes: u64,
    /// Threads of the stager; `None` for the others.
    pub threads: Option<u64>,
    /// Bytes of its chunks.
    pub chunk_bytes: Option<u64>,
    /// Microseconds from the call to the end of the copy as the host sees it.
    pub us: Range,
    /// Decimal gigabytes a second at that median.
    pub gb_per_s: f64,
    /// Microseconds, round by round.
    pub rounds: Vec<f64>,
}

/// Uploads of one small size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SmallRow {
    /// Bytes of one copy.
    pub bytes: u64,
    /// Copies of each side, in all rounds.
    pub repeats: u64,
    /// The median of the plain call and its wait, in microseconds, by round.
    pub plain_us: Range,
    /// That of the stager's upload and its wait.
    pub upload_us: Range,
    /// Time over time, by round.
    pub upload_over_plain: Range,
}

/// One way from a file to the device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileRow {
    /// [`READ_THEN_COPY`], [`UPLOAD_FILE`] or [`UPLOAD_FROM`].
    pub side: String,
    /// [`CACHED`] or [`COLD`].
    pub case: String,
    /// Bytes of the file.
    pub bytes: u64,
    /// The most of the file that was in the page cache when a round began, in percent.
    pub cached_percent: f64,
    /// Milliseconds from the call to the end of the copy as the host sees it.
    pub ms: Range,
    /// Decimal gigabytes a second at that median.
    pub gb_per_s: f64,
    /// Milliseconds, round by round.
    pub rounds: Vec<f64>,
}

impl StagedReport {
    /// Of a run that has not begun.
    pub(super) fn new(header: Header) -> Self {
        Self {
            header,
            notes: Vec::new(),
            default_threads: 0,
            default_chunk_bytes: 0,
            ratios_bytes: 0,
            ratios: StagedRatios::default(),
            copies: Vec::new(),
            chunks: Vec::new(),
            small: Vec::new(),
            file: Vec::new(),
            pytorch_not_measured: None,
            pytorch: None,
        }
    }

    /// The result as the JSON that is committed.
    ///
    /// # Errors
    /// Never for a result of a run; the writer's reason else.
    pub fn to_json(&self) -> Result<String, BenchError> {
        to_json(self)
    }

    /// The row of a size, a direction and a side; of staged ones that with so many threads.
    pub fn copy(
        &self,
        bytes: u64,
        direction: &str,
        side: &str,
        threads: Option<u64>,
    ) -> Option<&SideRow> {
        self.copies.iter().find(|row| {
            (row.bytes, row.threads) == (bytes, threads)
                && row.direction == direction
                && row.side == side
        })
    }

    /// The row of a way and a case of the file.
    pub fn file(&self, side: &str, case: &str) -> Option<&FileRow> {
        self.file.iter().find(|row| row.side == side && row.case == case)
    }

    /// The sizes of `copies`, from the smallest.
    pub(crate) fn sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.copies.iter().map(|row| row.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

/// The name of the scenario of [`StagedReport`].
pub const STAGED_SCENARIO: &str = "staged";
/// The file is read into memory that is there, which is then copied.
pub const READ_THEN_COPY: &str = "read, then copy";
/// The stager reads the file.
pub const UPLOAD_FILE: &str = "upload_file";
/// The stager is given the file as a reader.
pub const UPLOAD_FROM: &str = "upload_from";
/// The file is in the page cache.
pub const CACHED: &str = "in the page cache";
/// The kernel was told to forget the file.
pub const COLD: &str = "cold";
