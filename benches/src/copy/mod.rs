//! Scenario `copy`: is memory from a lease as fast to copy as raw pinned memory, what do the pool's
//! own copy calls add, and how do all kinds of host memory compare with each other and the link?

mod buffers;
mod managed;
mod reader;
pub mod report;
mod section;
mod sweep;
mod text;

use crate::cuda_rig::CudaRig;
use crate::machine::{self, Machine};
use crate::timing::{self, Progress, rounded};
use crate::{BenchError, pin_room};
pub use buffers::{Buffers, Source};
use report::{COPY, CopyRatio, CopyReport, CopyRow};

/// What to copy.
#[derive(Debug, Clone, Default)]
pub struct CopyOptions {
    /// The sizes in bytes; none means the usual ones.
    pub sizes: Vec<usize>,
    /// Adds the largest of the usual sizes, 256 MiB.
    pub full: bool,
    /// The most bytes to have pinned at a time, where all kinds of memory are compared.
    pub max_pinned: Option<u64>,
    /// Runs every part in a small size: enough to see that it works, too little for figures.
    pub quick: bool,
}

impl CopyOptions {
    /// The sizes to copy, in bytes.
    ///
    /// # Errors
    /// [`BenchError::Input`] for a size of nothing or of more than [`SIZE_MAX`], and for a limit of
    /// less than a page.
    pub fn check(&self) -> Result<Vec<usize>, BenchError> {
        pin_room::check_sizes(&self.sizes, SIZE_MAX)?;
        pin_room::check(self.max_pinned)?;
        let mut sizes = self.sizes.clone();
        if sizes.is_empty() && self.quick {
            sizes = vec![4 << 10, 1 << 20];
        } else if sizes.is_empty() {
            sizes = vec![4 << 10, 64 << 10, 1 << 20, FRAME_1080P_RGB, 64 << 20];
            if self.full {
                sizes.push(256 << 20);
            }
        }
        sizes.sort_unstable();
        sizes.dedup();
        Ok(sizes)
    }

    /// The sizes of which all kinds of memory are compared.
    fn sweep_sizes(&self) -> Vec<usize> {
        match (self.sizes.is_empty(), self.quick) {
            (false, _) => self.sizes.clone(),
            (true, true) => sweep::SIZES_QUICK.to_vec(),
            (true, false) => sweep::SIZES.to_vec(),
        }
    }
}

/// Runs the scenario, or reports why it cannot run here.
///
/// # Errors
/// As [`CopyOptions::check`]; any call that failed. A machine without a CUDA device is no error:
/// the report says so.
pub fn run(
    options: &CopyOptions,
    command: String,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<CopyReport, BenchError> {
    let sizes = options.check()?;
    let mut report = CopyReport {
        scenario: COPY.to_owned(),
        not_run: None,
        machine: Machine::describe(),
        command,
        commit: machine::commit(),
        method: METHOD.to_owned(),
        sizes: sizes.iter().map(|&size| size as u64).collect(),
        rows: Vec::new(),
        ratios: Vec::new(),
        quick: options.quick,
        kinds: None,
    };
    let Some(rig) = CudaRig::open_if_any(&mut report.not_run)? else { return Ok(report) };
    let steps = sizes.len() + options.sweep_sizes().len();
    let mut progress = Progress::new(steps as u64, progress);
    for &bytes in &sizes {
        let mut buffers = Buffers::open(&rig, bytes)?;
        for direction in Direction::ALL {
            let times = measure(&mut buffers, direction, options.quick)?;
            report.rows.extend(rows(&times, direction, bytes));
            report.ratios.push(ratios(&times, direction, bytes));
        }
        progress.step();
    }
    report.kinds = Some(Box::new(sweep::measure(&rig, options, &mut progress)?));
    Ok(report)
}

/// Which way a copy goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// An upload.
    HostToDevice,
    /// A download.
    DeviceToHost,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::HostToDevice, Self::DeviceToHost];

    /// As results name it.
    pub fn name(self) -> &'static str {
        DIRECTIONS[self as usize]
    }

    fn back(self) -> Self {
        match self {
            Self::HostToDevice => Self::DeviceToHost,
            Self::DeviceToHost => Self::HostToDevice,
        }
    }
}

/// Host to device, device to host, as results name them.
pub const DIRECTIONS: [&str; 2] = ["h2d", "d2h"];

/// The sources that are interleaved copy by copy.
const PINNED: [Source; 3] = [Source::Lease, Source::LeaseMemory, Source::Raw];

/// The times of all copies of one size and direction, by source.
type CopyTimes = [Vec<f64>; 4];

fn measure(
    buffers: &mut Buffers,
    direction: Direction,
    quick: bool,
) -> Result<CopyTimes, BenchError> {
    let repeats = (TRAFFIC / buffers.bytes).clamp(REPEATS_MIN, REPEATS_MAX);
    let repeats = if quick { REPEATS_QUICK } else { repeats };
    let warm_up = repeats / 10 + 2;
    let mut times: CopyTimes = Default::default();
    // Pageable copies apart: the driver moves those bytes with the processor, which evicts its
    // caches, and whichever source came next would pay for that.
    for sources in [&PINNED[..], &[Source::Pageable]] {
        for round in 0..warm_up + repeats {
            for source in timing::order(round, sources.len()) {
                let source = sources[source];
                let took = buffers.copy(source, direction)?;
                if round >= warm_up {
                    times[source as usize].push(took.as_secs_f64());
                }
            }
        }
    }
    Ok(times)
}

