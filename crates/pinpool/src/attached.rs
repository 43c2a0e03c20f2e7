//! A fence on a slot, with what reclaim must know of it: whose work it stands for, and its place in
//! the order of its stream.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock;
#[cfg(feature = "cuda")]
use crate::cuda::event::{Event, InteropEvent};
use crate::error::Error;
use crate::fence::{Fence, FenceError, FenceStatus};
use crate::foreign::{caught, tell};
use crate::free_list::home_number;

/// One use of a slot's bytes that may not be over.
#[derive(Debug, Clone)]
pub(crate) struct Attached {
    pub(crate) fence: AnyFence,
    pub(crate) order: Order,
    /// When the use began.
    pub(crate) since: Instant,
    /// The use may write the bytes; otherwise it only reads them.
    pub(crate) writes: bool,
    /// The bytes of the slot that are used.
    pub(crate) bytes: Part,
    /// The free list's shard of the thread that attached it: where its slot is wanted again.
    pub(crate) shard: u32,
}

/// A fence of any kind. A clone is the same fence.
#[derive(Clone)]
pub(crate) enum AnyFence {
    /// A user's.
    User(Arc<Guarded<dyn Fence>>),
    /// An event of ours, recorded right behind the work.
    #[cfg(feature = "cuda")]
    Event(Arc<Event>),
    /// An event that the caller of a foreign copy was asked to record.
    #[cfg(feature = "cuda")]
    Interop(Arc<InteropEvent>),
}

/// A user's fence whose destructor, if it panics, costs nobody anything (I7).
pub(crate) struct Guarded<F: Fence + ?Sized>(ManuallyDrop<F>);

impl<F: Fence + ?Sized> Drop for Guarded<F> {
    fn drop(&mut self) {
        // SAFETY: dropped once, here.
        let dropping = || unsafe { ManuallyDrop::drop(&mut self.0) };
        if caught(dropping).is_none() {
            tell!(error, "a fence panicked when it was dropped");
        }
    }
}

/// A range of a slot's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Part {
    pub(crate) const ALL: Self = Self { start: 0, end: usize::MAX };

    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// Where a fence stands in the order of its stream.
///
/// Both numbers come from one clock that counts recordings: `before` was read before the event was
/// recorded, `after` is this recording's own tick, taken afterwards. If `a.after < b.before`, then
/// `a` was recorded before `b` began to be; on one stream `a` is then complete once `b` is.
/// Recordings that overlapped in time say nothing about each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    /// The stream, by a number that the driver never gives to another; [`Order::NO_STREAM`] where
    /// nothing is in order.
    pub(crate) stream: u64,
    pub(crate) before: u64,
    pub(crate) after: u64,
}

impl Order {
    /// The stream of fences that have none.
    pub(crate) const NO_STREAM: u64 = 0;

    /// A fence that no other tells anything about.
    pub(crate) const fn none() -> Self {
        Self { stream: Self::NO_STREAM, before: 0, after: 0 }
    }

    /// An event that somebody else records on a stream at some time from now on.
    #[cfg(feature = "cuda")]
    pub(crate) const fn unplaced(stream: u64) -> Self {
        Self { stream, before: 0, after: u64::MAX }
    }

    /// The stream in whose order the fence has a place.
    pub(crate) fn line(&self) -> u64 {
        if self.after == u64::MAX { Self::NO_STREAM } else { self.stream }
    }
}

impl Attached {
    /// A user's fence, attached now. Nobody knows what it does: it may write.
    pub(crate) fn user(fence: impl Fence) -> Self {
        let fence = AnyFence::User(Arc::new(Guarded(ManuallyDrop::new(fence))));
        let shard = home_number();
        let (order, since, bytes) = (Order::none(), clock::now(), Part::ALL);
        Self { fence, order, since, writes: true, bytes, shard }
    }

    /// True if `old` is certainly complete once this is, and nobody borrows it.
    pub(crate) fn covers(&self, old: &Self) -> bool {
        // Its bytes are all that is asked for then.
        if self.bytes != old.bytes {
            return false;
        }
        let ordered = self.order.line() == old.order.line() && old.order.after < self.order.before;
        ordered && self.order.line() != Order::NO_STREAM && old.fence.is_ours()
    }
}

impl AnyFence {
    /// Whether the work is over. Called without a lock: it calls the driver, or a user's code.
    pub(crate) fn poll(&self) -> Result<FenceStatus, Error> {
        if crate::seeded::bug("never-waits") {
            return Ok(FenceStatus::Complete);
        }
        match self {
            Self::User(fence) => caught(|| fence.0.poll())
                .unwrap_or_else(|| Err(FenceError::new("it panicked when asked")))
                .map_err(Error::Fence),
            #[cfg(feature = "cuda")]
            Self::Event(event) => event.poll(),
            #[cfg(feature = "cuda")]
            Self::Interop(event) => event.poll(),
        }
    }

    /// Waits until the work is over.
    pub(crate) fn wait(&self) -> Result<(), Error> {
        #[cfg(feature = "cuda")]
        match self {
            Self::Event(event) => return event.wait(),
            Self::Interop(event) => return event.wait(),
            Self::User(_) => {}
        }
        let mut pause = Backoff::default();
        while self.poll()? == FenceStatus::Pending {
            pause.rest();
        }
        Ok(())
    }

    /// True for an event that only this crate records.
    fn is_ours(&self) -> bool {
        match self {
            Self::User(_) => false,
            #[cfg(feature = "cuda")]
            Self::Event(_) => true,
            #[cfg(feature = "cuda")]
            Self::Interop(_) => false,
        }
    }

    /// True if nobody can be about to record it: not so for an event that another thread, which
    /// lives, handed to cudarc.
    pub(crate) fn is_unborrowed(&self) -> bool {
        match self {
            Self::User(_) => true,
            #[cfg(feature = "cuda")]
            Self::Event(_) => true,
            #[cfg(feature = "cuda")]
            Self::Interop(event) => event.is_unborrowed(),
        }
    }

    /// True for clones of one fence.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::User(a), Self::User(b)) => Arc::ptr_eq(a, b),
            #[cfg(feature = "cuda")]
            (Self::Event(a), Self::Event(b)) => Arc::ptr_eq(a, b),
            #[cfg(feature = "cuda")]
            (Self::Interop(a), Self::Interop(b)) => Arc::ptr_eq(a, b),
            #[cfg(feature = "cuda")]
            _ => false,
        }
    }
}

impl std::fmt::Debug for AnyFence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::User(_) => "user fence",
            #[cfg(feature = "cuda")]
            Self::Event(_) => "event",
            #[cfg(feature = "cuda")]
            Self::Interop(_) => "event that others record",
        })
    }
}

/// Longer and longer pauses between two questions, for a thread that waits by asking.
#[derive(Debug, Default)]
struct Backoff {
    rounds: u32,
}

impl Backoff {
    fn rest(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
        match self.rounds {
            0..SPINS => std::hint::spin_loop(),
            SPINS..YIELDS => std::thread::yield_now(),
            // A sixteenth of the time waited so far, about.
            rounds => clock::sleep(PAUSE_MIN.saturating_mul(rounds / 16).min(PAUSE_MAX)),
        }
    }
}

const SPINS: u32 = 64;
const YIELDS: u32 = 128;
const PAUSE_MIN: Duration = Duration::from_micros(5);
const PAUSE_MAX: Duration = Duration::from_millis(1);
