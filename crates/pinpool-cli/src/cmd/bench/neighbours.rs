//! `pinpool bench neighbours`: what a thread that pins for each frame does to another thread.

use pinpool_bench::neighbours::{self, NeighboursOptions};

use super::{JsonTarget, command, measured};
use crate::cli::NeighboursArgs;
use crate::failure::Failure;

pub(crate) fn run(arguments: &NeighboursArgs) -> Result<(), Failure> {
    let options =
        NeighboursOptions { max_pinned: arguments.pin.max_pinned, quick: arguments.run.quick };
    options.check()?;
    let json = JsonTarget::check(arguments.run.json.as_deref())?;
    let report = measured("cases", |progress| neighbours::run(&options, command(), progress))?;
    json.publish(&report.to_json()?, &report.to_text())
}
