//! `pinpool bench waiting`: far more takers than slots.

use pinpool_bench::waiting::{self, WaitingOptions};

use super::{JsonTarget, command, measured};
use crate::cli::WaitingArgs;
use crate::failure::Failure;

pub(crate) fn run(arguments: &WaitingArgs) -> Result<(), Failure> {
    let options = WaitingOptions { seconds: arguments.seconds, quick: arguments.run.quick };
    options.check()?;
    let json = JsonTarget::check(arguments.run.json.as_deref())?;
    let report = measured("rounds", |progress| waiting::run(&options, command(), progress))?;
    json.publish(&report.to_json()?, &report.to_text())
}
