//! How long tasks wait for memory, as the kernel's pressure stall information tells it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{SYSTEM, below, field, text};

/// The time that tasks lost for want of memory.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Pressure {
    /// While at least one task waited for memory.
    pub some: Stall,
    /// While all tasks that had something to do waited.
    pub full: Option<Stall>,
}

/// One share of time lost.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Stall {
    /// Percent of the last 10 seconds, a decaying mean.
    pub avg10: f64,
    /// Since the group, or the system, began.
    pub total: Duration,
}

impl Pressure {
    /// The whole system's; `None` where the kernel does not count it (it does with `psi=1` on its command line).
    pub fn read() -> Option<Self> {
        Self::read_at(Path::new(SYSTEM))
    }

    /// The pressure of a system whose root is the folder `root`.
    pub fn read_at(root: &Path) -> Option<Self> {
        Self::of(&system(root))
    }

    /// What such a file tells.
    pub(crate) fn of(file: &Path) -> Option<Self> {
        Self::parse(&text(file)?)
    }

    fn parse(text: &str) -> Option<Self> {
        Some(Self { some: Stall::parse(field(text, "some ")?)?, full: Self::full(text) })
    }

    fn full(text: &str) -> Option<Stall> {
        Stall::parse(field(text, "full ")?)
    }
}

impl Stall {
    /// `avg10=0.00 avg60=0.00 avg300=0.00 total=0`, the total in microseconds.
    fn parse(text: &str) -> Option<Self> {
        let value = |name| text.split(' ').find_map(|part| part.strip_prefix(name));
        let avg10: f64 = value("avg10=")?.parse().ok()?;
        let total = Duration::from_micros(value("total=")?.parse().ok()?);
        avg10.is_finite().then_some(Self { avg10, total })
    }
}

/// The file on the whole system's pressure.
pub(crate) fn system(root: &Path) -> PathBuf {
    below(root, Path::new("/proc/pressure/memory"))
}
