//! `pinpool bench overlap`: copies and kernels at once, from pageable and from pinned memory.

use pinpool_bench::overlap::{self, OverlapOptions};
use pinpool_bench::report::Report;

use super::{Target, command, measured};
use crate::failure::Failure;
use crate::options::PinnedRunArgs;

pub(crate) fn run(arguments: &PinnedRunArgs) -> Result<(), Failure> {
    let options =
        OverlapOptions { max_pinned: arguments.pinned.max_pinned, quick: arguments.run.quick };
    options.check()?;
    let target = Target::check(&arguments.run.output)?;
    let report = measured("rounds", |progress| overlap::run(&options, command(), progress))?;
    target.publish(Report::Overlap(Box::new(report)))
}
