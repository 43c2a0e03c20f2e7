//! The only file that names primitives of `std`, `loom` or `shuttle`, so that the code
//! above it runs unchanged under the model checkers: `loom` tries every schedule of a few threads,
//! `shuttle` random ones of many.

#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::thread_local;

#[cfg(loom)]
pub(crate) use loom::thread_local;

#[cfg(shuttle)]
pub(crate) use shuttle::thread_local;

/// Atomics that belong to no model: they order nothing.
pub(crate) mod plain {
    pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) use std::sync::atomic::{AtomicU64, compiler_fence};
}

/// Lets others run: for a moment, for this turn, and from the hundredth time in a row in earnest, so that a
/// thread of lower priority gets its processor.
#[cold]
pub(crate) fn pause(round: u32) {
    #[cfg(not(any(loom, shuttle)))]
    match round {
        0..100 => std::hint::spin_loop(),
        100..120 => std::thread::yield_now(),
        _ => nap(std::time::Duration::from_micros(50)),
    }
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(shuttle)]
    shuttle::thread::yield_now();
    #[cfg(any(loom, shuttle))]
    let _ = round;
}

/// Sleeps about so long, or not at all in a sandbox that forbids it, where the standard library panics.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn nap(time: std::time::Duration) {
    if let Ok(time) = rustix::thread::Timespec::try_from(time) {
        let _ = rustix::thread::nanosleep(&time);
    }
}

/// The number of the calling task of a model.
#[cfg(shuttle)]
pub(crate) fn task_number() -> usize {
    usize::from(shuttle::thread::current().id())
}

#[cfg(not(any(loom, shuttle)))]
pub(crate) use blocking::{Condvar, Mutex, MutexGuard};

#[cfg(loom)]
pub(crate) use modelled::{Condvar, Mutex, MutexGuard};

#[cfg(shuttle)]
pub(crate) use scheduled::{Condvar, Mutex, MutexGuard};

