//! What goes along with the making of slabs: whether it may go on, how far it is, and when others are
//! let in; it makes nothing itself.

use std::time::{Duration, Instant};

use crate::clock;
use crate::memory::{MemoryCause, MemoryError, MemoryStep};
use crate::sync::plain::{AtomicU32, AtomicUsize, Ordering};

/// The way of one opening, or of one slab that is added later. One thread makes slabs, helped by others
/// where memory is backed; any thread may look, or stop it.
#[derive(Debug, Default)]
pub(crate) struct Course {
    cancelled: AtomicU32,
    deadline: Option<Deadline>,
    /// How long others are let in.
    pause: Duration,
    /// A slab that fails in the middle keeps its beginning.
    partial: bool,
    /// Bytes backed: of slabs that are done, of the one being made, and the most that was ever said.
    backed: AtomicUsize,
    backed_here: AtomicUsize,
    backed_shown: AtomicUsize,
    pinned: AtomicUsize,
    /// Nanoseconds of pinning or unpinning since others were let in.
    busy_ns: AtomicUsize,
}

#[derive(Debug, Clone, Copy)]
struct Deadline {
    at: Instant,
    after: Duration,
}

impl Course {
    /// One that nobody stops, with pauses of this length.
    pub(crate) fn paced(pause: Duration) -> Self {
        Self { pause, ..Self::default() }
    }

    /// How long others are let in.
    pub(super) fn pause(&self) -> Duration {
        self.pause
    }

    /// The same, which ends so long after now.
    pub(crate) fn within(self, timeout: Option<Duration>) -> Self {
        let deadline = timeout
            .and_then(|after| Some(Deadline { at: clock::now().checked_add(after)?, after }));
        Self { deadline, ..self }
    }

    /// The same, on which a slab may stay smaller than planned.
    pub(crate) fn partial(self, partial: bool) -> Self {
        Self { partial, ..self }
    }

    /// A slab on which this failed at `offset` may end there.
    pub(super) fn may_end_at(&self, offset: usize, error: &MemoryError) -> bool {
        self.partial && offset > 0 && !error.is_stop()
    }

    /// Stops it at its next step.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(1, Ordering::Release);
    }

    /// Whether the next step, on so many bytes, may be taken.
    pub(crate) fn check(&self, step: MemoryStep, bytes: usize) -> Result<(), MemoryError> {
        self.check_cancelled(step, bytes)?;
        match self.deadline {
            Some(deadline) if clock::now() >= deadline.at => {
                Err(MemoryError { step, bytes, cause: MemoryCause::TimedOut(deadline.after) })
            }
            _ => Ok(()),
        }
    }

    /// As [`Self::check`], for what is made already: it is too late for a deadline.
    pub(crate) fn check_cancelled(
        &self,
        step: MemoryStep,
        bytes: usize,
    ) -> Result<(), MemoryError> {
        match self.cancelled.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(MemoryError { step, bytes, cause: MemoryCause::Cancelled }),
        }
    }

    /// A slab's memory is backed from its beginning.
    pub(crate) fn backs(&self) {
        self.backed_here.store(0, Ordering::Relaxed);
    }

    /// So many more bytes of it are. Any thread.
    pub(crate) fn backed(&self, bytes: usize) {
        let here = self.backed_here.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let all = self.backed.load(Ordering::Relaxed) + here;
        self.backed_shown.fetch_max(all, Ordering::Relaxed);
    }

    /// All of the slab is, as far as it goes.
    pub(crate) fn is_backed(&self) {
        let here = self.backed_here.swap(0, Ordering::Relaxed);
        self.backed.fetch_add(here, Ordering::Relaxed);
    }

    /// A chunk was pinned, which took so long.
    pub(crate) fn pinned(&self, bytes: usize, took: Duration) {
        self.pinned.fetch_add(bytes, Ordering::Relaxed);
        self.kept_others_out(took);
    }

    /// A chunk was pinned or unpinned, which took so long.
    pub(super) fn kept_others_out(&self, took: Duration) {
        let took = usize::try_from(took.as_nanos()).unwrap_or(usize::MAX);
        let busy = self.busy_ns.load(Ordering::Relaxed).saturating_add(took);
        self.busy_ns.store(busy, Ordering::Relaxed);
    }

    /// Before the next chunk: lets others in if they have been kept out for long enough. Locks of the driver and
    /// of the system are not fair, and who pins or unpins chunk after chunk keeps them.
    pub(super) fn let_others_in(&self) {
        if self.busy_ns.load(Ordering::Relaxed) < BUSY_NS || self.pause.is_zero() {
            return;
        }
        self.busy_ns.store(0, Ordering::Relaxed);
        let mut left = self.pause;
        // Whoever stops it does not wait for the rest of a long pause.
        while !left.is_zero() && self.check(MemoryStep::Pin, 0).is_ok() {
            let part = left.min(PAUSE_PART);
            clock::sleep(part);
            left -= part;
        }
    }

    /// Bytes backed and bytes pinned so far. Neither ever falls.
    pub(crate) fn so_far(&self) -> (u64, u64) {
        let read = |count: &AtomicUsize| count.load(Ordering::Relaxed) as u64;
        (read(&self.backed_shown), read(&self.pinned))
    }
}

