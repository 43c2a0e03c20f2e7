//! Memory of a class beyond its first slab: slabs that a background thread adds and takes away, and
//! pageable buffers.
//!
//! Each added slab has a bay of the free list, and its own count of slots that are not home. While it
//! is there it holds the class's lifetime as one slot of the first slab does. Taking it away closes its bay:
//! slots that are out meanwhile stay valid, and the last one home lets the memory go.

use std::ptr::NonNull;
use std::time::{Duration, Instant};

use super::{Class, ClassRef};
use crate::foreign::tell;
use crate::free_list::BayId;
use crate::lifetime::Out;
use crate::plan::{ClassPlan, GrowPlan};
use crate::slab::{Course, Slab, SlabFailure, SlabShape, StartupTimes};
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering};

/// What a class has beyond its first slab.
#[derive(Debug)]
pub(super) struct Added {
    grow: Option<GrowPlan>,
    /// One for each slab that can be added, and one for the pageable buffers.
    bays: Box<[Bay]>,
    /// Addresses of the pageable buffers, by their place in their bay; 0 where there is none yet.
    /// Written by the slot's owner only (I2).
    pub(super) buffers: Box<[AtomicUsize]>,
    pub(super) buffer_bytes: usize,
    /// Held while slabs are added or taken away, but not over calls of the system. No lease or drop
    /// takes it.
    change: Mutex<Change>,
    /// Somebody found the class empty since the keeper looked.
    wanted: AtomicU32,
    idle_after: Duration,
    pub(super) counts: Counts,
}

/// What happened so far.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) grown: AtomicU64,
    pub(super) grow_failures: AtomicU64,
    pub(super) trimmed: AtomicU64,
    pub(super) pageable: AtomicU64,
}

/// One bay's memory.
#[derive(Debug)]
struct Bay {
    out: Out,
    /// 1 from when the slab is being made until it was given back.
    occupied: AtomicU32,
    /// The slab's first byte. `Release` when the bay is opened, through the free list's heads.
    base: AtomicUsize,
    slab: Mutex<Option<Slab>>,
}

/// What the keeper remembers between its looks.
#[derive(Debug, Default)]
struct Change {
    /// Not before: the last attempt failed.
    retry: Option<(Instant, Duration)>,
    told_full: bool,
    /// By bay: leases of its slots so far, and since when there were no more.
    idle: Vec<(u64, Option<Instant>)>,
}

impl Added {
    pub(super) fn new(plan: &ClassPlan) -> Self {
        let slabs = plan.grow.as_ref().map_or(0, |grow| grow.slabs) as usize;
        let bays: Box<[Bay]> = (0..=slabs).map(|_| Bay::new()).collect();
        if plan.pageable_max > 0 {
            bays[slabs].out.reopen(plan.pageable_max);
        }
        let change = Change { idle: vec![(0, None); slabs + 1], ..Change::default() };
        Self {
            grow: plan.grow,
            bays,
            buffers: (0..plan.pageable_max).map(|_| AtomicUsize::new(0)).collect(),
            buffer_bytes: plan.stride_bytes,
            change: Mutex::new(change),
            wanted: AtomicU32::new(0),
            idle_after: plan.idle_after,
            counts: Counts::default(),
        }
    }

    /// Slots of added slabs that exist: those of open ones, and those still out of slabs that go.
    pub(super) fn present(&self) -> u32 {
        let slots = self.grow.as_ref().map_or(0, |grow| grow.by);
        let slabs = self.bays.iter().take(self.slabs());
        slabs.map(|bay| bay.out.still_out().unwrap_or(slots)).sum()
    }

    /// Slots that are out of added slabs and pageable buffers, once closed.
    pub(super) fn still_out(&self) -> u32 {
        self.bays.iter().filter_map(|bay| bay.out.still_out()).sum()
    }

    /// Added slabs that are closed and have slots out.
    pub(super) fn lasting(&self) -> usize {
        let slabs = self.bays.iter().take(self.slabs());
        slabs.filter(|bay| bay.out.still_out().is_some_and(|out| out > 0)).count()
    }

