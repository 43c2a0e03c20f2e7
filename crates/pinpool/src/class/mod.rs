//! One size class: its slab, free list, retired slots, waiters and counters, and the pointer by which
//! leases, the pool and its keeper share it.

mod added;
mod counts;
mod holders;
mod homecoming;
#[cfg(all(test, shuttle))]
mod models;
#[cfg(all(test, loom))]
mod models {
    mod roster;
}
mod pageable;
mod returning;
mod roster;
#[cfg(all(test, not(any(loom, shuttle))))]
mod seen;
mod taking;
mod waiting;
mod wash;

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::{OnEmpty, Threads};
use crate::error::ClassName;
use crate::free_list::{FreeList, Generation, Layout, Reach};
use crate::lifetime::Lifetime;
use crate::memory::{BackendKind, MemoryCause, MemoryError, MemoryStep};
use crate::plan::ClassPlan;
use crate::reclaim::{Reclaim, Stuck};
use crate::shared::Shared;
use crate::size_class::ClassId;
use crate::slab::Slab;
use crate::slot::SlotState;
use crate::sync::Mutex;
use crate::waiters::Waiters;

use added::Added;
use counts::Counters;
pub(crate) use holders::Held;
use holders::Holders;
use homecoming::Homecoming;
pub(crate) use returning::Departed;
pub(crate) use roster::{Absent, Roster};
use taking::Unfit;
pub(crate) use waiting::{Got, Waiting};
use wash::Wash;

/// One size class. Never moved, and freed by its [`Lifetime`] only.
#[derive(Debug)]
pub(crate) struct Class {
    list: FreeList<SlotState>,
    reclaim: Reclaim,
    base: NonNull<u8>,
    /// Bytes from one slot to the next.
    stride_bytes: usize,
    slot_bytes: usize,
    /// Slots on the first slab. Those from here on are elsewhere.
    first_slab: u32,
    wash: Wash,
    added: Added,
    holders: Option<Holders>,
    on_empty: OnEmpty,
    max_spill: u32,
    reserve: u32,
    /// How the first slab was made, for those that are added.
    pins: bool,
    threads: Threads,
    pause: Duration,
    /// The only device whose handle leases from it, and near which its slabs lie.
    device: Option<u32>,
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
    shared: Arc<Shared>,
}

/// What all classes of a pool are made with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Making {
    /// Slabs are pinned.
    pub(crate) pins: bool,
    /// Threads that touch a slab's memory.
    pub(crate) threads: Threads,
    /// How long others are let in between two chunks.
    pub(crate) pause: Duration,
    /// Holders are kept track of.
    pub(crate) tracks: bool,
}

/// How a class's free slots are spread over threads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    /// Stacks that threads share: a power of two.
    pub(crate) shards: usize,
    /// Threads that may have slots close at hand.
    pub(crate) desks: usize,
}

/// The records of a class's slots, made before its memory is pinned.
pub(crate) struct Slots(FreeList<SlotState>);

impl Slots {
    /// Records for all slots that a class may come to have.
    pub(crate) fn new(
        plan: &ClassPlan,
        making: Making,
        spread: Spread,
    ) -> Result<Self, MemoryError> {
        let layout = Self::layout(plan);
        // What is at a desk is handed out as it is.
        let as_it_is = !making.tracks && !Wash::is_for(plan);
        let desks = if as_it_is { spread.desks } else { 0 };
        let list = FreeList::new(layout, spread.shards, desks, SlotState::new);
        list.map(Self).map_err(|_| MemoryError {
            step: MemoryStep::Reserve,
            bytes: layout.slots() as usize * FreeList::<SlotState>::NODE_BYTES,
            cause: MemoryCause::Other("no memory for the records of its slots"),
        })
    }

    fn layout(plan: &ClassPlan) -> Layout {
        let (slabs, slab_slots) = plan.grow.as_ref().map_or((0, 0), |grow| (grow.slabs, grow.by));
        let (reserve, pageable) = (plan.reserve, plan.pageable_max);
        Layout { regular: plan.count - reserve, reserve, slabs, slab_slots, pageable }
    }
}

/// A slot that was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) slot: u32,
    pub(crate) generation: Generation,
}

/// A pointer to a class that the holder keeps alive: what a pool's handles share and the keeper by their
/// references, a lease by its slot being out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClassRef(NonNull<Class>);

// SAFETY: a class is used through `&` only and everything in it is atomic, locked or read-only;
// its slots' bytes have one owner each (I2).
unsafe impl Send for ClassRef {}
// SAFETY: as above.
unsafe impl Sync for ClassRef {}

