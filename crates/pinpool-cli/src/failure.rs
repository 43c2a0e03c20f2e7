//! Why a command did not end well, and the exit code that says so.

use std::io;
use std::path::Path;

use pinpool_bench::BenchError;

/// Why a command did not end well.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The request is wrong, or this machine cannot serve it: exit code 2.
    Input(String),
    /// The request was right and its run failed: exit code 1.
    Run(String),
    /// The reader of our output has gone away.
    BrokenPipe,
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::BrokenPipe => 0,
            Self::Run(_) => 1,
            Self::Input(_) => 2,
        }
    }

    /// A file that was named on the command line and cannot be written.
    pub(crate) fn cannot_write(path: &Path, cause: &io::Error) -> Self {
        Self::Input(format!("cannot write {}: {cause}", path.display()))
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Input(text) | Self::Run(text) => f.write_str(text),
            Self::BrokenPipe => f.write_str("the output was closed"),
        }
    }
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        if error.is_input() { Self::Input(error.to_string()) } else { Self::Run(error.to_string()) }
    }
}