fn rows(times: &CopyTimes, direction: Direction, bytes: usize) -> Vec<CopyRow> {
    let row = |(source, times): (Source, &Vec<f64>)| {
        let median = timing::median(times);
        CopyRow {
            name: source.name().to_owned(),
            direction: direction.name().to_owned(),
            bytes: bytes as u64,
            gb_per_s: rounded(bytes as f64 / median / 1e9),
            p50_us: rounded(median * 1e6),
            repeats: times.len() as u64,
        }
    };
    Source::ALL.into_iter().zip(times).map(row).collect()
}

fn ratios(times: &CopyTimes, direction: Direction, bytes: usize) -> CopyRatio {
    // Bandwidth over bandwidth is time under time.
    let over_raw = |source: Source| {
        rounded(timing::median_ratio(&times[Source::Raw as usize], &times[source as usize]))
    };
    CopyRatio {
        direction: direction.name().to_owned(),
        bytes: bytes as u64,
        lease_over_raw: over_raw(Source::Lease),
        lease_memory_over_raw: over_raw(Source::LeaseMemory),
        pageable_over_raw: over_raw(Source::Pageable),
    }
}

/// The largest size: every source holds one buffer of it.
pub const SIZE_MAX: usize = 1 << 30;
const FRAME_1080P_RGB: usize = 1920 * 1080 * 3;
/// Bytes to copy for one size, source and direction: a second or so with the slowest source.
const TRAFFIC: usize = 4 << 30;
const REPEATS_MIN: usize = 31;
const REPEATS_MAX: usize = 501;
const REPEATS_QUICK: usize = 11;
const METHOD: &str = "each copy is enqueued and waited for by itself; the three pinned sources \
                      interleaved copy by copy in changing order, pageable copies apart because \
                      they evict the processor's caches; GB/s (10^9 bytes) at the median time; \
                      ratios are medians of per-round ratios; lease is the pool's upload and \
                      download, lease-memory the raw copy call on a lease's memory";
/// How all kinds of memory are compared.
pub(crate) const METHOD_KINDS: &str = "\
    all kinds of memory: the same, with the clock's own cost taken off; pinned kinds interleaved copy \
    by copy, pageable and managed copies apart; pinned is cuMemHostAlloc, lease the pool's upload \
    and download; write-combined memory is good for uploads that the host wrote in order: the copy \
    of a download is timed too, but the host then reads that memory at a crawl, which is not; \
    mapped is a kernel that reads pinned memory where it is and adds it up, with its launch; \
    managed is cuMemPrefetchAsync of the whole, up to 64 MiB; staging is the median of pageable \
    copies less that of pinned ones, which is what moving bytes through the driver's own pinned \
    memory, or pinning them for the copy, costs beyond what it overlaps; a figure marked ~ is \
    unsteady: the middle half of its copies spreads over more than half of the median";

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn the_report_holds_every_row_or_says_why_there_is_none() {
        let report = run(&CopyOptions::default(), "cmd".to_owned(), &mut |_, _| ()).unwrap();
        if pinpool::cuda::probe().is_ok() {
            assert_eq!((report.not_run.as_ref(), report.sizes.len()), (None, 5));
            assert_eq!((report.rows.len(), report.ratios.len()), (5 * 2 * 4, 5 * 2));
            assert!(report.rows.iter().all(|row| row.gb_per_s > 0.0 && row.p50_us > 0.0));
            return;
        }
        assert!(report.not_run.as_ref().is_some_and(|why| why.starts_with("no CUDA device: ")));
        assert!(report.rows.is_empty() && report.ratios.is_empty());
        let text = report.to_text();
        assert!(text.starts_with("not run: no CUDA device: "), "{text}");
        assert!(text.contains("(4 KiB, 64 KiB, 1 MiB, 6.2 MB, 64 MiB), from a lease"), "{text}");
    }

    #[test]
    fn sizes_are_sorted_and_absurd_ones_refused() {
        let check = |sizes: &[usize], full| {
            CopyOptions { sizes: sizes.to_vec(), full, ..CopyOptions::default() }.check()
        };
        assert_eq!(check(&[8, 4, 8], false).unwrap(), [4, 8]);
        assert_eq!(check(&[], false).unwrap().len(), 5);
        assert_eq!(check(&[], true).unwrap().last(), Some(&(256 << 20)));
        for wrong in [0, SIZE_MAX + 1, usize::MAX] {
            let error = check(&[4, wrong], false).unwrap_err();
            assert!(error.is_input() && error.to_string().contains("--size"), "{error}");
        }
    }

    #[test]
    fn bandwidth_ratios_compare_times_the_right_way_round() {
        // The lease is as fast as raw memory, pageable memory takes four times as long.
        let times: CopyTimes = [vec![1e-3; 3], vec![1e-3; 3], vec![1e-3; 3], vec![4e-3; 3]];
        let row = ratios(&times, Direction::HostToDevice, 1_000_000);
        assert!((row.lease_over_raw - 1.0).abs() < 1e-12 && row.direction == "h2d");
        assert!((row.pageable_over_raw - 0.25).abs() < 1e-12);
        let rows = rows(&times, Direction::DeviceToHost, 1_000_000);
        assert!((rows[0].gb_per_s - 1.0).abs() < 1e-9 && rows[0].direction == "d2h");
        assert!((rows[3].gb_per_s - 0.25).abs() < 1e-9 && rows[3].name == "pageable");
    }
}
