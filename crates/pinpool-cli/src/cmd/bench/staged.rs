//! `pinpool bench staged`: ordinary memory and files to and from the device.

use pinpool_bench::staged::{self, StagedOptions};

use super::{JsonTarget, command, measured};
use crate::cli::StagedArgs;
use crate::failure::Failure;

pub(crate) fn run(arguments: &StagedArgs) -> Result<(), Failure> {
    let options = StagedOptions {
        sizes: arguments.sizes.clone(),
        file_dir: arguments.file_dir.clone(),
        pytorch: arguments.pytorch.clone(),
        quick: arguments.run.quick,
    };
    options.check()?;
    let json = JsonTarget::check(arguments.run.json.as_deref())?;
    let report = measured("parts", |progress| staged::run(&options, command(), progress))?;
    json.publish(&report.to_json()?, &report.to_text())
}
