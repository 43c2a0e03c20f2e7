//! Scenario `pressure`: what pinned memory costs the rest of the system: a neighbour that needs memory
//! and a file in the page cache, beside more and more of it.
//!
//! It takes care that nobody runs out of memory: what all take together stays below what the system has
//! left, with room to spare, which is looked at before each step.

mod memory;
mod neighbour;
mod plan;
pub mod report;
mod text;

use std::path::PathBuf;
use std::time::Instant;

use pinpool::{BackendChoice, LockMode, Pool};

use crate::BenchError;
use crate::header::Header;
use crate::startup::process::Program;
use crate::timing::{self, Progress};
use neighbour::Seat;
pub use neighbour::serve;
use plan::{MIB, Plan, Scale};
use report::{PRESSURE, PressureReport, Round};

/// What to measure.
#[derive(Debug, Clone, Default)]
pub struct PressureOptions {
    /// Pins no more bytes than this; `None` is half of what is available.
    pub max_pinned: Option<u64>,
    /// Where the neighbour's file lies; `None` is the system's folder for temporary files.
    pub file_dir: Option<PathBuf>,
    /// Runs with little memory: enough to see that it works, too little for figures.
    pub quick: bool,
    /// How to start the neighbour as another process; `None` has it in this one.
    pub program: Option<Program>,
}

impl PressureOptions {
    /// Looks whether there is anything to do.
    ///
    /// # Errors
    /// [`BenchError::Input`] where less than one mebibyte may be pinned.
    pub fn check(&self) -> Result<(), BenchError> {
        match self.max_pinned {
            Some(bytes) if bytes < MIB => {
                Err(BenchError::Input(format!("--max-pinned {bytes}: at least {MIB} bytes")))
            }
            _ => Ok(()),
        }
    }

    /// Where the neighbour's file lies.
    pub fn folder(&self) -> PathBuf {
        self.file_dir.clone().unwrap_or_else(std::env::temp_dir)
    }
}

/// Runs the scenario, or reports why it cannot run here. `progress` hears of cases done.
///
/// # Errors
/// As [`PressureOptions::check`]; any call that failed. A machine with too little memory is no error: the
/// report says so.
pub fn run(
    options: &PressureOptions,
    command: String,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<PressureReport, BenchError> {
    options.check()?;
    let scale = if options.quick { Scale::QUICK } else { Scale::FULL };
    let header = Header::here(PRESSURE, command, options.quick, METHOD);
    let plan = match Plan::here(&scale, options.max_pinned) {
        Ok(plan) => plan,
        Err(reason) => return Ok(PressureReport::not_run(header, reason)),
    };
    let mut notes = plan.notes.clone();
    let mut seat = Seat::take(options, &mut notes)?;
    let file_bytes = seat.file(plan.file_bytes, &mut notes)?;
    let mut progress = Progress::new((scale.rounds * plan.pinned.len()) as u64, progress);
    let mut rounds: Vec<Vec<Round>> = plan.pinned.iter().map(|_| Vec::new()).collect();
    let started = Instant::now();
    for round in 0..scale.rounds {
        if round > 0 && started.elapsed() > scale.patience {
            notes.push(format!("{round} rounds of {}: they took long enough", scale.rounds));
            break;
        }
        for which in timing::order(round, plan.pinned.len()) {
            let pinned = plan.pinned[which];
            match case(&plan, pinned, file_bytes.is_some(), &mut seat)? {
                Ok(figures) => rounds[which].push(figures),
                Err(reason) => notes.push(reason),
            }
            progress.step();
        }
    }
    Ok(PressureReport::of(header, &plan, file_bytes, notes, &rounds))
}

/// One case: the memory is pinned, and the neighbour does its work beside it. The inner error is why it
/// was left out: others took memory meanwhile.
fn case(
    plan: &Plan,
    pinned: u64,
    has_file: bool,
    seat: &mut Seat,
) -> Result<Result<Round, String>, BenchError> {
    if let Err(reason) = plan.admits(pinned + plan.working_bytes) {
        return Ok(Err(reason));
    }
    let pool = (pinned > 0).then(|| pin(pinned)).transpose()?;
    // Once more: pinning takes a while, and the neighbour's part is not admitted by anybody else.
    if let Err(reason) = plan.admits(plan.working_bytes) {
        return Ok(Err(reason));
    }
    let figures = seat.work(plan.working_bytes, has_file)?;
    drop(pool);
    Ok(Ok(figures))
}

/// So much memory, locked.
fn pin(bytes: u64) -> Result<Pool, BenchError> {
    let slot = usize::try_from(MIB).unwrap_or(usize::MAX);
    let slots = usize::try_from(bytes / MIB).unwrap_or(usize::MAX);
    Pool::builder()
        .env(false)
        .backend(BackendChoice::Host)
        .lock(LockMode::Require)
        .class("pinned", slot, slots)
        .open()
        .map_err(|cause| BenchError::opening_pool(&cause))
}

const METHOD: &str = "\
    a pool on the host locks a share of the memory that is available, and beside it a neighbour, \
    another process, maps and touches its working set by up to 8 threads, then reads all of it once, \
    then reads a file through the page cache twice, of which the second time counts; all of that is \
    given back before the next case. All cases in each round, in changing order. The working set is what \
    the largest share leaves less the room that is kept free, and the file is twice as large as that \
    room: with nothing pinned it fits into the page cache, beside the largest share it does not. No \
    case begins where others have taken memory meanwhile, and the neighbour offers itself to the kernel \
    as the first process to end where memory runs out. Percent in the page cache: of the file's pages, \
    before the second reading, by mincore. Nothing is subtracted: each time is of many milliseconds";

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_has_every_share_or_says_why_it_has_none() {
        let options = PressureOptions {
            max_pinned: Some(24 << 20),
            quick: true,
            ..PressureOptions::default()
        };
        let report = run(&options, "cmd".to_owned(), &mut |_, _| ()).unwrap();
        if let Some(why) = &report.header.not_run {
            println!("pressure not tested: {why}");
            assert!(report.rows.is_empty() && report.to_text().starts_with("not run: "));
            assert_eq!(report.section().not_run.as_ref(), Some(why));
            return;
        }
        assert!(report.rows.len() >= 2, "{report:?}");
        assert_eq!(report.rows[0].pinned_bytes, 0);
        assert!(report.rows.iter().all(|row| row.pinned_bytes <= 24 << 20), "{report:?}");
        for row in &report.rows {
            assert!(row.map_ms.median > 0.0 && row.stream_gb_per_s > 0.0, "{row:?}");
        }
        assert_eq!(report.ratios.len(), report.rows.len() - 1);
        let section = report.section();
        assert_eq!((section.id, section.not_run.as_deref()), (PRESSURE, None));
        assert!(report.to_text().contains("in this process"), "{}", report.to_text());
    }

    #[test]
    fn less_than_a_mebibyte_is_refused() {
        let check =
            |max_pinned| PressureOptions { max_pinned, ..PressureOptions::default() }.check();
        assert!(check(None).is_ok() && check(Some(1 << 20)).is_ok());
        let error = check(Some(4096)).unwrap_err();
        assert!(error.is_input() && error.to_string().contains("--max-pinned 4096"), "{error}");
    }
}
