//! Taking a buffer and giving it back, by where it comes from: the pool and what is used in its place.
//! The report of `bench lease` and the Criterion targets run these same sources.

mod allocators;
mod handoff;
mod leases;
mod pools;
mod queues;
pub mod run;

use std::hint::black_box;

use crate::BenchError;
use crate::stamp::{self, Ticks};
use crate::window::{Tally, Window};

pub use allocators::{Malloc, Mimalloc};
pub use handoff::Handoff;
pub use leases::{Exhausted, Leases, Retired};
pub use pools::{Deadpool, Linear, Opool, Sharded};
pub use queues::{Integers, Messages, MutexVec, Queue};

/// Something that buffers are taken from and given back to, by many threads.
pub trait Source: Send + Sync + 'static {
    /// A buffer, which goes back when it is dropped.
    type Held<'a>;

    /// Takes a buffer, if one is free.
    fn take(&self) -> Option<Self::Held<'_>>;

    /// Where the buffer lies, so that there must be one.
    fn address(held: &Self::Held<'_>) -> *const u8;
}

/// A [`Source`] at work, without its types: one indirect call for many operations.
pub trait Churn: Send + Sync {
    /// Takes and gives back `count` times; returns how often there was a buffer.
    fn round_trips(&self, count: u64) -> u64;

    /// As [`Self::round_trips`], each timed from before the taking to behind the giving back.
    fn timed(&self, count: u64, times: &mut Ticks);

    /// Goes on until the window closes. With `expected` false, it is right to find none.
    fn churn(&self, window: &Window, expected: bool) -> Tally {
        let mut tally = Tally::default();
        while let Some(counts) = window.counts() {
            let found = self.round_trips(IN_A_ROW);
            let right = if expected { found } else { IN_A_ROW - found };
            tally.missed += IN_A_ROW - right;
            if counts {
                tally.done += right;
            }
        }
        tally
    }
}

impl<S: Source> Churn for S {
    fn round_trips(&self, count: u64) -> u64 {
        let mut found = 0;
        for _ in 0..count {
            if let Some(held) = self.take() {
                black_box(S::address(&held));
                found += 1;
            }
        }
        found
    }

    fn timed(&self, count: u64, times: &mut Ticks) {
        for _ in 0..count {
            let began = stamp::start();
            if let Some(held) = self.take() {
                black_box(S::address(&held));
            }
            times.record(stamp::end() - began);
        }
    }
}

/// A source, and what a reader must know to compare it.
pub struct Side {
    /// Its name in results.
    pub name: &'static str,
    /// Whether it finds the right buffers for a size: most are of one size only.
    pub has_classes: bool,
    /// Whether there are as many buffers as were asked for and no more.
    pub is_bounded: bool,
    /// It.
    pub source: Box<dyn Churn>,
}

impl Side {
    /// What people write or use in the place of a pool, with `slots` buffers each, where they have a
    /// number.
    pub fn rivals(slots: usize) -> Vec<Self> {
        vec![
            Self::of_one_size(MUTEX_VEC, MutexVec::new(slots)),
            Self::of_one_size(ARRAY_QUEUE, Queue::new(slots)),
            Self::of_one_size(DEADPOOL, Deadpool::new(slots)),
            // These make another one when all are out.
            Self { is_bounded: false, ..Self::of_one_size(OPOOL, Opool::new(slots)) },
            Self { is_bounded: false, ..Self::of_one_size(LINEAR, Linear::new()) },
            Self { is_bounded: false, ..Self::of_one_size(SHARDED_SLAB, Sharded::new()) },
            Self::allocator(MIMALLOC_SMALL, Mimalloc(SMALL_BYTES)),
            Self::allocator(MIMALLOC_FRAME, Mimalloc(FRAME_BYTES)),
            Self::allocator(MALLOC_SMALL, Malloc(SMALL_BYTES)),
            Self::allocator(MALLOC_FRAME, Malloc(FRAME_BYTES)),
        ]
    }

    /// Those that have an end, at it.
    pub fn exhausted_rivals() -> Vec<Self> {
        vec![
            Self::of_one_size(MUTEX_VEC, MutexVec::new(0)),
            Self::of_one_size(ARRAY_QUEUE, Queue::empty()),
            Self::of_one_size(DEADPOOL, Deadpool::new(0)),
        ]
    }

    /// The pool's.
    pub fn leases(leases: Leases) -> Self {
        Self { has_classes: true, ..Self::of_one_size(PINPOOL, leases) }
    }

    /// The pool's that wait for a fence.
    pub fn retired(retired: Retired) -> Self {
        Self { has_classes: true, ..Self::of_one_size(RETIRED, retired) }
    }

    /// The pool's that is empty.
    pub fn exhausted(exhausted: Exhausted) -> Self {
        Self { has_classes: true, ..Self::of_one_size(PINPOOL, exhausted) }
    }

    fn of_one_size(name: &'static str, source: impl Source) -> Self {
        Self { name, has_classes: false, is_bounded: true, source: Box::new(source) }
    }

    fn allocator(name: &'static str, source: impl Source) -> Self {
        Self { name, has_classes: true, is_bounded: false, source: Box::new(source) }
    }
}

/// What goes from thread to thread.
pub struct Goods {
    /// Its name in results.
    pub name: &'static str,
    /// Where it comes from.
    pub source: Box<dyn Handoff>,
}