/// Blocking primitives of a real build: the standard library's, which know of nothing but themselves. In
/// a forked child a lock is lost if another thread held it, and no other is (I12); with `parking_lot`,
/// whose sleepers share a table with locks of its own, any lock could be.
///
/// They do not poison: a panicking holder costs nobody else anything (I7).
#[cfg(not(any(loom, shuttle)))]
mod blocking {
    use std::mem::ManuallyDrop;
    use std::ops::{Deref, DerefMut};
    use std::sync::{PoisonError, TryLockError};
    use std::time::Instant;

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::sync::Mutex::new(value))
        }

        #[inline]
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard::new(self.0.lock().unwrap_or_else(PoisonError::into_inner))
        }

        #[inline]
        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            match self.0.try_lock() {
                Ok(guard) => Some(MutexGuard::new(guard)),
                Err(TryLockError::Poisoned(poisoned)) => {
                    Some(MutexGuard::new(poisoned.into_inner()))
                }
                Err(TryLockError::WouldBlock) => None,
            }
        }
    }

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    /// Holds the lock until it is dropped.
    #[derive(Debug)]
    pub(crate) struct MutexGuard<'a, T>(ManuallyDrop<std::sync::MutexGuard<'a, T>>);

    impl<'a, T> MutexGuard<'a, T> {
        fn new(guard: std::sync::MutexGuard<'a, T>) -> Self {
            Self(ManuallyDrop::new(guard))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.0
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.0
        }
    }

    impl<T> Drop for MutexGuard<'_, T> {
        fn drop(&mut self) {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }

    /// A condition variable that may be given a deadline.
    #[derive(Debug, Default)]
    pub(crate) struct Condvar(std::sync::Condvar);

    impl Condvar {
        /// Sleeps until notified or until `deadline`; true when the deadline passed.
        pub(crate) fn wait<T>(
            &self,
            guard: &mut MutexGuard<'_, T>,
            deadline: Option<Instant>,
        ) -> bool {
            #[cfg(test)]
            if crate::clock::simulated::now().is_some() {
                // Nobody else is there to wake the only thread of a simulated world.
                assert!(deadline.is_some(), "the only thread sleeps for ever");
                deadline.into_iter().for_each(crate::clock::simulated::sleep_until);
                return true;
            }
            // SAFETY: it is put back below, and waiting does not unwind: each of ours has one lock.
            let held = unsafe { ManuallyDrop::take(&mut guard.0) };
            let (held, passed) = match deadline {
                Some(at) => {
                    let rest = at.saturating_duration_since(Instant::now());
                    let waited = self.0.wait_timeout(held, rest);
                    let (held, waited) = waited.unwrap_or_else(PoisonError::into_inner);
                    (held, waited.timed_out())
                }
                None => (self.0.wait(held).unwrap_or_else(PoisonError::into_inner), false),
            };
            guard.0 = ManuallyDrop::new(held);
            passed
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

/// The same interface over shuttle. A deadline passes whenever the scheduler says so; a sleeper
/// without one that nobody wakes is a deadlock, which shuttle reports.
#[cfg(shuttle)]
mod scheduled {
    use std::collections::VecDeque;
    use std::ops::{Deref, DerefMut};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, PoisonError};
    use std::time::Instant;

    use shuttle::rand::Rng;
    use shuttle::thread;

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    #[derive(Debug)]
    pub(crate) struct MutexGuard<'a, T> {
        mutex: &'a Mutex<T>,
        /// `None` only inside `Condvar::wait`.
        held: Option<shuttle::sync::MutexGuard<'a, T>>,
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            // It does not poison.
            let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            MutexGuard { mutex: self, held: Some(held) }
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            match &self.held {
                Some(held) => held,
                None => unreachable!("held outside `wait`"),
            }
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            match &mut self.held {
                Some(held) => held,
                None => unreachable!("held outside `wait`"),
            }
        }
    }

    /// First come, first woken. A sleeper with a deadline takes a wake-up from the others like any
    /// other, which shuttle's own condition variable does not model.
    #[derive(Debug, Default)]
    pub(crate) struct Condvar(std::sync::Mutex<VecDeque<Arc<Sleeper>>>);

    #[derive(Debug)]
    struct Sleeper {
        thread: thread::Thread,
        woken: AtomicBool,
    }

    impl Condvar {
        fn line(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<Sleeper>>> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub(crate) fn wait<T>(
            &self,
            guard: &mut MutexGuard<'_, T>,
            deadline: Option<Instant>,
        ) -> bool {
            let (thread, woken) = (thread::current(), AtomicBool::new(false));
            let sleeper = Arc::new(Sleeper { thread, woken });
            self.line().push_back(Arc::clone(&sleeper));
            guard.held = None;
            let timed_out = match deadline {
                None => {
                    while !sleeper.woken.load(Ordering::Relaxed) {
                        thread::park();
                    }
                    false
                }
                Some(_) => self.doze(&sleeper),
            };
            guard.held = guard.mutex.lock().held;
            timed_out
        }

        /// Sleeps until woken or until chance ends it; true for the latter.
        fn doze(&self, sleeper: &Arc<Sleeper>) -> bool {
            loop {
                thread::yield_now();
                if sleeper.woken.load(Ordering::Relaxed) {
                    return false;
                }
                if shuttle::rand::thread_rng().gen_bool(0.5) {
                    self.line().retain(|other| !Arc::ptr_eq(other, sleeper));
                    return true;
                }
            }
        }

        pub(crate) fn notify_one(&self) {
            let first = self.line().pop_front();
            first.iter().for_each(|sleeper| sleeper.wake());
        }

        pub(crate) fn notify_all(&self) {
            let all = std::mem::take(&mut *self.line());
            all.iter().for_each(|sleeper| sleeper.wake());
        }
    }

    impl Sleeper {
        fn wake(&self) {
            self.woken.store(true, Ordering::Relaxed);
            self.thread.unpark();
        }
    }
}
