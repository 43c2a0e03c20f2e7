//! Any result: reads one of whichever scenario; on top of the scenarios' own results, which know
//! nothing of it.

use serde::Deserialize;

use crate::alloc::report::{ALLOC_SCENARIO, AllocReport};
use crate::break_even::report::{BREAK_EVEN, BreakEvenReport};
use crate::copy::report::{COPY, CopyReport};
use crate::frames::report::{FRAMES, FramesReport};
use crate::gigabyte::report::{GIGABYTE, GigabyteReport};
use crate::in_flight::report::{IN_FLIGHT, InFlightReport};
use crate::lease::report::{LEASE_SCENARIO, LeaseReport};
use crate::neighbours::report::{NEIGHBOURS, NeighboursReport};
use crate::overlap::report::{OVERLAP, OverlapReport};
use crate::pressure::report::{PRESSURE, PressureReport};
use crate::staged::report::{STAGED_SCENARIO, StagedReport};
use crate::startup::report::{STARTUP, StartupReport};
use crate::waiting::report::{WAITING_SCENARIO, WaitingReport};

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
        self.origin().not_run
    }

    /// Whether every part ran in a small size, whose figures mean little.
    pub fn is_quick(&self) -> bool {
        self.origin().quick
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
