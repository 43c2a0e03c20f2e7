//! `pinpool bench compare`: two results of one scenario, whether the second is worse, and whether it
//! is the same.

use std::fs;
use std::path::Path;

use pinpool_bench::compare::{Change, Comparison, Limits, Side};

use crate::cli::CompareArgs;
use crate::failure::Failure;
use crate::out;

pub(crate) fn run(arguments: &CompareArgs) -> Result<(), Failure> {
    let limits = Limits {
        max_regression: checked("--max-regression", arguments.max_regression)?,
        within: checked("--within", arguments.within)?,
    };
    let (before, after) = (read(&arguments.before)?, read(&arguments.after)?);
    let names = [&arguments.before, &arguments.after].map(|path| path.display().to_string());
    let before = Side { name: &names[0], json: &before };
    let after = Side { name: &names[1], json: &after };
    let comparison = Comparison::of(before, after).map_err(Failure::Input)?;
    out::print(&comparison.to_text(limits))?;
    let past = [
        limits.max_regression.and_then(|limit| {
            past(&format!("worse by more than {limit} %"), &comparison.regressions(limit))
        }),
        limits.within.and_then(|limit| {
            past(&format!("not within {limit} %"), &comparison.differences(limit))
        }),
    ];
    let past: Vec<String> = past.into_iter().flatten().collect();
    if past.is_empty() { Ok(()) } else { Err(Failure::Run(past.join("; "))) }
}

/// A limit that is one.
fn checked(option: &str, percent: Option<f64>) -> Result<Option<f64>, Failure> {
    match percent {
        Some(percent) if !percent.is_finite() || percent < 0.0 => Err(Failure::Input(format!(
            "{option} {percent}: a number of percent, 0 or more, expected"
        ))),
        _ => Ok(percent),
    }
}

/// The names of what is past a limit, if anything is.
fn past(limit: &str, changes: &[&Change]) -> Option<String> {
    let names: Vec<String> = changes
        .iter()
        .map(|change| format!("{} ({})", change.before.name, change.percent_words()))
        .collect();
    (!names.is_empty()).then(|| format!("{limit}: {}", names.join(", ")))
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|cause| Failure::Input(format!("cannot read {}: {cause}", path.display())))
}
