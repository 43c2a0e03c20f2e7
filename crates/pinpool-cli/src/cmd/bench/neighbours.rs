//! `pinpool bench neighbours`: what a thread that pins for each frame does to another thread.

use pinpool_bench::neighbours::{self, NeighboursOptions};
use pinpool_bench::report::Report;

use super::{Target, command, measured};
use crate::failure::Failure;
use crate::options::PinnedRunArgs;

pub(crate) fn run(arguments: &PinnedRunArgs) -> Result<(), Failure> {
    let options =
        NeighboursOptions { max_pinned: arguments.pinned.max_pinned, quick: arguments.run.quick };
    options.check()?;
    let target = Target::check(&arguments.run.output)?;
    let report = measured("cases", |progress| neighbours::run(&options, command(), progress))?;
    target.publish(Report::Neighbours(Box::new(report)))
}
