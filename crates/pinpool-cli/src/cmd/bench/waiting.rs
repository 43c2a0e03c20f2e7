//! `pinpool bench waiting`: far more takers than slots.

use pinpool_bench::report::Report;
use pinpool_bench::waiting::{self, WaitingOptions};

use super::{Target, command, measured};
use crate::cli::WaitingArgs;
use crate::failure::Failure;

pub(crate) fn run(arguments: &WaitingArgs) -> Result<(), Failure> {
    let options = WaitingOptions { seconds: arguments.seconds, quick: arguments.run.quick };
    options.check()?;
    let target = Target::check(&arguments.run.output)?;
    let report = measured("rounds", |progress| waiting::run(&options, command(), progress))?;
    target.publish(Report::Waiting(Box::new(report)))
}
