//! What a class counts: where its slots are at one instant, and what has happened so far.

use std::time::{Duration, Instant};

use super::{Class, ClassRef};
use crate::clock;
use crate::config::OnEmpty;
use crate::error::{Error, Exhausted, LeaseError, Remedy, is_told};
use crate::foreign::tell;
use crate::free_list::{BayId, Reach};
use crate::slot::SlotState;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::waiters::Want;

/// Cumulative counts, written on cold paths.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) waits: AtomicU64,
    pub(super) timeouts: AtomicU64,
    pub(super) cancelled: AtomicU64,
    /// Time that finished waits took, together and the longest, in nanoseconds.
    waited: AtomicU64,
    longest: AtomicU64,
    /// Leases that a larger class's slots were taken for.
    pub(super) spilled: AtomicU64,
    pub(super) leaks: AtomicU64,
    /// When a miss was last logged, in milliseconds since the counts began; 0 for never.
    told: AtomicU64,
    start: Started,
    /// Slots that went into flight, and those that came out of it.
    departed: AtomicU64,
    landed: AtomicU64,
    quarantined: AtomicU32,
    /// Those of them that belong to the reserve. Counted first, so that it is not behind.
    reserve_lost: AtomicU32,
    high_water: AtomicU32,
    stale_returns: AtomicU64,
}

/// When the counts began.
#[derive(Debug)]
struct Started(Instant);

impl Default for Started {
    fn default() -> Self {
        Self(clock::now())
    }
}

impl Counters {
    /// A wait is over.
    pub(super) fn waited(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.waited.fetch_add(nanos, Ordering::Relaxed);
        self.longest.fetch_max(nanos, Ordering::Relaxed);
    }
}

/// The counts of one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) slots: u32,
    pub(crate) free: u32,
    pub(crate) in_flight: u32,
    pub(crate) quarantined: u32,
    pub(crate) leased: u32,
}

impl Class {
    /// A lease is refused.
    #[cold]
    #[inline(never)]
    pub(crate) fn miss(&self) -> LeaseError {
        let misses = self.count_miss();
        let exhausted = self.exhausted();
        // Powers of ten, and not more than one a second: a pool that is too small must be seen and
        // must not fill a log.
        if misses.ilog10() != (misses - 1).checked_ilog10().unwrap_or(u32::MAX) {
            self.tell_miss(&exhausted);
        }
        LeaseError::Exhausted(exhausted)
    }

    /// Somebody found the class empty. Returns how many did, on the line that the calling thread
    /// counts on.
    pub(crate) fn count_miss(&self) -> u64 {
        let out = self.slots_now() - self.reserved();
        self.raise_high_water(out.saturating_sub(self.quarantined()));
        if self.added.want() {
            self.shared.ring_for_growth();
        }
        self.list.count_miss()
    }

    fn tell_miss(&self, exhausted: &Exhausted) {
        let now = clock::elapsed(self.counters.start.0).as_millis();
        let now = u64::try_from(now).unwrap_or(u64::MAX).max(1);
        let told = self.counters.told.load(Ordering::Relaxed);
        if told != 0 && now - told.min(now) < TELL_MS {
            return;
        }
        // One of those who come at once tells.
        let mine =
            self.counters.told.compare_exchange(told, now, Ordering::Relaxed, Ordering::Relaxed);
        if mine.is_ok() {
            let misses = self.misses_total();
            tell!(warn, misses, "{exhausted}; counted in misses_total, told rarely");
        }
    }

    pub(super) fn exhausted(&self) -> Exhausted {
        Exhausted {
            class: self.id,
            name: self.name,
            slot_bytes: self.slot_bytes,
            slots: self.slots_now(),
            in_flight: self.in_flight(),
            quarantined: self.quarantined(),
            reserved: self.reserved(),
            waiting: clamp(self.waiting() as u64, u32::MAX),
            oldest: self.oldest_holder(),
            remedy: self.remedy(),
        }
    }

    fn remedy(&self) -> Remedy {
        match self.on_empty {
            OnEmpty::Wait => Remedy::Count,
            OnEmpty::Fail => Remedy::Policy,
            OnEmpty::Pageable => Remedy::PageableMax,
            OnEmpty::Grow if self.added.room() == 0 => Remedy::GrowMax,
            OnEmpty::Grow if !self.may_pin_more() => Remedy::MaxPinned,
            OnEmpty::Grow if self.shared.strain.lasts() => Remedy::Pressure,
            OnEmpty::Grow => Remedy::Growth,
        }
    }

