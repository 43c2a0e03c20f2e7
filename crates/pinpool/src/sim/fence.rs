//! Simulated work: fences that are over at a virtual time, in the order of their stream, late, stuck
//! or failed.

use std::sync::Arc;
use std::time::Instant;

use super::rng::Rng;
use crate::clock;
use crate::fence::{Fence, FenceError, FenceStatus};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// One piece of work, as the simulator knows it.
#[derive(Debug)]
pub(super) struct Mark {
    start: Instant,
    /// When it is over, in nanoseconds of the world's time.
    over_at: AtomicU64,
    outcome: AtomicU32,
    /// The pool asked, and was told of a failure.
    told_failure: AtomicU32,
    /// Work that was recorded at the same time, in front of which the pool may have put it, though this
    /// one is over first.
    behind: Option<Arc<Mark>>,
}

/// How a piece of work ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Complete = 0,
    Failed = 1,
    /// Asking it panics.
    Panics = 2,
}

/// What the pool gets of a piece of work.
pub(super) struct SimFence(pub(super) Arc<Mark>);

impl Mark {
    pub(super) fn new(start: Instant, over_at: u64, outcome: Outcome) -> Self {
        Self {
            start,
            over_at: AtomicU64::new(over_at),
            outcome: AtomicU32::new(outcome as u32),
            told_failure: AtomicU32::new(0),
            behind: None,
        }
    }

    /// The same work, which may be found complete only once `other` is over.
    pub(super) fn behind(self, other: &Arc<Mark>) -> Self {
        Self { behind: Some(Arc::clone(other)), ..self }
    }

    /// Whoever looks at all that is retired finds it complete.
    pub(super) fn is_plain(&self, now: u64) -> bool {
        self.is_complete(now) && self.behind.as_ref().is_none_or(|other| other.is_over(now))
    }

    pub(super) fn over_at(&self) -> u64 {
        self.over_at.load(Ordering::Relaxed)
    }

    pub(super) fn is_over(&self, now: u64) -> bool {
        self.over_at() <= now
    }

    /// It is over and did not fail.
    pub(super) fn is_complete(&self, now: u64) -> bool {
        self.is_over(now) && !self.fails()
    }

    pub(super) fn fails(&self) -> bool {
        self.outcome.load(Ordering::Relaxed) != Outcome::Complete as u32
    }

    /// The pool has a slot back that it asked for before.
    pub(super) fn ask_again(&self) {
        self.told_failure.store(0, Ordering::Relaxed);
    }

    pub(super) fn told_failure(&self) -> bool {
        self.told_failure.load(Ordering::Relaxed) != 0
    }
}

impl Fence for SimFence {
    fn poll(&self) -> Result<FenceStatus, FenceError> {
        let mark = &*self.0;
        #[allow(clippy::cast_possible_truncation, reason = "a world lasts minutes")]
        let now = clock::elapsed(mark.start).as_nanos() as u64;
        if !mark.is_over(now) {
            return Ok(FenceStatus::Pending);
        }
        if !mark.fails() {
            return Ok(FenceStatus::Complete);
        }
        mark.told_failure.store(1, Ordering::Relaxed);
        if mark.outcome.load(Ordering::Relaxed) == Outcome::Panics as u32 {
            std::panic::resume_unwind(Box::new(()));
        }
        Err(FenceError::new("the simulator says so"))
    }
}

/// Work in order. The first stream has no order: it stands for fences of users.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// The name that the pool knows it by.
    pub(super) name: u64,
    /// When the last piece of work is over.
    pub(super) last: u64,
    /// Nothing is over before it is released.
    pub(super) stuck: bool,
    /// Everything from now on fails.
    pub(super) broken: bool,
    /// Work without an end yet.
    held: Vec<Arc<Mark>>,
}

impl Stream {
    pub(super) fn named(name: u64) -> Self {
        Self { name, ..Self::default() }
    }

    /// Queues a piece of work that takes `takes` once those before it are over.
    pub(super) fn push(&mut self, start: Instant, now: u64, takes: u64, fails: bool) -> Arc<Mark> {
        self.broken |= fails;
        let mark = self.next(start, now, takes);
        self.hold(Arc::new(mark))
    }

    /// Queues two pieces of work, of which the pool does not know the order.
    pub(super) fn push_both(
        &mut self,
        start: Instant,
        now: u64,
        takes: [u64; 2],
    ) -> [Arc<Mark>; 2] {
        let [first, second] = takes.map(|takes| self.next(start, now, takes));
        let second = Arc::new(second);
        let first = self.hold(Arc::new(first.behind(&second)));
        [first, self.hold(second)]
    }

    fn next(&mut self, start: Instant, now: u64, takes: u64) -> Mark {
        let outcome = if self.broken { Outcome::Failed } else { Outcome::Complete };
        self.last = self.last.max(now) + takes;
        Mark::new(start, if self.stuck { u64::MAX } else { self.last }, outcome)
    }

    fn hold(&mut self, mark: Arc<Mark>) -> Arc<Mark> {
        if self.stuck {
            self.held.push(Arc::clone(&mark));
        }
        mark
    }

    /// Lets stuck work go on.
    pub(super) fn release(&mut self, now: u64, rng: &mut Rng) {
        self.stuck = false;
        self.last = self.last.max(now);
        for mark in self.held.drain(..) {
            self.last += rng.below(20_000);
            mark.over_at.store(self.last, Ordering::Relaxed);
        }
    }
}
