//! `pinpool bench break-even`: from when on pinning a buffer pays.

use pinpool_bench::break_even::{self, BreakEvenOptions};
use pinpool_bench::report::Report;

use super::{Target, command, measured};
use crate::failure::Failure;
use crate::options::SweepArgs;

pub(crate) fn run(arguments: &SweepArgs) -> Result<(), Failure> {
    let options = BreakEvenOptions {
        sizes: arguments.sizes.bytes.clone(),
        max_pinned: arguments.pinned.max_pinned,
        quick: arguments.run.quick,
    };
    options.check()?;
    let target = Target::check(&arguments.run.output)?;
    let report = measured("sizes", |progress| break_even::run(&options, command(), progress))?;
    target.publish(Report::BreakEven(Box::new(report)))
}
