//! `pinpool bench lease`: leases and drops by themselves.

use pinpool_bench::lease::{self, LeaseOptions};

use super::{JsonTarget, command, measured};
use crate::cli::LeaseArgs;
use crate::failure::Failure;

pub(crate) fn run(arguments: &LeaseArgs) -> Result<(), Failure> {
    let options = LeaseOptions { pytorch: arguments.pytorch.clone(), quick: arguments.run.quick };
    options.check()?;
    let json = JsonTarget::check(arguments.run.json.as_deref())?;
    let report = measured("rounds", |progress| lease::run(&options, command(), progress))?;
    json.publish(&report.to_json()?, &report.to_text())
}
