//! `pinpool bench staged`: ordinary memory and files to and from the device.

use pinpool_bench::report::Report;
use pinpool_bench::staged::{self, StagedOptions};

use super::{Target, command, measured};
use crate::cli::StagedArgs;
use crate::failure::Failure;

pub(crate) fn run(arguments: &StagedArgs) -> Result<(), Failure> {
    let options = StagedOptions {
        sizes: arguments.sizes.bytes.clone(),
        file_dir: arguments.file_dir.clone(),
        pytorch: arguments.pytorch.file.clone(),
        max_pinned: arguments.pinned.max_pinned,
        quick: arguments.run.quick,
    };
    options.check()?;
    let target = Target::check(&arguments.run.output)?;
    let report = measured("parts", |progress| staged::run(&options, command(), progress))?;
    target.publish(Report::Staged(Box::new(report)))
}
