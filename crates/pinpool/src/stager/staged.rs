//! The handle of a staged copy: how far it is, and its end.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytemuck::Pod;

use super::error::{StageCause, StageError};
use super::job::Job;
use super::tally::Tally;
use crate::error::Error;
use crate::fence::{Fence, FenceError, FenceStatus};

/// A copy of a [`Stager`](crate::Stager), under way or over. Dropping it changes nothing: the copy goes on. Wait for it to know that
/// it succeeded.
pub struct StagedCopy {
    course: Course,
}

/// Who knows how far a copy is.
enum Course {
    /// The crew.
    Crew(Arc<Tally>),
    /// It was over at once.
    Over(u64),
}

/// Bytes of a staged copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageProgress {
    /// Bytes that have arrived. Never falls.
    pub done: u64,
    /// All bytes of the copy.
    pub total: u64,
}

/// Tells when a staged copy is over: a [`Fence`] for whatever depends on it. It fails if the copy does.
#[derive(Clone)]
pub struct StageFence(Arc<Course>);

impl StagedCopy {
    pub(super) fn of_crew(job: &Job) -> Self {
        Self { course: Course::Crew(Arc::clone(&job.tally)) }
    }

    pub(super) fn over(bytes: u64) -> Self {
        Self { course: Course::Over(bytes) }
    }

    /// Waits until all bytes have arrived.
    ///
    /// # Errors
    ///
    /// Why they have not. Nothing of the copy runs any more then.
    pub fn wait(self) -> Result<(), StageError> {
        match &self.course {
            Course::Crew(tally) => tally.wait_over(),
            Course::Over(_) => Ok(()),
        }
    }

    /// Whether nothing of the copy runs any more: because all of it arrived, or because it failed.
    pub fn is_over(&self) -> bool {
        self.course.look().is_some()
    }

    /// How far it is.
    pub fn progress(&self) -> StageProgress {
        let (done, total) = match &self.course {
            Course::Crew(tally) => tally.progress(),
            Course::Over(bytes) => (*bytes, *bytes),
        };
        StageProgress { done, total }
    }

    /// Ends it early: pieces that are under way come to their end, no further one begins. [`Self::wait`] tells
    /// [`StageCause::Cancelled`], unless all bytes arrive nevertheless.
    ///
    /// A reader or writer of the caller's that waits for something is waited for.
    pub fn cancel(&self) {
        if let Course::Crew(tally) = &self.course {
            tally.cancel();
        }
    }

    /// A fence for the copy's end: for [`Lease::retire_after`](crate::Lease::retire_after), or a runtime of the caller's.
    pub fn fence(&self) -> StageFence {
        StageFence(Arc::new(self.course.again()))
    }
}

impl Course {
    fn again(&self) -> Self {
        match self {
            Self::Crew(tally) => Self::Crew(Arc::clone(tally)),
            Self::Over(bytes) => Self::Over(*bytes),
        }
    }

    /// How it ended, if it is over.
    fn look(&self) -> Option<Result<(), String>> {
        match self {
            Self::Crew(tally) => tally.look(),
            Self::Over(_) => Some(Ok(())),
        }
    }
}

impl Fence for StageFence {
    fn poll(&self) -> Result<FenceStatus, FenceError> {
        match self.0.look() {
            None => Ok(FenceStatus::Pending),
            Some(Ok(())) => Ok(FenceStatus::Complete),
            Some(Err(text)) => Err(FenceError::new(text)),
        }
    }
}

/// The future of a staged copy, from [`IntoFuture`]. Dropping it changes nothing: the copy goes on.
#[derive(Debug)]
pub struct Staging(StagedCopy);

impl IntoFuture for StagedCopy {
    type Output = Result<(), StageError>;
    type IntoFuture = Staging;

    fn into_future(self) -> Staging {
        Staging(self)
    }
}

impl Future for Staging {
    type Output = Result<(), StageError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &self.0.course {
            Course::Over(_) => Poll::Ready(Ok(())),
            Course::Crew(tally) => match tally.poll_over(Some(context.waker())) {
                Some(ended) => Poll::Ready(ended),
                None => Poll::Pending,
            },
        }
    }
}

/// A copy that could not be begun, or of which nothing is known to have arrived.
pub(super) fn refused(error: Error, total: u64) -> StageError {
    StageError { done: 0, total, cause: StageCause::Failed(error) }
}

/// The bytes of some elements.
pub(super) fn bytes_of<T: Pod>(count: usize) -> usize {
    // They are there, so that their number of bytes is.
    count * size_of::<T>()
}

impl fmt::Debug for StagedCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StagedCopy").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

impl fmt::Debug for StageFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StageFence").field(&self.poll()).finish()
    }
}
