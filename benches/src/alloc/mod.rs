//! Scenario `alloc`: what does it cost to get pinned memory and to give it back, against ordinary
//! memory and against a lease, by size?

pub mod report;
mod sides;
mod text;

use crate::header::Header;
use crate::pin_room::{self, PinRoom};
use crate::startup::Ground;
use crate::timing::{self, Progress, Range, rounded};
use crate::{BenchError, clock};
use report::{ALLOC_SCENARIO, AllocRatio, AllocReport, AllocRow};
pub use sides::{Bench, Side, Took};

/// What to measure.
#[derive(Debug, Clone, Default)]
pub struct AllocOptions {
    /// The sizes in bytes; none means the usual ones.
    pub sizes: Vec<usize>,
    /// The most bytes to have pinned at a time.
    pub max_pinned: Option<u64>,
    /// Runs every part in a small size: enough to see that it works, too little for figures.
    pub quick: bool,
}

impl AllocOptions {
    /// The sizes to measure, in bytes.
    ///
    /// # Errors
    /// [`BenchError::Input`] for a size of nothing or of more than [`SIZE_MAX`], and for a limit of
    /// less than a page.
    pub fn check(&self) -> Result<Vec<usize>, BenchError> {
        pin_room::check_sizes(&self.sizes, SIZE_MAX)?;
        pin_room::check(self.max_pinned)?;
        Ok(match (self.sizes.is_empty(), self.quick) {
            (false, _) => self.sizes.clone(),
            (true, false) => SIZES.to_vec(),
            (true, true) => SIZES_QUICK.to_vec(),
        })
    }
}

