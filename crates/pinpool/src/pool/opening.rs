//! An opening that goes on beside its caller: how far it is, what is there already, how to stop it.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::Pool;
use super::open::{Prepared, course};
use crate::class::Spread;
use crate::clock;
use crate::error::{Error, LeaseError};
use crate::foreign::{caught, tell};
use crate::keeper::Keeper;
use crate::memory::PageLock;
use crate::plan::Plan;
use crate::process::Home;
use crate::slab::Course;
use crate::sync::{Condvar, Mutex};

/// How far an opening is. While it goes on no number falls; bytes do not even if it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct OpenProgress {
    /// Bytes of all slabs.
    pub total_bytes: u64,
    /// Bytes of them that are backed with memory.
    pub populated_bytes: u64,
    /// Bytes that will be pinned: all, or none with `lock = "off"`.
    pub to_pin_bytes: u64,
    /// Bytes of them that are.
    pub pinned_bytes: u64,
    /// Classes.
    pub classes: usize,
    /// Classes that can be leased from already; none any more once the opening has failed.
    pub classes_ready: usize,
}

/// A pool that is being opened on a thread of its own.
///
/// Its classes come in the order of the configuration, and each can be leased from as soon as it is there:
/// see [`Self::pool`]. [`Self::wait`] waits for all of them, and so does `.await`, in any executor. If one fails,
/// or the opening is cancelled, the pool closes and everything is given back, leases that are out excepted.
///
/// Dropping an `Opening` cancels it, unless somebody has its pool. In a forked child, which has no thread that
/// opens, it is over: waiting for it answers [`LeaseError::Forked`], and the parent's goes on.
///
/// ```
/// use std::time::Duration;
///
/// use pinpool::{LockMode, Pool};
///
/// let opening = Pool::builder()
///     .class("first", 4096, 16)
///     .class("later", 1 << 20, 16)
///     .lock(LockMode::Try)
///     .open_async()?;
/// while !opening.is_over() {
///     let progress = opening.progress();
///     eprint!("\r{:.0} %, {} classes", progress.fraction() * 100.0, progress.classes_ready);
///     std::thread::sleep(Duration::from_millis(10)); // or `cancel`, if nobody wants it any more
/// }
/// let pool = opening.wait()?; // waits for nothing here, and says why if it failed
/// # drop(pool);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it cancels the opening"]
pub struct Opening {
    state: Arc<State>,
}

/// Stops an [`Opening`], from any thread, at any time: see [`Opening::cancel`].
#[derive(Debug, Clone)]
pub struct OpenCanceller {
    course: Arc<Course>,
}

impl OpenCanceller {
    /// As [`Opening::cancel`].
    pub fn cancel(&self) {
        self.course.cancel();
    }
}

/// What the opening's thread and its caller share.
struct State {
    /// `None` if that could not be found out, which fails the opening.
    home: Option<Home>,
    course: Arc<Course>,
    total_bytes: u64,
    to_pin_bytes: u64,
    classes: usize,
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    /// From when the memory to stand on was chosen, until the opening is over and was told of.
    pool: Option<Pool>,
    /// Nobody asks for it any more.
    abandoned: bool,
    outcome: Option<Result<(), Error>>,
    task: Option<Waker>,
}

impl Opening {
    /// Begins to open a pool as planned, on a thread of its own.
    pub(crate) fn begin(plan: Plan, memory: Option<Arc<dyn PageLock>>) -> Self {
        let state = Arc::new(State {
            home: Home::here().ok(),
            course: Arc::new(course(&plan)),
            total_bytes: plan.total_bytes,
            to_pin_bytes: plan.pinned_bytes,
            classes: plan.classes.len(),
            inner: Mutex::new(Inner::default()),
            changed: Condvar::default(),
        });
        // Here, if there is no thread for it: late is better than never.
        let work = Arc::new(Mutex::new(Some((plan, memory))));
        let run = {
            let (state, work) = (Arc::clone(&state), Arc::clone(&work));
            move || {
                let work = work.lock().take();
                if let Some((plan, memory)) = work {
                    state.open(plan, memory);
                }
            }
        };
        let named = std::thread::Builder::new().name(NAME.into());
        if let Err(error) = named.spawn(run.clone()) {
            tell!(warn, %error, "no thread to open the pool: its caller waits");
            run();
        }
        Self { state }
    }

