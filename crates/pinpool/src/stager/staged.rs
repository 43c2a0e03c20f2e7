//! The handle of a staged copy: how far it is, and its end.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytemuck::Pod;
use cudarc::driver::CudaStream;

use super::error::{StageCause, StageError};
use super::job::Job;
use crate::attached::{AnyFence, Attached};
use crate::cuda::straight;
use crate::error::Error;
use crate::fence::{Fence, FenceError, FenceStatus};
use crate::pool::Pool;

/// A copy of a [`Stager`](crate::Stager), under way or over. Dropping it changes nothing: the copy goes on. Wait for it to know that
/// it succeeded.
pub struct StagedCopy {
    course: Course,
}

/// Who knows how far a copy is.
enum Course {
    /// The crew.
    Crew(Arc<Job>),
    /// The stream: the driver has read the source and copies on.
    Stream(Arc<CudaStream>, u64, Pool),
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
    pub(super) fn of_crew(job: Arc<Job>) -> Self {
        Self { course: Course::Crew(job) }
    }

    pub(super) fn of_stream(stream: &Arc<CudaStream>, bytes: u64, pool: &Pool) -> Self {
        Self { course: Course::Stream(Arc::clone(stream), bytes, pool.clone()) }
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
            Course::Crew(job) => job.tally.wait_over(),
            Course::Stream(stream, bytes, _) => {
                straight::synchronize(stream).map_err(|error| refused(error, *bytes))
            }
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
            Course::Crew(job) => job.tally.progress(),
            Course::Stream(stream, bytes, _) => {
                (if straight::is_idle(stream).unwrap_or(false) { *bytes } else { 0 }, *bytes)
            }
            Course::Over(bytes) => (*bytes, *bytes),
        };
        StageProgress { done, total }
    }

    /// Ends it early: pieces that are under way come to their end, no further one begins. [`Self::wait`] tells
    /// [`StageCause::Cancelled`], unless all bytes arrive nevertheless.
    ///
    /// A reader or writer of the caller's that waits for something is waited for.
    pub fn cancel(&self) {
        if let Course::Crew(job) = &self.course {
            job.tally.cancel();
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
            Self::Crew(job) => Self::Crew(Arc::clone(job)),
            Self::Stream(stream, bytes, pool) => {
                Self::Stream(Arc::clone(stream), *bytes, pool.clone())
            }
            Self::Over(bytes) => Self::Over(*bytes),
        }
    }

    /// How it ended, if it is over.
    fn look(&self) -> Option<Result<(), String>> {
        match self {
            Self::Crew(job) => job.tally.look(),
            Self::Stream(stream, ..) => match straight::is_idle(stream) {
                Ok(idle) => idle.then_some(Ok(())),
                Err(error) => Some(Err(error.to_string())),
            },
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
pub struct Staging {
    copy: StagedCopy,
    /// What the keeper asks for a task, of a copy that is the stream's.
    asked: Option<AnyFence>,
}

impl IntoFuture for StagedCopy {
    type Output = Result<(), StageError>;
    type IntoFuture = Staging;

    fn into_future(self) -> Staging {
        Staging { copy: self, asked: None }
    }
}

impl Future for Staging {
    type Output = Result<(), StageError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { copy, asked } = &mut *self;
        match &copy.course {
            Course::Crew(job) => match job.tally.poll_over(Some(context.waker())) {
                Some(ended) => Poll::Ready(ended),
                None => Poll::Pending,
            },
            Course::Over(_) => Poll::Ready(Ok(())),
            Course::Stream(stream, bytes, pool) => match straight::is_idle(stream) {
                Ok(true) => Poll::Ready(Ok(())),
                Err(error) => Poll::Ready(Err(refused(error, *bytes))),
                Ok(false) => {
                    let fence = asked.get_or_insert_with(|| Attached::user(copy.fence()).fence);
                    pool.wake_after(fence.clone(), context.waker());
                    Poll::Pending
                }
            },
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // The keeper must not go on asking for a task that gave up.
        if let (Some(fence), Course::Stream(_, _, pool)) = (&self.asked, &self.copy.course) {
            pool.forget_wake(fence);
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
