//! Standard output, standard error, logging: none of it ends in a panic.

use std::io::{self, IsTerminal, Write};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

/// Prints to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(cause) if cause.kind() == io::ErrorKind::BrokenPipe => Err(Failure::BrokenPipe),
        Err(cause) => Err(Failure::Run(format!("cannot write to standard output: {cause}"))),
    }
}

/// Prints to standard error; where that is closed there is nobody to tell.
pub(crate) fn print_to_stderr(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Prints an error as clap prints its own.
pub(crate) fn error(text: &str) {
    print_to_stderr(&format!("error: {text}\n"));
}

/// Sends log lines to standard error: warnings, or with `verbose` also what the pool does.
pub(crate) fn log_to_stderr(verbose: bool) {
    let level = if verbose { LevelFilter::INFO } else { LevelFilter::WARN };
    let filter = EnvFilter::builder().with_default_directive(level.into()).from_env_lossy();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // A reader that goes away is no failure: without this the lines that cannot be written panic.
        .log_internal_errors(false)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    // Fails only where a subscriber is set already, and `main` runs once.
    let _ = subscriber.try_init();
}