/// One millisecond: what others may be kept out for beyond one chunk. A pause as long as a chunk of
/// 64 MiB took 13 % of it on the H200 host; one for each of many small chunks would take far more.
const BUSY_NS: usize = 1_000_000;
/// Between two looks whether the opening was stopped.
const PAUSE_PART: Duration = Duration::from_millis(10);

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn what_was_backed_twice_is_counted_once() {
        let course = Course::default();
        course.backs();
        course.backed(30);
        // It failed, and begins anew.
        course.backs();
        course.backed(20);
        assert_eq!(course.so_far(), (30, 0));
        course.backed(30);
        course.is_backed();
        course.backs();
        course.backed(5);
        assert_eq!(course.so_far(), (55, 0));
    }

    #[test]
    fn others_are_let_in_after_a_millisecond_of_pinning() {
        let began = clock::simulated::stand_still();
        let course = Course::paced(Duration::from_micros(200));
        let slept = || clock::now() - began;
        course.pinned(1, Duration::from_micros(600));
        course.let_others_in();
        assert_eq!(slept(), Duration::ZERO);
        course.pinned(1, Duration::from_micros(600));
        course.let_others_in();
        assert_eq!(slept(), Duration::from_micros(200));
        course.pinned(1, Duration::from_micros(600));
        course.let_others_in();
        assert_eq!(slept(), Duration::from_micros(200));
        course.pinned(1, Duration::from_secs(1));
        course.let_others_in();
        assert_eq!(slept(), Duration::from_micros(400));
        clock::simulated::go_by();
    }

    #[test]
    fn nobody_waits_for_the_rest_of_a_pause_once_it_is_over() {
        let began = clock::simulated::stand_still();
        let long = Duration::from_secs(1);
        let course = Course::paced(long).within(Some(Duration::from_millis(45)));
        course.pinned(1, Duration::from_millis(2));
        course.let_others_in();
        assert_eq!(clock::now() - began, Duration::from_millis(50));
        course.pinned(1, Duration::from_millis(2));
        course.let_others_in();
        let course = Course::paced(long);
        course.cancel();
        course.pinned(1, Duration::from_millis(2));
        course.let_others_in();
        assert_eq!(clock::now() - began, Duration::from_millis(50));
        clock::simulated::go_by();
    }

    #[test]
    fn it_ends_when_told_or_when_its_time_is_over() {
        let _ = clock::simulated::stand_still();
        let timeout = Duration::from_secs(2);
        let course = Course::paced(Duration::ZERO).within(Some(timeout));
        let cause = || course.check(MemoryStep::Pin, 7).map_err(|error| error.cause);
        assert_eq!(cause(), Ok(()));
        clock::simulated::pass(timeout);
        assert_eq!(cause(), Err(MemoryCause::TimedOut(timeout)));
        course.cancel();
        assert_eq!(cause(), Err(MemoryCause::Cancelled));
        clock::simulated::go_by();
    }
}
