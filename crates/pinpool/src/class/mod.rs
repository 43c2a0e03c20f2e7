//! One size class: its slab, free list, retired slots, waiters and counters, and the pointer by which
//! leases, the pool and its keeper share it.

mod counts;
mod homecoming;
#[cfg(all(test, shuttle))]
mod models;

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{ClassName, LeaseError};
use crate::free_list::{FreeList, Pop, Push};
use crate::lifetime::Lifetime;
use crate::memory::{BackendKind, MemoryCause, MemoryError, MemoryStep};
use crate::plan::ClassPlan;
use crate::reclaim::{Home, Reclaim, Stuck};
use crate::shared::Shared;
use crate::size_class::ClassId;
use crate::slab::Slab;
use crate::slot::{Generation, SlotState};
use crate::sync::{Mutex, Ordering};
use crate::waiters::{Waiters, Woken};

use counts::Counters;
use homecoming::Homecoming;

/// One size class. Never moved, and freed by its [`Lifetime`] only.
#[derive(Debug)]
pub(crate) struct Class {
    list: FreeList<SlotState>,
    reclaim: Reclaim,
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
    shared: Arc<Shared>,
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

/// A pointer to a class that the holder keeps alive: the pool's handle and the keeper by their
/// references, a lease by its slot being out.
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
            reclaim: Reclaim::new(),
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
            shared: Arc::clone(slab.shared()),
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

    /// Gives a slot back, now or once its fences are complete. The caller owned it, and does not use
    /// this reference again for it.
    #[inline]
    pub(crate) fn give_back(self, taken: Taken) {
        let class = self.get();
        let state = class.list.meta(taken.slot);
        if state.is_used() {
            self.retire(taken, Departed::Now);
            return;
        }
        if !state.give_back(taken.generation) {
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

    /// Leaves a slot with fences to whoever sees them complete. Waits for nothing.
    #[inline(never)]
    pub(crate) fn retire(self, taken: Taken, departed: Departed) {
        let class = self.get();
        let state = class.list.meta(taken.slot);
        if !state.give_back(taken.generation) {
            class.stale_return(taken.slot);
            return;
        }
        if departed == Departed::Now {
            class.depart();
        }
        // Somebody waits: the keeper must hurry.
        let quiet = !class.list.is_watched();
        if !(quiet && class.reclaim.retire(taken.slot, state)) {
            self.retire_waking(taken.slot);
        }
    }

    #[cold]
    #[inline(never)]
    fn retire_waking(self, slot: u32) {
        let class = self.get();
        // Whoever gets the slot may drop the pool before we have rung.
        class.lifetime.hold();
        class.reclaim.retire_waking(slot, class.list.meta(slot));
        if !crate::seeded::bug("silent-retire") {
            class.shared.bell.ring();
        }
        if class.lifetime.end_hold() {
            self.all_home();
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

    /// Takes a slot if one is free, or in flight and complete.
    #[inline]
    pub(crate) fn try_take(self) -> Result<Taken, LeaseError> {
        let class = self.get();
        match class.list.pop() {
            Pop::Slot { slot, new_low } => {
                if new_low {
                    class.sample_high_water();
                }
                Ok(class.taken(slot))
            }
            Pop::Empty => self.try_reclaimed(),
            Pop::Closed => Err(LeaseError::Closed),
        }
    }

    #[cold]
    #[inline(never)]
    fn try_reclaimed(self) -> Result<Taken, LeaseError> {
        let class = self.get();
        // A slot that landed since the list was looked at is in it by now.
        let mut home = Homecoming::of_one(self);
        if class.in_flight() > 0 {
            class.reclaim.pass(&mut home);
        } else if class.has_flown() {
            let _ = home.enough();
        }
        match home.found {
            Some(slot) => Ok(class.taken(slot)),
            None => Err(class.miss()),
        }
    }

    /// Takes a slot, waiting until `deadline` if none is free.
    pub(crate) fn take(
        self,
        since: Instant,
        deadline: Option<Instant>,
    ) -> Result<Taken, LeaseError> {
        match self.try_take() {
            Err(LeaseError::Exhausted(_)) if !self.get().is_lost() => {
                self.take_waiting(since, deadline)
            }
            settled => settled,
        }
    }

    #[cold]
    fn take_waiting(self, since: Instant, deadline: Option<Instant>) -> Result<Taken, LeaseError> {
        let class = self.get();
        class.counters.waits.fetch_add(1, Ordering::Relaxed);
        // What was complete before we were known as a waiter is nobody else's to find. What becomes
        // complete later is the keeper's.
        let announced = || {
            if class.in_flight() > 0 {
                self.reclaim();
                class.shared.bell.ring();
            }
        };
        match class.waiters.wait(&class.list, deadline, announced, || class.is_lost()) {
            Woken::Slot(slot) => Ok(class.taken(slot)),
            Woken::Closed => Err(LeaseError::Closed),
            Woken::Hopeless => Err(LeaseError::Exhausted(class.exhausted())),
            Woken::TimedOut => {
                class.counters.timeouts.fetch_add(1, Ordering::Relaxed);
                Err(LeaseError::Timeout { exhausted: class.exhausted(), waited: since.elapsed() })
            }
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
        Taken { slot, generation: self.list.meta(slot).lease() }
    }

    /// Some thread waits for a slot.
    pub(crate) fn is_waited(&self) -> bool {
        self.list.is_watched()
    }

    /// When to look for complete slots again, or `None` when none is retired.
    pub(crate) fn due(&self, now: Instant) -> Option<Duration> {
        self.reclaim.due(now)
    }

    /// The keeper goes to sleep, unless a slot is retired. See [`Reclaim::fall_asleep`].
    pub(crate) fn fall_asleep(&self) -> bool {
        self.reclaim.fall_asleep()
    }

    /// The keeper is awake.
    pub(crate) fn wake_up(&self) {
        self.reclaim.wake_up();
    }

    /// True when nothing of a closed class can come home any more: all is, but for quarantined slots.
    pub(crate) fn is_done(&self) -> bool {
        self.lifetime.still_out().is_some_and(|out| out <= self.quarantined())
    }

    /// The clock by which recordings on this class's slots are ordered.
    #[cfg(feature = "cuda")]
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

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn slot_state(&self, slot: u32) -> &SlotState {
        self.list.meta(slot)
    }
}

/// Whether a slot was counted as in flight before its holder let go of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Departed {
    /// By the copy that held it.
    Before,
    /// A lease with fences was dropped: it is now.
    Now,
}

/// One shard per processor, so that threads started together do not meet.
fn shard_count() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    processors.next_power_of_two().min(SHARDS_MAX)
}

/// Past this a miss, which looks into every shard, costs more than sharing saves.
const SHARDS_MAX: usize = 64;
