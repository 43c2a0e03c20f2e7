//! `pinpool bench`: what its scenarios share, a result file and a progress bar.

pub(crate) mod all;
mod alloc;
mod break_even;
mod compare;
mod copy;
mod frames;
mod gigabyte;
mod in_flight;
mod lease;
mod neighbours;
mod overlap;
mod page;
mod pressure;
mod staged;
mod startup;
mod waiting;

use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pinpool_bench::report::Report;
use pinpool_bench::{machine, output};

use self::page::{Folder, Found};
use crate::cli::{BenchArgs, Scenario};
use crate::failure::Failure;
use crate::options::OutputArgs;
use crate::out;

pub(crate) fn run(arguments: &BenchArgs) -> Result<(), Failure> {
    match &arguments.scenario {
        Scenario::All(arguments) => all::run(arguments),
        Scenario::Compare(arguments) => compare::run(arguments),
        Scenario::Page(arguments) => page::run(arguments),
        Scenario::Frames(arguments) => frames::run(arguments),
        Scenario::Copy(arguments) => copy::run(arguments),
        Scenario::Gigabyte(arguments) => gigabyte::run(arguments),
        Scenario::Alloc(arguments) => alloc::run(arguments),
        Scenario::BreakEven(arguments) => break_even::run(arguments),
        Scenario::Lease(arguments) => lease::run(arguments),
        Scenario::InFlight(arguments) => in_flight::run(arguments),
        Scenario::Waiting(arguments) => waiting::run(arguments),
        Scenario::Startup(arguments) => startup::run(arguments),
        Scenario::Staged(arguments) => staged::run(arguments),
        Scenario::Neighbours(arguments) => neighbours::run(arguments),
        Scenario::Overlap(arguments) => overlap::run(arguments),
        Scenario::Pressure(arguments) => pressure::run(arguments),
        Scenario::StartupNeighbour => startup::neighbour(),
        Scenario::PressureNeighbour(arguments) => pressure::neighbour(arguments),
    }
}

/// Where a result goes, besides the text for people.
struct Target {
    json: JsonTarget,
    page: Option<Folder>,
}

/// Where the JSON of a result goes, if anywhere.
enum JsonTarget {
    None,
    Stdout,
    File(PathBuf),
}

impl Target {
    /// Checks before the benchmark that its result can be written.
    fn check(arguments: &OutputArgs) -> Result<Self, Failure> {
        // The page first: it makes its folder, in which the JSON may lie.
        let page = arguments.report.as_deref().map(Folder::check).transpose()?;
        let json = JsonTarget::check(arguments.json.as_deref())?;
        if let (Some(folder), JsonTarget::File(path)) = (&page, &json)
            && folder.is_page(path)
        {
            let text = format!("--json {}: the page is written there", path.display());
            return Err(Failure::Input(text));
        }
        Ok(Self { json, page })
    }

    /// Writes the page and the JSON where they go, and the text for people where it does not mix with
    /// them.
    fn publish(&self, report: Report) -> Result<(), Failure> {
        let published = self.json.publish(&report.to_json()?, &report.to_text());
        // Each whether or not the other succeeds: the measurement must not be lost with one of them.
        match &self.page {
            None => published,
            Some(folder) => {
                let stem = report.origin().scenario.to_owned();
                folder.write(vec![Found::Ran(Box::new(report), stem)]).and(published)
            }
        }
    }
}

impl JsonTarget {
    fn check(path: Option<&Path>) -> Result<Self, Failure> {
        match path {
            None => Ok(Self::None),
            Some(path) if path.as_os_str() == "-" => Ok(Self::Stdout),
            Some(path) => match output::check_writable(path) {
                Ok(()) => Ok(Self::File(path.to_owned())),
                Err(cause) => Err(Failure::cannot_write(path, &cause)),
            },
        }
    }

    fn publish(&self, json: &str, text: &str) -> Result<(), Failure> {
        match self {
            Self::None => out::print(text),
            Self::Stdout => {
                out::print_to_stderr(text);
                out::print(json)
            }
            Self::File(path) => {
                // The text first, and each whether or not the other succeeds.
                let printed = out::print(text);
                output::write_atomically(path, json).map_err(|cause| {
                    Failure::Run(format!("cannot write {}: {cause}", path.display()))
                })?;
                printed
            }
        }
    }
}

/// The command line of this process, for the result to name.
fn command() -> String {
    machine::command_line(std::env::args_os().map(|word| word.to_string_lossy().into_owned()))
}

/// Runs a benchmark under a progress bar, which hears of what is done and of what there is to do.
fn measured<T>(unit: &str, run: impl FnOnce(&mut dyn FnMut(u64, u64)) -> T) -> T {
    let bar = progress_bar(unit);
    let result = run(&mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    result
}

/// A progress bar on standard error, which indicatif hides where that is no terminal.
fn progress_bar(unit: &str) -> ProgressBar {
    // Drawn between rounds only, so that drawing never falls into a frame's time.
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let template = format!("{{wide_bar}} {{pos}}/{{len}} {unit}, {{eta}} left");
    match ProgressStyle::with_template(&template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