/// Runs the scenario, on a device where there is one. `progress` hears of sizes done.
///
/// # Errors
/// As [`AllocOptions::check`]; [`BenchError::Input`] where no size fits; any call that failed.
pub fn run(
    options: &AllocOptions,
    command: String,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<AllocReport, BenchError> {
    let wanted = options.check()?;
    let (ground, why_host) = Ground::find()?;
    let room = PinRoom::find(&ground, options.max_pinned)?;
    let mut report = AllocReport {
        header: Header::here(ALLOC_SCENARIO, command, options.quick, METHOD),
        backend: ground.name().to_owned(),
        notes: why_host.into_iter().map(|why| format!("only the host's ways: {why}")).collect(),
        clock_ns: rounded(clock::cost().as_secs_f64() * 1e9),
        max_pinned_bytes: room.bytes(),
        ratios: Vec::new(),
        rows: Vec::new(),
    };
    let fitting = room.fit(wanted, BUFFERS_PINNED, &mut report.notes);
    if fitting.is_empty() {
        return Err(BenchError::Input(report.notes.join("; ")));
    }
    let mut progress = Progress::new(fitting.len() as u64, progress);
    for bytes in fitting {
        let mut bench = Bench::open(&ground, bytes, &mut report.notes)?;
        let sides = bench.sides();
        let times = measure(&mut bench, &sides, rounds(bytes, options.quick))?;
        report.rows.extend(sides.iter().zip(&times).map(|(side, times)| row(*side, bytes, times)));
        report.ratios.push(ratio(&sides, &times, bytes));
        progress.step();
    }
    pin_room::each_once(&mut report.notes);
    Ok(report)
}

/// Rounds of all sides, interleaved, after one that does not count; what each took, side by side
/// in the order of `sides`.
///
/// # Errors
/// Any call that failed.
pub fn measure(
    bench: &mut Bench,
    sides: &[Side],
    rounds: usize,
) -> Result<Vec<Vec<Took>>, BenchError> {
    let mut times = vec![Vec::with_capacity(rounds); sides.len()];
    // Memory that nobody touched before is slow once: the host has to find it for a virtual machine.
    for round in 0..=rounds {
        for side in timing::order(round, sides.len()) {
            let took = bench.once(sides[side])?;
            if round > 0 {
                times[side].push(took);
            }
        }
    }
    Ok(times)
}

/// How often to measure a size: less often where it takes long.
pub(crate) fn rounds(bytes: usize, quick: bool) -> usize {
    if quick { ROUNDS_QUICK } else { (TRAFFIC / bytes).clamp(ROUNDS_MIN, ROUNDS_MAX) }
}

/// Microseconds of whole round trips.
pub(crate) fn round_trips_us(times: &[Took]) -> Vec<f64> {
    times.iter().map(|took| took.pair_s() * 1e6).collect()
}

fn row(side: Side, bytes: usize, times: &[Took]) -> AllocRow {
    let all = round_trips_us(times);
    let of = |part: fn(&Took) -> Option<f64>| -> Option<Range> {
        let part: Option<Vec<f64>> = times.iter().map(|took| Some(part(took)? * 1e6)).collect();
        part.filter(|part| !part.is_empty()).map(|part| Range::of(&part))
    };
    AllocRow {
        way: side.name().to_owned(),
        bytes: bytes as u64,
        us: Range::of(&all),
        get_us: of(Took::get_s),
        give_back_us: of(Took::give_back_s),
        rounds: times.len() as u64,
        unsteady: clock::is_unsteady(&all),
    }
}

fn ratio(sides: &[Side], times: &[Vec<Took>], bytes: usize) -> AllocRatio {
    let of = |wanted: Side| {
        let place = sides.iter().position(|side| *side == wanted)?;
        Some(round_trips_us(&times[place]))
    };
    let over = |ours: Option<&Vec<f64>>, theirs: Option<&Vec<f64>>| {
        Some(rounded(timing::median_ratio(ours?, theirs?)))
    };
    let (lease, malloc) = (of(Side::Lease), of(Side::Malloc));
    let pinned = of(Side::HostAlloc).or_else(|| of(Side::Mlock));
    AllocRatio {
        bytes: bytes as u64,
        pinned_over_malloc: over(pinned.as_ref(), malloc.as_ref()),
        pinned_over_lease: over(pinned.as_ref(), lease.as_ref()),
        malloc_over_lease: over(malloc.as_ref(), lease.as_ref()),
    }
}

/// The largest size.
pub const SIZE_MAX: usize = 1 << 40;
/// Those of the task of a pool: from a page to a few frames.
pub(crate) const SIZES: [usize; 9] =
    [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20];
pub(crate) const SIZES_QUICK: [usize; 4] = [4 << 10, 64 << 10, 1 << 20, 16 << 20];
/// The pool's slot, and the buffer of the side that is measured.
pub(crate) const BUFFERS_PINNED: u64 = 2;
/// Bytes to allocate for one size and side.
const TRAFFIC: usize = 1 << 30;
const ROUNDS_MIN: usize = 5;
const ROUNDS_MAX: usize = 101;
const ROUNDS_QUICK: usize = 3;
const METHOD: &str = "\
    microseconds to get a buffer whose memory is there and to give it back, each way once a round, \
    in changing order, after a round that does not count; the clock's own cost is taken off every \
    time; medians over rounds, with the shortest and the longest; ratios are medians of those of \
    the rounds. malloc: Vec::with_capacity, one byte of each page written, drop, as the allocator \
    is by default, which may hand out pages that it has; mlock: mmap, populate, mlock, munlock, \
    munmap; cuMemHostAlloc: portable and mapped, then cuMemFreeHost; mmap, register: mmap, \
    populate, cuMemHostRegister, and all of it undone; register in place: only registering and \
    unregistering memory that is there and touched; lease: try_lease and drop of a pool that is \
    open, 100 in a row. A figure marked ~ is unsteady: the middle half of its rounds spreads over \
    more than half of the median";

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_this_machine_is_measured_and_a_lease_costs_least() {
        let options =
            AllocOptions { sizes: vec![1 << 20, 4096], quick: true, ..AllocOptions::default() };
        let report = run(&options, "cmd".to_owned(), &mut |_, _| ()).unwrap();
        let sizes: Vec<u64> = report.ratios.iter().map(|ratio| ratio.bytes).collect();
        assert_eq!(sizes, [4096, 1 << 20]);
        for row in &report.rows {
            assert!(row.us.low <= row.us.median && row.us.median <= row.us.high, "{row:?}");
            assert!(row.rounds == 3, "{row:?}");
            assert_eq!(row.get_us.is_none(), row.way == "lease", "{row:?}");
        }
        let ways = |bytes| report.rows.iter().filter(move |row| row.bytes == bytes).count();
        assert!(ways(4096) >= 2 && ways(4096) == ways(1 << 20), "{report:?}");
        // 256 pages take longer than 100 leases, anywhere.
        let megabyte = &report.ratios[1];
        assert!(megabyte.malloc_over_lease.unwrap() > 1.0, "{megabyte:?}");
    }

    #[test]
    fn a_limit_leaves_sizes_out_or_refuses_all() {
        let options = |max_pinned, sizes: &[usize]| AllocOptions {
            sizes: sizes.to_vec(),
            max_pinned: Some(max_pinned),
            quick: true,
        };
        let run = |options| run(&options, String::new(), &mut |_, _| ());
        let report = run(options(65536, &[4096, 1 << 20])).unwrap();
        assert_eq!(report.ratios.len(), 1, "{report:?}");
        assert!(report.notes.iter().any(|note| note.starts_with("1 MiB left out")), "{report:?}");
        let error = run(options(4096, &[4096])).unwrap_err();
        assert!(error.is_input() && error.to_string().contains("--max-pinned"), "{error}");
        assert!(options(4095, &[]).check().unwrap_err().is_input());
        assert!(options(4096, &[0]).check().unwrap_err().to_string().contains("--size 0"));
    }

    #[test]
    fn large_sizes_have_less_rounds() {
        assert_eq!(
            (rounds(4096, false), rounds(64 << 20, false), rounds(1 << 30, false)),
            (101, 16, 5)
        );
        assert_eq!(rounds(4096, true), 3);
    }
}
