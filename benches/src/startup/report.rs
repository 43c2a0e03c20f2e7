//! The result of the scenario `startup`: its JSON form, which is committed.

use serde::{Deserialize, Serialize};

use super::pytorch::PyTorch;
use crate::BenchError;
use crate::header::Header;
use crate::json::to_json;
use crate::timing::{Range, rounded};

/// A result of the scenario `startup`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartupReport {
    /// Where it comes from; the scenario is always [`STARTUP`].
    #[serde(flatten)]
    pub header: Header,
    /// What memory was pinned for, "cuda" or "host".
    pub backend: String,
    /// What the reader must know about this run.
    pub notes: Vec<String>,
    /// Interleaved rounds; the slow ways have less of them with large sizes.
    pub rounds: u64,
    /// What the parts come to.
    pub ratios: StartupRatios,
    /// The most that opening and closing a pool once left behind.
    pub left: Left,
    /// The figures of each size.
    pub sizes: Vec<SizeRatios>,
    /// Opening and closing, by size and by way.
    pub opens: Vec<OpenRow>,
    /// Why no other process was watched, where none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_not_watched: Option<String>,
    /// How long others were held up.
    pub neighbours: Vec<NeighbourRow>,
    /// Why there are no figures of PyTorch, where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pytorch_not_measured: Option<String>,
    /// PyTorch's figures, where they were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pytorch: Option<PyTorch>,
}

/// The figures that say most; `None` where a side was not measured. Speed-ups and ratios are medians of
/// those of the rounds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StartupRatios {
    /// The time of `cuMemHostAlloc` over that of opening a pool, 8 GiB.
    pub speedup_over_hostalloc_8g: Option<f64>,
    /// The same, 1 GiB.
    pub speedup_over_hostalloc_1g: Option<f64>,
    /// The time of PyTorch with 16 threads that register over that of opening a pool, 8 GiB.
    pub speedup_over_pytorch16_8g: Option<f64>,
    /// The same, 1 GiB.
    pub speedup_over_pytorch16_1g: Option<f64>,
    /// The time of opening a pool over that of the same calls without one, 8 GiB.
    pub open_over_bare_8g: Option<f64>,
    /// The same, 1 GiB.
    pub open_over_bare_1g: Option<f64>,
    /// The longest call of another process while a pool opens.
    pub neighbour_process_stall_ms: Option<f64>,
    /// The same while `cuMemHostAlloc` runs.
    pub neighbour_process_stall_hostalloc_ms: Option<f64>,
    /// The same while nothing is pinned.
    pub neighbour_process_idle_ms: Option<f64>,
    /// The longest copy by another thread of this process while a pool opens.
    pub own_copy_stall_ms: Option<f64>,
    /// The same while `cuMemHostAlloc` runs.
    pub own_copy_stall_hostalloc_ms: Option<f64>,
    /// The same while nothing is pinned.
    pub own_copy_idle_ms: Option<f64>,
}

/// What stayed behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Memory in RAM.
    pub resident_bytes: u64,
    /// Memory that the kernel counts as locked or pinned.
    pub locked_bytes: u64,
}

impl Left {
    /// Keeps the larger figures.
    pub(super) fn add(&mut self, other: Self) {
        self.resident_bytes = self.resident_bytes.max(other.resident_bytes);
        self.locked_bytes = self.locked_bytes.max(other.locked_bytes);
    }

    /// Nothing, as far as the kernel's counters tell: they are kept per processor and lag behind.
    pub fn is_nothing(self) -> bool {
        self.locked_bytes == 0 && self.resident_bytes < COUNTERS_LAG_BYTES
    }
}

/// The figures of one size: times over times, each the median of the ratios of the rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SizeRatios {
    /// Bytes opened.
    pub bytes: u64,
    /// Of a pool with its defaults.
    pub gib_per_s: f64,
    /// The pool's time over that of the same calls without a pool.
    pub open_over_bare: Option<f64>,
    /// The pool's time over its own without pauses.
    pub open_over_no_pauses: Option<f64>,
    /// The pool's time over its own without huge pages.
    pub open_over_no_huge_pages: Option<f64>,
    /// A pool's time with one prefault thread over that with the default.
    pub speedup_over_one_thread: Option<f64>,
    /// The time of pinning untouched memory over the pool's.
    pub speedup_over_untouched: Option<f64>,
    /// The time of `cuMemHostAlloc` over the pool's.
    pub speedup_over_hostalloc: Option<f64>,
    /// The time of PyTorch as it is by default over the pool's.
    pub speedup_over_pytorch: Option<f64>,
    /// The time of PyTorch with 16 threads that register over the pool's.
    pub speedup_over_pytorch16: Option<f64>,
}