    /// Some bay is open.
    pub(super) fn is_open(&self) -> bool {
        self.bays.iter().any(|bay| bay.out.still_out().is_none())
    }

    /// Bytes of pageable buffers that are there.
    pub(super) fn pageable_bytes(&self) -> u64 {
        let buffers = self.buffers.iter().filter(|buffer| buffer.load(Ordering::Relaxed) != 0);
        buffers.count() as u64 * self.buffer_bytes as u64
    }

    /// Pageable slots in use, of `slots` of which `free` are in their bay.
    pub(super) fn pageable_out(&self, free: u32, slots: u32) -> u32 {
        self.bays[self.slabs()].out.still_out().unwrap_or(slots - free.min(slots))
    }

    /// Pageable buffers may be used.
    pub(super) fn has_pageable(&self) -> bool {
        !self.buffers.is_empty()
    }

    /// The most slots beyond the first slab, pageable ones included.
    pub(super) fn most(&self) -> u32 {
        let grown = self.grow.map_or(0, |grow| grow.slots_max());
        grown + u32::try_from(self.buffers.len()).unwrap_or(u32::MAX)
    }

    /// Slots that may be added yet.
    pub(super) fn room(&self) -> u32 {
        let slots = self.grow.as_ref().map_or(0, |grow| grow.by);
        let vacant = self.bays.iter().take(self.slabs()).filter(|bay| !bay.is_occupied()).count();
        slots * u32::try_from(vacant).unwrap_or(u32::MAX)
    }

    /// Asks for growth. True if the keeper must be told: nobody asked since it looked.
    pub(super) fn want(&self) -> bool {
        self.grow.is_some() && self.wanted.load(Ordering::Relaxed) == 0 && {
            self.wanted.swap(1, Ordering::AcqRel) == 0
        }
    }

    /// Open bays of slabs, as bits.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn open_slabs(&self) -> u64 {
        let slabs = self.bays.iter().take(self.slabs()).rev();
        slabs.fold(0, |bits, bay| bits << 1 | u64::from(bay.out.still_out().is_none()))
    }

    fn slabs(&self) -> usize {
        self.bays.len() - 1
    }
}

impl Bay {
    fn new() -> Self {
        Self {
            out: Out::absent(),
            occupied: AtomicU32::new(0),
            base: AtomicUsize::new(0),
            slab: Mutex::new(None),
        }
    }

    fn is_occupied(&self) -> bool {
        self.occupied.load(Ordering::Acquire) != 0
    }
}

impl Class {
    /// The first byte of a slot that is not on the first slab.
    #[cold]
    #[inline(never)]
    pub(super) fn added_ptr(&self, slot: u32) -> NonNull<u8> {
        let (number, place) = self.place(slot);
        let address = match self.added.buffers.get(place) {
            Some(buffer) if number == self.added.slabs() => buffer.load(Ordering::Relaxed),
            _ => self.added.bays[number].base.load(Ordering::Relaxed) + place * self.stride_bytes,
        };
        // Never null for a slot that is out: its memory was there before it was handed out.
        NonNull::new(std::ptr::with_exposed_provenance_mut(address)).unwrap_or(self.base)
    }

    /// Where the GPU sees a slot that is not on the first slab.
    pub(super) fn added_device_address(&self, slot: u32) -> Option<u64> {
        let (number, place) = self.place(slot);
        let slab = self.added.bays[number].slab.lock();
        slab.as_ref()?.device_address(place * self.stride_bytes)
    }

    /// The bay of an added slot, and the slot's place in it.
    pub(super) fn place(&self, slot: u32) -> (usize, usize) {
        let bay = self.list.bay_of(slot).unwrap_or(BayId::RESERVE);
        let first = self.list.slots_of(bay).start;
        (bay.slab().unwrap_or(0), (slot - first) as usize)
    }

    /// The cap has room for one more slab.
    pub(super) fn may_pin_more(&self) -> bool {
        let pinned = self.added.grow.filter(|_| self.pins && self.locked);
        self.shared.budget.has_room(pinned.map_or(0, |grow| grow.slab_bytes as u64))
    }
}

