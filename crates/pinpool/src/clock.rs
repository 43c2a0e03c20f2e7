//! The time: the system's, or in the crate's own tests a thread's virtual one, which passes only when
//! that thread says so.

use std::time::{Duration, Instant};

/// The present moment.
#[inline]
pub(crate) fn now() -> Instant {
    #[cfg(all(test, not(any(loom, shuttle))))]
    if let Some(now) = simulated::now() {
        return now;
    }
    Instant::now()
}

/// How long ago `since` was; zero for a moment that is yet to come.
#[inline]
pub(crate) fn elapsed(since: Instant) -> Duration {
    now().saturating_duration_since(since)
}

/// Lets the calling thread rest.
pub(crate) fn sleep(pause: Duration) {
    #[cfg(all(test, not(any(loom, shuttle))))]
    if simulated::now().is_some() {
        return simulated::pass(pause);
    }
    std::thread::sleep(pause);
}

/// The virtual time of a thread.
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) mod simulated {
    use std::cell::Cell;
    use std::time::{Duration, Instant};

    std::thread_local! {
        static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
    }

    /// The calling thread's virtual time, if it has one.
    pub(crate) fn now() -> Option<Instant> {
        NOW.with(Cell::get)
    }

    /// From now on time stands still on this thread, but for [`pass`].
    pub(crate) fn stand_still() -> Instant {
        let start = Instant::now();
        NOW.with(|now| now.set(Some(start)));
        start
    }

    /// Time goes by as ever again.
    pub(crate) fn go_by() {
        NOW.with(|now| now.set(None));
    }

    /// Lets `time` pass.
    pub(crate) fn pass(time: Duration) {
        NOW.with(|now| now.set(now.get().map(|at| at + time)));
    }

    /// Sleeps until `deadline`, if nobody wakes the only thread that there is.
    pub(crate) fn sleep_until(deadline: Instant) {
        NOW.with(|now| now.set(now.get().map(|at| at.max(deadline))));
    }
}
