//! Runs a source in several threads at once.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use super::Churn;
use crate::BenchError;
use crate::window::{Window, joined};

/// Round trips of `threads` threads together in a second, in `counted` of time, and those that went
/// wrong: with `expected` false it is right to find no buffer.
///
/// # Errors
/// A thread that panicked.
pub fn rate(
    source: &dyn Churn,
    threads: usize,
    counted: Duration,
    expected: bool,
) -> Result<(f64, u64), BenchError> {
    let work = |_| |window: &Window| Ok(source.churn(window, expected));
    Window::run((0..threads).map(work).collect(), counted)
}

/// Runs `count` round trips in each of `threads` threads, released together; returns the time until
/// the last one ends.
///
/// # Errors
/// A thread that panicked; a round trip that went wrong.
pub fn together(
    source: &dyn Churn,
    threads: usize,
    count: u64,
    expected: bool,
) -> Result<Duration, BenchError> {
    let barrier = &Barrier::new(threads);
    let right = if expected { count } else { 0 };
    let work = || {
        source.round_trips(WARM_UP);
        barrier.wait();
        let started = Instant::now();
        let found = source.round_trips(count);
        (started, Instant::now(), found)
    };
    let mut spans = Vec::new();
    thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        started.into_iter().try_for_each(|thread| {
            spans.push(joined(thread)?);
            Ok(())
        })
    })?;
    if let Some((_, _, found)) = spans.iter().find(|(_, _, found)| *found != right) {
        let text = format!("{found} of {count} round trips found a buffer, {right} should");
        return Err(BenchError::Failed(text));
    }
    let first = spans.iter().map(|(started, _, _)| *started).min();
    let last = spans.iter().map(|(_, ended, _)| *ended).max();
    Ok(first.zip(last).map_or(Duration::ZERO, |(first, last)| last - first))
}

/// 1, 2, 4, 8 and 16, as far as there are processors.
pub fn thread_counts() -> Vec<usize> {
    counts_up_to(processors())
}

/// 1, 2, 4 and 8 pairs of threads, as far as there are processors for both; one in any case.
pub fn pair_counts() -> Vec<usize> {
    counts_up_to(processors() / 2).into_iter().filter(|&pairs| pairs <= PAIRS_MAX).collect()
}

/// The processors that this process may use.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn counts_up_to(most: usize) -> Vec<usize> {
    [1, 2, 4, 8, 16].into_iter().filter(|&count| count <= most.max(1)).collect()
}

const PAIRS_MAX: usize = 8;
/// Round trips before any time is taken, so that each thread has found its place.
const WARM_UP: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_end_with_the_processors() {
        assert_eq!(counts_up_to(16), [1, 2, 4, 8, 16]);
        assert_eq!(counts_up_to(12), [1, 2, 4, 8]);
        assert_eq!(counts_up_to(2), [1, 2]);
        // Half of one processor: a pair is measured all the same.
        assert_eq!(counts_up_to(0), [1]);
    }
}
