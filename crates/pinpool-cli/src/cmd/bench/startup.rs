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
        sizes: arguments.sizes.clone(),
        neighbour_size: arguments.neighbour_size,
        pytorch: arguments.pytorch.clone(),
        quick: arguments.run.quick,
        program: Some(this_program()?),
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

fn this_program() -> Result<Program, Failure> {
    let path = std::env::current_exe()
        .map_err(|cause| BenchError::failed("looking for this program", cause))?;
    Ok(Program { path, arguments: ["bench", NEIGHBOUR].map(str::to_owned).to_vec() })
}
