//! Threads that work together for a while: what they did in the middle of it counts.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
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
        let arrived = &AtomicUsize::new(0);
        thread::scope(|scope| {
            let start = |work: W| {
                scope.spawn(move || {
                    arrived.fetch_add(1, Ordering::Relaxed);
                    work(window)
                })
            };
            let started: Vec<_> = works.into_iter().map(start).collect();
            // A thread that comes late must not find that all is over.
            while arrived.load(Ordering::Relaxed) < started.len() {
                thread::yield_now();
            }
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn what_all_threads_do_in_the_window_is_added_up_and_all_they_miss() {
        let counted = Duration::from_millis(100);
        let work = |_| {
            |window: &Window| {
                let mut counted = false;
                while let Some(counts) = window.counts() {
                    counted |= counts;
                    thread::yield_now();
                }
                Ok(Tally { done: u64::from(counted), missed: 7 })
            }
        };
        let (rate, missed) = Window::run((0..3).map(work).collect(), counted).unwrap();
        assert!(rate > 0.0 && rate <= 3.0 / counted.as_secs_f64(), "{rate}");
        assert_eq!(missed, 21);
    }

    #[test]
    fn a_thread_that_fails_or_panics_fails_the_run() {
        type Work = fn(&Window) -> Result<Tally, BenchError>;
        let run = |work: Work| Window::run(vec![work], Duration::from_millis(1)).unwrap_err();
        let fails: Work = |_| Err(BenchError::Failed("no buffer".to_owned()));
        assert_eq!(run(fails).to_string(), "no buffer");
        #[allow(clippy::panic, reason = "what is tested")]
        let panics: Work = |_| panic!("on purpose");
        assert_eq!(run(panics).to_string(), "a thread panicked");
    }
}
