//! What any result says of itself, whatever its scenario: where it comes from, and its section.

use crate::BenchError;
use crate::frames::FRAMES_QUICK;
use crate::header::Header;
use crate::machine::Machine;
use crate::report::Report;
use crate::section::Section;

/// Where a result comes from.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// The name of its scenario.
    pub scenario: &'a str,
    /// The machine of the run.
    pub machine: &'a Machine,
    /// The command that was run.
    pub command: &'a str,
    /// The commit that was built.
    pub commit: &'a str,
    /// Why nothing was measured, where nothing was.
    pub not_run: Option<&'a str>,
    /// Whether every part ran in a small size, whose figures mean little.
    pub quick: bool,
}

impl<'a> From<&'a Header> for Origin<'a> {
    fn from(header: &'a Header) -> Self {
        Self {
            scenario: &header.scenario,
            machine: &header.machine,
            command: &header.command,
            commit: &header.commit,
            not_run: header.not_run.as_deref(),
            quick: header.quick,
        }
    }
}

impl Report {
    /// Where it comes from.
    pub fn origin(&self) -> Origin<'_> {
        match self {
            Self::Frames(report) => Origin {
                scenario: &report.scenario,
                machine: &report.machine,
                command: &report.command,
                commit: &report.commit,
                not_run: None,
                quick: report.frames <= FRAMES_QUICK,
            },
            Self::Copy(report) => Origin {
                scenario: &report.scenario,
                machine: &report.machine,
                command: &report.command,
                commit: &report.commit,
                not_run: report.not_run.as_deref(),
                quick: report.quick,
            },
            Self::InFlight(report) => Origin::from(&report.header),
            Self::Waiting(report) => Origin::from(&report.header),
            Self::Lease(report) => Origin::from(&report.header),
            Self::Startup(report) => Origin::from(&report.header),
            Self::Staged(report) => Origin::from(&report.header),
            Self::Alloc(report) => Origin::from(&report.header),
            Self::BreakEven(report) => Origin::from(&report.header),
            Self::Gigabyte(report) => Origin::from(&report.header),
            Self::Neighbours(report) => Origin::from(&report.header),
            Self::Overlap(report) => Origin::from(&report.header),
            Self::Pressure(report) => Origin::from(&report.header),
        }
    }

    /// What a page says of it.
    pub fn section(&self) -> Section {
        match self {
            Self::Frames(report) => report.section(),
            Self::Copy(report) => report.section(),
            Self::InFlight(report) => report.section(),
            Self::Waiting(report) => report.section(),
            Self::Lease(report) => report.section(),
            Self::Startup(report) => report.section(),
            Self::Staged(report) => report.section(),
            Self::Alloc(report) => report.section(),
            Self::BreakEven(report) => report.section(),
            Self::Gigabyte(report) => report.section(),
            Self::Neighbours(report) => report.section(),
            Self::Overlap(report) => report.section(),
            Self::Pressure(report) => report.section(),
        }
    }

    /// The result as the JSON that is committed.
    ///
    /// # Errors
    /// Never for a result of a run; the writer's reason else.
    pub fn to_json(&self) -> Result<String, BenchError> {
        match self {
            Self::Frames(report) => report.to_json(),
            Self::Copy(report) => report.to_json(),
            Self::InFlight(report) => report.to_json(),
            Self::Waiting(report) => report.to_json(),
            Self::Lease(report) => report.to_json(),
            Self::Startup(report) => report.to_json(),
            Self::Staged(report) => report.to_json(),
            Self::Alloc(report) => report.to_json(),
            Self::BreakEven(report) => report.to_json(),
            Self::Gigabyte(report) => report.to_json(),
            Self::Neighbours(report) => report.to_json(),
            Self::Overlap(report) => report.to_json(),
            Self::Pressure(report) => report.to_json(),
        }
    }

    /// The result for people.
    pub fn to_text(&self) -> String {
        match self {
            Self::Frames(report) => report.to_text(),
            Self::Copy(report) => report.to_text(),
            Self::InFlight(report) => report.to_text(),
            Self::Waiting(report) => report.to_text(),
            Self::Lease(report) => report.to_text(),
            Self::Startup(report) => report.to_text(),
            Self::Staged(report) => report.to_text(),
            Self::Alloc(report) => report.to_text(),
            Self::BreakEven(report) => report.to_text(),
            Self::Gigabyte(report) => report.to_text(),
            Self::Neighbours(report) => report.to_text(),
            Self::Overlap(report) => report.to_text(),
            Self::Pressure(report) => report.to_text(),
        }
    }
}
