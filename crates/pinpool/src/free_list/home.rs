//! Numbers of threads. No two living threads have the same one, so that what belongs to a number has
//! one owner at a time.

/// The calling thread's number: it chooses the thread's home shard and its desk in every list. Low
/// numbers are given first and given again when their thread has ended. Those from [`NUMBERS`] on are
/// shared: of threads that came when all others were taken, and of threads that are ending.
#[inline]
pub(crate) fn home() -> u32 {
    imp::home()
}

/// As [`home`], if the thread has asked before; else a number that no desk has.
#[inline]
pub(super) fn known_home() -> u32 {
    imp::known_home()
}

/// Makes the calling thread stand for the one with this number.
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) fn set_home(number: u32) {
    imp::set_home(number);
}

/// How many threads at a time have numbers of their own.
pub(super) const NUMBERS: u32 = 256;

#[cfg(not(any(loom, shuttle)))]
mod imp {
    use std::cell::Cell;

    use super::NUMBERS;
    use crate::sync::plain::{AtomicU32, AtomicU64, Ordering};

    std::thread_local! {
        // Has no destructor, so it still answers while other thread-locals are torn down (I7).
        static HOME: Cell<u32> = const { Cell::new(UNKNOWN) };
        static LEAVING: Leaving = const { Leaving };
    }

    /// Gives the thread's number back when the thread ends. If it never runs, a number is lost and
    /// nothing else: the slots of its desks stay for everybody to take.
    struct Leaving;

    impl Drop for Leaving {
        fn drop(&mut self) {
            // From here on the thread has a shared number: the next owner of its own may be there.
            release(HOME.replace(shared_number()));
        }
    }

    #[inline]
    pub(super) fn home() -> u32 {
        match HOME.get() {
            UNKNOWN => claim(),
            number => number,
        }
    }

    #[inline]
    pub(super) fn known_home() -> u32 {
        HOME.get()
    }

    #[cfg(test)]
    pub(super) fn set_home(number: u32) {
        HOME.set(number);
    }

    #[cold]
    #[inline(never)]
    fn claim() -> u32 {
        // Only who will be there to give it back gets a number.
        let stays = LEAVING.try_with(|_| ()).is_ok();
        let number = if stays { own_number() } else { None };
        let number = number.unwrap_or_else(shared_number);
        HOME.set(number);
        number
    }

    /// The numbers that are taken, as bits. `AcqRel` on both sides: what an owner of a number did comes
    /// before what the next one does.
    static TAKEN: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

    fn own_number() -> Option<u32> {
        for (word, first) in TAKEN.iter().zip((0u32..).step_by(64)) {
            let lowest_free = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
            let taken = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, lowest_free);
            if let Ok(before) = taken {
                return Some(first + before.trailing_ones());
            }
        }
        None
    }

    fn release(number: u32) {
        if let Some(word) = TAKEN.get(number as usize / 64) {
            word.fetch_and(!(1 << (number % 64)), Ordering::AcqRel);
        }
    }

    /// In turn, so that such threads spread over the shards.
    fn shared_number() -> u32 {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        NUMBERS + NEXT.fetch_add(1, Ordering::Relaxed) % SHARED
    }

    const UNKNOWN: u32 = u32::MAX;
    const SHARED: u32 = 1 << 16;
    const WORDS: usize = NUMBERS as usize / 64;

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn living_threads_have_numbers_of_their_own() {
            // More than a word of bits holds.
            const THREADS: usize = 100;
            let numbers = std::sync::Mutex::new(Vec::new());
            let barrier = std::sync::Barrier::new(THREADS);
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        numbers.lock().unwrap().push(home());
                        barrier.wait();
                    });
                }
            });
            let mut numbers = numbers.into_inner().unwrap();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), THREADS);
        }

        /// More threads than numbers, one after the other: none is lost.
        #[test]
        fn a_number_is_given_again() {
            for _ in 0..2 * NUMBERS {
                let number = std::thread::spawn(home).join().unwrap();
                assert!(number < NUMBERS, "the number {number} is shared");
            }
        }

        /// A thread that is ending asks from a destructor that comes after the number was given back.
        #[test]
        fn a_thread_that_ends_shares_a_number() {
            std::thread_local! {
                static LATE: Late = const { Late };
            }
            struct Late;
            impl Drop for Late {
                fn drop(&mut self) {
                    ASKED.store(home(), Ordering::Relaxed);
                }
            }
            static ASKED: AtomicU32 = AtomicU32::new(0);
            // Destructors run in the reverse order of first use, or in this one: both are tried.
            let early = std::thread::spawn(|| {
                LATE.with(|_| ());
                home()
            });
            assert!(early.join().unwrap() < NUMBERS);
            let first = ASKED.load(Ordering::Relaxed);
            let late = std::thread::spawn(|| {
                let number = home();
                LATE.with(|_| ());
                number
            });
            assert!(late.join().unwrap() < NUMBERS);
            let second = ASKED.load(Ordering::Relaxed);
            let shared = [first, second].into_iter().filter(|number| *number >= NUMBERS).count();
            assert!(shared >= 1, "{first} and {second}");
        }
    }
}

/// The threads of a model are not the system's. They are numbered as the model numbers them.
#[cfg(any(loom, shuttle))]
mod imp {
    pub(super) fn known_home() -> u32 {
        home()
    }

    #[allow(clippy::cast_possible_truncation, reason = "a model has few threads")]
    pub(super) fn home() -> u32 {
        #[cfg(shuttle)]
        return crate::sync::task_number() as u32;
        #[cfg(not(shuttle))]
        {
            // Models of desks name the home themselves; others need none of their own.
            use crate::sync::plain::{AtomicU32, Ordering};
            static NEXT: AtomicU32 = AtomicU32::new(0);
            std::thread_local! {
                static HOME: std::cell::Cell<u32> = const { std::cell::Cell::new(u32::MAX) };
            }
            HOME.with(|home| {
                if home.get() == u32::MAX {
                    home.set(super::NUMBERS + NEXT.fetch_add(1, Ordering::Relaxed));
                }
                home.get()
            })
        }
    }
}
