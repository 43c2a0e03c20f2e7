//! `pinpool bench gigabyte`: one large copy, pageable against pinned.

use pinpool_bench::gigabyte::{self, GigabyteOptions};
use pinpool_bench::report::Report;

use super::{Target, command, measured};
use crate::failure::Failure;
use crate::options::PinnedRunArgs;

pub(crate) fn run(arguments: &PinnedRunArgs) -> Result<(), Failure> {
    let options =
        GigabyteOptions { max_pinned: arguments.pinned.max_pinned, quick: arguments.run.quick };
    options.check()?;
    let target = Target::check(&arguments.run.output)?;
    let report = measured("rounds", |progress| gigabyte::run(&options, command(), progress))?;
    target.publish(Report::Gigabyte(Box::new(report)))
}
