//! `pinpool bench copy`: bandwidth between host and GPU, by where the host memory comes from.

use pinpool_bench::copy::{self, CopyOptions};
use pinpool_bench::report::Report;

use super::{Target, command, measured};
use crate::cli::CopyArgs;
use crate::failure::Failure;

pub(crate) fn run(arguments: &CopyArgs) -> Result<(), Failure> {
    let options = CopyOptions {
        sizes: arguments.sizes.bytes.clone(),
        full: arguments.full,
        max_pinned: arguments.pinned.max_pinned,
        quick: arguments.run.quick,
    };
    options.check()?;
    let target = Target::check(&arguments.run.output)?;
    let report = measured("sizes", |progress| copy::run(&options, command(), progress))?;
    target.publish(Report::Copy(report))
}
