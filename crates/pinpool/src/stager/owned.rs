//! Copies that keep what they copy: source and target move into the copy, and come back after it.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytemuck::Pod;
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut};

use super::error::{StageCause, StageError};
use super::job::{Host, Kept};
use super::open::Stager;
use super::staged::{StageFence, StageProgress, StagedCopy};
use crate::cuda::DeviceMemory;
use crate::sync::Mutex;

/// A staged copy that owns its source and its target.
///
/// * [`Self::wait`] and `.await` give both back.
/// * Dropped, the copy goes on; source and target are dropped when it is over, on a thread of the crew.
#[must_use = "dropping this drops source and target once the copy is over; wait for it to have them"]
pub struct OwnedCopy<S, D> {
    copy: StagedCopy,
    parts: Arc<Parts<S, D>>,
}

/// Source and target, in places that do not move while the crew uses them; `None` once they are back.
type Parts<S, D> = Mutex<Option<(S, D)>>;

/// A staged copy that failed, with what it owned.
pub struct OwnedError<S, D> {
    /// Source and target; `None` in a forked child, where another thread may have been using them.
    pub parts: Option<(S, D)>,
    /// What went wrong.
    pub error: StageError,
}

impl Stager {
    /// Copies all elements of `source` to the start of `target`, and keeps both until the copy is over. Returns at once.
    ///
    /// The copy begins behind what `stream` has queued. Nothing can be queued that uses the target before it is
    /// back, and then all of it is there.
    ///
    /// ```no_run
    /// # async fn up(stager: pinpool::Stager, stream: std::sync::Arc<pinpool::cudarc::driver::CudaStream>)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// let weights = vec![0.5_f32; 64 << 20];
    /// let on_device = stream.alloc_zeros::<f32>(weights.len())?;
    /// let copy = stager.upload_owned(weights, &stream, on_device)?;
    /// println!("{} bytes so far", copy.progress().done);
    /// let (_weights, _on_device) = copy.await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Self::upload`], with source and target.
    pub fn upload_owned<T, S, D>(
        &self,
        source: S,
        stream: &Arc<CudaStream>,
        target: D,
    ) -> Result<OwnedCopy<S, D>, OwnedError<S, D>>
    where
        T: Pod,
        S: AsRef<[T]> + Send + 'static,
        D: DevicePtrMut<T> + DeviceMemory + Send + 'static,
    {
        put_owned((source, target), |(source, target), kept| {
            let source = source.as_ref();
            let lens = (source.len(), target.len());
            let Some(bytes) = self.check::<T>(lens, target.stream(), stream)? else {
                return Ok(StagedCopy::over(0));
            };
            let (address, _recorded) = target.device_ptr_mut(stream);
            let host = Host::from_bytes(source.as_ptr().cast());
            // SAFETY: I18, both are kept until the copy is over, and nobody reaches them before.
            let job = unsafe { self.put(host, bytes, address, stream, Some(kept)) };
            job.map(|job| StagedCopy::of_crew(&job))
        })
    }

    /// Copies all elements of `source` to the start of `target`, and keeps both until the copy is over. Returns at once.
    ///
    /// # Errors
    ///
    /// As [`Self::upload_owned`].
    pub fn download_owned<T, D, S>(
        &self,
        source: D,
        stream: &Arc<CudaStream>,
        target: S,
    ) -> Result<OwnedCopy<D, S>, OwnedError<D, S>>
    where
        T: Pod,
        D: DevicePtr<T> + DeviceMemory + Send + 'static,
        S: AsMut<[T]> + Send + 'static,
    {
        put_owned((source, target), |(source, target), kept| {
            let target = target.as_mut();
            let lens = (source.len(), target.len());
            let Some(bytes) = self.check::<T>(lens, source.stream(), stream)? else {
                return Ok(StagedCopy::over(0));
            };
            let (address, _recorded) = source.device_ptr(stream);
            let host = Host::to_bytes(target.as_mut_ptr().cast());
            // SAFETY: as for uploads.
            let job = unsafe { self.put(host, bytes, address, stream, Some(kept)) };
            job.map(|job| StagedCopy::of_crew(&job))
        })
    }
}

