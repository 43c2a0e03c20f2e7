//! `pinpool bench pressure`: what pinned memory costs the rest of the system; and the process beside it.

use std::io;

use pinpool_bench::BenchError;
use pinpool_bench::pressure::{self, PressureOptions};
use pinpool_bench::report::Report;

use super::startup::this_program;
use super::{Target, command, measured};
use crate::cli::{PRESSURE_NEIGHBOUR, PressureArgs, PressureNeighbourArgs};
use crate::failure::Failure;

pub(crate) fn run(arguments: &PressureArgs) -> Result<(), Failure> {
    let mut options = PressureOptions {
        max_pinned: arguments.pinned.max_pinned,
        file_dir: arguments.file_dir.clone(),
        quick: arguments.run.quick,
        program: None,
    };
    options.check()?;
    let folder = options.folder();
    let Some(folder) = folder.to_str().filter(|_| folder.is_dir()) else {
        let text = format!(
            "--file-dir {}: no folder of that name, or a name that is not UTF-8",
            folder.display()
        );
        return Err(BenchError::Input(text).into());
    };
    let words = [PRESSURE_NEIGHBOUR, folder].map(str::to_owned);
    options.program = Some(this_program(words)?);
    let target = Target::check(&arguments.run.output)?;
    let report = measured("cases", |progress| pressure::run(&options, command(), progress))?;
    target.publish(Report::Pressure(Box::new(report)))
}

/// What the scenario starts beside itself.
pub(crate) fn neighbour(arguments: &PressureNeighbourArgs) -> Result<(), Failure> {
    Ok(pressure::serve(&arguments.folder, io::stdin().lock(), &mut io::stdout())?)
}
