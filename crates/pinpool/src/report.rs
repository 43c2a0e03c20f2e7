//! What a pool says of its start and of its end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::class::Held;
use crate::error::ClassName;
use crate::memory::{BackendKind, PageTier};
use crate::slab::{Slab, StartupTimes};
use crate::tag::Tag;

/// How a pool came to its memory, as [`Pool::startup`](crate::Pool::startup) gives it.
///
/// While the pool is still being opened it knows `backend`, `reason` and the first `notes`, and no more.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StartupReport {
    /// The backend in use.
    pub backend: BackendKind,
    /// Why it is this one.
    pub reason: String,
    /// Every slab is locked in RAM.
    pub pinned: bool,
    /// What each slab really lies on, in the order of the configuration's classes.
    pub slabs: Vec<SlabReport>,
    /// What was asked for and cannot be had here, such as a place on a NUMA node.
    pub notes: Vec<String>,
    /// Time per step, over all slabs.
    pub times: StartupTimes,
    /// Time of all steps together.
    pub total: Duration,
    /// Classes that are smaller than configured, as `min_bytes` allows; none if all is as configured.
    pub cut: Vec<CutClass>,
}

/// A class that is smaller than configured.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CutClass {
    /// Its name.
    pub class: ClassName,
    /// Slots that it has.
    pub slots: u32,
    /// Slots that it was to have (`count`).
    pub wanted: u32,
    /// What went wrong with the rest.
    pub reason: String,
}

/// What the slab that a class opened with really lies on, as the system tells.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlabReport {
    /// Its class.
    pub class: ClassName,
    /// Bytes mapped: on reserved huge pages rounded up to whole ones. Of a class that was cut it counts those
    /// that were given back as well.
    pub bytes: u64,
    /// The kind of its pages; a huge one only if every whole huge page of the slab is.
    pub pages: PageTier,
    /// Bytes on huge pages of either kind; a lower bound where the system tells no more.
    pub huge_bytes: u64,
    /// Its NUMA node, if all of it that was looked at lies on one, and the system tells.
    pub node: Option<u32>,
}

impl SlabReport {
    /// Of the slab that a class opens with.
    pub(crate) fn new(class: &str, slab: &Slab) -> Self {
        let obtained = slab.obtained();
        Self {
            class: ClassName::new(class),
            bytes: slab.mapped_bytes() as u64,
            pages: obtained.pages,
            huge_bytes: obtained.huge_bytes,
            node: obtained.node,
        }
    }
}

impl fmt::Display for SlabReport {
    /// Short, for a line of many.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.class, self.pages)?;
        match self.node {
            Some(node) => write!(f, " on node {node}"),
            None => Ok(()),
        }
    }
}

impl StartupReport {
    /// All slabs in one short line.
    pub(crate) fn slabs_line(&self) -> String {
        let slabs: Vec<_> = self.slabs.iter().map(ToString::to_string).collect();
        slabs.join(", ")
    }
}

/// What was still out when a close ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloseReport {
    /// Per class with slots out: its name and how many.
    pub still_out: Vec<(ClassName, usize)>,
    /// Who holds slots: the longest first where the pool keeps track (`track_holders`).
    pub holders: Vec<Holder>,
    /// The slots of these that no holder has any more, but whose work is not over, the longest first.
    pub in_flight: Vec<StuckSlot>,
    /// How many of the slots that are out are quarantined after failed work: they never come home, and
    /// their slabs stay mapped until the process ends.
    pub quarantined: u64,
    /// Slabs not given back yet: some of their slots are out, or a thread is unpinning them.
    pub slabs_left: usize,
    /// Bytes whose unpin or unmap failed; they stay mapped until the process ends.
    pub stuck_bytes: u64,
}

/// A slot whose holder let go of it while work on it was in flight, and still is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StuckSlot {
    /// Its class.
    pub class: ClassName,
    /// Its number within the class.
    pub slot: u32,
    /// How long ago the work was queued.
    pub age: Duration,
}

/// A lease that is out, as [`Pool::holders`](crate::Pool::holders) lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Its class.
    pub class: ClassName,
    /// Its slot's number within the class.
    pub slot: u32,
    /// The name that its holder gave it.
    pub tag: Option<Arc<str>>,
    /// For how long it has been held, where the pool keeps track (`track_holders`).
    pub held: Option<Duration>,
    /// The system's number of the thread that leased it, where the pool keeps track.
    pub thread: Option<u32>,
}

impl Holder {
    pub(crate) fn new(class: ClassName, held: Held) -> Self {
        let Held { slot, tag, age, thread, .. } = held;
        let thread = age.map(|_| thread);
        Self { class, slot, tag: Tag::name(tag), held: age, thread }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {} of '{}' is held", self.slot, self.class)?;
        if let Some(tag) = &self.tag {
            write!(f, " by '{tag}'")?;
        }
        if let Some(held) = self.held {
            write!(f, " for {held:.1?}")?;
        }
        match self.thread {
            Some(thread) => write!(f, ", leased by thread {thread}"),
            None => Ok(()),
        }
    }
}

impl CloseReport {
    /// True when every slot came home and all memory was given back.
    pub fn is_complete(&self) -> bool {
        self.still_out.is_empty() && self.slabs_left == 0 && self.stuck_bytes == 0
    }
}

impl fmt::Display for CloseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_complete() {
            return f.write_str("closed, all memory given back");
        }
        write!(f, "{} slabs are not given back", self.slabs_left)?;
        for (class, slots) in &self.still_out {
            write!(f, "; class '{class}': {slots} slots are out")?;
        }
        for holder in self.holders.iter().take(STUCK_SHOWN) {
            write!(f, "; {holder}")?;
        }
        if let Some(more) = self.holders.len().checked_sub(STUCK_SHOWN).filter(|more| *more > 0) {
            write!(f, " and {more} more")?;
        }
        for stuck in self.in_flight.iter().take(STUCK_SHOWN) {
            let StuckSlot { class, slot, age } = stuck;
            write!(f, "; slot {slot} of '{class}' has been in flight for {age:.1?}")?;
        }
        if let Some(more) = self.in_flight.len().checked_sub(STUCK_SHOWN).filter(|more| *more > 0) {
            write!(f, " and {more} more")?;
        }
        if self.quarantined > 0 {
            write!(f, "; {} of them are quarantined and will never come home", self.quarantined)?;
        }
        match self.stuck_bytes {
            0 => Ok(()),
            stuck => write!(f, "; {stuck} bytes could not be given back"),
        }
    }
}

/// Holders, and slots in flight, that a close report prints; all are in its lists.
const STUCK_SHOWN: usize = 4;