impl Goods {
    /// The pool's leases, what people use in their place, and messages with nothing behind them: enough
    /// of each for `pairs` pairs.
    ///
    /// # Errors
    /// A pool that does not open.
    pub fn all(pairs: usize) -> Result<Vec<Self>, BenchError> {
        // A full channel, and what the two threads and the caches between them hold.
        let slots = (32 * pairs).max(SLOTS);
        let goods = |name, source| Self { name, source };
        Ok(vec![
            goods(PINPOOL, Box::new(Leases::open(slots, 1)?)),
            goods(INTEGERS, Box::new(Integers)),
            goods(MESSAGES, Box::new(Messages)),
            goods(MUTEX_VEC, Box::new(MutexVec::new(slots))),
            goods(ARRAY_QUEUE, Box::new(Queue::new(slots))),
            goods(MIMALLOC_SMALL, Box::new(Mimalloc(SMALL_BYTES))),
        ])
    }
}

impl std::fmt::Debug for Goods {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Goods").field("name", &self.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Side").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The pool's leases.
pub const PINPOOL: &str = "pinpool";
/// The same, dropped with a fence that is complete.
pub const RETIRED: &str = "pinpool, after a fence";
/// A vector of buffers behind a `parking_lot` mutex.
pub const MUTEX_VEC: &str = "mutex-vec";
/// crossbeam's bounded queue of buffers.
pub const ARRAY_QUEUE: &str = "array-queue";
/// deadpool, unmanaged.
pub const DEADPOOL: &str = "deadpool";
/// opool.
pub const OPOOL: &str = "opool";
/// lockfree-object-pool, the linear one.
pub const LINEAR: &str = "lockfree-object-pool";
/// sharded-slab.
pub const SHARDED_SLAB: &str = "sharded-slab";
/// mimalloc, 64 bytes.
pub const MIMALLOC_SMALL: &str = "mimalloc-64B";
/// mimalloc, a frame.
pub const MIMALLOC_FRAME: &str = "mimalloc-frame";
/// The C library's allocator, 64 bytes.
pub const MALLOC_SMALL: &str = "malloc-64B";
/// The C library's allocator, a frame.
pub const MALLOC_FRAME: &str = "malloc-frame";
/// Plain integers, beside what goes through the same channel.
pub const INTEGERS: &str = "integers";
/// Plain messages of a lease's size, through the same channel.
pub const MESSAGES: &str = "messages-32B";

/// Slots of a pool for the main figures: four for each of 16 threads.
pub const SLOTS: usize = 64;
/// What rivals that cost memory per buffer hold: nobody writes to it.
const BUFFER_BYTES: usize = 64;
/// A small allocation.
pub const SMALL_BYTES: usize = 64;
/// A frame of 1080p RGB.
pub const FRAME_BYTES: usize = 1920 * 1080 * 3;
/// Operations between two looks at the window.
pub(crate) const IN_A_ROW: u64 = 64;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;

    /// Every source gives out buffers, gives them out again, and those that have a bound keep to it:
    /// what is measured is what it says.
    #[test]
    fn sources_give_what_they_say() {
        fn held_at_once<S: Source>(source: &S, most: usize) -> usize {
            let held: Vec<_> = (0..most).map_while(|_| source.take()).collect();
            let places: HashSet<_> = held.iter().map(S::address).collect();
            assert!(!places.contains(&std::ptr::null()));
            assert_eq!(places.len(), held.len(), "one buffer has two owners");
            held.len()
        }
        for _ in 0..2 {
            assert_eq!(held_at_once(&Leases::open(3, 12).unwrap(), 5), 3);
            assert_eq!(held_at_once(&Retired::open(3).unwrap(), 3), 3);
            assert_eq!(held_at_once(&MutexVec::new(3), 5), 3);
            assert_eq!(held_at_once(&Queue::new(3), 5), 3);
            assert_eq!(held_at_once(&Deadpool::new(3), 5), 3);
            assert_eq!(held_at_once(&Opool::new(3), 5), 5);
            assert_eq!(held_at_once(&Linear::new(), 5), 5);
            assert_eq!(held_at_once(&Sharded::new(), 5), 5);
            assert_eq!(held_at_once(&Mimalloc(SMALL_BYTES), 5), 5);
            assert_eq!(held_at_once(&Malloc(FRAME_BYTES), 5), 5);
        }
        for side in Side::rivals(2) {
            // A source that lost what it took back would soon have none.
            assert_eq!(side.source.round_trips(10_000), 10_000, "{}", side.name);
        }
        assert_eq!(Retired::open(2).unwrap().round_trips(10_000), 10_000);
    }

    #[test]
    fn exhausted_sources_have_none() {
        for side in Side::exhausted_rivals() {
            assert_eq!(side.source.round_trips(100), 0, "{}", side.name);
        }
        assert_eq!(Exhausted::open().unwrap().round_trips(100), 0);
    }

    #[test]
    fn whoever_misses_is_counted() {
        let short = Duration::from_millis(50);
        let missed =
            |source: &dyn Churn, expected| run::rate(source, 2, short, expected).unwrap().1;
        assert_eq!(missed(&Malloc(SMALL_BYTES), true), 0);
        assert!(missed(&Malloc(SMALL_BYTES), false) > 0);
        assert!(missed(&Queue::empty(), true) > 0);
        assert!(run::together(&Queue::empty(), 2, 10, true).is_err());
        assert!(run::together(&Queue::empty(), 2, 10, false).is_ok());
    }

    /// What goes through the channels comes back to its pool: with two slots more could not pass.
    #[test]
    fn what_is_handed_over_comes_home() {
        let leases = Leases::open(2, 1).unwrap();
        leases.together(1, 1000).unwrap();
        assert_eq!(leases.take_all().len(), 2);
        let (rate, _) = leases.rate(2, Duration::from_millis(100)).unwrap();
        assert!(rate > 0.0);
        assert_eq!(leases.take_all().len(), 2);
        assert!(Integers.rate(1, Duration::from_millis(100)).unwrap().0 > 0.0);
        assert!(Messages.rate(1, Duration::from_millis(100)).unwrap().0 > 0.0);
    }
}
