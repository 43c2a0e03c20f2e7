//! `pinpool bench in-flight`: leases dropped while the GPU still uses them.

use pinpool_bench::in_flight::{self, InFlightOptions};
use pinpool_bench::report::Report;

use super::{Target, command, measured};
use crate::failure::Failure;
use crate::options::ComparedArgs;

pub(crate) fn run(arguments: &ComparedArgs) -> Result<(), Failure> {
    let options =
        InFlightOptions { pytorch: arguments.pytorch.file.clone(), quick: arguments.run.quick };
    options.check()?;
    let target = Target::check(&arguments.run.output)?;
    let report = measured("parts", |progress| in_flight::run(&options, command(), progress))?;
    target.publish(Report::InFlight(Box::new(report)))
}
