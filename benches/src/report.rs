//! The results: their JSON form, which is committed and must stay readable, and their tables.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::alloc::report::{ALLOC_SCENARIO, AllocReport};
use crate::break_even::report::{BREAK_EVEN, BreakEvenReport};
use crate::copy::report::Kinds;
use crate::gigabyte::report::{GIGABYTE, GigabyteReport};
use crate::in_flight::report::{IN_FLIGHT, InFlightReport};
use crate::lease::report::{LEASE_SCENARIO, LeaseReport};
use crate::machine::Machine;
use crate::neighbours::report::{NEIGHBOURS, NeighboursReport};
use crate::overlap::report::{OVERLAP, OverlapReport};
use crate::pressure::report::{PRESSURE, PressureReport};
use crate::staged::report::{STAGED_SCENARIO, StagedReport};
use crate::startup::report::{STARTUP, StartupReport};
use crate::tables;
use crate::text;
use crate::waiting::report::{WAITING_SCENARIO, WaitingReport};

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

/// Any result file.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// A result of `bench frames`.
    Frames(FramesReport),
    /// A result of `bench copy`.
    Copy(CopyReport),
    /// A result of `bench in-flight`.
    InFlight(Box<InFlightReport>),
    /// A result of `bench waiting`.
    Waiting(Box<WaitingReport>),
    /// A result of `bench lease`.
    Lease(Box<LeaseReport>),
    /// A result of `bench startup`.
    Startup(Box<StartupReport>),
    /// A result of `bench staged`.
    Staged(Box<StagedReport>),
    /// A result of `bench alloc`.
    Alloc(Box<AllocReport>),
    /// A result of `bench break-even`.
    BreakEven(Box<BreakEvenReport>),
    /// A result of `bench gigabyte`.
    Gigabyte(Box<GigabyteReport>),
    /// A result of `bench neighbours`.
    Neighbours(Box<NeighboursReport>),
    /// A result of `bench overlap`.
    Overlap(Box<OverlapReport>),
    /// A result of `bench pressure`.
    Pressure(Box<PressureReport>),
}

impl Report {
    /// Why nothing was measured, where nothing was.
    pub fn not_run(&self) -> Option<&str> {
        match self {
            Self::Frames(_)
            | Self::Waiting(_)
            | Self::Lease(_)
            | Self::Startup(_)
            | Self::Alloc(_)
            | Self::Gigabyte(_)
            | Self::Neighbours(_) => None,
            Self::Copy(report) => report.not_run.as_deref(),
            Self::InFlight(report) => report.header.not_run.as_deref(),
            Self::Staged(report) => report.header.not_run.as_deref(),
            Self::BreakEven(report) => report.header.not_run.as_deref(),
            Self::Overlap(report) => report.header.not_run.as_deref(),
            Self::Pressure(report) => report.header.not_run.as_deref(),
        }
    }

    /// Whether every part ran in a small size, whose figures mean little.
    pub fn is_quick(&self) -> bool {
        match self {
            Self::Frames(_) => false,
            Self::Copy(report) => report.quick,
            Self::InFlight(report) => report.header.quick,
            Self::Waiting(report) => report.header.quick,
            Self::Lease(report) => report.header.quick,
            Self::Startup(report) => report.header.quick,
            Self::Staged(report) => report.header.quick,
            Self::Alloc(report) => report.header.quick,
            Self::BreakEven(report) => report.header.quick,
            Self::Gigabyte(report) => report.header.quick,
            Self::Neighbours(report) => report.header.quick,
            Self::Overlap(report) => report.header.quick,
            Self::Pressure(report) => report.header.quick,
        }
    }

    /// Reads a result from JSON.
    ///
    /// # Errors
    /// What is wrong with the text, for people.
    pub fn parse(json: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Head {
            scenario: String,
        }
        let head: Head = serde_json::from_str(json).map_err(|cause| cause.to_string())?;
        let read = match head.scenario.as_str() {
            FRAMES => serde_json::from_str(json).map(Self::Frames),
            COPY => serde_json::from_str(json).map(Self::Copy),
            IN_FLIGHT => serde_json::from_str(json).map(Self::InFlight),
            WAITING_SCENARIO => serde_json::from_str(json).map(Self::Waiting),
            LEASE_SCENARIO => serde_json::from_str(json).map(Self::Lease),
            STARTUP => serde_json::from_str(json).map(Self::Startup),
            STAGED_SCENARIO => serde_json::from_str(json).map(Self::Staged),
            NEIGHBOURS => serde_json::from_str(json).map(Self::Neighbours),
            OVERLAP => serde_json::from_str(json).map(Self::Overlap),
            PRESSURE => serde_json::from_str(json).map(Self::Pressure),
            ALLOC_SCENARIO => serde_json::from_str(json).map(Self::Alloc),
            BREAK_EVEN => serde_json::from_str(json).map(Self::BreakEven),
            GIGABYTE => serde_json::from_str(json).map(Self::Gigabyte),
            other => {
                let known = SCENARIOS.map(|name| format!("\"{name}\"")).join(", ");
                return Err(format!("unknown scenario \"{other}\": one of {known} expected"));
            }
        };
        read.map_err(|cause| cause.to_string())
    }
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

