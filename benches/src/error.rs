//! What can stop a benchmark: a request that cannot be served, or a run that failed.

use std::io;

/// Why a scenario gave no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The request itself is wrong, or this machine cannot serve it. Nothing was measured.
    #[error("{0}")]
    Input(String),
    /// The system refused to lock memory; the scenario may run again unlocked.
    #[error("locking {bytes} bytes of memory was refused: {source}")]
    LockRefused {
        /// The bytes of the call that failed.
        bytes: usize,
        /// The system's reason.
        source: io::Error,
    },
    /// A call failed while the scenario ran.
    #[error("{0}")]
    Failed(String),
}

impl BenchError {
    /// A request that is wrong as it stands.
    pub fn input(text: impl Into<String>) -> Self {
        Self::Input(text.into())
    }

    /// A failure of `what`, with its cause.
    pub fn failed(what: &str, cause: impl std::fmt::Display) -> Self {
        Self::Failed(format!("{what}: {cause}"))
    }

    /// A pool that did not open; where that lies in the request, so does the fault.
    pub fn opening_pool(cause: &pinpool::Error) -> Self {
        let text = format!("opening the pool: {cause}");
        if cause.is_bad_input() { Self::Input(text) } else { Self::Failed(text) }
    }

    /// Whether the caller's request is at fault, rather than the run.
    pub fn is_input(&self) -> bool {
        matches!(self, Self::Input(_))
    }
}
