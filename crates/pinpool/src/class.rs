//! One size class: its slab, free list, waiters and counters, and the pointer by which leases and
//! the pool share it.

use std::ptr::NonNull;
use std::time::Instant;

use crate::error::{ClassName, Exhausted, LeaseError};
use crate::free_list::{FreeList, Pop, Push};
use crate::lifetime::Lifetime;
use crate::memory::{BackendKind, MemoryCause, MemoryError, MemoryStep};
use crate::plan::ClassPlan;
use crate::size_class::ClassId;
use crate::slab::Slab;
use crate::slot::{Generation, SlotState};
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use crate::waiters::{Waiters, Woken};

/// One size class. Never moved, and freed by its [`Lifetime`] only.
#[derive(Debug)]
pub(crate) struct Class {
    list: FreeList<SlotState>,
    base: NonNull<u8>,
    slot_bytes: usize,
    slots: u32,
    id: ClassId,
    locked: bool,
    device_accessible: bool,
    backend: BackendKind,
    name: ClassName,
    size: usize,
    waiters: Waiters,
    counters: Counters,
    lifetime: Lifetime,
    /// Taken out once, by whoever brings the last slot home.
    slab: Mutex<Option<Slab>>,
    /// Copies look for the driver in it.
    #[cfg(feature = "cuda")]
    shared: std::sync::Arc<crate::shared::Shared>,
}

/// Cumulative counts, written on cold paths.
#[derive(Debug, Default)]
struct Counters {
    waits: AtomicU64,
    timeouts: AtomicU64,
    copies_started: AtomicU64,
    copies_finished: AtomicU64,
    quarantined: AtomicU32,
    high_water: AtomicU32,
    stale_returns: AtomicU64,
}

/// The records of a class's slots, made before its memory is pinned.
pub(crate) struct Slots(FreeList<SlotState>);

impl Slots {
    /// Records for `count` free slots.
    pub(crate) fn new(count: u32) -> Result<Self, MemoryError> {
        FreeList::new(count, shard_count(), SlotState::new).map(Self).map_err(|_| MemoryError {
            step: MemoryStep::Reserve,
            bytes: count as usize * FreeList::<SlotState>::NODE_BYTES,
            cause: MemoryCause::Other("no memory for the records of its slots"),
        })
    }
}

/// A slot that was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) slot: u32,
    pub(crate) generation: Generation,
}

/// The counts of one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) free: u32,
    pub(crate) in_flight: u32,
    pub(crate) quarantined: u32,
    pub(crate) leased: u32,
}

/// A pointer to a class that the holder keeps alive: the pool's handle by its reference, a lease by
/// its slot being out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClassRef(NonNull<Class>);

// SAFETY: a class is used through `&` only and everything in it is atomic, locked or read-only;
// its slots' bytes have one owner each (I2).
unsafe impl Send for ClassRef {}
// SAFETY: as above.
unsafe impl Sync for ClassRef {}

impl ClassRef {
    /// Puts a class over an open slab.
    pub(crate) fn new(id: ClassId, plan: &ClassPlan, slab: Slab, slots: Slots) -> Self {
        let class = Box::new(Class {
            list: slots.0,
            base: slab.base(),
            slot_bytes: plan.slot_bytes,
            slots: plan.count,
            id,
            locked: slab.is_locked(),
            device_accessible: slab.device_address(0).is_some(),
            backend: slab.shared().memory.kind(),
            name: ClassName::new(&plan.name),
            size: plan.size,
            waiters: Waiters::new(),
            counters: Counters::default(),
            lifetime: Lifetime::new(plan.count),
            #[cfg(feature = "cuda")]
            shared: std::sync::Arc::clone(slab.shared()),
            slab: Mutex::new(Some(slab)),
        });
        Self(NonNull::from(Box::leak(class)))
    }

    /// The class.
    #[inline]
    pub(crate) fn get(&self) -> &Class {
        // SAFETY: I1, the holder of a `ClassRef` keeps the class alive (see the type).
        unsafe { self.0.as_ref() }
    }

