//! Pinned bytes against the cap; it knows neither who pins nor how.

use crate::sync::{AtomicU64, Ordering};

/// How many bytes are pinned, and how many may be.
///
/// Bytes are reserved before they are pinned and released after they are unpinned, so the gauge is
/// never below the truth (I4). A failed unpin keeps its bytes reserved.
#[derive(Debug)]
pub(crate) struct Budget {
    cap: u64,
    /// Reserved bytes. One compare-and-swap per change: a reservation that does not fit leaves no
    /// trace that could refuse another one which does.
    used: AtomicU64,
}

/// There is no room: what was asked for, and what the gauge stood at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full {
    pub(crate) used: u64,
    pub(crate) cap: u64,
}

impl Budget {
    pub(crate) fn new(cap: u64) -> Self {
        Self { cap, used: AtomicU64::new(0) }
    }

    /// Takes `bytes` of room, all or nothing.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<(), Full> {
        if crate::seeded::bug("add-then-check") {
            let used = self.used.fetch_add(bytes, Ordering::AcqRel);
            if used + bytes > self.cap {
                self.used.fetch_sub(bytes, Ordering::AcqRel);
                return Err(Full { used, cap: self.cap });
            }
            return Ok(());
        }
        let mut used = self.used.load(Ordering::Acquire);
        loop {
            let wanted = used.checked_add(bytes).filter(|wanted| *wanted <= self.cap);
            let Some(wanted) = wanted else {
                return Err(Full { used, cap: self.cap });
            };
            match self.used.compare_exchange_weak(used, wanted, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Ok(()),
                Err(now) => used = now,
            }
        }
    }

    /// Whether `bytes` would fit now.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.used().checked_add(bytes).is_some_and(|wanted| wanted <= self.cap)
    }

    /// Gives room back, after the bytes are really unpinned.
    pub(crate) fn release(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::AcqRel);
        debug_assert!(before >= bytes, "released {bytes} of {before} reserved bytes");
    }

    /// Bytes reserved now.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    /// The cap.
    pub(crate) fn cap(&self) -> u64 {
        self.cap
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn room_is_exact_to_the_byte() {
        let budget = Budget::new(100);
        assert_eq!(budget.reserve(100), Ok(()));
        assert_eq!(budget.reserve(1), Err(Full { used: 100, cap: 100 }));
        budget.release(1);
        assert_eq!(budget.reserve(1), Ok(()));
        assert_eq!(budget.used(), 100);
    }

    #[test]
    fn a_sum_past_the_largest_number_is_refused() {
        let budget = Budget::new(u64::MAX);
        assert_eq!(budget.reserve(u64::MAX), Ok(()));
        assert!(budget.reserve(u64::MAX).is_err());
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;

    use super::*;
    use crate::explore::explore;

    /// Three takers of 2 against a cap of 5, one of which gives back: never over, and a refusal
    /// only when the others really hold too much. Add-then-check fails the second half.
    #[test]
    fn never_over_the_cap_and_never_refused_while_room_exists() {
        explore(None, || {
            let budget = Arc::new(Budget::new(4));
            let takers: Vec<_> = [3, 2]
                .into_iter()
                .map(|bytes| {
                    let budget = Arc::clone(&budget);
                    loom::thread::spawn(move || {
                        let got = budget.reserve(bytes).is_ok();
                        assert!(budget.used() <= 4 || crate::seeded::bug("add-then-check"));
                        got
                    })
                })
                .collect();
            // 1 fits beside either of them, whatever they do: 3 + 1 and 2 + 1 are within 4.
            let small = budget.reserve(1).is_ok();
            let got: Vec<bool> =
                takers.into_iter().map(|taker| taker.join().unwrap_or_default()).collect();
            assert!(small, "one byte fits beside any single holder");
            assert!(got.iter().any(|got| *got), "the first to arrive finds room");
            assert!(!(got[0] && got[1]), "both together exceed the cap");
        });
    }

    /// Three of 2 against a cap of 5: two find room, and who is refused was told a gauge at which it was
    /// really full.
    #[test]
    fn of_three_reservers_two_fit() {
        explore(None, || {
            let budget = Arc::new(Budget::new(5));
            let takers: Vec<_> = (0..2)
                .map(|_| {
                    let budget = Arc::clone(&budget);
                    loom::thread::spawn(move || budget.reserve(2))
                })
                .collect();
            let mut got = vec![budget.reserve(2)];
            got.extend(takers.into_iter().filter_map(|taker| taker.join().ok()));
            assert_eq!(got.iter().filter(|got| got.is_ok()).count(), 2);
            assert_eq!(budget.used(), 4);
            for full in got.into_iter().filter_map(Result::err) {
                assert_eq!(full, Full { used: 4, cap: 5 });
            }
        });
    }

    /// Growth meets a trim at a full cap: it is refused only while the trimmed bytes are still counted, and
    /// a reservation by yet another changes neither.
    #[test]
    fn growth_beside_a_trim() {
        explore(None, || {
            let budget = Arc::new(Budget::new(4));
            assert!(budget.reserve(4).is_ok());
            let trim = {
                let budget = Arc::clone(&budget);
                loom::thread::spawn(move || budget.release(2))
            };
            let grower = {
                let budget = Arc::clone(&budget);
                loom::thread::spawn(move || budget.reserve(2))
            };
            let one = budget.reserve(1);
            assert!(budget.used() <= 4);
            assert!(trim.join().is_ok());
            let grown = grower.join().unwrap_or(Err(Full { used: 0, cap: 0 }));
            for full in [one, grown].into_iter().filter_map(Result::err) {
                assert!((3..=4).contains(&full.used), "{full:?}");
            }
            let taken = [(one, 1), (grown, 2)].map(|(got, bytes)| got.map_or(0, |()| bytes));
            assert!(taken != [1, 2], "both together exceed the cap");
            assert_eq!(budget.used(), 2 + taken[0] + taken[1]);
            if taken == [0, 0] {
                assert_eq!(budget.reserve(2), Ok(()), "what was trimmed is there for the next");
            }
        });
    }

    /// Reserve and release from two threads end at zero.
    #[test]
    fn the_gauge_returns_to_zero() {
        explore(None, || {
            let budget = Arc::new(Budget::new(3));
            let other = {
                let budget = Arc::clone(&budget);
                loom::thread::spawn(move || {
                    if budget.reserve(2).is_ok() {
                        budget.release(2);
                    }
                })
            };
            if budget.reserve(2).is_ok() {
                budget.release(2);
            }
            assert!(other.join().is_ok());
            assert_eq!(budget.used(), 0);
        });
    }
}
