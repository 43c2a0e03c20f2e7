//! How a staged copy can fail.

use std::fmt;
use std::io;

use crate::error::Error;

/// A staged copy that failed or was cancelled. Nothing of it runs any more, the memory that was lent to
/// it is untouched from now on, and its crew is ready for the next one.
#[derive(Debug)]
pub struct StageError {
    /// Bytes that arrived. They are the first ones where a reader, a writer or nothing at all is on the
    /// host's side; elsewhere several threads copied, and there may be gaps.
    pub done: u64,
    /// Bytes that were to arrive.
    pub total: u64,
    /// What went wrong.
    pub cause: StageCause,
}

/// Why a staged copy ended early.
#[derive(Debug)]
#[non_exhaustive]
pub enum StageCause {
    /// [`StagedCopy::cancel`](crate::StagedCopy::cancel) was called.
    Cancelled,
    /// The source ended before the target was full.
    Truncated,
    /// The source could not be read.
    Read(io::Error),
    /// The sink could not be written.
    Write(io::Error),
    /// A reader or writer of the caller's panicked, in a program whose panics unwind.
    Panicked,
    /// A forked child has no part in its parent's copies.
    Forked,
    /// The copy was refused, or the driver failed.
    Failed(Error),
}

impl fmt::Display for StageCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => f.write_str("it was cancelled"),
            Self::Truncated => f.write_str(
                "the source ended before the target was full: give a shorter view of the target; if it is a \
                 file, see its length and who truncates it",
            ),
            Self::Read(error) => write!(f, "the source could not be read: {error}"),
            Self::Write(error) => write!(f, "the sink could not be written: {error}"),
            Self::Panicked => f.write_str("the caller's reader or writer panicked"),
            Self::Forked => f.write_str(
                "this is a forked child, and the crew is its parent's: open a pool and a stager of its own",
            ),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for StageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { done, total, cause } = self;
        write!(f, "a staged copy ended after {done} of {total} bytes: {cause}")
    }
}

impl std::error::Error for StageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            StageCause::Read(error) | StageCause::Write(error) => Some(error),
            // Displayed as the error itself.
            StageCause::Failed(error) => std::error::Error::source(error),
            _ => None,
        }
    }
}
