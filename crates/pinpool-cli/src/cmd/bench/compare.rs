//! `pinpool bench compare`: two results of one scenario, and whether the second is worse.

use std::fs;
use std::path::Path;

use pinpool_bench::compare::{Comparison, Side};

use crate::cli::CompareArgs;
use crate::failure::Failure;
use crate::out;

pub(crate) fn run(arguments: &CompareArgs) -> Result<(), Failure> {
    let limit = arguments.max_regression;
    if let Some(percent) = limit.filter(|percent| !percent.is_finite() || *percent < 0.0) {
        let reason =
            format!("--max-regression {percent}: a number of percent, 0 or more, expected");
        return Err(Failure::Input(reason));
    }
    let (before, after) = (read(&arguments.before)?, read(&arguments.after)?);
    let names = [&arguments.before, &arguments.after].map(|path| path.display().to_string());
    let before = Side { name: &names[0], json: &before };
    let after = Side { name: &names[1], json: &after };
    let comparison = Comparison::of(before, after).map_err(Failure::Input)?;
    out::print(&comparison.to_text(limit))?;
    let Some(limit) = limit else { return Ok(()) };
    let worse: Vec<&str> =
        comparison.regressions(limit).iter().map(|change| change.before.name.as_str()).collect();
    if worse.is_empty() {
        return Ok(());
    }
    Err(Failure::Run(format!("worse by more than {limit} %: {}", worse.join(", "))))
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|cause| Failure::Input(format!("cannot read {}: {cause}", path.display())))
}
