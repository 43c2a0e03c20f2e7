//! Times of single operations: percentiles, rounds that interleave rivals, medians.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::BenchError;

/// The times of one rival's operations over a whole run.
#[derive(Debug)]
pub struct Times {
    histogram: Histogram<u64>,
    busy: Duration,
    longest: Duration,
}

impl Times {
    /// An empty record, exact to three digits up to an hour.
    ///
    /// # Errors
    /// Only if the histogram refuses its constant bounds.
    pub fn new() -> Result<Self, BenchError> {
        let histogram = Histogram::new_with_bounds(1, HOUR_NS, 3)
            .map_err(|cause| BenchError::failed("creating a histogram", cause))?;
        Ok(Self { histogram, busy: Duration::ZERO, longest: Duration::ZERO })
    }

    /// Adds one operation.
    pub fn record(&mut self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(ns.max(1));
        self.busy += took;
        self.longest = self.longest.max(took);
    }

    /// Adds all operations of another record.
    ///
    /// # Errors
    /// Only if the histograms had different bounds.
    pub fn merge(&mut self, other: &Self) -> Result<(), BenchError> {
        self.histogram
            .add(&other.histogram)
            .map_err(|cause| BenchError::failed("adding up histograms", cause))?;
        self.busy += other.busy;
        self.longest = self.longest.max(other.longest);
        Ok(())
    }

    /// Operations recorded.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The time spent in the operations, without what lay between them.
    pub fn busy(&self) -> Duration {
        self.busy
    }

    /// Operations per second of busy time.
    pub fn per_second(&self) -> f64 {
        per_second(self.count(), self.busy)
    }

    /// The quantile `q` (0 to 1) in microseconds.
    pub fn quantile_us(&self, q: f64) -> f64 {
        // A bucket's upper bound may lie above the longest time that was seen.
        let ns = self.histogram.value_at_quantile(q) as f64;
        (ns / NS_PER_US).min(self.max_us())
    }

    /// The longest operation in microseconds, exactly.
    pub fn max_us(&self) -> f64 {
        self.longest.as_secs_f64() * 1e6
    }
}

/// How a figure moves from round to round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// The middle one.
    pub median: f64,
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

impl Range {
    /// Of these values; zeros where there are none.
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let end = |value: Option<&f64>| significant(value.copied().unwrap_or(0.0));
        Self {
            median: significant(median(values)),
            low: end(sorted.first()),
            high: end(sorted.last()),
        }
    }

    /// Of `ours / theirs`, round by round.
    pub fn of_ratios(ours: &[f64], theirs: &[f64]) -> Self {
        let pairs = ours.iter().zip(theirs).filter(|(_, theirs)| **theirs > 0.0);
        Self::of(&pairs.map(|(ours, theirs)| ours / theirs).collect::<Vec<_>>())
    }
}

/// Counts rounds done, of all parts of a scenario.
pub(crate) struct Progress<'a> {
    done: u64,
    total: u64,
    tell: &'a mut dyn FnMut(u64, u64),
}

impl<'a> Progress<'a> {
    pub(crate) fn new(total: u64, tell: &'a mut dyn FnMut(u64, u64)) -> Self {
        Self { done: 0, total, tell }
    }

    pub(crate) fn step(&mut self) {
        self.done += 1;
        (self.tell)(self.done, self.total);
    }
}

/// Operations per second; zero where no time passed.
pub fn per_second(count: u64, busy: Duration) -> f64 {
    let seconds = busy.as_secs_f64();
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// Cuts `total` operations into rounds of about [`ROUND_LENGTH`], and into three at least where
/// there are three, so that a median over rounds means something.
pub fn rounds_of(total: u64) -> Vec<u64> {
    let rounds = total.div_ceil(ROUND_LENGTH).max(total.min(3));
    let Some(each) = total.checked_div(rounds) else { return Vec::new() };
    let longer = total % rounds;
    (0..rounds).map(|round| each + u64::from(round < longer)).collect()
}

/// The order in which `rivals` run in one round: the first one rotates, and every other round
/// runs backwards, so that no rival always follows the same neighbour.
pub fn order(round: usize, rivals: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rivals).map(|i| (i + round / 2) % rivals).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// The middle value, or the mean of the two middle ones; zero for no values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match (sorted.len() % 2, half.checked_sub(1)) {
        (1, _) => sorted[half],
        (_, Some(below)) => f64::midpoint(sorted[below], sorted[half]),
        (_, None) => 0.0,
    }
}

/// The median of `ours / theirs`, pair by pair: what one round's noise did to both cancels out.
pub fn median_ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    let ratios: Vec<f64> = ours
        .iter()
        .zip(theirs)
        .filter(|(_, theirs)| **theirs > 0.0)
        .map(|(ours, theirs)| ours / theirs)
        .collect();
    median(&ratios)
}

