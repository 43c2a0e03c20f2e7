//! `pinpool bench in-flight`: leases dropped while the GPU still uses them.

use pinpool_bench::in_flight::{self, InFlightOptions};

use super::{JsonTarget, command, measured};
use crate::cli::InFlightArgs;
use crate::failure::Failure;

pub(crate) fn run(arguments: &InFlightArgs) -> Result<(), Failure> {
    let options =
        InFlightOptions { pytorch: arguments.pytorch.clone(), quick: arguments.run.quick };
    options.check()?;
    let json = JsonTarget::check(arguments.run.json.as_deref())?;
    let report = measured("parts", |progress| in_flight::run(&options, command(), progress))?;
    json.publish(&report.to_json()?, &report.to_text())
}
