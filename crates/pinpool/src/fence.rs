//! What tells that work on a slot is over: the trait, and a fence that is completed by hand.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::sync::{AtomicU32, Ordering};

/// Something that uses a slot's bytes and is over at some time: a copy, a network send, a write by
/// `io_uring`.
///
/// The pool asks from whatever thread leases or waits, and from its keeper thread, several at a time
/// if need be. An answer of [`FenceStatus::Complete`] promises that the work is over *as this process
/// sees it*: the next owner writes to the slot with the processor, so that work which is merely
/// ordered behind other work on a device is not complete.
///
/// `poll` must return at once. It may lease and drop. One that panics counts as failed.
pub trait Fence: Send + Sync + 'static {
    /// Whether the work is over. Once it is, it stays so.
    ///
    /// # Errors
    ///
    /// Nobody knows whether the work is over, and nobody will: the slot is quarantined, never used
    /// again, and counted.
    fn poll(&self) -> Result<FenceStatus, FenceError>;
}

/// What a fence says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceStatus {
    /// The work may still touch the bytes.
    Pending,
    /// The work is over as this process sees it.
    Complete,
}

/// Why a fence will never tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FenceError(Cow<'static, str>);

impl FenceError {
    /// An error with this text.
    pub fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for FenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FenceError {}

impl<F: Fence + ?Sized> Fence for Arc<F> {
    fn poll(&self) -> Result<FenceStatus, FenceError> {
        (**self).poll()
    }
}

/// Stands for work of which it is known that nobody will know when it is over.
#[cfg(feature = "cuda")]
pub(crate) struct Lost(pub(crate) &'static str);

#[cfg(feature = "cuda")]
impl Fence for Lost {
    fn poll(&self) -> Result<FenceStatus, FenceError> {
        Err(FenceError::new(self.0))
    }
}

/// A fence that is completed by a call. Its clones are one fence.
///
/// Completing it wakes nobody: the pool asks. It notices after a millisecond or so, after twenty
/// where the work took long, and much sooner while somebody waits for a slot. If nobody ever completes it, its slot stays
/// in flight for ever.
///
/// ```
/// use pinpool::{LockMode, ManualFence, Pool};
///
/// let pool = Pool::builder().class("packet", 4096, 1).lock(LockMode::Try).open()?;
/// let sent = ManualFence::new();
/// pool.lease(4096)?.retire_after(sent.clone());
/// assert!(pool.try_lease(4096).is_err(), "the network card still reads it");
/// sent.complete();
/// assert!(pool.try_lease(4096).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ManualFence(Arc<Hand>);

struct Hand {
    /// `Release` in `complete` pairs with `Acquire` in `poll`: what was done before completion is
    /// visible to the slot's next owner.
    state: AtomicU32,
    /// Set by whoever went from [`PENDING`] to [`FAILING`], before [`FAILED`].
    reason: OnceLock<FenceError>,
}

const PENDING: u32 = 0;
const COMPLETE: u32 = 1;
const FAILED: u32 = 2;
/// The reason is being written; nobody waits for that, as a forked child might for ever.
const FAILING: u32 = 3;

impl ManualFence {
    /// A pending fence.
    pub fn new() -> Self {
        Self(Arc::new(Hand { state: AtomicU32::new(PENDING), reason: OnceLock::new() }))
    }

    /// The work is over. A fence that failed stays failed.
    ///
    /// Takes no lock and makes no system call: it may be called from a host function of a CUDA
    /// stream, or from an interrupt-like context.
    pub fn complete(&self) {
        self.settle(COMPLETE);
    }

    /// Nobody will ever know whether the work is over: the slot is lost. A complete fence stays
    /// complete.
    pub fn fail(&self, text: impl Into<Cow<'static, str>>) {
        if self.settle(FAILING) {
            let _ = self.0.reason.set(FenceError::new(text));
            self.0.state.store(FAILED, Ordering::Release);
        }
    }

    /// Whether [`Self::complete`] came first.
    pub fn is_complete(&self) -> bool {
        self.0.state.load(Ordering::Acquire) == COMPLETE
    }

    /// The first answer stands. True for it.
    fn settle(&self, state: u32) -> bool {
        let state =
            self.0.state.compare_exchange(PENDING, state, Ordering::Release, Ordering::Relaxed);
        state.is_ok()
    }
}

impl Fence for ManualFence {
    fn poll(&self) -> Result<FenceStatus, FenceError> {
        match self.0.state.load(Ordering::Acquire) {
            PENDING | FAILING => Ok(FenceStatus::Pending),
            COMPLETE => Ok(FenceStatus::Complete),
            _ => {
                let reason = self.0.reason.get().cloned();
                Err(reason.unwrap_or(FenceError::new("failed by hand")))
            }
        }
    }
}

impl Default for ManualFence {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ManualFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualFence").field(&self.poll()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_answer_stands() {
        let fence = ManualFence::new();
        assert_eq!(fence.poll(), Ok(FenceStatus::Pending));
        fence.clone().complete();
        fence.fail("too late");
        assert_eq!(fence.poll(), Ok(FenceStatus::Complete));
        let failed = ManualFence::new();
        failed.fail("cable pulled");
        failed.fail("and again");
        failed.complete();
        assert!(!failed.is_complete());
        assert_eq!(failed.poll(), Err(FenceError::new("cable pulled")));
    }
}