impl ClassRef {
    /// Puts a class over an open slab.
    pub(crate) fn new(
        id: ClassId,
        plan: &ClassPlan,
        making: Making,
        slab: Slab,
        slots: Slots,
    ) -> Self {
        let wash = Wash::new(plan, slots.0.slots());
        let lifetime = Lifetime::new(plan.count);
        if plan.pageable_max > 0 {
            lifetime.hold();
        }
        let class = Box::new(Class {
            reclaim: Reclaim::new(),
            base: slab.base(),
            stride_bytes: plan.stride_bytes,
            slot_bytes: plan.slot_bytes,
            first_slab: plan.count,
            wash,
            added: Added::new(plan),
            holders: making.tracks.then(|| Holders::new(slots.0.slots())),
            on_empty: plan.on_empty,
            max_spill: plan.max_spill,
            reserve: plan.reserve,
            pins: making.pins,
            threads: making.threads,
            pause: making.pause,
            device: plan.device,
            list: slots.0,
            id,
            locked: slab.is_locked(),
            device_accessible: slab.device_address(0).is_some(),
            backend: slab.shared().memory.kind(),
            name: ClassName::new(&plan.name),
            size: plan.size,
            waiters: Waiters::new(),
            counters: Counters::default(),
            lifetime,
            shared: Arc::clone(slab.shared()),
            slab: Mutex::new(Some(slab)),
        });
        if class.wash.is_needed() {
            (0..plan.count).for_each(|slot| class.prepare(class.slot_ptr(slot)));
        }
        Self(NonNull::from(Box::leak(class)))
    }

    /// The class.
    #[inline]
    pub(crate) fn get(&self) -> &Class {
        // SAFETY: I1, the holder of a `ClassRef` keeps the class alive (see the type).
        unsafe { self.0.as_ref() }
    }

    /// Whether both are the same class.
    pub(crate) fn is(self, other: Self) -> bool {
        self.0 == other.0
    }

    /// Closes the class: waiters wake, no lease succeeds, free slots are home.
    pub(crate) fn close(self) {
        let class = self.get();
        let quiet = class.list.quiet();
        let (counted, handed) = class.waiters.close(&class.list, |home| class.lifetime.close(home));
        drop(quiet);
        self.settle_handed(handed);
        // What holds the first slab as well, so that its end comes last.
        if counted.is_some() {
            self.close_added();
        }
        class.shared.growth.ring();
        if counted == Some(true) {
            self.all_home();
        }
    }

    /// Sends home every retired slot whose work is complete.
    pub(crate) fn reclaim(self) {
        self.get().reclaim.pass(&mut Homecoming::new(self));
    }

    /// Retired slots, the longest waiting first.
    pub(crate) fn stuck(self) -> Vec<Stuck> {
        self.get().reclaim.stuck(&mut Homecoming::new(self))
    }

    /// Lets the memory go. Called once, by whoever counted the last slot home.
    fn all_home(self) {
        let class = self.get();
        class.release_memory();
        // The keeper may be done.
        class.shared.bell.ring();
        self.drop_reference();
    }

