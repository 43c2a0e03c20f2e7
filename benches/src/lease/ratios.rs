//! What the parts of the scenario `lease` come to.

use super::pytorch::PyTorch;
use super::report::{
    GrowthRow, HALF_OUT, LEASE_AND_DROP, LeaseRatios, PINPOOL_MANY, RateRow, TailRow,
};
use crate::churn::{ARRAY_QUEUE, INTEGERS, MESSAGES, MIMALLOC_SMALL, MUTEX_VEC, PINPOOL};
use crate::timing::{median_ratio, rounded};

/// The row of one source with so many threads, or pairs.
pub(super) fn find<'a>(rows: &'a [RateRow], source: &str, threads: u64) -> Option<&'a RateRow> {
    rows.iter().find(|row| (row.source.as_str(), row.threads) == (source, threads))
}

impl LeaseRatios {
    /// `most` is the largest number of threads.
    pub(crate) fn of(
        threads: &[RateRow],
        handoff: &[RateRow],
        tail: &[TailRow],
        growth: &[GrowthRow],
        most: u64,
        pytorch: Option<&PyTorch>,
    ) -> Self {
        let theirs = |threads| pytorch.and_then(|theirs| theirs.row(threads));
        let ours = |of| find(threads, PINPOOL, of);
        // A time over a time is a rate the other way round.
        let time_over = |rival| over(find(threads, rival, 1), ours(1));
        let handed = |of| find(handoff, PINPOOL, of);
        let integers = |pairs| over(handed(pairs), find(handoff, INTEGERS, pairs));
        let same_size = |pairs| over(handed(pairs), find(handoff, MESSAGES, pairs));
        let p9999 = |source| tail.iter().find(|row| row.source == source).map(|row| row.p9999_ns);
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
            handoff_1_over_same_size: same_size(1),
            handoff_8_over_same_size: same_size(8),
            tail_65536_over_64: divided(p9999(PINPOOL_MANY), p9999(PINPOOL)),
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::lease::pytorch::tests::figures;
    use crate::timing::Range;

    fn row(source: &str, threads: u64, rounds: &[f64]) -> RateRow {
        let mops = Range::of(rounds);
        RateRow {
            source: source.into(),
            has_classes: true,
            is_bounded: true,
            threads,
            ns: threads as f64 * 1e3 / mops.median,
            mops,
            rounds: rounds.to_vec(),
            missed: 0,
        }
    }

    pub(crate) fn tail_row(source: &str, p9999_ns: f64) -> TailRow {
        TailRow {
            source: source.into(),
            threads: 16,
            count: 1000,
            p50_ns: 11.0,
            p99_ns: 12.0,
            p999_ns: 13.0,
            p9999_ns,
            max_ns: 90_000.0,
        }
    }

    #[test]
    fn times_are_compared_by_time_and_rates_by_rate_round_by_round() {
        let threads = [
            row(PINPOOL, 1, &[100.0, 10.0, 100.0]),
            row(MIMALLOC_SMALL, 1, &[50.0, 5.0, 400.0]),
            row(ARRAY_QUEUE, 1, &[200.0, 20.0, 200.0]),
            row(PINPOOL, 2, &[150.0, 150.0, 150.0]),
            row(MUTEX_VEC, 2, &[15.0, 30.0, 15.0]),
            row(PINPOOL, 16, &[1000.0, 1000.0, 1000.0]),
        ];
        let handoff = [
            row(PINPOOL, 1, &[5.0]),
            row(INTEGERS, 1, &[20.0]),
            row(MESSAGES, 1, &[10.0]),
            row(PINPOOL, 8, &[9.0]),
            row(MESSAGES, 8, &[12.0]),
        ];
        let tail = [(PINPOOL, 50.0), (MUTEX_VEC, 400.0), (PINPOOL_MANY, 75.0)]
            .map(|(source, p9999_ns)| tail_row(source, p9999_ns));
        let ratios = LeaseRatios::of(&threads, &handoff, &tail, &[], 16, Some(&figures()));
        // Half the rate of an ArrayQueue is twice its time.
        assert_eq!(ratios.array_queue_1_thread, Some(2.0));
        assert_eq!(ratios.one_thread_over_mimalloc64, Some(0.5));
        assert_eq!(ratios.one_thread_over_pytorch, Some(0.05));
        assert_eq!(ratios.total16_over_pytorch, Some(2000.0));
        assert_eq!(ratios.total16_over_one_thread, Some(10.0));
        assert_eq!(ratios.mutex_vec_2_threads, Some(10.0));
        assert_eq!(ratios.handoff_1_over_integers, Some(0.25));
        assert_eq!(ratios.handoff_1_over_same_size, Some(0.5));
        assert_eq!(ratios.handoff_8_over_same_size, Some(0.75));
        assert_eq!(ratios.tail_65536_over_64, Some(1.5));
        // Nothing is made up where a side was not measured.
        assert_eq!((ratios.handoff_8_over_integers, ratios.growth_p99), (None, None));
        let alone = LeaseRatios::of(&threads, &handoff, &tail[..2], &[], 8, None);
        assert_eq!((alone.one_thread_over_pytorch, alone.total16_over_pytorch), (None, None));
        assert_eq!((alone.total16_over_one_thread, alone.tail_65536_over_64), (None, None));
    }
}