    /// The pool. Classes that are not there yet answer
    /// [`LeaseError::NotReady`](crate::LeaseError::NotReady) to whoever does not wait, and let others wait.
    /// `None` while its memory's backend is being chosen, which may take as long as the CUDA driver needs for
    /// a context, and once the opening has failed.
    pub fn pool(&self) -> Option<Pool> {
        if self.state.is_here() { self.state.inner.lock().pool.clone() } else { None }
    }

    /// How far it is.
    pub fn progress(&self) -> OpenProgress {
        self.state.progress()
    }

    /// True once the opening has ended, well or not.
    pub fn is_over(&self) -> bool {
        !self.state.is_here() || self.state.inner.lock().outcome.is_some()
    }

    /// What stops the opening while somebody else waits for it.
    pub fn canceller(&self) -> OpenCanceller {
        OpenCanceller { course: Arc::clone(&self.state.course) }
    }

    /// Stops the opening at its next step: within one call of the system or the driver, which takes some
    /// milliseconds with the default `pin_chunk`, and longer where the system is slow to give memory. [`Self::wait`] tells when everything was given back. Without effect
    /// once it is over.
    pub fn cancel(&self) {
        self.state.course.cancel();
    }

    /// Waits until all classes are there.
    ///
    /// # Errors
    ///
    /// As [`PoolBuilder::open`](crate::PoolBuilder::open), [`Error::OpenCancelled`], and in a forked child
    /// [`LeaseError::Forked`].
    pub fn wait(self) -> Result<Pool, Error> {
        self.state.check_here()?;
        let mut inner = self.state.inner.lock();
        loop {
            if let Some(settled) = inner.settled() {
                return settled;
            }
            self.state.changed.wait(&mut inner, None);
        }
    }

    /// Waits while telling how far it is, until `progress` breaks it off or it is over.
    pub(crate) fn tell(
        self,
        mut progress: impl FnMut(OpenProgress) -> ControlFlow<()>,
    ) -> Result<Pool, Error> {
        while !self.state.is_over_by(clock::now().checked_add(TOLD_EVERY)) {
            if progress(self.progress()).is_break() {
                self.cancel();
                return self.wait();
            }
        }
        // Whatever it says now, it is over.
        let _ = progress(self.progress());
        self.wait()
    }
}

impl Inner {
    /// How it ended, once.
    fn settled(&mut self) -> Option<Result<Pool, Error>> {
        let outcome = self.outcome.take()?;
        let pool = self.pool.take();
        Some(outcome.and_then(|()| pool.ok_or(Error::OpenPanicked)))
    }
}

impl State {
    /// False in a forked child, where any lock may be held for ever (I12).
    fn is_here(&self) -> bool {
        self.home.is_none_or(|home| home.is_here())
    }

    fn check_here(&self) -> Result<(), Error> {
        if self.is_here() { Ok(()) } else { Err(LeaseError::Forked.into()) }
    }

