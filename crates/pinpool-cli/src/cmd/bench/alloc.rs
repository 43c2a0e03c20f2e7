//! `pinpool bench alloc`: what pinned memory costs to get and to give back.

use pinpool_bench::alloc::{self, AllocOptions};
use pinpool_bench::report::Report;

use super::{Target, command, measured};
use crate::failure::Failure;
use crate::options::SweepArgs;

pub(crate) fn run(arguments: &SweepArgs) -> Result<(), Failure> {
    let options = AllocOptions {
        sizes: arguments.sizes.bytes.clone(),
        max_pinned: arguments.pinned.max_pinned,
        quick: arguments.run.quick,
    };
    options.check()?;
    let target = Target::check(&arguments.run.output)?;
    let report = measured("sizes", |progress| alloc::run(&options, command(), progress))?;
    target.publish(Report::Alloc(Box::new(report)))
}
