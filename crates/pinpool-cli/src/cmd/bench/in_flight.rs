//! `pinpool bench in-flight`: leases dropped while the GPU still uses them.

use pinpool_bench::in_flight::{self, InFlightOptions};

use super::{JsonTarget, command, progress_bar};
use crate::cli::InFlightArgs;
use crate::failure::Failure;

pub(crate) fn run(arguments: &InFlightArgs) -> Result<(), Failure> {
    let options = InFlightOptions { pytorch: arguments.pytorch.clone(), quick: arguments.quick };
    options.check()?;
    let json = JsonTarget::check(arguments.json.as_deref())?;
    let bar = progress_bar("parts");
    let result = in_flight::run(&options, command(), &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = result?;
    json.publish(&report.to_json()?, &report.to_text())
}
