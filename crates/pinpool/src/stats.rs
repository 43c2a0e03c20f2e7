//! What a pool looks like from outside, read without stopping it.

use std::fmt;
use std::time::Duration;

use bytesize::ByteSize;

use crate::error::ClassName;
use crate::memory::BackendKind;
use crate::size_class::ClassId;

/// A pool's counts. Its `Display` is a table.
///
/// Reading them costs one pass over the slots' records, about a nanosecond a slot. It takes for a
/// moment the lock that a lease of an empty class takes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// What the memory is.
    pub backend: BackendKind,
    /// Every slab is locked in RAM.
    pub pinned: bool,
    /// A GPU can reach every slab: copies are not staged.
    pub device_accessible: bool,
    /// Bytes pinned now, including any whose unpin failed.
    pub pinned_bytes: u64,
    /// The most bytes the pool may pin.
    pub cap_bytes: u64,
    /// Bytes mapped in slabs now; on reserved huge pages the rest of a slab's last one included.
    pub mapped_bytes: u64,
    /// Bytes whose unpin or unmap failed; they stay mapped.
    pub stuck_bytes: u64,
    /// Driver calls of this process that failed where nobody could be told: events that could not be
    /// destroyed. Of all pools together.
    pub driver_failures: usize,
    /// The system is short of memory now: unused grown slabs are given back, and no class grows
    /// (`on_pressure = "trim"`). Looked for where a class grows or has pageable buffers.
    pub under_pressure: bool,
    /// How often that began so far. What it took back is in `trimmed_total` of the classes.
    pub pressure_total: u64,
    /// Bytes of pageable buffers that stand in for pinned slots, in use or kept for the next time.
    pub pageable_bytes: u64,
    /// The classes, in the order of [`Plan::classes`](crate::Plan::classes).
    pub classes: Vec<ClassStats>,
}

/// One class's counts. `free + leased + in_flight + quarantined == slots`, always.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassStats {
    /// The class.
    pub id: ClassId,
    /// Its name.
    pub name: ClassName,
    /// Bytes configured for one slot.
    pub size: usize,
    /// Bytes in one slot.
    pub slot_bytes: usize,
    /// Slots that there are now: those the pool opened with, grown ones, and pageable buffers in use.
    pub slots: u32,
    /// Slots of it in slabs that the class added by growing.
    pub grown: u32,
    /// Slots of it that are pageable buffers in use.
    pub pageable: u32,
    /// Slots that can be leased now; of a closed pool, those that came home.
    pub free: u32,
    /// Of the free ones, those that only leases with priority can have (`reserve`).
    pub reserved: u32,
    /// Slots held by leases, whatever work uses them meanwhile.
    pub leased: u32,
    /// Slots in flight: locked away by an [`InFlight`](crate::InFlight), or without a holder and with
    /// work on them that was not seen to be over yet.
    pub in_flight: u32,
    /// Slots out of use for good, because nobody knows whether work still touches them.
    pub quarantined: u32,
    /// Threads and tasks that wait for a slot.
    pub waiting: usize,
    /// How long the oldest work on a slot has been going on: of copies that somebody holds, of leases
    /// that were dropped before their work was over, and of leases that were told of a use.
    pub oldest_in_flight: Option<Duration>,
    /// The most slots seen out at once. Exact for one thread and whenever a lease failed; with
    /// several threads a peak between two samples can be missed.
    pub high_water: u32,
    /// Leases given so far.
    pub leases_total: u64,
    /// Slots whose work in flight ended so far, quarantined ones included.
    pub landed_total: u64,
    /// Leases refused so far because the class was empty, waits included.
    pub misses_total: u64,
    /// Leases that waited so far.
    pub waits_total: u64,
    /// Waits that ended without a slot so far.
    pub timeouts_total: u64,
    /// Tasks that gave up waiting so far.
    pub cancelled_total: u64,
    /// Time that waits took so far, over all of them.
    pub waited_total: Duration,
    /// The longest wait so far.
    pub longest_wait: Duration,
    /// Leases that a slot of a larger class was given for so far (`max_spill`).
    pub spilled_total: u64,
    /// Leases that got a pageable buffer so far (`on_empty = "pageable"`).
    pub pageable_total: u64,
    /// Slabs added so far (`on_empty = "grow"`).
    pub grown_total: u64,
    /// Attempts to add a slab that failed so far.
    pub grow_failures_total: u64,
    /// Added slabs taken away so far.
    pub trimmed_total: u64,
    /// Leases reported so far as held for longer than `leak_after`.
    pub leaks_total: u64,
    /// Canaries found overwritten so far (`debug_checks`): somebody wrote past the end of a slot.
    pub overruns_total: u64,
    /// Slots found written while nobody had them so far (`debug_checks`). They are quarantined.
    pub late_writes_total: u64,
    /// Returns of a slot that was no longer the returner's, ignored. Not zero means a bug.
    pub stale_returns_total: u64,
}

impl PoolStats {
    /// The counts of the class with this name.
    pub fn class(&self, name: &str) -> Option<&ClassStats> {
        self.classes.iter().find(|class| class.name == name)
    }
}

impl fmt::Display for PoolStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "backend {}, {}, {}, {} pinned of at most {}",
            self.backend,
            if self.pinned { "pinned" } else { "not pinned" },
            if self.device_accessible { "GPU-accessible" } else { "not GPU-accessible" },
            ByteSize(self.pinned_bytes),
            ByteSize(self.cap_bytes),
        )?;
        if self.stuck_bytes > 0 {
            writeln!(f, "{} could not be given back", ByteSize(self.stuck_bytes))?;
        }
        if self.pressure_total > 0 {
            let now = if self.under_pressure { "lasts" } else { "is over" };
            writeln!(f, "memory pressure began {} times and {now}", self.pressure_total)?;
        }
        let width = self.classes.iter().map(|class| class.name.as_str().len()).max().unwrap_or(0);
        let width = width.max(5);
        writeln!(
            f,
            "{:width$} {:>14} {:>7} {:>7} {:>7} {:>7} {:>7} {:>10} {:>12} {:>10}",
            "class",
            "slot bytes",
            "slots",
            "free",
            "leased",
            "flight",
            "lost",
            "high-water",
            "leases",
            "misses"
        )?;
        for class in &self.classes {
            writeln!(
                f,
                "{:width$} {:>14} {:>7} {:>7} {:>7} {:>7} {:>7} {:>10} {:>12} {:>10}",
                class.name,
                class.slot_bytes,
                class.slots,
                class.free,
                class.leased,
                class.in_flight,
                class.quarantined,
                class.high_water,
                class.leases_total,
                class.misses_total
            )?;
        }
        Ok(())
    }
}
