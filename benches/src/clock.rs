//! What timing itself costs, and whether times that were taken say anything.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::timing;

/// What two readings of the clock in a row are apart; it is taken off every time of one call.
pub(crate) fn cost() -> Duration {
    let apart = |_| {
        let started = Instant::now();
        black_box(started.elapsed()).as_secs_f64()
    };
    let times: Vec<f64> = (0..READINGS).map(apart).collect();
    Duration::from_secs_f64(timing::median(&times))
}

/// Whether the middle half of these values spreads over more than half of their median: such a
/// figure says little.
pub(crate) fn is_unsteady(values: &[f64]) -> bool {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |quarter: usize| sorted.get((sorted.len().saturating_sub(1)) * quarter / 4).copied();
    match (at(1), at(3)) {
        (Some(low), Some(high)) => high - low > UNSTEADY * timing::median(&sorted),
        _ => false,
    }
}

const READINGS: usize = 1001;
const UNSTEADY: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_the_clock_takes_less_than_a_millisecond() {
        assert!(cost() < Duration::from_millis(1));
    }

    #[test]
    fn a_figure_is_unsteady_where_its_middle_half_is_wide() {
        assert!(!is_unsteady(&[]) && !is_unsteady(&[1.0]));
        // One outlier says nothing of the others.
        assert!(!is_unsteady(&[1.0, 1.1, 1.0, 1.2, 9.0]));
        assert!(is_unsteady(&[1.0, 2.0, 1.0, 2.0, 1.0, 2.0]));
    }
}
