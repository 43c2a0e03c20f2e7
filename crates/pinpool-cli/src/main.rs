//! The `pinpool` command: check this machine, plan a configuration, measure the pool.
//!
//! Exit codes: 0 done, 1 a run failed or `doctor` found a problem, 2 the request is wrong or this
//! machine cannot serve it.

#![forbid(unsafe_code)]

mod bytes;
mod cli;
mod cmd;
mod failure;
mod hint;
mod options;
mod out;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::failure::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => hint::of(error).exit(),
    };
    out::log_to_stderr(cli.verbose);
    let result = match cli.command {
        Command::Doctor(arguments) => cmd::doctor::run(&arguments),
        Command::Plan(arguments) => cmd::plan::run(&arguments),
        Command::Bench(arguments) => cmd::bench::run(&arguments),
    };
    match result {
        // A reader that has seen enough and gone away is no failure.
        Ok(()) | Err(Failure::BrokenPipe) => ExitCode::SUCCESS,
        Err(failure) => {
            out::error(&failure.to_string());
            ExitCode::from(failure.exit_code())
        }
    }
}
