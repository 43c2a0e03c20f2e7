//! Part `neighbours`: how long others are held up while memory is pinned, and while it is given back.

use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::Scale;
use super::opens::milliseconds;
use super::own::{self, Signals};
use super::process::{Process, Program};
use super::report::{Felt, NOTHING, NeighbourRow};
use super::strategies::{Ground, Strategy};
use crate::BenchError;
use crate::timing::{Progress, Range};

/// The cases: nothing at all, then ways to pin.
pub(super) fn cases(ground: &Ground) -> Vec<Option<Strategy>> {
    let mut cases =
        vec![None, Some(Strategy::Pool), Some(Strategy::PoolWithoutPauses), Some(Strategy::Bare)];
    if matches!(ground, Ground::Cuda(_)) {
        cases.push(Some(Strategy::DriverAlloc));
    }
    cases
}

/// All rows. Without a `program`, or without a device, there is no other process.
pub(super) fn measure(
    ground: &Ground,
    bytes: usize,
    program: Option<&Program>,
    scale: &Scale,
    progress: &mut Progress<'_>,
) -> Result<Vec<NeighbourRow>, BenchError> {
    let process = match (ground, program) {
        (Ground::Cuda(_), Some(program)) => Some(Process::start(program)?),
        _ => None,
    };
    let mut watch = Watch { ground, process };
    let cases = cases(ground);
    let mut records: Vec<Record> = cases.iter().map(|_| Record::default()).collect();
    for _ in 0..scale.neighbour_rounds {
        for (case, record) in cases.iter().zip(&mut records) {
            match case {
                None => watch.nothing(scale, record)?,
                Some(strategy) => watch.pinning(*strategy, case_bytes(*strategy, bytes), record)?,
            }
            progress.step();
        }
    }
    let rows = cases.iter().zip(records).map(|(case, record)| {
        let bytes = case.map_or(0, |strategy| case_bytes(strategy, bytes));
        record.row(case.map_or(NOTHING, Strategy::name), bytes as u64)
    });
    Ok(rows.collect())
}

/// One call for all takes so long that a part of the memory says enough.
fn case_bytes(strategy: Strategy, bytes: usize) -> usize {
    match strategy {
        Strategy::Bare | Strategy::DriverAlloc => bytes.min(ONE_CALL_BYTES_MAX),
        _ => bytes,
    }
}

/// Those who may be held up.
struct Watch<'a> {
    ground: &'a Ground,
    process: Option<Process>,
}

/// Milliseconds of each of their calls.
#[derive(Debug, Default)]
struct Calls {
    process: Vec<f64>,
    own: Vec<f64>,
}

impl Watch<'_> {
    fn nothing(&mut self, scale: &Scale, record: &mut Record) -> Result<(), BenchError> {
        let idle = || {
            thread::sleep(scale.idle);
            Ok(())
        };
        let ((), calls) = self.during(idle)?;
        record.opening.push(calls);
        Ok(())
    }

    fn pinning(
        &mut self,
        strategy: Strategy,
        bytes: usize,
        record: &mut Record,
    ) -> Result<(), BenchError> {
        let ground = self.ground;
        let (opened, calls) = self.during(|| strategy.open(ground, bytes))?;
        record.ms.push(milliseconds(opened.total));
        record.opening.push(calls);
        let (closed, calls) = self.during(|| opened.close())?;
        record.close_ms.push(milliseconds(closed));
        record.closing.push(calls);
        Ok(())
    }

    /// What the others felt while `act` ran.
    fn during<T>(
        &mut self,
        act: impl FnOnce() -> Result<T, BenchError>,
    ) -> Result<(T, Calls), BenchError> {
        let signals = Signals::default();
        let (ready, is_ready) = mpsc::sync_channel(1);
        thread::scope(|scope| {
            let (ground, signals) = (self.ground, &signals);
            let own = scope.spawn(move || own::work(ground, signals, &ready));
            // It fails only if the thread did, which says why when it is joined.
            let _ = is_ready.recv();
            let process = &mut self.process;
            let acted = (|| {
                process.as_mut().map_or(Ok(()), Process::begin)?;
                signals.counts.store(true, Ordering::Relaxed);
                let acted = act()?;
                // What took less than a pause of that thread may have fallen between two of its turns.
                while !signals.counted.load(Ordering::Relaxed) && !own.is_finished() {
                    thread::sleep(Duration::from_micros(50));
                }
                signals.counts.store(false, Ordering::Relaxed);
                let times = process.as_mut().map_or(Ok(Vec::new()), Process::end)?;
                Ok((acted, times))
            })();
            signals.ends.store(true, Ordering::Relaxed);
            let own = own.join().unwrap_or_else(|_| {
                Err(BenchError::Failed("the thread beside this one panicked".to_owned()))
            })?;
            let (acted, process) = acted?;
            Ok((acted, Calls { process, own }))
        })
    }
}

/// The rounds of one case.
#[derive(Debug, Default)]
struct Record {
    ms: Vec<f64>,
    close_ms: Vec<f64>,
    opening: Vec<Calls>,
    closing: Vec<Calls>,
}

impl Record {
    fn row(&self, case: &str, bytes: u64) -> NeighbourRow {
        let range = |times: &Vec<f64>| (!times.is_empty()).then(|| Range::of(times));
        let process = |calls: &[Calls]| felt(calls, |calls| &calls.process);
        let own = |calls: &[Calls]| felt(calls, |calls| &calls.own);
        NeighbourRow {
            case: case.to_owned(),
            bytes,
            ms: range(&self.ms),
            close_ms: range(&self.close_ms),
            process: process(&self.opening),
            own: own(&self.opening),
            process_closing: process(&self.closing),
            own_closing: own(&self.closing),
        }
    }
}

/// What one of them felt in all rounds; `None` where it made no call.
fn felt(rounds: &[Calls], of: fn(&Calls) -> &Vec<f64>) -> Option<Felt> {
    Felt::of(&rounds.iter().map(|calls| of(calls).as_slice()).collect::<Vec<_>>())
}

/// What is pinned by one call, at most.
const ONE_CALL_BYTES_MAX: usize = 8 << 30;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_held_up_is_seen_and_its_last_call_counts() {
        let mut watch = Watch { ground: &Ground::Host, process: None };
        let slept = || {
            thread::sleep(Duration::from_millis(30));
            Ok(7)
        };
        let (seven, calls) = watch.during(slept).unwrap();
        assert_eq!((seven, calls.process.len()), (7, 0));
        assert!(calls.own.len() > 3, "{calls:?}");
        let ((), calls) = watch.during(|| Ok(())).unwrap();
        assert!(!calls.own.is_empty());
        let failed = watch.during(|| Err::<(), _>(BenchError::input("no"))).unwrap_err();
        assert_eq!(failed.to_string(), "no");
    }
}
