//! Threads that work together for a while: what they did in the middle of it counts.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::BenchError;

/// Whether what the threads do counts, which they ask between a few operations.
#[derive(Debug)]
pub struct Window(AtomicU8);

/// What a thread did, or all of them together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations that went as they should.
    pub done: u64,
    /// Those that did not.
    pub missed: u64,
}

impl Window {
    /// Runs each of `works` in a thread until they counted for `counted`. Returns what was done in that
    /// time in a second, and what was missed in all.
    ///
    /// # Errors
    /// The first of a thread; a thread that panicked.
    pub fn run<W>(works: Vec<W>, counted: Duration) -> Result<(f64, u64), BenchError>
    where
        W: FnOnce(&Self) -> Result<Tally, BenchError> + Send,
    {
        let window = &Self(AtomicU8::new(WARMING_UP));
        thread::scope(|scope| {
            let start = |work: W| scope.spawn(move || work(window));
            let started: Vec<_> = works.into_iter().map(start).collect();
            thread::sleep(counted / 4);
            window.0.store(COUNTING, Ordering::Relaxed);
            let from = Instant::now();
            thread::sleep(counted);
            window.0.store(OVER, Ordering::Relaxed);
            let took = from.elapsed();
            let mut all = Tally::default();
            for thread in started {
                let tally = joined(thread)??;
                all.done += tally.done;
                all.missed += tally.missed;
            }
            Ok((all.done as f64 / took.as_secs_f64(), all.missed))
        })
    }

    /// One in which everything counts, for work that ends by itself.
    pub(crate) fn open() -> Self {
        Self(AtomicU8::new(COUNTING))
    }

    /// Whether the next operations count; `None` when it is time to stop.
    #[inline]
    pub fn counts(&self) -> Option<bool> {
        match self.0.load(Ordering::Relaxed) {
            OVER => None,
            phase => Some(phase == COUNTING),
        }
    }
}

/// What a thread came to.
///
/// # Errors
/// It panicked.
pub fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> Result<T, BenchError> {
    thread.join().map_err(|_| BenchError::Failed("a thread panicked".to_owned()))
}

const WARMING_UP: u8 = 0;
const COUNTING: u8 = 1;
const OVER: u8 = 2;
