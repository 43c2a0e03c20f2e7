//! `pinpool bench copy`: bandwidth between host and GPU, by where the host memory comes from.

use pinpool_bench::copy::{self, CopyOptions};

use super::{JsonTarget, command, progress_bar};
use crate::cli::CopyArgs;
use crate::failure::Failure;

pub(crate) fn run(arguments: &CopyArgs) -> Result<(), Failure> {
    let options = CopyOptions { sizes: arguments.sizes.clone(), full: arguments.full };
    options.check()?;
    let json = JsonTarget::check(arguments.json.as_deref())?;
    let bar = progress_bar("sizes");
    let result = copy::run(&options, command(), &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = result?;
    json.publish(&report.to_json()?, &report.to_text())
}
