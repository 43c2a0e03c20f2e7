//! `pinpool bench lease`: leases and drops by themselves.

use pinpool_bench::lease::{self, LeaseOptions};
use pinpool_bench::report::Report;

use super::{Target, command, measured};
use crate::failure::Failure;
use crate::options::ComparedArgs;

pub(crate) fn run(arguments: &ComparedArgs) -> Result<(), Failure> {
    let options =
        LeaseOptions { pytorch: arguments.pytorch.file.clone(), quick: arguments.run.quick };
    options.check()?;
    let target = Target::check(&arguments.run.output)?;
    let report = measured("rounds", |progress| lease::run(&options, command(), progress))?;
    target.publish(Report::Lease(Box::new(report)))
}
