//! The thread that takes frames and gives them back, at a rate or as fast as it can.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use pinpool::{BackendChoice, LockMode, Pool};

use super::report::{FrameTimes, RoundFelt};
use super::turns::Turns;
use crate::BenchError;
use crate::rivals::BufferSource;
use crate::rivals::lease::Leases;
use crate::rivals::pinned_cuda::PinnedCuda;
use crate::rivals::pinned_host::{HostPages, PinnedHost};
use crate::startup::Ground;
use crate::timing::Times;
use crate::window::joined;
use crate::{machine, text};

/// Where frames come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// There is no thread beside.
    Nothing,
    /// Memory is pinned for each frame and given back to the system.
    Pinning,
    /// A lease for each frame.
    Pool,
}

/// One thing to have beside.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    /// Where its frames come from.
    pub way: Way,
    /// Its frames.
    pub frame: &'static str,
    /// Bytes of one.
    pub bytes: usize,
    /// Frames in a second; `None` is as many as it can.
    pub rate: Option<f64>,
}

impl Case {
    /// All cases; alone first.
    pub fn all() -> Vec<Self> {
        let [hd, uhd] = SIZES;
        let mut cases = vec![Self { way: Way::Nothing, frame: "", bytes: 0, rate: None }];
        for way in [Way::Pinning, Way::Pool] {
            for ((frame, bytes), rate) in [(hd, Some(60.0)), (uhd, Some(30.0)), (hd, None)] {
                cases.push(Self { way, frame, bytes, rate });
            }
        }
        cases
    }

    /// Its name in reports.
    pub fn name(&self) -> String {
        let way = match self.way {
            Way::Nothing => return super::report::ALONE.to_owned(),
            Way::Pinning => "pinning",
            Way::Pool => "pool",
        };
        match self.rate {
            Some(rate) => format!("{way}, {} at {rate}/s", self.frame),
            None => format!("{way}, {} in a loop", self.frame),
        }
    }

    /// What is pinned at once where no case is larger: the pool's slots, and a frame beside them.
    pub(super) fn pinned_bytes(&self) -> u64 {
        let slots: usize = SIZES.iter().map(|(_, bytes)| *bytes).filter(|b| *b <= self.bytes).sum();
        (slots * SLOTS + self.bytes) as u64
    }
}

/// The least that a case pins.
pub(super) fn pinned_bytes(cases: &[Case]) -> u64 {
    cases.iter().map(Case::pinned_bytes).filter(|bytes| *bytes > 0).min().unwrap_or(0)
}

/// What the thread beside needs in all cases.
#[derive(Debug)]
pub(super) struct Beside {
    ground: Ground,
    pool: Pool,
    lock: bool,
}

/// What one case came to in one round.
#[derive(Debug)]
pub(super) struct Phase {
    pub(super) felt: Vec<RoundFelt>,
    pub(super) frames: FrameTimes,
}

impl Beside {
    /// Opens the pool of all cases. Where the system refuses to lock memory, none is locked, and the
    /// notes say so.
    pub(super) fn open(
        ground: &Ground,
        cases: &[Case],
        notes: &mut Vec<String>,
    ) -> Result<Self, BenchError> {
        let mut sizes: Vec<(&str, usize)> = cases
            .iter()
            .filter(|case| case.bytes > 0)
            .map(|case| (case.frame, case.bytes))
            .collect();
        sizes.sort_unstable_by_key(|(_, bytes)| *bytes);
        sizes.dedup();
        let largest = sizes.last().map_or(1, |(_, bytes)| *bytes);
        let lock = match ground {
            Ground::Cuda(_) => true,
            Ground::Host => may_lock(largest, sizes.iter().map(|(_, bytes)| bytes * SLOTS).sum())?,
        };
        if !lock {
            notes.push(format!(
                "the system refused to lock memory (RLIMIT_MEMLOCK is {}), so none is locked: frames \
                 are mapped, backed and unmapped; raise the limit with `ulimit -l`",
                machine::memlock().summary()
            ));
        }
        let mut builder = Pool::builder().env(false).device(0);
        builder = match ground {
            Ground::Cuda(_) => builder.backend(BackendChoice::Cuda),
            Ground::Host => builder.backend(BackendChoice::Host),
        };
        builder = builder.lock(if lock { LockMode::Require } else { LockMode::Off });
        for (frame, bytes) in sizes {
            builder = builder.class(frame, bytes, SLOTS);
        }
        let pool = builder.open().map_err(|cause| BenchError::opening_pool(&cause))?;
        Ok(Self { ground: ground.clone(), pool, lock })
    }