    /// The cells of the table of absolute figures, with its header.
    pub fn cells(&self) -> (Vec<&'static str>, Vec<Vec<String>>) {
        let mut header = vec!["source", "frames/s", "p50 us", "p99 us", "max us"];
        if self.rate_fps.is_some() {
            header.push("missed");
        }
        let rows = self.rows.iter().map(|row| {
            let numbers = [row.fps, row.p50_us, row.p99_us, row.max_us].map(text::number);
            let mut cells = vec![row.name.clone()];
            cells.extend(numbers);
            cells.extend(row.missed.map(|missed| missed.to_string()));
            cells
        });
        (header, rows.collect())
    }

    /// The cells of the table of frame rates, with its header.
    pub fn rate_cells(&self) -> (Vec<&'static str>, Vec<Vec<String>>) {
        let header = vec!["behind a camera", "in time", "dropped", "of", "holds"];
        let rows = self.rates.iter().map(|row| {
            vec![
                format!("{} frames/s, {}", row.target_fps, row.name),
                format!("{:.1} %", row.in_time_percent),
                text::count(row.dropped),
                text::count(row.arrived),
                if row.holds { "yes" } else { "no" }.to_owned(),
            ]
        });
        (header, rows.collect())
    }

    /// The result for people.
    pub fn to_text(&self) -> String {
        let paced = self.rate_fps.map_or_else(String::new, |rate| format!(" paced at {rate} fps"));
        let locked = if self.locked { "locked" } else { "NOT locked" };
        let (header, rows) = self.cells();
        let mut lines = format!(
            "{} frames of {} ({} bytes), {} deep{paced}; backend {}, memory {locked}\n{}\n\n",
            self.frames,
            self.frame.spec,
            self.frame.bytes,
            self.depth,
            self.backend,
            self.machine.summary(),
        );
        lines.push_str(&text::table(&header, &rows));
        // Writing to a `String` cannot fail.
        if !self.rates.is_empty() {
            let (header, rows) = self.rate_cells();
            let _ = write!(lines, "\n{}", text::table(&header, &rows));
        }
        for note in &self.notes {
            let _ = write!(lines, "\nNote: {note}");
        }
        let _ = write!(lines, "\n{}\n", self.conclusion());
        lines
    }

    /// What the run shows, in one sentence.
    pub fn conclusion(&self) -> String {
        let FramesRatios {
            lease_over_pinned_per_frame: pinned,
            lease_over_malloc_per_frame: malloc,
            lease_over_fixed_ring: ring,
        } = self.ratios;
        format!(
            "Round by round (medians), leases moved {} as many frames per second of busy time as \
             pinning each frame, {} as many as malloc per frame and {} as many as a fixed ring.",
            text::ratio(pinned),
            text::ratio(malloc),
            text::ratio(ring),
        ) + &self.held()
    }

    /// The highest frame rate that each rival holds, in a sentence; nothing where none was looked at.
    fn held(&self) -> String {
        let held = |name: &str| {
            let rates = self.rates.iter().filter(|row| row.name == name && row.holds);
            rates.map(|row| row.target_fps).fold(0.0, f64::max)
        };
        let words = self.rows.iter().map(|row| match held(&row.name) {
            0.0 => format!("{} none", row.name),
            fps => format!("{} {fps}", row.name),
        });
        let words: Vec<String> = words.collect();
        if self.rates.is_empty() {
            return String::new();
        }
        format!(" Frame rates of a camera that are held: {}.", words.join(", "))
    }
}

impl CopyReport {
    /// The result as the JSON that is committed.
    ///
    /// # Errors
    /// Never for a result of a run; the writer's reason else.
    pub fn to_json(&self) -> Result<String, BenchError> {
        to_json(self)
    }