/// One way to come to pinned memory of one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenRow {
    /// A name of [`Strategy`](super::Strategy).
    pub strategy: String,
    /// Bytes opened.
    pub bytes: u64,
    /// Threads that back the memory before it is pinned.
    pub threads: u64,
    /// The kind of pages that the last round's pool lay on; `None` where no pool says so.
    pub pages: Option<String>,
    /// Milliseconds from the first call to the return of the last.
    pub ms: Range,
    /// Binary gigabytes a second at that median.
    pub gib_per_s: f64,
    /// The steps, where they were taken one by one.
    pub phases: Vec<PhaseRow>,
    /// Milliseconds of giving everything back.
    pub close_ms: Range,
    /// The most that a round left behind.
    pub left: Left,
    /// Milliseconds, round by round.
    pub rounds: Vec<f64>,
}

/// One step of opening.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseRow {
    /// "reserve", "populate", "pin", or "total" of all, as the pool counts it.
    pub phase: String,
    /// Milliseconds.
    pub ms: Range,
    /// Binary gigabytes a second at that median; zero where it took no time.
    pub gib_per_s: f64,
}

/// What others felt in one case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NeighbourRow {
    /// [`NOTHING`], or a name of [`Strategy`](super::Strategy).
    pub case: String,
    /// Bytes pinned.
    pub bytes: u64,
    /// Milliseconds that pinning took.
    pub ms: Option<Range>,
    /// Milliseconds that giving back took.
    pub close_ms: Option<Range>,
    /// Another process, while memory was pinned.
    pub process: Option<Felt>,
    /// Another thread of this process, while memory was pinned.
    pub own: Option<Felt>,
    /// Another process, while it was given back.
    pub process_closing: Option<Felt>,
    /// Another thread of this process, while it was given back.
    pub own_closing: Option<Felt>,
}

/// How long its calls took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Felt {
    /// Calls, of all rounds.
    pub count: u64,
    /// The median, in milliseconds.
    pub p50_ms: f64,
    /// What 99 of 100 keep to.
    pub p99_ms: f64,
    /// The longest.
    pub longest_ms: f64,
    /// The longest, round by round.
    pub rounds: Vec<f64>,
}

impl Felt {
    /// Of the milliseconds of each call, round by round; `None` where there is no call.
    pub(super) fn of(rounds: &[&[f64]]) -> Option<Self> {
        let mut all = rounds.concat();
        all.sort_by(f64::total_cmp);
        let longest = |times: &&[f64]| rounded(times.iter().copied().fold(0.0, f64::max));
        let at = |percent: usize| all.get((all.len() * percent).div_ceil(100) - 1).copied();
        (!all.is_empty()).then(|| Self {
            count: all.len() as u64,
            p50_ms: rounded(at(50).unwrap_or(0.0)),
            p99_ms: rounded(at(99).unwrap_or(0.0)),
            longest_ms: longest(&all.as_slice()),
            rounds: rounds.iter().map(longest).collect(),
        })
    }
}

impl StartupReport {
    /// The result as the JSON that is committed.
    ///
    /// # Errors
    /// Never for a result of a run; the writer's reason else.
    pub fn to_json(&self) -> Result<String, BenchError> {
        to_json(self)
    }

    /// The row of a size and a way.
    pub fn open(&self, bytes: u64, strategy: &str) -> Option<&OpenRow> {
        self.opens.iter().find(|row| row.bytes == bytes && row.strategy == strategy)
    }

    /// The row of a case.
    pub fn neighbour(&self, case: &str) -> Option<&NeighbourRow> {
        self.neighbours.iter().find(|row| row.case == case)
    }
}

/// The name of the scenario of [`StartupReport`].
pub const STARTUP: &str = "startup";
/// No memory is pinned.
pub const NOTHING: &str = "nothing";
/// What the counters of resident memory may be behind, each processor's for itself.
const COUNTERS_LAG_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_all_rounds_and_the_longest_of_each() {
        let (first, second): (Vec<f64>, Vec<f64>) =
            ((1..=150).map(f64::from).collect(), (151..=200).map(f64::from).collect());
        let felt = Felt::of(&[&first, &second, &[]]);
        let wanted = Felt {
            count: 200,
            p50_ms: 100.0,
            p99_ms: 198.0,
            longest_ms: 200.0,
            rounds: vec![150.0, 200.0, 0.0],
        };
        assert_eq!(felt, Some(wanted));
        assert_eq!((Felt::of(&[&[]]), Felt::of(&[])), (None, None));
    }

    #[test]
    fn counters_that_lag_leave_nothing_and_a_locked_page_does() {
        let left = |resident_bytes, locked_bytes| Left { resident_bytes, locked_bytes };
        let mut most = Left::default();
        most.add(left(1 << 20, 0));
        assert!(most.is_nothing());
        most.add(left(0, 4096));
        assert_eq!(most, left(1 << 20, 4096));
        assert!(!most.is_nothing() && !left(64 << 20, 0).is_nothing());
    }
}
