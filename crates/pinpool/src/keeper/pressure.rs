//! Whether tasks wait for memory, told by the kernel's counts: it reads a file now and then, and knows
//! neither pools nor slabs.
//!
//! The file is read rather than polled. A trigger for a window below two seconds is for the privileged
//! only, and one more thing to sleep on; a reading takes microseconds on a thread that looks anyway.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::memory::limits::{Cgroup, Pressure, pressure};

/// One source of counts, and what it told.
#[derive(Debug)]
pub(super) struct Watch {
    file: PathBuf,
    /// When it was last read, and the time lost until then.
    last: Option<(Instant, Duration)>,
    lasts: bool,
}

/// What became of the pressure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Change {
    None,
    /// At so many percent of the time.
    Began(f64),
    Ended,
}

impl Watch {
    /// Between two readings.
    pub(super) const INTERVAL: Duration = Duration::from_secs(1);

    /// The counts of this process's control group, or else those of the whole system: a neighbour that
    /// is short of memory by a limit of its own has no use for ours. `None` where neither is counted.
    pub(super) fn find(root: &Path) -> Option<Self> {
        let group = Cgroup::read_at(root).map(|group| group.pressure_file());
        let files = group.into_iter().chain([pressure::system(root)]);
        let file = files.into_iter().find(|file| Pressure::of(file).is_some())?;
        Some(Self { file, last: None, lasts: false })
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Reads the counts, if it is time.
    pub(super) fn look(&mut self, now: Instant) -> Change {
        let since = self.last.map(|(last, _)| now.saturating_duration_since(last));
        if since.is_some_and(|since| since < Self::INTERVAL) {
            return Change::None;
        }
        // A file that is gone tells of no pressure: a group may be removed around its processes.
        let (avg10, total) = Pressure::of(&self.file)
            .map_or((0.0, Duration::ZERO), |pressure| (pressure.some.avg10, pressure.some.total));
        let share = self.last.zip(since).map_or(0.0, |((_, before), since)| {
            100.0 * total.saturating_sub(before).as_secs_f64() / since.as_secs_f64()
        });
        self.last = Some((now, total));
        // The mean is late by seconds, the share since the last reading forgets at once.
        let percent = avg10.max(share);
        match self.lasts {
            false if percent >= BEGINS => {
                self.lasts = true;
                Change::Began(percent)
            }
            true if percent < ENDS => {
                self.lasts = false;
                Change::Ended
            }
            _ => Change::None,
        }
    }
}

/// Percent of the time in which some task waits: a tenth is far more than a working system shows, and far
/// less than where killers of processes step in (60 percent in systemd's default).
const BEGINS: f64 = 10.0;
/// Lower, so that a pressure about the threshold is one episode.
const ENDS: f64 = 5.0;

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests;
