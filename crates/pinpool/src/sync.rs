//! The only file that names `std`, `parking_lot` or `loom` primitives, so that the lock-free code
//! above it runs unchanged under the model checker.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Atomics that belong to no model: they order nothing.
pub(crate) mod plain {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
}

#[cfg(not(loom))]
pub(crate) use blocking::{Condvar, Mutex};

#[cfg(loom)]
pub(crate) use modelled::{Condvar, Mutex};

/// Blocking primitives of a real build. `parking_lot` does not poison: a panicking holder costs
/// nobody else anything (I7).
#[cfg(not(loom))]
mod blocking {
    use std::time::Instant;

    pub(crate) use parking_lot::{Mutex, MutexGuard};

    /// A condition variable that may be given a deadline.
    #[derive(Debug, Default)]
    pub(crate) struct Condvar(parking_lot::Condvar);

    impl Condvar {
        /// Sleeps until notified or until `deadline`; true when the deadline passed.
        pub(crate) fn wait<T>(
            &self,
            guard: &mut MutexGuard<'_, T>,
            deadline: Option<Instant>,
        ) -> bool {
            if let Some(at) = deadline {
                return self.0.wait_until(guard, at).timed_out();
            }
            self.0.wait(guard);
            false
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

/// The same interface over loom. Deadlines do not exist there: a model that needs one to finish
/// has lost a wake-up, and loom reports it as a deadlock.
#[cfg(loom)]
mod modelled {
    use std::time::Instant;

    pub(crate) use loom::sync::MutexGuard;

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        #[allow(clippy::unwrap_used, reason = "a model that poisons a lock has failed already")]
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    #[derive(Debug)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Default for Condvar {
        fn default() -> Self {
            Self(loom::sync::Condvar::new())
        }
    }

    impl Condvar {
        #[allow(clippy::unwrap_used, reason = "a model that poisons a lock has failed already")]
        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>, _: Option<Instant>) -> bool {
            // loom's wait consumes the guard; swap it through a raw read and write.
            replace_with(guard, |held| self.0.wait(held).unwrap());
            false
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    fn replace_with<T>(place: &mut T, change: impl FnOnce(T) -> T) {
        // SAFETY: `place` is valid for reads; the value is put back below, or the model aborts.
        let old = unsafe { std::ptr::read(place) };
        let new = change(old);
        // SAFETY: `place` is valid for writes and holds a value that was moved out above.
        unsafe { std::ptr::write(place, new) };
    }
}
