//! What the parts of the scenario `lease` come to.

use super::pytorch::PyTorch;
use super::report::{GrowthRow, HALF_OUT, LEASE_AND_DROP, LeaseRatios, RateRow};
use crate::churn::{ARRAY_QUEUE, INTEGERS, MIMALLOC_SMALL, MUTEX_VEC, PINPOOL};
use crate::timing::{median_ratio, rounded};

/// The row of one source with so many threads, or pairs.
pub(super) fn find<'a>(rows: &'a [RateRow], source: &str, threads: u64) -> Option<&'a RateRow> {
    rows.iter().find(|row| (row.source.as_str(), row.threads) == (source, threads))
}

impl LeaseRatios {
    /// `most` is the largest number of threads.
    pub(super) fn of(
        threads: &[RateRow],
        handoff: &[RateRow],
        growth: &[GrowthRow],
        most: u64,
        pytorch: Option<&PyTorch>,
    ) -> Self {
        let theirs = |threads| pytorch.and_then(|theirs| theirs.row(threads));
        let ours = |of| find(threads, PINPOOL, of);
        // A time over a time is a rate the other way round.
        let time_over = |rival| over(find(threads, rival, 1), ours(1));
        let integers = |pairs| over(find(handoff, PINPOOL, pairs), find(handoff, INTEGERS, pairs));
        let grown = |case, of| growth_of(growth, case, of);
        Self {
            one_thread_over_pytorch: divided(
                ours(1).map(|row| row.ns),
                theirs(1).map(|row| row.ns),
            ),
            one_thread_over_mimalloc64: time_over(MIMALLOC_SMALL),
            array_queue_1_thread: time_over(ARRAY_QUEUE),
            total16_over_pytorch: divided(
                ours(most).map(|row| row.mops.median),
                theirs(most).map(|row| row.mops),
            ),
            total16_over_one_thread: over(ours(most), ours(1)),
            mutex_vec_2_threads: over(ours(2), find(threads, MUTEX_VEC, 2)),
            handoff_1_over_integers: integers(1),
            handoff_8_over_integers: integers(8),
            growth_median: grown(LEASE_AND_DROP, |row| &row.p50_rounds),
            growth_p99: grown(LEASE_AND_DROP, |row| &row.p99_rounds),
            growth_median_half_out: grown(HALF_OUT, |row| &row.p50_rounds),
            growth_p99_half_out: grown(HALF_OUT, |row| &row.p99_rounds),
        }
    }
}

/// Rate over rate.
fn over(ours: Option<&RateRow>, theirs: Option<&RateRow>) -> Option<f64> {
    Some(rounded(median_ratio(&ours?.rounds, &theirs?.rounds)))
}

fn divided(ours: Option<f64>, theirs: Option<f64>) -> Option<f64> {
    Some(rounded(ours? / theirs?))
}

/// The largest pool's over the smallest's.
fn growth_of(rows: &[GrowthRow], case: &str, of: fn(&GrowthRow) -> &Vec<f64>) -> Option<f64> {
    let rows = || rows.iter().filter(|row| row.case == case);
    let (small, large) = (rows().min_by_key(|row| row.slots)?, rows().max_by_key(|row| row.slots)?);
    Some(rounded(median_ratio(of(large), of(small))))
}