impl ClassRef {
    /// Adds a slab if the class is empty, or nearly so, and may have one. For the keeper.
    pub(crate) fn grow_if_wanted(self, now: Instant) {
        let class = self.get();
        let Some(grow) = &class.added.grow else { return };
        let wanted = class.added.wanted.swap(0, Ordering::AcqRel) != 0;
        if !(wanted || class.is_waited() || class.unreserved() <= grow.at) || class.is_closed() {
            return;
        }
        let mut change = class.added.change.lock();
        if change.retry.is_some_and(|(until, _)| now < until) {
            return;
        }
        let vacant =
            (0..class.added.slabs()).find(|number| !class.added.bays[*number].is_occupied());
        let Some(number) = vacant else { return };
        if !class.may_pin_more() {
            let told = std::mem::replace(&mut change.told_full, true);
            // A logger is foreign code, and may close the pool (I17).
            drop(change);
            if !told {
                let cap = class.shared.budget.cap();
                tell!(warn, class = %class.name, cap, "max_pinned leaves no room to grow");
            }
            return;
        }
        change.told_full = false;
        class.added.bays[number].occupied.store(1, Ordering::Release);
        drop(change);
        let made = self.add_slab(number, grow);
        let mut change = class.added.change.lock();
        change.retry = made.as_ref().err().map(|_| {
            let pause = change.retry.map_or(RETRY_MIN, |(_, pause)| (pause * 2).min(RETRY_MAX));
            (now + pause, pause)
        });
        drop(change);
        if let Err(failure) = made {
            class.shared.admission.leave_line();
            let failures = class.added.counts.grow_failures.fetch_add(1, Ordering::Relaxed) + 1;
            let error = failure.error;
            tell!(warn, class = %class.name, %error, failures, "the class could not grow");
        }
    }

    /// Forgets that somebody asked for growth: there is none now.
    pub(crate) fn refuse_growth(self) {
        self.get().added.wanted.store(0, Ordering::Release);
    }

    fn add_slab(self, number: usize, grow: &GrowPlan) -> Result<(), SlabFailure> {
        let class = self.get();
        let bay = &class.added.bays[number];
        let GrowPlan { slab_bytes: bytes, chunk_bytes, .. } = *grow;
        let shape = SlabShape { bytes, chunk_bytes, device: class.device };
        let mut times = StartupTimes::default();
        let (pins, shared) = (class.pins && class.locked, &class.shared);
        let course = Course::paced(class.pause);
        let entered = shared.enter(grow.slab_bytes as u64, pins);
        let slab = entered
            .map_err(|error| SlabFailure { error, pinned: shared.budget.used(), offset: 0 })
            .and_then(|()| Slab::open(shape, pins, class.threads, &course, shared, &mut times))
            .and_then(|(slab, _)| slab.locked_as(class.locked))
            .inspect_err(|_| bay.occupied.store(0, Ordering::Release))?;
        (0..grow.by as usize).for_each(|place| {
            // SAFETY: I1, the slab has room for `by` slots.
            class.prepare(unsafe { slab.base().add(place * class.stride_bytes) });
        });
        bay.base.store(slab.base().as_ptr().expose_provenance(), Ordering::Relaxed);
        *bay.slab.lock() = Some(slab);
        let (opened, handed) = class.waiters.open(&class.list, || {
            if class.list.is_closed() {
                return false;
            }
            // Before a slot can be taken: the class stays until the slab is gone.
            class.lifetime.hold();
            bay.out.reopen(grow.by);
            class.list.open_bay(BayId::of_slab(number))
        });
        if !opened {
            self.settle_handed(handed);
            let slab = bay.slab.lock().take();
            drop(slab);
            bay.occupied.store(0, Ordering::Release);
            return Ok(());
        }
        let count = class.added.counts.grown.fetch_add(1, Ordering::Relaxed) + 1;
        // Before the logger, which is foreign code, and may take its time or panic (I7).
        self.settle_handed(handed);
        tell!(info, class = %class.name, slots = grow.by, count, "the class grew");
        Ok(())
    }