    /// Gives a slot back. The caller owned it, and does not use this reference again for it.
    #[inline]
    pub(crate) fn give_back(self, taken: Taken) {
        let class = self.get();
        if !class.list.meta(taken.slot).give_back(taken.generation) {
            class.stale_return(taken.slot);
            return;
        }
        match class.list.push(taken.slot) {
            // The pool may be gone by now: nothing of it is touched after this.
            Push::Free => {}
            Push::Waited => self.give_back_waking(taken.slot),
            Push::Closed => self.arrive(),
        }
    }

    #[cold]
    #[inline(never)]
    fn give_back_waking(self, slot: u32) {
        let class = self.get();
        // Whoever gets the slot may drop the pool before we have woken anybody.
        class.lifetime.hold();
        match class.list.push_waited(slot) {
            Push::Free | Push::Waited => class.waiters.wake_one(),
            Push::Closed => self.arrive(),
        }
        if class.lifetime.end_hold() {
            self.all_home();
        }
    }

    /// Closes the class: waiters wake, no lease succeeds, free slots are home.
    pub(crate) fn close(self) {
        let class = self.get();
        if class.waiters.close(&class.list, |home| class.lifetime.close(home)) == Some(true) {
            self.all_home();
        }
    }

    /// Closes the class and ends the pool's handle on it.
    pub(crate) fn close_and_drop_handle(self) {
        self.close();
        self.drop_reference();
    }

    /// Counts a slot home; the last one lets the memory go.
    #[cold]
    #[inline(never)]
    fn arrive(self) {
        if self.get().lifetime.arrive() {
            self.all_home();
        }
    }

    /// Lets the memory go. Called once, by whoever counted the last slot home.
    fn all_home(self) {
        self.get().release_memory();
        self.drop_reference();
    }