    /// Slots that there are now: those of the first slab and of added ones, and pageable buffers in use.
    pub(crate) fn slots_now(&self) -> u32 {
        self.first_slab + self.added.present() + self.pageable_out()
    }

    /// Pageable buffers in use.
    pub(crate) fn pageable_out(&self) -> u32 {
        let slots = self.list.slots_of(self.list.pageable());
        self.added.pageable_out(self.list.free_in(self.list.pageable()), slots.end - slots.start)
    }

    /// Free slots that are kept for leases with priority.
    pub(crate) fn reserved(&self) -> u32 {
        self.list.free_in(BayId::RESERVE)
    }

    /// Free slots that anybody can have.
    pub(super) fn unreserved(&self) -> u32 {
        self.census().free.saturating_sub(self.reserved())
    }

    /// The most slots that somebody without priority can get of the class at once.
    pub(crate) fn most(&self) -> u32 {
        self.first_slab - self.reserve + self.added.most()
    }

    /// The most slots that somebody with this reach can ever get.
    pub(super) fn available(&self, reach: Reach) -> u32 {
        let lost = self.quarantined();
        let all = self.first_slab + self.added.most();
        if reach.reserve {
            return all.saturating_sub(lost);
        }
        // A lost slot of the reserve is not one of the others as well.
        let lost = lost.saturating_sub(self.counters.reserve_lost.load(Ordering::Relaxed));
        (all - self.reserve).saturating_sub(lost)
    }

    #[cold]
    pub(super) fn stale_return(&self, slot: u32) {
        self.counters.stale_returns.fetch_add(1, Ordering::Relaxed);
        tell!(error, class = %self.name, slot, "a stale return was ignored");
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
            let list = self.list.census(Reach::PINNED);
            let slots = self.slots_now();
            let departed = self.counters.departed.load(Ordering::Acquire);
            (list, slots, departed, landed, quarantined, self.lifetime.still_out())
        };
        let mut last = read();
        for _ in 0..CENSUS_TRIES {
            let now = read();
            // Between the closing of the list and the counting of what was in it nobody knows.
            let closing = self.list.is_closed() && (now.5.is_none() || self.added.is_open());
            if now == last && !closing {
                break;
            }
            last = now;
        }
        let ((free, _), slots, departed, landed, quarantined, still_out) = last;
        // What is home of a closed class is in no list.
        let free = still_out.map_or(free, |out| self.first_slab - out.min(self.first_slab));
        // A lost slot keeps its slab, so that there are as many slots.
        let slots = slots.max(quarantined);
        let free = free.min(slots - quarantined);
        let in_flight = clamp(departed.saturating_sub(landed), slots - quarantined - free);
        let leased = slots - quarantined - free - in_flight;
        Census { slots, free, in_flight, quarantined, leased }
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

    /// Slots in flight: by holders of copies, and retired ones.
    pub(super) fn in_flight(&self) -> u32 {
        let landed = self.counters.landed.load(Ordering::Acquire);
        let departed = self.counters.departed.load(Ordering::Acquire);
        clamp(departed.saturating_sub(landed), self.list.slots())
    }

    /// Every slot that there can be is quarantined: none can be leased any more.
    pub(super) fn is_lost(&self) -> bool {
        self.quarantined() >= self.first_slab + self.added.most()
    }

    /// Some slot was in flight once.
    pub(super) fn has_flown(&self) -> bool {
        self.counters.departed.load(Ordering::Relaxed) > 0
    }

    /// How long the longest use of a slot has been going on.
    pub(crate) fn oldest_in_flight(&self) -> Option<Duration> {
        // In a forked child the locks of slots and of retired ones may be held for ever (I12).
        if !self.shared.is_here() {
            return None;
        }
        let now = clock::now();
        // First: fences move from slots to lines meanwhile, and never back.
        let attached = self.list.metas().filter_map(SlotState::used_since).min();
        let attached = attached.map(|since| now.saturating_duration_since(since));
        attached.max(self.reclaim.oldest(now))
    }

    pub(super) fn quarantined(&self) -> u32 {
        self.counters.quarantined.load(Ordering::Acquire)
    }

    /// Some slot is quarantined. Either this sees one that is lost at the same time, or who loses it, and
    /// then tells the keeper, sees what the caller did before: both change the same word.
    pub(super) fn has_lost(&self) -> bool {
        self.counters.quarantined.fetch_add(0, Ordering::AcqRel) > 0
    }