/// Gives the crew a copy between two things that lie where they stay.
fn put_owned<A: Send + 'static, B: Send + 'static>(
    parts: (A, B),
    put: impl FnOnce(&mut (A, B), Kept) -> Result<StagedCopy, StageError>,
) -> Result<OwnedCopy<A, B>, OwnedError<A, B>> {
    let parts: Arc<Parts<A, B>> = Arc::new(Mutex::new(Some(parts)));
    let mut places = parts.lock();
    let kept: Kept = Arc::<Parts<A, B>>::clone(&parts);
    let put = match &mut *places {
        Some(places) => put(places, kept),
        None => Ok(StagedCopy::over(0)),
    };
    let copy = match put {
        Ok(copy) => copy,
        Err(error) => return Err(OwnedError { parts: places.take(), error }),
    };
    drop(places);
    Ok(OwnedCopy { copy, parts })
}

impl<S, D> OwnedCopy<S, D> {
    /// Waits until all bytes have arrived, and gives source and target back.
    ///
    /// # Errors
    ///
    /// Why they have not, with source and target.
    pub fn wait(self) -> Result<(S, D), OwnedError<S, D>> {
        let ended = self.copy.wait();
        taken(ended, &self.parts)
    }

    /// As [`StagedCopy::is_over`].
    pub fn is_over(&self) -> bool {
        self.copy.is_over()
    }

    /// As [`StagedCopy::progress`].
    pub fn progress(&self) -> StageProgress {
        self.copy.progress()
    }

    /// As [`StagedCopy::cancel`].
    pub fn cancel(&self) {
        self.copy.cancel();
    }

    /// As [`StagedCopy::fence`].
    pub fn fence(&self) -> StageFence {
        self.copy.fence()
    }
}

/// Takes the parts of a copy that is over.
fn taken<S, D>(
    ended: Result<(), StageError>,
    parts: &Parts<S, D>,
) -> Result<(S, D), OwnedError<S, D>> {
    // In a forked child another thread may be using them for ever, as far as can be known there.
    if let Err(error @ StageError { cause: StageCause::Forked, .. }) = ended {
        return Err(OwnedError { parts: None, error });
    }
    match (ended, parts.lock().take()) {
        (Ok(()), Some(parts)) => Ok(parts),
        (Err(error), parts) => Err(OwnedError { parts, error }),
        // Taken once only: whoever waits owns the copy.
        (Ok(()), None) => {
            let cause = StageCause::Cancelled;
            Err(OwnedError { parts: None, error: StageError { done: 0, total: 0, cause } })
        }
    }
}

/// The future of an owned copy, from [`IntoFuture`]. Dropped, the copy goes on, as ever.
#[must_use = "a future does nothing until it is awaited"]
pub struct OwnedStaging<S, D> {
    staging: <StagedCopy as IntoFuture>::IntoFuture,
    parts: Arc<Parts<S, D>>,
    owns: PhantomData<fn() -> (S, D)>,
}

impl<S, D> IntoFuture for OwnedCopy<S, D> {
    type Output = Result<(S, D), OwnedError<S, D>>;
    type IntoFuture = OwnedStaging<S, D>;

    fn into_future(self) -> OwnedStaging<S, D> {
        let Self { copy, parts } = self;
        OwnedStaging { staging: copy.into_future(), parts, owns: PhantomData }
    }
}

impl<S, D> Future for OwnedStaging<S, D> {
    type Output = Result<(S, D), OwnedError<S, D>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match Pin::new(&mut self.staging).poll(context) {
            Poll::Ready(ended) => Poll::Ready(taken(ended, &self.parts)),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S, D> fmt::Debug for OwnedCopy<S, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedCopy").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

impl<S, D> fmt::Debug for OwnedStaging<S, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedStaging").field(&self.staging).finish()
    }
}

impl<S, D> fmt::Debug for OwnedError<S, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<S, D> fmt::Display for OwnedError<S, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<S, D> std::error::Error for OwnedError<S, D> {
    // Displayed as the error itself, so its source is this one's too.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// Drops source and target.
impl<S, D> From<OwnedError<S, D>> for StageError {
    fn from(refused: OwnedError<S, D>) -> Self {
        refused.error
    }
}
