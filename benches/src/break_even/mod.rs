//! Scenario `break-even`: from which size, and from how many copies on, does pinning a buffer pay on
//! this machine?

pub mod report;
mod text;

use crate::alloc::{self, Bench, Side};
use crate::copy::{Buffers, Direction, Source};
use crate::cuda_rig::CudaRig;
use crate::header::Header;
use crate::pin_room::{self, PinRoom};
use crate::startup::Ground;
use crate::timing::{self, Progress, rounded, significant};
use crate::{BenchError, clock};
use report::{BREAK_EVEN, BreakEvenRatio, BreakEvenReport, BreakEvenRow};

/// What to measure.
#[derive(Debug, Clone, Default)]
pub struct BreakEvenOptions {
    /// The sizes in bytes; none means the usual ones.
    pub sizes: Vec<usize>,
    /// The most bytes to have pinned at a time.
    pub max_pinned: Option<u64>,
    /// Runs every part in a small size: enough to see that it works, too little for figures.
    pub quick: bool,
}

impl BreakEvenOptions {
    /// The sizes to measure, in bytes.
    ///
    /// # Errors
    /// [`BenchError::Input`] for a size of nothing or of more than [`SIZE_MAX`](crate::copy::SIZE_MAX),
    /// and for a limit of less than a page.
    pub fn check(&self) -> Result<Vec<usize>, BenchError> {
        pin_room::check_sizes(&self.sizes, crate::copy::SIZE_MAX)?;
        pin_room::check(self.max_pinned)?;
        Ok(match (self.sizes.is_empty(), self.quick) {
            (false, _) => self.sizes.clone(),
            (true, false) => alloc::SIZES.to_vec(),
            (true, true) => alloc::SIZES_QUICK.to_vec(),
        })
    }
}

