//! `pinpool bench copy`: bandwidth between host and GPU, by where the host memory comes from.

use pinpool_bench::copy::{self, CopyOptions};

use super::{JsonTarget, command, measured};
use crate::cli::CopyArgs;
use crate::failure::Failure;

pub(crate) fn run(arguments: &CopyArgs) -> Result<(), Failure> {
    let options = CopyOptions { sizes: arguments.sizes.clone(), full: arguments.full };
    options.check()?;
    let json = JsonTarget::check(arguments.json.as_deref())?;
    let report = measured("sizes", |progress| copy::run(&options, command(), progress))?;
    json.publish(&report.to_json()?, &report.to_text())
}