    /// All of it, on the opening's own thread.
    fn open(&self, plan: Plan, memory: Option<Arc<dyn PageLock>>) {
        // Memory of the caller's own is foreign code.
        let outcome = caught(AssertUnwindSafe(|| {
            let spread = Spread::over_processors();
            let course = Arc::clone(&self.course);
            let Prepared { pool, opener } =
                Pool::prepare(plan, memory, spread, course, Keeper::start)?;
            let mut inner = self.inner.lock();
            let abandoned = inner.abandoned;
            inner.pool = (!abandoned).then_some(pool);
            drop(inner);
            opener.run()
        }));
        let outcome = outcome.unwrap_or(Err(Error::OpenPanicked));
        // What is there is given back before anybody is told.
        let failed = if outcome.is_err() { self.inner.lock().pool.take() } else { None };
        drop(failed);
        let mut inner = self.inner.lock();
        inner.outcome = Some(outcome);
        let task = inner.task.take();
        let unwanted = if inner.abandoned { inner.pool.take() } else { None };
        drop(inner);
        drop(unwanted);
        self.changed.notify_all();
        // A waker is foreign code.
        let _ = task.map(|task| caught(|| task.wake()));
    }

    fn progress(&self) -> OpenProgress {
        let (populated, pinned) = self.course.so_far();
        let inner = self.is_here().then(|| self.inner.lock());
        let over = inner.as_ref().and_then(|inner| inner.outcome.as_ref());
        let pool = inner.as_ref().and_then(|inner| inner.pool.as_ref());
        let ready = match over {
            Some(Ok(())) => self.classes,
            _ => pool.map_or(0, |pool| pool.handle.core.roster.ready()),
        };
        OpenProgress {
            total_bytes: self.total_bytes,
            populated_bytes: populated.min(self.total_bytes),
            to_pin_bytes: self.to_pin_bytes,
            pinned_bytes: pinned.min(self.to_pin_bytes),
            classes: self.classes,
            classes_ready: ready,
        }
    }

    /// Waits until `deadline` for its end.
    fn is_over_by(&self, deadline: Option<Instant>) -> bool {
        // A progress function may fork, and return in the child.
        if !self.is_here() {
            return true;
        }
        let mut inner = self.inner.lock();
        while inner.outcome.is_none() {
            if self.changed.wait(&mut inner, deadline) {
                break;
            }
        }
        inner.outcome.is_some()
    }
}

impl OpenProgress {
    /// The part that is done, 0 to 1, in bytes: backing them with memory counts as much as pinning them.
    #[allow(clippy::cast_precision_loss, reason = "a part of a whole, to be shown")]
    pub fn fraction(&self) -> f64 {
        let all = self.total_bytes + self.to_pin_bytes;
        let done = self.populated_bytes + self.pinned_bytes;
        if all == 0 { 1.0 } else { done as f64 / all as f64 }
    }
}

impl IntoFuture for Opening {
    type Output = Result<Pool, Error>;
    type IntoFuture = OpeningFuture;

    fn into_future(self) -> OpeningFuture {
        OpeningFuture(self)
    }
}

/// The future of an [`Opening`]. Dropping it cancels the opening, unless somebody has its pool. Polled again after
/// it was ready, it stays pending.
#[derive(Debug)]
#[must_use = "dropping it cancels the opening"]
pub struct OpeningFuture(Opening);

impl Future for OpeningFuture {
    type Output = Result<Pool, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.state.check_here()?;
        let task = context.waker().clone();
        let mut inner = self.0.state.inner.lock();
        if let Some(settled) = inner.settled() {
            drop(inner);
            return Poll::Ready(settled);
        }
        let old = inner.task.replace(task);
        drop(inner);
        // Its destructor is foreign code.
        let _ = caught(|| drop(old));
        Poll::Pending
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if !self.state.is_here() {
            return;
        }
        let mut inner = self.state.inner.lock();
        inner.abandoned = true;
        let pool = inner.pool.take();
        if pool.is_none() {
            // It has not come so far yet, or is over.
            self.state.course.cancel();
        }
        drop(inner);
        // The last handle on a pool that is opening cancels that.
        drop(pool);
    }
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

/// The thread's name, at most 15 bytes.
const NAME: &str = "pinpool-open";
/// Between two calls of a progress function.
const TOLD_EVERY: Duration = Duration::from_millis(10);
