//! What a pool says of its start and of its end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::class::Held;
use crate::error::ClassName;
use crate::memory::BackendKind;
use crate::slab::StartupTimes;
use crate::tag::Tag;

/// How a pool came to its memory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StartupReport {
    /// The backend in use.
    pub backend: BackendKind,
    /// Why it is this one.
    pub reason: String,
    /// Every slab is locked in RAM.
    pub pinned: bool,
    /// Time per step, over all slabs.
    pub times: StartupTimes,
    /// Time of all steps together.
    pub total: Duration,
    /// Classes that are smaller than configured, as `min_bytes` allows.
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
    /// Slots that it was to have.
    pub wanted: u32,
    /// What went wrong with the rest.
    pub reason: String,
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