    /// Slots that came home from flight so far.
    pub(crate) fn landed_total(&self) -> u64 {
        self.counters.landed.load(Ordering::Relaxed)
    }

    /// Leases so far, over all slots.
    pub(crate) fn leases_total(&self) -> u64 {
        self.list.leases()
    }

    pub(crate) fn misses_total(&self) -> u64 {
        self.list.misses()
    }

    /// Slots that are out, once the class is closed.
    pub(crate) fn still_out(&self) -> usize {
        let out = self.lifetime.still_out().unwrap_or(self.first_slab);
        (out + self.added.still_out()) as usize
    }

    /// The counts of one class for [`ClassStats`](crate::ClassStats) that are not about slots at one
    /// instant.
    pub(crate) fn events(&self) -> Events {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (counters, added) = (&self.counters, &self.added.counts);
        let (overruns, late_writes) = self.wash.found();
        Events {
            waits: load(&counters.waits),
            timeouts: load(&counters.timeouts),
            cancelled: load(&counters.cancelled),
            waited: Duration::from_nanos(load(&counters.waited)),
            longest_wait: Duration::from_nanos(load(&counters.longest)),
            spilled: load(&counters.spilled),
            leaks: load(&counters.leaks),
            grown: load(&added.grown),
            grow_failures: load(&added.grow_failures),
            trimmed: load(&added.trimmed),
            pageable: load(&added.pageable),
            overruns,
            late_writes,
        }
    }

    /// A lease of this class took a larger class's slot.
    pub(crate) fn count_spill(&self) {
        self.counters.spilled.fetch_add(1, Ordering::Relaxed);
    }

    /// A lease was reported as held for too long.
    pub(crate) fn count_leak(&self) -> u64 {
        self.counters.leaks.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn added_slots(&self) -> u32 {
        self.added.present()
    }

    pub(crate) fn pageable_bytes(&self) -> u64 {
        self.added.pageable_bytes()
    }

    /// Threads and tasks that wait for a slot.
    pub(crate) fn waiting(&self) -> usize {
        // The lock is for those who wait; a miss of a class that nobody waits for must not meet others.
        if self.is_waited() && self.shared.is_here() { self.waiters.len() } else { 0 }
    }

    /// Returns that were ignored because the slot was not the caller's any more.
    pub(crate) fn stale_returns_total(&self) -> u64 {
        self.counters.stale_returns.load(Ordering::Relaxed)
    }
}

impl ClassRef {
    /// A slot in flight whose work may never be over is never used again (I11).
    pub(crate) fn quarantine(self, slot: u32, error: &Error) {
        let count = self.lose(slot);
        if is_told(count as usize) {
            let class = self.get().name;
            tell!(error, %error, %class, slot, count, "slot quarantined");
        }
    }

    /// Takes a slot in flight out of use. Returns how many are by now.
    pub(super) fn lose(self, slot: u32) -> u32 {
        let class = self.get();
        let counters = &class.counters;
        if class.list.bay_of(slot) == Some(BayId::RESERVE) {
            counters.reserve_lost.fetch_add(1, Ordering::Relaxed);
        }
        // First: a slot in between counts as leased, never twice.
        class.land();
        let count = counters.quarantined.fetch_add(1, Ordering::AcqRel) + 1;
        if class.shared.is_here() {
            let hopeless = |want: Want| class.available(want.reach) < want.count;
            self.settle_handed(class.waiters.despair(&class.list, hopeless));
            // It may have been the last that the keeper stayed for.
            class.shared.bell.ring();
        }
        count
    }
}

/// A count that cannot exceed `max`, whatever was read in between.
fn clamp(count: u64, max: u32) -> u32 {
    u32::try_from(count).unwrap_or(max).min(max)
}

/// What has happened to a class so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Events {
    pub(crate) waits: u64,
    pub(crate) timeouts: u64,
    pub(crate) cancelled: u64,
    pub(crate) waited: Duration,
    pub(crate) longest_wait: Duration,
    pub(crate) spilled: u64,
    pub(crate) leaks: u64,
    pub(crate) grown: u64,
    pub(crate) grow_failures: u64,
    pub(crate) trimmed: u64,
    pub(crate) pageable: u64,
    pub(crate) overruns: u64,
    pub(crate) late_writes: u64,
}

/// Between two lines about misses.
const TELL_MS: u64 = 1000;
/// Readings before `census` settles for the last one.
const CENSUS_TRIES: usize = 64;