    /// Ends the pool's handle or the keeper's hold on the class.
    pub(crate) fn drop_reference(self) {
        if self.get().lifetime.drop_reference() {
            // SAFETY: I1, all references are gone: no handle, no keeper, no memory and so no slot is out; the
            // box was leaked in `new` and is rebuilt once.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

impl Class {
    #[inline]
    fn taken(&self, slot: u32) -> Taken {
        self.list.meta(slot).begin();
        Taken { slot, generation: self.list.lease(slot) }
    }

    /// Marks a leased slot as given up, for one that is not given back. False if it was already.
    pub(crate) fn take_back(&self, taken: Taken) -> bool {
        self.list.take_back(taken.slot, taken.generation).1
    }

    /// Some thread waits for a slot.
    pub(crate) fn is_waited(&self) -> bool {
        self.list.is_watched()
    }

    /// When to look for complete slots again, or `None` when none is retired.
    pub(crate) fn due(&self, now: Instant) -> Option<Duration> {
        if self.wash.is_empty() { self.reclaim.due(now) } else { Some(Duration::ZERO) }
    }

    /// The keeper goes to sleep, unless a slot is retired. See [`Reclaim::fall_asleep`].
    pub(crate) fn fall_asleep(&self) -> bool {
        self.reclaim.fall_asleep(|| self.wash.is_empty())
    }

    /// The keeper is awake.
    pub(crate) fn wake_up(&self) {
        self.reclaim.wake_up();
    }

    /// True when nothing of a closed class can come home any more: all is, but for quarantined slots.
    pub(crate) fn is_done(&self) -> bool {
        // In this order: a bay that is still open once the class is closed is counted after it closed,
        // and none opens any more.
        let Some(out) = self.lifetime.still_out() else { return false };
        !self.added.is_open() && out + self.added.still_out() <= self.quarantined()
    }

    /// How many slabs of a closed class stay for good, once nothing can come home any more: those with
    /// a quarantined slot, and the first one below them. Others may be about to be given back.
    pub(crate) fn lasting_slabs(&self) -> Option<usize> {
        // First: what is out before that may yet come home, and its slab with it.
        if !self.is_done() {
            return None;
        }
        let first = self.lifetime.still_out()? > 0 || self.added.still_out() > 0;
        Some(self.added.lasting() + usize::from(first))
    }

    /// The clock by which recordings on this class's slots are ordered.
    #[cfg(any(feature = "cuda", test))]
    pub(crate) fn recordings(&self) -> &Reclaim {
        &self.reclaim
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
        if slot >= self.first_slab { self.added_ptr(slot) } else { self.first_slab_ptr(slot) }
    }

    /// The first byte of a slot of the first slab.
    #[inline]
    pub(crate) fn first_slab_ptr(&self, slot: u32) -> NonNull<u8> {
        debug_assert!(slot < self.first_slab, "the slot is on the first slab");
        // SAFETY: I1, the slab is `first_slab * stride_bytes` long at least: the offset is within it.
        unsafe { self.base.add(slot as usize * self.stride_bytes) }
    }

    /// Where the GPU sees a slot. A forked child has no GPU, and may never get the lock (I12).
    pub(crate) fn device_address(&self, slot: u32) -> Option<u64> {
        if !self.shared.is_here() {
            return None;
        }
        if slot >= self.first_slab {
            return self.added_device_address(slot);
        }
        let slab = self.slab.lock();
        slab.as_ref()?.device_address(slot as usize * self.stride_bytes)
    }

    #[inline]
    pub(crate) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// The largest slot that may stand in for one of this class.
    pub(crate) fn spill_bytes(&self) -> usize {
        self.slot_bytes.saturating_mul(self.max_spill as usize)
    }

    /// Larger slots may stand in for those of this class.
    pub(crate) fn spills(&self) -> bool {
        self.max_spill > 1
    }

    /// A slot of that class may stand in for one of this: for whoever leases from this one.
    pub(crate) fn may_spill_to(&self, other: &Self) -> bool {
        let larger = self.slot_bytes + 1..=self.spill_bytes();
        // The line of a class of all devices is one: what only some in it may have is for none.
        let apart = other.device.is_some() && self.device != other.device;
        larger.contains(&other.slot_bytes) && self.scrubs_like(other) && !apart
    }

    /// A slot that is anybody's is free.
    pub(crate) fn has_free(&self) -> bool {
        !self.is_waited() && self.unreserved() > 0
    }

    /// Wakes the first in line, to look at other classes.
    pub(crate) fn nudge(&self) {
        if let Some(first) = self.waiters.nudge() {
            first.wake();
        }
    }

    /// What those may have who are not urgent, and those who are.
    pub(crate) fn reach(&self, urgent: bool) -> Reach {
        // Who is urgent stands in front, also where there is nothing to reserve.
        Reach { reserve: urgent, pageable: self.added.has_pageable() }
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

    /// A slot is locked in RAM.
    /// The slots of the first slab are locked in RAM.
    pub(crate) fn is_locked_first(&self) -> bool {
        self.locked
    }

    pub(crate) fn is_locked(&self, slot: u32) -> bool {
        self.locked && !self.is_pageable(slot)
    }

    /// The GPU can reach what is pinned.
    pub(crate) fn is_device_accessible(&self) -> bool {
        self.device_accessible
    }

    pub(crate) fn backend(&self) -> BackendKind {
        self.backend
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.list.is_closed()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn slot_state(&self, slot: u32) -> &SlotState {
        self.list.meta(slot)
    }
}

impl Spread {
    /// One shard per processor, so that threads started together do not meet, and desks for twice as many
    /// threads: some sleep.
    pub(crate) fn over_processors() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let processors = processors.next_power_of_two();
        Self {
            shards: processors.min(SHARDS_MAX),
            desks: (2 * processors).clamp(DESKS_MIN, DESKS_MAX),
        }
    }
}

/// Past this a miss, which looks into every shard, costs more than sharing saves.
const SHARDS_MAX: usize = 64;
/// A desk is 640 bytes in each class.
const DESKS_MIN: usize = 8;
const DESKS_MAX: usize = 256;
