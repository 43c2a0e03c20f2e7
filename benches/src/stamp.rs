//! Times of a few nanoseconds: stamps of the processor's own counter, and what they cost themselves.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::BenchError;

/// How long a tick is, and how many lie between two stamps with nothing between them.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    ns_per_tick: f64,
    overhead: u64,
}

impl Clock {
    /// Measures this machine's.
    ///
    /// # Errors
    /// Only if the histogram refuses its constant bounds.
    pub fn measure() -> Result<Self, BenchError> {
        let (from, first) = (Instant::now(), start());
        let mut empty = Ticks::new()?;
        let mut last = first;
        while from.elapsed() < CALIBRATES {
            for _ in 0..PAIRS_IN_A_ROW {
                let began = start();
                last = end();
                empty.record(last.wrapping_sub(began));
            }
        }
        let took = from.elapsed().as_secs_f64() * 1e9;
        let ticks = last.wrapping_sub(first).max(1);
        Ok(Self { ns_per_tick: took / ticks as f64, overhead: empty.0.value_at_quantile(0.5) })
    }

    /// What two stamps cost, which is taken off each time.
    pub fn overhead_ns(&self) -> f64 {
        self.overhead as f64 * self.ns_per_tick
    }

    /// The quantile `q` (0 to 1) of such times, without the stamps' own.
    pub fn quantile_ns(&self, times: &Ticks, q: f64) -> f64 {
        times.0.value_at_quantile(q).saturating_sub(self.overhead) as f64 * self.ns_per_tick
    }
}

/// Ticks between pairs of stamps, those of the stamps among them.
#[derive(Debug)]
pub struct Ticks(Histogram<u64>);

impl Ticks {
    /// An empty record, exact to three digits.
    ///
    /// # Errors
    /// Only if the histogram refuses its constant bounds.
    pub fn new() -> Result<Self, BenchError> {
        let histogram = Histogram::new_with_bounds(1, TICKS_MAX, 3);
        histogram.map(Self).map_err(|cause| BenchError::failed("creating a histogram", cause))
    }

    /// Adds the ticks of one operation.
    #[inline]
    pub fn record(&mut self, ticks: u64) {
        self.0.saturating_record(ticks.max(1));
    }

    /// Adds all of another record.
    ///
    /// # Errors
    /// Only if the histograms had different bounds.
    pub fn merge(&mut self, other: &Self) -> Result<(), BenchError> {
        self.0.add(&other.0).map_err(|cause| BenchError::failed("adding up histograms", cause))
    }

    /// Operations recorded.
    pub fn count(&self) -> u64 {
        self.0.len()
    }
}

/// A stamp before an operation: what came before it in the program is over.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[allow(clippy::inline_always, reason = "a call would be part of what is measured")]
pub fn start() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: every processor of this architecture has both instructions.
    unsafe { _mm_lfence() };
    // SAFETY: as above.
    let now = unsafe { _rdtsc() };
    // SAFETY: as above.
    unsafe { _mm_lfence() };
    now
}

/// A stamp behind an operation: it is over.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[allow(clippy::inline_always, reason = "a call would be part of what is measured")]
pub fn end() -> u64 {
    start()
}

/// A stamp before an operation.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn start() -> u64 {
    use std::sync::OnceLock;
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let since = FIRST.get_or_init(Instant::now).elapsed();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A stamp behind an operation.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn end() -> u64 {
    start()
}

const CALIBRATES: Duration = Duration::from_millis(100);
const PAIRS_IN_A_ROW: usize = 1000;
/// Some minutes.
const TICKS_MAX: u64 = 1 << 40;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_the_time_that_passed_without_the_stamps() {
        let clock = Clock { ns_per_tick: 0.5, overhead: 40 };
        let mut times = Ticks::new().unwrap();
        for ticks in [30, 60, 1040] {
            times.record(ticks);
        }
        let quantile = |q| clock.quantile_ns(&times, q);
        assert!((quantile(0.6) - 10.0).abs() < 1e-9, "{}", quantile(0.6));
        assert!((quantile(1.0) - 500.0).abs() < 1.0, "{}", quantile(1.0));
        // Less than the stamps cost is nothing.
        assert!(quantile(0.1).abs() < 1e-9);
        assert!((clock.overhead_ns() - 20.0).abs() < 1e-9);
    }

    #[test]
    fn this_machines_clock_runs_as_fast_as_the_systems() {
        let clock = Clock::measure().unwrap();
        let (from, began) = (Instant::now(), start());
        std::thread::sleep(Duration::from_millis(20));
        let ticks = end() - began;
        let took = from.elapsed().as_secs_f64() * 1e9;
        let measured = ticks as f64 * clock.ns_per_tick;
        // No bar of speed: whatever happens between the readings falls into both.
        assert!(measured > 0.0 && took / measured > 0.5, "{measured} ns of {took} ns");
    }
}