    /// The cells of the table of bandwidths, with its header: one line for each kind of memory.
    pub fn cells(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let mut header = vec!["GB/s from".to_owned()];
        let columns: Vec<(&str, u64)> = DIRECTIONS
            .iter()
            .flat_map(|&direction| self.sizes.iter().map(move |&bytes| (direction, bytes)))
            .collect();
        for (direction, bytes) in &columns {
            header.push(format!("{direction} {}", text::bytes(*bytes)));
        }
        let mut names: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !names.contains(&row.name.as_str()) {
                names.push(&row.name);
            }
        }
        let rows = names.iter().map(|name| {
            let cell = |&(direction, bytes): &(&str, u64)| {
                let found = |row: &&CopyRow| {
                    row.name == *name && row.direction == direction && row.bytes == bytes
                };
                let row = self.rows.iter().find(found);
                row.map_or_else(|| "-".to_owned(), |row| text::number(row.gb_per_s))
            };
            std::iter::once((*name).to_owned()).chain(columns.iter().map(cell)).collect()
        });
        (header, rows.collect())
    }

    /// The cells of the table of ratios, with its header.
    pub fn ratio_cells(&self) -> (Vec<&'static str>, Vec<Vec<String>>) {
        let header = vec!["copy", "lease/raw", "lease memory/raw", "pageable/raw"];
        let rows = self.ratios.iter().map(|row| {
            let name = format!("{} {}", row.direction, text::bytes(row.bytes));
            let ratios = [row.lease_over_raw, row.lease_memory_over_raw, row.pageable_over_raw];
            std::iter::once(name).chain(ratios.map(|ratio| format!("{ratio:.3}"))).collect()
        });
        (header, rows.collect())
    }

    /// The result for people.
    pub fn to_text(&self) -> String {
        let sizes: Vec<String> = self.sizes.iter().map(|&size| text::bytes(size)).collect();
        if let Some(reason) = &self.not_run {
            return format!(
                "not run: {reason}\n\
                 This scenario measures copies between host and device, in both directions, of {} \
                 from a lease (the pool's upload and download, and raw copy calls on its memory), \
                 from cuMemHostAlloc memory and from pageable memory. It needs an NVIDIA GPU and \
                 its driver.\n",
                sizes.join(", "),
            );
        }
        let (header, rows) = self.cells();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let (ratio_header, ratio_rows) = self.ratio_cells();
        let quick = if self.quick { tables::QUICK } else { "" };
        let kinds = self.kinds.as_ref().map_or_else(String::new, |kinds| kinds.to_text());
        format!(
            "{}\n{quick}\n{}\n{}\n{}\n{kinds}",
            self.machine.summary(),
            text::table(&header, &rows),
            text::table(&ratio_header, &ratio_rows),
            self.method,
        )
    }
}

/// For fields that only say something where they are true.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// Pretty, so that a committed result shows a readable difference.
pub(crate) fn to_json(report: &impl Serialize) -> Result<String, BenchError> {
    let json = serde_json::to_string_pretty(report);
    json.map(|json| json + "\n").map_err(|cause| BenchError::failed("writing JSON", cause))
}

/// Where a scenario stands among all; what is called after one, as `frames-4k` is, stands with it.
pub(crate) fn place(scenario: &str) -> usize {
    let is_of = |known: &&str| {
        scenario.strip_prefix(*known).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    SCENARIOS.iter().position(is_of).unwrap_or(SCENARIOS.len())
}

/// The names of all scenarios that have results, in the order in which they are shown: what is said
/// of pinned memory, what a program feels of it, what pinpool's parts do.
pub const SCENARIOS: [&str; 13] = [
    COPY,
    GIGABYTE,
    ALLOC_SCENARIO,
    BREAK_EVEN,
    FRAMES,
    NEIGHBOURS,
    OVERLAP,
    STARTUP,
    LEASE_SCENARIO,
    IN_FLIGHT,
    WAITING_SCENARIO,
    STAGED_SCENARIO,
    PRESSURE,
];
/// The name of the scenario of [`FramesReport`].
pub const FRAMES: &str = "frames";
/// The name of the scenario of [`CopyReport`].
pub const COPY: &str = "copy";
/// Host to device, device to host.
pub const DIRECTIONS: [&str; 2] = ["h2d", "d2h"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_has_a_place_of_its_own() {
        for (at, scenario) in SCENARIOS.iter().enumerate() {
            assert_eq!(place(scenario), at);
            assert_eq!(place(&format!("{scenario}-4k")), at);
        }
        assert_eq!(place("framesets"), SCENARIOS.len());
    }
}
