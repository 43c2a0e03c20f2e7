//! Scenario `neighbours`: what a thread that allocates pinned memory for each frame does to another
//! thread's copies and kernel launches, and what it does if the frames come from a pool.

mod beside;
pub mod report;
mod text;
mod turns;

use std::time::Duration;

use crate::BenchError;
use crate::header::Header;
use crate::startup::Ground;
use crate::timing::{self, Progress};
use beside::Beside;
pub use beside::{Case, Way};
use report::{NEIGHBOURS, NeighboursReport};
pub use turns::{Turns, Work};

/// What to measure.
#[derive(Debug, Clone, Default)]
pub struct NeighboursOptions {
    /// Cases that would pin more than so many bytes are left out; `None` is no such limit.
    pub max_pinned: Option<u64>,
    /// Runs every case for a short time: enough to see that it works, too little for figures.
    pub quick: bool,
}

impl NeighboursOptions {
    /// Looks whether there is anything to do.
    ///
    /// # Errors
    /// [`BenchError::Input`] for less memory than the smallest case pins.
    pub fn check(&self) -> Result<(), BenchError> {
        if self.cases().len() > 1 {
            return Ok(());
        }
        let least = beside::pinned_bytes(&Case::all());
        Err(BenchError::Input(format!(
            "--max-pinned {}: at least {least} bytes are pinned by the smallest case",
            self.max_pinned.unwrap_or(0)
        )))
    }

    fn cases(&self) -> Vec<Case> {
        let most = self.max_pinned.unwrap_or(u64::MAX);
        let mut cases = Case::all();
        cases.retain(|case| case.way == Way::Nothing || case.pinned_bytes() <= most);
        cases
    }
}

/// Runs the scenario: on the first GPU, or else with memory that is locked. `progress` hears of cases
/// done.
///
/// # Errors
/// As [`NeighboursOptions::check`]; any call that failed.
pub fn run(
    options: &NeighboursOptions,
    command: String,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<NeighboursReport, BenchError> {
    options.check()?;
    let scale = if options.quick { Scale::QUICK } else { Scale::FULL };
    let header = Header::here(NEIGHBOURS, command, options.quick, METHOD);
    let cases = options.cases();
    let mut notes = Vec::new();
    if cases.len() < Case::all().len() {
        notes.push("cases that pin more than --max-pinned are left out".to_owned());
    }
    let (ground, why_host) = Ground::find()?;
    notes.extend(why_host.iter().map(|why| on_the_host(why)));
    let mut turns = Turns::open(&ground, &mut notes)?;
    let mut beside = Beside::open(&ground, &cases, &mut notes)?;
    ground.bind()?;
    let mut progress = Progress::new((scale.rounds * cases.len()) as u64, progress);
    let mut phases: Vec<Vec<beside::Phase>> = cases.iter().map(|_| Vec::new()).collect();
    for round in 0..scale.rounds {
        for which in timing::order(round, cases.len()) {
            phases[which].push(beside.phase(&cases[which], &mut turns, scale.phase)?);
            progress.step();
        }
    }
    let rows: Vec<_> =
        cases.iter().zip(&phases).map(|(case, phases)| report::row(case, phases)).collect();
    notes.extend(report::doubts(&rows));
    Ok(NeighboursReport {
        header,
        backend: ground.name().to_owned(),
        locked: beside.locks(),
        rounds: scale.rounds as u64,
        phase_ms: u64::try_from(scale.phase.as_millis()).unwrap_or(u64::MAX),
        ratios: report::ratios(&cases, &phases),
        notes,
        rows,
    })
}

/// How much of each case to run.
#[derive(Debug, Clone, Copy)]
struct Scale {
    rounds: usize,
    /// How long a case runs in a round.
    phase: Duration,
}

impl Scale {
    const FULL: Self = Self { rounds: 5, phase: Duration::from_millis(1500) };
    const QUICK: Self = Self { rounds: 2, phase: Duration::from_millis(200) };
}

fn on_the_host(why: &str) -> String {
    format!(
        "{why}: frames are mapped, locked and unmapped instead of allocated by the driver; the thread \
         beside copies in RAM, and maps pages instead of launching kernels"
    )
}

const METHOD: &str = "\
    one thread copies 1 MiB from pinned memory to the device and waits for it, then launches a kernel \
    that ends at once and waits for that, in turns and without a pause (without a GPU: copies 1 MiB in \
    RAM, then maps, touches and unmaps a page). Beside it another thread takes a frame and gives it \
    back, at the rate that is named or in a loop: by cuMemHostAlloc and cuMemFreeHost (without a GPU: \
    mmap, mlock, munlock, munmap), or from a pool that was opened before, by lease and drop. All cases \
    in each round, in changing order, 100 turns of warm-up before each; the thread beside stops by \
    itself when its case's time is over, so that no turn waits for ever. p50 and p99 are of all turns \
    of a round, and medians of the rounds; the longest is of all rounds. A turn that is held up is \
    one turn, however many would have fitted into its time: the share of time in turns of more than \
    1 ms, and the turns over those alone in the same time, say what that comes to. Nothing is subtracted: reading the clock takes some 50 ns";

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_has_every_case_and_every_kind_of_turn() {
        let options = NeighboursOptions { quick: true, ..NeighboursOptions::default() };
        let report = run(&options, "cmd".to_owned(), &mut |_, _| ()).unwrap();
        assert_eq!(report.rows.len(), Case::all().len());
        for row in &report.rows {
            assert!(row.felt.iter().all(|felt| felt.turns > 0), "{row:?}");
            assert_eq!(row.frames > 0, row.case != report::ALONE, "{row:?}");
        }
        assert_eq!(report.ratios.len(), (Case::all().len() - 1) * report.rows[0].felt.len());
        // Frames that are paced keep their pace, in the pool's case at least.
        let paced =
            report.rows.iter().find(|row| row.case.starts_with("pool, 1080p at 60")).unwrap();
        assert!(paced.frames_per_s < 90.0, "{paced:?}");
        let text = report.to_text();
        assert!(
            text.contains("in turns of more than 1 ms") && text.contains(report::ALONE),
            "{text}"
        );
        let section = report.section();
        assert_eq!((section.id, section.not_run), (NEIGHBOURS, None));
        assert!(section.plots.len() >= 2 && section.tables.len() >= 2);
    }

    #[test]
    fn a_limit_leaves_out_the_cases_above_it() {
        let cases = |max_pinned| {
            let options = NeighboursOptions { max_pinned: Some(max_pinned), quick: true };
            (options.cases().len(), options.check().is_ok())
        };
        assert_eq!(cases(u64::MAX), (7, true));
        assert_eq!(cases(40 << 20), (5, true));
        assert_eq!(cases(1 << 20), (1, false));
    }
}