    fn drop_reference(self) {
        if self.get().lifetime.drop_reference() {
            // SAFETY: I1, both references are gone: no handle, no memory and so no slot is out; the
            // box was leaked in `new` and is rebuilt once.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

impl Class {
    /// Takes a slot if one is free.
    #[inline]
    pub(crate) fn try_take(&self) -> Result<Taken, LeaseError> {
        match self.list.pop() {
            Pop::Slot { slot, new_low } => {
                if new_low {
                    self.sample_high_water();
                }
                Ok(self.taken(slot))
            }
            Pop::Empty => Err(self.miss()),
            Pop::Closed => Err(LeaseError::Closed),
        }
    }

    /// Takes a slot, waiting until `deadline` if none is free.
    pub(crate) fn take(
        &self,
        since: Instant,
        deadline: Option<Instant>,
    ) -> Result<Taken, LeaseError> {
        match self.try_take() {
            Err(LeaseError::Exhausted(_)) => self.take_waiting(since, deadline),
            settled => settled,
        }
    }

    #[cold]
    fn take_waiting(&self, since: Instant, deadline: Option<Instant>) -> Result<Taken, LeaseError> {
        self.counters.waits.fetch_add(1, Ordering::Relaxed);
        match self.waiters.wait(&self.list, deadline) {
            Woken::Slot(slot) => Ok(self.taken(slot)),
            Woken::Closed => Err(LeaseError::Closed),
            Woken::TimedOut => {
                self.counters.timeouts.fetch_add(1, Ordering::Relaxed);
                Err(LeaseError::Timeout { exhausted: self.exhausted(), waited: since.elapsed() })
            }
        }
    }

    #[inline]
    fn taken(&self, slot: u32) -> Taken {
        Taken { slot, generation: self.list.meta(slot).lease() }
    }

    #[cold]
    #[inline(never)]
    fn miss(&self) -> LeaseError {
        self.list.count_miss();
        self.raise_high_water(self.slots - self.quarantined());
        LeaseError::Exhausted(self.exhausted())
    }

    fn exhausted(&self) -> Exhausted {
        let finished = self.counters.copies_finished.load(Ordering::Acquire);
        let started = self.counters.copies_started.load(Ordering::Acquire);
        Exhausted {
            class: self.id,
            name: self.name,
            slot_bytes: self.slot_bytes,
            slots: self.slots,
            in_flight: clamp(started.saturating_sub(finished), self.slots),
            quarantined: self.quarantined(),
        }
    }

    #[cold]
    fn stale_return(&self, slot: u32) {
        self.counters.stale_returns.fetch_add(1, Ordering::Relaxed);
        tracing::error!(class = %self.name, slot, "a stale return was ignored");
    }

    /// Called when a shard runs lower than ever before, at misses and by `stats`.
    #[cold]
    #[inline(never)]
    fn sample_high_water(&self) -> Census {
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
            let finished = self.counters.copies_finished.load(Ordering::Acquire);
            let quarantined = self.quarantined();
            let list = self.list.census();
            let started = self.counters.copies_started.load(Ordering::Acquire);
            (list, started, finished, quarantined, self.lifetime.still_out())
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
        let ((free, _), started, finished, quarantined, still_out) = last;
        // What is home of a closed class is in no list.
        let free = still_out.map_or(free, |out| self.slots - out.min(self.slots));
        let free = free.min(self.slots - quarantined);
        let in_flight = clamp(started.saturating_sub(finished), self.slots - quarantined - free);
        Census { free, in_flight, quarantined, leased: self.slots - quarantined - free - in_flight }
    }

    /// The counts, and the high-water mark after they were sampled.
    pub(crate) fn sampled(&self) -> (Census, u32) {
        let census = self.sample_high_water();
        (census, self.counters.high_water.load(Ordering::Relaxed))
    }

    /// A copy on one of this class's slots was queued.
    #[cfg(feature = "cuda")]
    pub(crate) fn copy_started(&self) {
        let count = if crate::seeded::bug("double-count") { 2 } else { 1 };
        self.counters.copies_started.fetch_add(count, Ordering::AcqRel);
    }

    /// A copy is complete as the host sees it.
    #[cfg(feature = "cuda")]
    pub(crate) fn copy_finished(&self) {
        self.counters.copies_finished.fetch_add(1, Ordering::AcqRel);
    }

    /// A slot whose copy may still run is never used again (I11).
    #[cfg(feature = "cuda")]
    pub(crate) fn quarantine(&self) {
        self.counters.copies_finished.fetch_add(1, Ordering::AcqRel);
        self.counters.quarantined.fetch_add(1, Ordering::AcqRel);
    }

    fn quarantined(&self) -> u32 {
        self.counters.quarantined.load(Ordering::Acquire)
    }

    /// Lets the slab go. Called once, when every slot is home.
    fn release_memory(&self) {
        if crate::seeded::bug("late-unmap") {
            return;
        }
        let slab = self.slab.lock().take();
        // Outside the lock: unpinning calls the system or the driver (I17).
        drop(slab);
    }

    /// The first byte of a slot.
    #[inline]
    pub(crate) fn slot_ptr(&self, slot: u32) -> NonNull<u8> {
        debug_assert!(slot < self.slots, "a slot of this class");
        // SAFETY: I1, the slab is `slots * slot_bytes` long at least, so the offset is within it.
        unsafe { self.base.add(slot as usize * self.slot_bytes) }
    }

    /// Where the GPU sees a slot.
    pub(crate) fn device_address(&self, slot: u32) -> Option<u64> {
        let slab = self.slab.lock();
        slab.as_ref()?.device_address(slot as usize * self.slot_bytes)
    }

    #[inline]
    pub(crate) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    pub(crate) fn id(&self) -> ClassId {
        self.id
    }

    pub(crate) fn name(&self) -> ClassName {
        self.name
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.locked
    }

    pub(crate) fn is_device_accessible(&self) -> bool {
        self.device_accessible
    }

    pub(crate) fn backend(&self) -> BackendKind {
        self.backend
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn shared(&self) -> &std::sync::Arc<crate::shared::Shared> {
        &self.shared
    }

    pub(crate) fn slot_state(&self, slot: u32) -> &SlotState {
        self.list.meta(slot)
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

/// One shard per processor, so that threads started together do not meet.
fn shard_count() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    processors.next_power_of_two().min(SHARDS_MAX)
}

/// Past this a miss, which looks into every shard, costs more than sharing saves.
const SHARDS_MAX: usize = 64;
/// Readings before `census` settles for the last one.
const CENSUS_TRIES: usize = 64;