    /// Whether memory is really locked.
    pub(super) fn locks(&self) -> bool {
        self.lock
    }

    /// Runs a case beside the turns of this thread.
    pub(super) fn phase(
        &mut self,
        case: &Case,
        turns: &mut Turns,
        length: Duration,
    ) -> Result<Phase, BenchError> {
        turns.warm_up()?;
        if case.way == Way::Nothing {
            return Ok(Phase { felt: turns.work(length)?, frames: FrameTimes::default() });
        }
        let over = AtomicBool::new(false);
        let (ready, is_ready) = mpsc::sync_channel(1);
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let pacer = Pacer { case, length, over: &over, ready };
                self.frames(case.way, &pacer)
            });
            // It fails only if the thread did, which says why when it is joined.
            let felt = match is_ready.recv() {
                Ok(()) => turns.work(length),
                Err(_) => Ok(Vec::new()),
            };
            over.store(true, Ordering::Relaxed);
            let frames = joined(thread)??;
            Ok(Phase { felt: felt?, frames })
        })
    }

    /// What the thread beside does.
    fn frames(&self, way: Way, pacer: &Pacer<'_>) -> Result<FrameTimes, BenchError> {
        self.ground.bind()?;
        match (way, &self.ground) {
            (Way::Nothing | Way::Pool, _) => {
                pacer.run(&mut Leases::new(self.pool.clone(), pacer.case.bytes))
            }
            (Way::Pinning, Ground::Cuda(rig)) => {
                pacer.run(&mut PinnedCuda::new(rig.context.clone(), pacer.case.bytes))
            }
            (Way::Pinning, Ground::Host) => {
                pacer.run(&mut PinnedHost::new(pacer.case.bytes, self.lock))
            }
        }
    }
}

/// When to take the next frame.
struct Pacer<'a> {
    case: &'a Case,
    length: Duration,
    over: &'a AtomicBool,
    ready: mpsc::SyncSender<()>,
}

impl Pacer<'_> {
    /// Takes frames and gives them back until it is told to stop, or its time is over.
    fn run<S: BufferSource>(&self, source: &mut S) -> Result<FrameTimes, BenchError> {
        let mut times = Times::new()?;
        let started = Instant::now();
        // Whoever waits for this has gone only if it failed.
        let _ = self.ready.send(());
        while !self.over.load(Ordering::Relaxed) && started.elapsed() < self.length {
            let begun = Instant::now();
            let buffer = source.acquire()?;
            source.release(buffer)?;
            times.record(begun.elapsed());
            if let Some(rate) = self.case.rate {
                self.pause(started, rate);
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        Ok(FrameTimes::of(&times, seconds))
    }

    /// Until the next frame is due; frames that were missed are left out.
    fn pause(&self, started: Instant, rate: f64) {
        let elapsed = started.elapsed().as_secs_f64();
        let due = ((elapsed * rate).floor() + 1.0) / rate;
        let wait = Duration::from_secs_f64(due - elapsed);
        thread::sleep(wait.min(self.length.saturating_sub(started.elapsed())));
    }
}

/// Whether the system lets this process lock a pool's slots and a frame beside them.
fn may_lock(frame: usize, slots: usize) -> Result<bool, BenchError> {
    match HostPages::new(frame + slots, true) {
        Ok(pages) => {
            drop(pages);
            Ok(true)
        }
        Err(BenchError::LockRefused { .. }) => Ok(false),
        Err(other) => {
            let bytes = text::bytes((frame + slots) as u64);
            Err(BenchError::failed(&format!("trying to lock {bytes}"), other))
        }
    }
}

/// Frames of three bytes a pixel.
const SIZES: [(&str, usize); 2] = [("1080p", 1920 * 1080 * 3), ("4K", 3840 * 2160 * 3)];
/// Slots of each size: one thread needs one, and gives it back before it takes the next.
const SLOTS: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_has_a_name_of_its_own_and_alone_comes_first() {
        let names: Vec<String> = Case::all().iter().map(Case::name).collect();
        assert_eq!(names[0], super::super::report::ALONE);
        assert_eq!(names[1], "pinning, 1080p at 60/s");
        assert_eq!(names[6], "pool, 1080p in a loop");
        let mut sorted = names.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), names.len());
    }
}