/// Runs the scenario, or reports why it cannot run here. `progress` hears of sizes done.
///
/// # Errors
/// As [`BreakEvenOptions::check`]; [`BenchError::Input`] where no size fits; any call that failed. A
/// machine without a CUDA device is no error: the report says so.
pub fn run(
    options: &BreakEvenOptions,
    command: String,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<BreakEvenReport, BenchError> {
    let sizes = options.check()?;
    let mut report = BreakEvenReport::new(Header::here(BREAK_EVEN, command, options.quick, METHOD));
    let Some(rig) = CudaRig::open_if_any(&mut report.header.not_run)? else { return Ok(report) };
    let ground = Ground::Cuda(rig.clone());
    let room = PinRoom::find(&ground, options.max_pinned)?;
    let sizes = room.fit(sizes, alloc::BUFFERS_PINNED, &mut report.notes);
    if sizes.is_empty() {
        return Err(BenchError::Input(report.notes.join("; ")));
    }
    let mut progress = Progress::new(sizes.len() as u64, progress);
    for bytes in sizes {
        let rounds = alloc::rounds(bytes, options.quick);
        let costs = Costs::measure(&ground, bytes, rounds, &mut report.notes)?;
        let mut buffers = Buffers::open(&rig, bytes)?;
        for direction in Direction::ALL {
            let copies = copies(&mut buffers, direction, rounds)?;
            let row = row(direction, bytes, &costs, &copies);
            report.ratios.push(ratio(&row));
            report.rows.push(row);
        }
        progress.step();
    }
    pin_room::each_once(&mut report.notes);
    report.recommend();
    Ok(report)
}

/// Microseconds to get a buffer of one size and to give it back.
struct Costs {
    pin: f64,
    register: f64,
    lease: f64,
}

impl Costs {
    fn measure(
        ground: &Ground,
        bytes: usize,
        rounds: usize,
        notes: &mut Vec<String>,
    ) -> Result<Self, BenchError> {
        let sides = [Side::HostAlloc, Side::RegisterInPlace, Side::Lease];
        let times = alloc::measure(&mut Bench::open(ground, bytes, notes)?, &sides, rounds)?;
        let cost = |place: usize| timing::median(&alloc::round_trips_us(&times[place]));
        Ok(Self { pin: cost(0), register: cost(1), lease: cost(2) })
    }
}

/// Microseconds of copies, from pinned and from pageable memory.
struct Copies {
    pinned: Vec<f64>,
    pageable: Vec<f64>,
}

fn copies(
    buffers: &mut Buffers,
    direction: Direction,
    rounds: usize,
) -> Result<Copies, BenchError> {
    let clock = clock::cost();
    // One after the other: pageable copies evict the processor's caches.
    let mut times = |source: Source| -> Result<Vec<f64>, BenchError> {
        let mut times = Vec::with_capacity(rounds);
        for round in 0..WARM_UP + rounds {
            let took = buffers.copy(source, direction)?.saturating_sub(clock);
            if round >= WARM_UP {
                times.push(took.as_secs_f64() * 1e6);
            }
        }
        Ok(times)
    };
    Ok(Copies { pinned: times(Source::Raw)?, pageable: times(Source::Pageable)? })
}

fn row(direction: Direction, bytes: usize, costs: &Costs, copies: &Copies) -> BreakEvenRow {
    let (pageable, pinned) = (timing::median(&copies.pageable), timing::median(&copies.pinned));
    BreakEvenRow {
        direction: direction.name().to_owned(),
        bytes: bytes as u64,
        pin_us: rounded(costs.pin),
        register_us: rounded(costs.register),
        lease_us: significant(costs.lease),
        pageable_us: rounded(pageable),
        pinned_us: rounded(pinned),
        saved_us: rounded(pageable - pinned),
        unsteady: clock::is_unsteady(&copies.pageable) || clock::is_unsteady(&copies.pinned),
    }
}

fn ratio(row: &BreakEvenRow) -> BreakEvenRatio {
    // What lies within the noise of two medians is no gain.
    let gains = row.saved_us > GAIN_MIN * row.pageable_us;
    let reuses = |cost_us: f64| gains.then(|| significant(cost_us / row.saved_us));
    BreakEvenRatio {
        direction: row.direction.clone(),
        bytes: row.bytes,
        reuses_pinned: reuses(row.pin_us),
        reuses_registered: reuses(row.register_us),
        reuses_leased: reuses(row.lease_us),
        pageable_over_pinned: rounded(row.pageable_us / row.pinned_us),
    }
}

/// The share of a pageable copy that pinning must save to count as a gain.
const GAIN_MIN: f64 = 0.05;
const WARM_UP: usize = 2;
const METHOD: &str = "\
    copies until a buffer's pinning pays: what it costs to get and give back (as in alloc: \
    cuMemHostAlloc and cuMemFreeHost; registering memory that is there, and undoing it; a lease and \
    its drop) over what each copy saves, the median of pageable copies less that of pinned ones (as \
    in copy, of the same run). No number where a copy saves less than 5 %. A size is recommended \
    where it and all larger ones pay within 1000 copies; a figure marked ~ is unsteady: the middle \
    half of its copies spreads over more than half of the median";

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn reuses_are_the_cost_over_what_a_copy_saves() {
        let costs = Costs { pin: 300.0, register: 150.0, lease: 0.05 };
        let of = |pageable: f64, pinned: f64| {
            let copies = Copies { pinned: vec![pinned; 3], pageable: vec![pageable; 3] };
            ratio(&row(Direction::HostToDevice, 1 << 20, &costs, &copies))
        };
        let gains = of(110.0, 10.0);
        assert_eq!((gains.reuses_pinned, gains.reuses_registered), (Some(3.0), Some(1.5)));
        assert_eq!(gains.reuses_leased, Some(0.000_5));
        assert!((gains.pageable_over_pinned - 11.0).abs() < 1e-9);
        // Four per cent are noise, and a loss is no gain.
        for (pageable, pinned) in [(100.0, 96.0), (10.0, 11.0)] {
            let none = of(pageable, pinned);
            assert_eq!((none.reuses_pinned, none.reuses_leased), (None, None), "{none:?}");
        }
    }

    #[test]
    fn without_a_device_the_report_says_why() {
        let options = BreakEvenOptions { quick: true, ..BreakEvenOptions::default() };
        let report = run(&options, "cmd".to_owned(), &mut |_, _| ()).unwrap();
        if pinpool::cuda::probe().is_ok() {
            assert_eq!(report.rows.len(), 2 * alloc::SIZES_QUICK.len());
            return;
        }
        assert!(report.header.not_run.as_ref().unwrap().starts_with("no CUDA device: "));
        assert!(report.rows.is_empty() && report.ratios.is_empty());
        assert!(report.to_text().contains("pinning gains nothing"), "{}", report.to_text());
    }

    #[test]
    fn sizes_and_limits_that_make_no_sense_are_refused() {
        let check = |sizes: &[usize], max_pinned| {
            let sizes = sizes.to_vec();
            BreakEvenOptions { sizes, max_pinned, quick: false }.check()
        };
        assert!(check(&[0], None).unwrap_err().to_string().contains("--size 0"));
        assert!(check(&[], Some(1)).unwrap_err().to_string().contains("--max-pinned 1"));
        assert_eq!(check(&[], None).unwrap(), alloc::SIZES);
    }
}
