//! `pinpool bench overlap`: copies and kernels at once, from pageable and from pinned memory.

use pinpool_bench::overlap::{self, OverlapOptions};

use super::{JsonTarget, command, measured};
use crate::cli::OverlapArgs;
use crate::failure::Failure;

pub(crate) fn run(arguments: &OverlapArgs) -> Result<(), Failure> {
    let options =
        OverlapOptions { max_pinned: arguments.pin.max_pinned, quick: arguments.run.quick };
    options.check()?;
    let json = JsonTarget::check(arguments.run.json.as_deref())?;
    let report = measured("rounds", |progress| overlap::run(&options, command(), progress))?;
    json.publish(&report.to_json()?, &report.to_text())
}
