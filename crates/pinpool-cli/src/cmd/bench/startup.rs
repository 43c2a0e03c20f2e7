//! `pinpool bench startup`: opening pools, and who is held up by it; and the process beside it.

use std::io;

use pinpool_bench::BenchError;
use pinpool_bench::report::Report;
use pinpool_bench::startup::process::{self, Program};
use pinpool_bench::startup::{self, StartupOptions};

use super::{Target, command, measured};
use crate::cli::{NEIGHBOUR, StartupArgs};
use crate::failure::Failure;

pub(crate) fn run(arguments: &StartupArgs) -> Result<(), Failure> {
    let options = StartupOptions {
        sizes: arguments.sizes.bytes.clone(),
        neighbour_size: arguments.neighbour_size,
        pytorch: arguments.pytorch.file.clone(),
        max_pinned: arguments.pinned.max_pinned,
        quick: arguments.run.quick,
        program: Some(this_program([NEIGHBOUR.to_owned()])?),
    };
    options.check()?;
    let target = Target::check(&arguments.run.output)?;
    let report = measured("rounds", |progress| startup::run(&options, command(), progress))?;
    target.publish(Report::Startup(Box::new(report)))
}

/// What the scenario starts beside itself.
pub(crate) fn neighbour() -> Result<(), Failure> {
    Ok(process::serve(io::BufReader::new(io::stdin()), &mut io::stdout())?)
}

/// This program, as a command that it gives itself.
pub(super) fn this_program(words: impl IntoIterator<Item = String>) -> Result<Program, BenchError> {
    let path = std::env::current_exe()
        .map_err(|cause| BenchError::failed("looking for this program", cause))?;
    let arguments = std::iter::once("bench".to_owned()).chain(words).collect();
    Ok(Program { path, arguments })
}
