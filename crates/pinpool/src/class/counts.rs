//! What a class counts: where its slots are at one instant, and what has happened so far.

use std::time::{Duration, Instant};

use super::Class;
use crate::error::{Error, Exhausted, LeaseError, is_told};
use crate::slot::SlotState;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Cumulative counts, written on cold paths.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) waits: AtomicU64,
    pub(super) timeouts: AtomicU64,
    /// Slots that went into flight, and those that came out of it.
    departed: AtomicU64,
    landed: AtomicU64,
    quarantined: AtomicU32,
    high_water: AtomicU32,
    stale_returns: AtomicU64,
}

/// The counts of one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) free: u32,
    pub(crate) in_flight: u32,
    pub(crate) quarantined: u32,
    pub(crate) leased: u32,
}

impl Class {
    #[cold]
    #[inline(never)]
    pub(super) fn miss(&self) -> LeaseError {
        self.list.count_miss();
        self.raise_high_water(self.slots - self.quarantined());
        LeaseError::Exhausted(self.exhausted())
    }

    pub(super) fn exhausted(&self) -> Exhausted {
        Exhausted {
            class: self.id,
            name: self.name,
            slot_bytes: self.slot_bytes,
            slots: self.slots,
            in_flight: self.in_flight(),
            quarantined: self.quarantined(),
        }
    }

    #[cold]
    pub(super) fn stale_return(&self, slot: u32) {
        self.counters.stale_returns.fetch_add(1, Ordering::Relaxed);
        tracing::error!(class = %self.name, slot, "a stale return was ignored");
    }

    /// Called when a shard runs lower than ever before, at misses and by `stats`.
    #[cold]
    #[inline(never)]
    pub(super) fn sample_high_water(&self) -> Census {
        let census = self.census();
        // While the class is being closed its slots are in no list, though they are home.
        if !self.list.is_closed() {
            self.raise_high_water(census.leased + census.in_flight);
        }
        census
    }

    /// Writes only what is new: threads that find the class empty at once do not share a line then.
    fn raise_high_water(&self, out: u32) {
        if self.counters.high_water.load(Ordering::Relaxed) < out {
            self.counters.high_water.fetch_max(out, Ordering::Relaxed);
        }
    }

    /// The counts of one instant: read until two readings agree (I5). If the class never rests, the
    /// last reading stands; it balances all the same.
    pub(crate) fn census(&self) -> Census {
        let read = || {
            let landed = self.counters.landed.load(Ordering::Acquire);
            let quarantined = self.quarantined();
            let list = self.list.census();
            let departed = self.counters.departed.load(Ordering::Acquire);
            (list, departed, landed, quarantined, self.lifetime.still_out())
        };
        let mut last = read();
        for _ in 0..CENSUS_TRIES {
            let now = read();
            // Between the closing of the list and the counting of what was in it nobody knows.
            let closing = now.4.is_none() && self.list.is_closed();
            if now == last && !closing {
                break;
            }
            last = now;
        }
        let ((free, _), departed, landed, quarantined, still_out) = last;
        // What is home of a closed class is in no list.
        let free = still_out.map_or(free, |out| self.slots - out.min(self.slots));
        let free = free.min(self.slots - quarantined);
        let in_flight = clamp(departed.saturating_sub(landed), self.slots - quarantined - free);
        Census { free, in_flight, quarantined, leased: self.slots - quarantined - free - in_flight }
    }

    /// The counts, and the high-water mark after they were sampled.
    pub(crate) fn sampled(&self) -> (Census, u32) {
        let census = self.sample_high_water();
        (census, self.counters.high_water.load(Ordering::Relaxed))
    }

    /// A slot went into flight.
    pub(crate) fn depart(&self) {
        let count = if crate::seeded::bug("double-count") { 2 } else { 1 };
        self.counters.departed.fetch_add(count, Ordering::AcqRel);
    }

    /// A slot's work is over as the host sees it.
    pub(crate) fn land(&self) {
        self.counters.landed.fetch_add(1, Ordering::AcqRel);
    }

    /// A slot in flight whose work may never be over is never used again (I11).
    pub(crate) fn quarantine(&self, slot: u32, error: &Error) {
        // First: a slot in between counts as leased, never twice.
        self.land();
        let count = self.counters.quarantined.fetch_add(1, Ordering::AcqRel) + 1;
        if self.is_lost() {
            self.waiters.wake_all();
        }
        // It may have been the last that the keeper stayed for.
        self.shared.bell.ring();
        if is_told(count as usize) {
            tracing::error!(%error, class = %self.name, slot, count, "slot quarantined");
        }
    }

    /// Slots in flight: by holders of copies, and retired ones.
    pub(super) fn in_flight(&self) -> u32 {
        let landed = self.counters.landed.load(Ordering::Acquire);
        let departed = self.counters.departed.load(Ordering::Acquire);
        clamp(departed.saturating_sub(landed), self.slots)
    }

    /// Every slot is quarantined: none can be leased any more.
    pub(super) fn is_lost(&self) -> bool {
        self.quarantined() >= self.slots
    }

    /// Some slot was in flight once.
    pub(super) fn has_flown(&self) -> bool {
        self.counters.departed.load(Ordering::Relaxed) > 0
    }

    /// How long the longest use of a slot has been going on. `ours` is false in a forked child, where
    /// the lock of the retired slots may be held for ever.
    pub(crate) fn oldest_in_flight(&self, ours: bool) -> Option<Duration> {
        let now = Instant::now();
        // First: fences move from slots to lines meanwhile, and never back.
        let attached = self.list.metas().filter_map(SlotState::used_since).min();
        let attached = attached.map(|since| now.saturating_duration_since(since));
        let sorted = if ours { self.reclaim.oldest(now) } else { None };
        attached.max(sorted)
    }

    pub(super) fn quarantined(&self) -> u32 {
        self.counters.quarantined.load(Ordering::Acquire)
    }

    /// Slots that came home from flight so far.
    pub(crate) fn landed_total(&self) -> u64 {
        self.counters.landed.load(Ordering::Relaxed)
    }

    /// Leases so far, over all slots.
    pub(crate) fn leases_total(&self) -> u64 {
        self.list.metas().map(SlotState::leases).sum()
    }

    pub(crate) fn misses_total(&self) -> u64 {
        self.list.misses()
    }

    pub(crate) fn waits_total(&self) -> u64 {
        self.counters.waits.load(Ordering::Relaxed)
    }

    pub(crate) fn timeouts_total(&self) -> u64 {
        self.counters.timeouts.load(Ordering::Relaxed)
    }

    /// Slots that are out, once the class is closed.
    pub(crate) fn still_out(&self) -> usize {
        self.lifetime.still_out().unwrap_or(self.slots) as usize
    }

    /// Returns that were ignored because the slot was not the caller's any more.
    pub(crate) fn stale_returns_total(&self) -> u64 {
        self.counters.stale_returns.load(Ordering::Relaxed)
    }
}

/// A count that cannot exceed `max`, whatever was read in between.
fn clamp(count: u64, max: u32) -> u32 {
    u32::try_from(count).unwrap_or(max).min(max)
}

/// Readings before `census` settles for the last one.
const CENSUS_TRIES: usize = 64;