    /// Takes away what has been idle for `idle_after`, or all that is idle. Returns its bytes.
    pub(crate) fn trim(self, now: Instant, all: bool) -> u64 {
        let class = self.get();
        let mut bytes = 0;
        for number in 0..class.added.slabs() {
            let Some(grow) = &class.added.grow else { break };
            if self.is_idle(number, now, all) && self.take_away(number) {
                class.added.counts.trimmed.fetch_add(1, Ordering::Relaxed);
                bytes += grow.slab_bytes as u64;
            }
        }
        let pageable = class.added.slabs();
        if !class.added.buffers.is_empty() && self.is_idle(pageable, now, all) {
            bytes += self.free_buffers();
        }
        bytes
    }

    /// Whether nobody has used a bay's slots for long enough.
    fn is_idle(self, number: usize, now: Instant, all: bool) -> bool {
        let class = self.get();
        let bay = BayId::of_slab(number);
        if class.added.bays[number].out.still_out().is_some() {
            return false;
        }
        let slots = class.list.slots_of(bay);
        let unused = class.list.free_in(bay) == slots.end - slots.start;
        let leases = class.list.usage(slots);
        let mut change = class.added.change.lock();
        let (known, since) = &mut change.idle[number];
        if !unused || *known != leases || since.is_none() {
            (*known, *since) = (leases, unused.then_some(now));
        }
        let long = since.is_some_and(|since| now.duration_since(since) >= class.added.idle_after);
        drop(change);
        // One that would be added again at once stays.
        let slots = class.added.grow.as_ref().map_or(0, |grow| grow.at + grow.by);
        let spare = number == class.added.slabs() || class.unreserved() > slots;
        unused && (all || (long && spare))
    }

    /// Closes an added slab's bay; its memory goes with the last slot that is out. False if it was
    /// closed already.
    fn take_away(self, number: usize) -> bool {
        let class = self.get();
        let bay = &class.added.bays[number];
        let change = class.added.change.lock();
        if bay.out.still_out().is_some() {
            return false;
        }
        let home = class.list.close_bay(BayId::of_slab(number));
        let last = bay.out.close(home);
        drop(change);
        if last {
            self.bay_home(number);
        }
        true
    }

    /// Closes all that was added. For a closed class: nothing is added any more.
    pub(super) fn close_added(self) {
        (0..self.get().added.bays.len()).for_each(|number| {
            self.take_away(number);
        });
    }

    /// Counts a slot of an added slab home, or a pageable one.
    pub(super) fn arrive_added(self, slot: u32) {
        let class = self.get();
        let (number, _) = class.place(slot);
        if class.added.bays[number].out.arrive() {
            self.bay_home(number);
        }
    }

    /// Every slot of a closed bay is home: its memory goes.
    fn bay_home(self, number: usize) {
        let class = self.get();
        let bay = &class.added.bays[number];
        let slab = bay.slab.lock().take();
        // Outside the lock: unpinning calls the system or the driver (I17).
        drop(slab);
        if number == class.added.slabs() {
            class.unback_all();
        }
        bay.occupied.store(0, Ordering::Release);
        if class.lifetime.end_hold() {
            self.all_home();
        }
    }

    /// When the keeper must look again for growth and idle memory; `None` if never.
    pub(crate) fn tends_in(self) -> Option<Duration> {
        let added = &self.get().added;
        let grows = added.grow.is_some() && added.room() > 0;
        let goes = added.bays.iter().take(added.slabs()).any(Bay::is_occupied)
            || added.pageable_bytes() > 0;
        let grows = grows.then_some(GROW_TICK);
        let goes = goes.then_some((added.idle_after / 4).max(GROW_TICK));
        grows.into_iter().chain(goes).min()
    }
}

/// How often the keeper looks whether a class is nearly empty. Who finds it empty tells the keeper.
const GROW_TICK: Duration = Duration::from_millis(10);
/// Between attempts to grow that fail: at first, and at most.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(10);
