//! Scenario `gigabyte`: one copy of 10^9 bytes from pageable and from pinned memory, the first time
//! and later, and where the time of a pageable copy goes.

mod copies;
mod host;
pub mod report;
mod text;

use crate::BenchError;
use crate::copy::Direction;
use crate::cuda_rig::CudaRig;
use crate::header::Header;
use crate::pin_room::{self, PinRoom};
use crate::timing::{self, Progress, Range, rounded};
use copies::{Memory, Took};
use host::Step;
use report::{CopyTimes, GIGABYTE, GigabyteReport, StepRow};

/// What to measure.
#[derive(Debug, Clone, Default)]
pub struct GigabyteOptions {
    /// The most bytes to have pinned at a time.
    pub max_pinned: Option<u64>,
    /// Runs every part in a small size: enough to see that it works, too little for figures.
    pub quick: bool,
}

impl GigabyteOptions {
    /// Checks that the run makes sense.
    ///
    /// # Errors
    /// [`BenchError::Input`] for a limit of less than a page.
    pub fn check(&self) -> Result<(), BenchError> {
        pin_room::check(self.max_pinned)
    }
}

/// Runs the scenario; without a device only what the host does. `progress` hears of rounds done.
///
/// # Errors
/// As [`GigabyteOptions::check`]; [`BenchError::Input`] where there is no room for a megabyte; any
/// call that failed.
pub fn run(
    options: &GigabyteOptions,
    command: String,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<GigabyteReport, BenchError> {
    options.check()?;
    let mut report = GigabyteReport::new(Header::here(GIGABYTE, command, options.quick, METHOD));
    let rig = CudaRig::open_if_any(&mut report.copies_not_measured)?;
    let room = PinRoom::unlocked(options.max_pinned)?;
    let wanted = if options.quick { BYTES_QUICK } else { BYTES };
    let bytes = room.cut(wanted, BUFFERS, &mut report.notes)?;
    let rounds = if options.quick { ROUNDS_QUICK } else { ROUNDS };
    let parts = if rig.is_some() { 2 } else { 1 };
    let mut progress = Progress::new(parts * rounds as u64, progress);
    report.bytes = bytes as u64;
    let steps = host::measure(bytes, rounds, &mut progress)?;
    report.host =
        Step::ALL.iter().zip(&steps).map(|(step, ms)| step_row(*step, bytes, ms)).collect();
    report.ratios.host_fresh_over_touched = Some(rounded(timing::median_ratio(
        &steps[Step::ToFresh as usize],
        &steps[Step::ToTouched as usize],
    )));
    if let Some(rig) = rig {
        let took = copies::measure(&rig, bytes, rounds, &mut progress)?;
        for direction in Direction::ALL {
            let of = |memory: Memory| &took[memory as usize][direction as usize];
            for memory in Memory::ALL {
                report.copies.push(times(memory, direction, bytes, of(memory)));
            }
            let (pageable, pinned) = (of(Memory::Pageable), of(Memory::Pinned));
            report.ratios.set(direction, |part| over(pageable, pinned, part));
        }
    }
    Ok(report)
}

/// Time over time, round by round.
fn over(pageable: &[Took], pinned: &[Took], part: fn(&Took) -> f64) -> Range {
    let of = |took: &[Took]| took.iter().map(part).collect::<Vec<f64>>();
    Range::of_ratios(&of(pageable), &of(pinned))
}

fn times(memory: Memory, direction: Direction, bytes: usize, took: &[Took]) -> CopyTimes {
    let of = |part: fn(&Took) -> f64| Range::of(&took.iter().map(part).collect::<Vec<f64>>());
    let (first_ms, later_ms) = (of(Took::first), of(Took::later));
    let rate = |ms: f64| rounded(bytes as f64 / ms / 1e6);
    CopyTimes {
        memory: memory.name().to_owned(),
        direction: direction.name().to_owned(),
        first_gb_per_s: rate(first_ms.median),
        later_gb_per_s: rate(later_ms.median),
        first_ms,
        later_ms,
        get_ms: of(Took::get),
        write_ms: (direction == Direction::HostToDevice).then(|| of(Took::write)),
        all_ms: of(Took::all),
    }
}

fn step_row(step: Step, bytes: usize, ms: &[f64]) -> StepRow {
    let range = Range::of(ms);
    StepRow {
        step: step.name().to_owned(),
        gb_per_s: rounded(bytes as f64 / range.median / 1e6),
        ms: range,
    }
}

const BYTES: usize = 1_000_000_000;
const BYTES_QUICK: usize = 100_000_000;
/// What is copied, and what it is copied to on the host.
const BUFFERS: u64 = 2;
const ROUNDS: usize = 5;
const ROUNDS_QUICK: usize = 2;
const METHOD: &str = "\
    every round has memory of its own, which no copy used before: a Vec of zeros, which has no pages \
    until it is touched, or cuMemHostAlloc. Uploads: all of it is written once, then copied (first), \
    then copied three times more (later, their median). Downloads: into memory that nobody touched, \
    so that the first copy into a Vec finds no pages; later ones do. Each copy is enqueued and waited \
    for by itself; pageable and pinned rounds in changing order; medians over rounds, ratios are those \
    of the rounds. The way of a copy: the driver moves pageable bytes through a small pinned buffer of \
    its own, which cannot be timed from outside; its memcpy is taken to be a memcpy of the same bytes \
    through a buffer of 4 MiB by one thread, measured here, and its DMA a copy of pinned memory. The \
    driver overlaps both, so that together they may exceed the call";

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn the_host_does_its_part_with_or_without_a_device() {
        let options = GigabyteOptions { max_pinned: Some(9_000_000), quick: true };
        let mut seen = Vec::new();
        let report = run(&options, "cmd".to_owned(), &mut |done, total| seen.push((done, total)));
        let report = report.unwrap();
        assert_eq!(report.bytes, 4_000_000);
        assert!(report.notes[0].contains("4.0 MB instead of 100.0 MB"), "{:?}", report.notes);
        assert_eq!(report.host.len(), Step::ALL.len());
        assert!(report.host.iter().all(|row| row.ms.low > 0.0 && row.gb_per_s > 0.0), "{report:?}");
        let device = pinpool::cuda::probe().is_ok();
        assert_eq!(report.copies.len(), if device { 4 } else { 0 });
        assert_eq!(report.copies_not_measured.is_none(), device);
        assert_eq!(report.header.not_run, None);
        assert_eq!(seen.last(), Some(&if device { (4, 4) } else { (2, 2) }));
    }

    #[test]
    fn a_limit_without_room_is_refused() {
        let of = |max_pinned| GigabyteOptions { max_pinned: Some(max_pinned), quick: true };
        assert!(of(1).check().unwrap_err().is_input());
        let error = run(&of(8192), String::new(), &mut |_, _| ()).unwrap_err();
        assert!(error.is_input() && error.to_string().contains("--max-pinned"), "{error}");
    }
}