/// Cuts noise off for a result file: three decimals say more than any run can repeat.
pub fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// The same for what may be far smaller than one: never less than three significant digits.
pub fn significant(value: f64) -> f64 {
    let scale = scale(value);
    (value * scale).round() / scale
}

/// One in the last digit that [`significant`] leaves of a value of this size.
pub(crate) fn last_digit(value: f64) -> f64 {
    1.0 / scale(value)
}

/// What makes a whole number of the digits that are kept.
fn scale(value: f64) -> f64 {
    let size = value.abs();
    if !(1e-15..1.0).contains(&size) {
        return 1e3;
    }
    // Powers of ten up to this size are exact, so that the digits are those that are meant.
    let power = (1..18).map(|power| 10f64.powi(power)).find(|power| size * power >= 1.0);
    power.unwrap_or(1.0) * 1e2
}

/// Operations in a round: long enough to be past the first-touch effects of the change of rival,
/// short enough that slow drift of the machine hits all rivals alike.
pub const ROUND_LENGTH: u64 = 25;
const HOUR_NS: u64 = 3_600_000_000_000;
const NS_PER_US: f64 = 1e3;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn rounds_add_up_and_are_three_at_least() {
        for total in [1, 2, 3, 4, 24, 75, 76, 100, 299, 300, 301, 100_000] {
            let rounds = rounds_of(total);
            assert_eq!(rounds.iter().sum::<u64>(), total);
            assert!(rounds.len() as u64 >= total.min(3), "{total}: {rounds:?}");
            assert!(rounds.iter().all(|&n| (1..=ROUND_LENGTH).contains(&n)), "{total}: {rounds:?}");
        }
        assert_eq!(rounds_of(300), vec![25; 12]);
        assert_eq!(rounds_of(0), Vec::<u64>::new());
    }

    #[test]
    fn every_round_runs_every_rival_once_and_each_rival_starts_sometimes() {
        let mut firsts = Vec::new();
        for round in 0..8 {
            let mut order = order(round, 4);
            firsts.push(order[0]);
            order.sort_unstable();
            assert_eq!(order, [0, 1, 2, 3]);
        }
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts, [0, 1, 2, 3]);
    }

    #[test]
    fn medians_and_paired_ratios() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
        // The second round was disturbed for both: the ratio is not.
        assert_eq!(median_ratio(&[40.0, 4.0, 44.0], &[10.0, 1.0, 10.0]), 4.0);
        assert_eq!(median_ratio(&[1.0], &[0.0]), 0.0);
        assert_eq!(rounded(5.862_764_999), 5.863);
    }

    #[test]
    fn ratios_are_of_one_round() {
        assert_eq!(Range::of(&[]), Range::default());
        assert_eq!(Range::of(&[3.0, 1.0, 2.0]), Range { median: 2.0, low: 1.0, high: 3.0 });
        // The second round was disturbed for both: the ratio is not.
        let range = Range::of_ratios(&[40.0, 4.0, 44.0], &[10.0, 1.0, 10.0]);
        assert_eq!(range, Range { median: 4.0, low: 4.0, high: 4.4 });
        assert_eq!(Range::of_ratios(&[1.0], &[0.0]), Range::default());
    }

    #[test]
    fn times_report_busy_time_percentiles_and_the_exact_maximum() {
        let mut times = Times::new().unwrap();
        for ms in 1..=100 {
            times.record(Duration::from_millis(ms));
        }
        assert_eq!(times.count(), 100);
        assert_eq!(times.busy(), Duration::from_millis(5050));
        assert_eq!(times.max_us(), 100_000.0);
        assert!((times.quantile_us(0.5) - 50_000.0).abs() < 100.0, "{}", times.quantile_us(0.5));
        assert!((times.quantile_us(0.99) - 99_000.0).abs() < 200.0);
        assert!(times.quantile_us(1.0) <= times.max_us());
        assert!((times.per_second() - 100.0 / 5.05).abs() < 1e-9);

        let mut other = Times::new().unwrap();
        other.record(Duration::from_millis(300));
        times.merge(&other).unwrap();
        assert_eq!((times.count(), times.max_us()), (101, 300_000.0));
        assert_eq!(times.busy(), Duration::from_millis(5350));
    }

    #[test]
    fn what_is_far_below_one_keeps_three_digits() {
        let written = |value: f64| significant(value).to_string();
        assert_eq!(written(0.000_123_456), "0.000123");
        assert_eq!(written(0.000_999_6), "0.001");
        assert_eq!(written(0.017_06), "0.0171");
        assert_eq!(written(0.999_96), "1");
        assert_eq!(written(-0.004_567_8), "-0.00457");
        assert_eq!((written(12.345_67), written(0.0)), ("12.346".into(), "0".into()));
        assert!(significant(f64::INFINITY).is_infinite());
    }
}
