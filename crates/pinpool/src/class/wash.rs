//! What is done to a slot between its owners, off their paths: scrubbing, and in hardened pools the
//! checks of its canary and of the bytes that nobody should have written.

use std::ptr::NonNull;

use crossbeam::queue::ArrayQueue;

use super::{Class, ClassRef};
use crate::config::Scrub;
use crate::foreign::tell;
use crate::free_list::{Pop, Reach};
use crate::plan::ClassPlan;
use crate::sync::{AtomicU64, Ordering};
use crate::tag::Tag;

/// How slots are treated between owners.
#[derive(Debug)]
pub(super) struct Wash {
    scrub: Scrub,
    /// Bytes between the end of a slot and the next one, in hardened pools; else 0.
    canary_bytes: usize,
    /// Slots whose work is over and that were not washed yet. Each slot is in it once at most, so
    /// that it is never full. They count as in flight.
    dirty: Option<ArrayQueue<u32>>,
    overruns: AtomicU64,
    late_writes: AtomicU64,
}

impl Wash {
    pub(super) fn new(plan: &ClassPlan, slots: u32) -> Self {
        let canary_bytes = plan.stride_bytes - plan.slot_bytes;
        let needed = Self::is_for(plan);
        Self {
            scrub: plan.scrub,
            canary_bytes,
            dirty: needed.then(|| ArrayQueue::new(slots.max(1) as usize)),
            overruns: AtomicU64::new(0),
            late_writes: AtomicU64::new(0),
        }
    }

    /// Whether a class's slots are treated at all between owners.
    pub(super) fn is_for(plan: &ClassPlan) -> bool {
        plan.scrub != Scrub::None || plan.stride_bytes > plan.slot_bytes
    }

    /// Slots do not go from one owner to the next as they are.
    #[inline]
    pub(super) fn is_needed(&self) -> bool {
        self.dirty.is_some()
    }

    /// Slots are checked when they are handed out.
    pub(super) fn checks(&self) -> bool {
        self.canary_bytes > 0
    }

    /// Leaves a slot to be washed.
    pub(super) fn add(&self, slot: u32) {
        let added = self.dirty.as_ref().map_or(Err(slot), |dirty| dirty.push(slot));
        debug_assert!(added.is_ok(), "each slot is in it once at most (I2)");
    }

    /// Nothing is left to be washed.
    pub(super) fn is_empty(&self) -> bool {
        self.dirty.as_ref().is_none_or(ArrayQueue::is_empty)
    }

    fn next(&self) -> Option<u32> {
        self.dirty.as_ref()?.pop()
    }

    /// Overwritten canaries so far, and slots that were written while nobody had them.
    pub(super) fn found(&self) -> (u64, u64) {
        (self.overruns.load(Ordering::Relaxed), self.late_writes.load(Ordering::Relaxed))
    }
}

impl Class {
    /// Slots of the other class are scrubbed as those of this one are, if they are (I16).
    pub(crate) fn scrubs_like(&self, other: &Self) -> bool {
        self.wash.scrub == Scrub::None || self.wash.scrub == other.wash.scrub
    }

    /// Brings fresh memory of one slot to the state in which slots are handed out.
    pub(super) fn prepare(&self, start: NonNull<u8>) {
        if self.wash.scrub == Scrub::Poison || self.wash.checks() {
            // SAFETY: I2, nobody else knows of this memory yet, and it is a whole slot.
            unsafe { start.write_bytes(POISON, self.slot_bytes) };
        }
        self.set_canary(start);
    }

    fn set_canary(&self, start: NonNull<u8>) {
        // SAFETY: the canary lies behind the slot, within its stride.
        let canary = unsafe { start.add(self.slot_bytes) };
        // SAFETY: I2, the canary is the slot owner's, which the caller is.
        unsafe { canary.write_bytes(CANARY, self.wash.canary_bytes) };
    }

    /// Scrubs and checks a slot that the caller owns.
    pub(super) fn launder(&self, slot: u32) {
        // Its memory goes as it is.
        if self.is_closed() {
            return;
        }
        let start = self.slot_ptr(slot);
        let canary_bytes =
            if crate::seeded::bug("blind-canary") { 0 } else { self.wash.canary_bytes };
        if self.wash.checks() && !self.is_whole(start, self.slot_bytes, canary_bytes, CANARY) {
            let count = self.wash.overruns.fetch_add(1, Ordering::Relaxed) + 1;
            // Of the last holder: it goes when the next one comes.
            let tag = Tag::name(self.list.meta(slot).tag());
            tell!(error,
                class = %self.name, slot, count, tag = tag.as_deref(),
                "somebody wrote past the end of this slot: its canary is damaged"
            );
            self.set_canary(start);
        }
        let fill = match self.wash.scrub {
            _ if self.wash.checks() => Some(POISON),
            Scrub::Poison => Some(POISON),
            Scrub::Zero => Some(0),
            Scrub::None => None,
        };
        let skipped =
            crate::seeded::bug("skip-scrub") && self.list.usage(slot..slot + 1) % 128 >= 126;
        if let Some(byte) = fill.filter(|_| !skipped) {
            // SAFETY: I2 and I3, the slot is ours and its work is over.
            unsafe { start.write_bytes(byte, self.slot_bytes) };
        }
    }

    /// Whether a slot that is about to be handed out is as it was left; then makes it what its class promises.
    pub(super) fn check_unwritten(&self, slot: u32) -> bool {
        let start = self.slot_ptr(slot);
        if !self.is_whole(start, 0, self.slot_bytes, POISON) {
            let count = self.wash.late_writes.fetch_add(1, Ordering::Relaxed) + 1;
            let tag = Tag::name(self.list.meta(slot).tag());
            tell!(error,
                class = %self.name, slot, count, tag = tag.as_deref(),
                "somebody wrote to this slot after it was returned: it is out of use now"
            );
            return false;
        }
        if self.wash.scrub == Scrub::Zero {
            // SAFETY: I2, the caller owns the slot.
            unsafe { start.write_bytes(0, self.slot_bytes) };
        }
        true
    }

    #[allow(clippy::unused_self, reason = "the memory is this class's")]
    fn is_whole(&self, start: NonNull<u8>, from: usize, bytes: usize, expected: u8) -> bool {
        // SAFETY: I1, `from + bytes` is at most the slot's stride.
        let first = unsafe { start.add(from) };
        // SAFETY: I2, the slot is the caller's, so that nobody who plays by the rules writes it.
        let held = unsafe { std::slice::from_raw_parts(first.as_ptr(), bytes) };
        held.iter().all(|byte| *byte == expected)
    }
}

impl ClassRef {
    /// Washes slots and sends them home, until none is left or `bytes` were washed.
    pub(crate) fn wash(self, bytes: usize) {
        let class = self.get();
        let mut left = bytes;
        while let Some(slot) = class.wash.next() {
            class.launder(slot);
            self.send_home(slot);
            class.land();
            left = left.saturating_sub(class.slot_bytes);
            if left == 0 {
                return;
            }
        }
    }

    /// Washes slots until one comes that the caller, who found nothing else, may have.
    pub(super) fn wash_one(self, reach: Reach) -> Option<u32> {
        let class = self.get();
        let mut sent_home = false;
        while let Some(slot) = class.wash.next() {
            class.launder(slot);
            let suits = !class.is_waited() && class.list.is_within(class.list.bay_of(slot), reach);
            if !suits {
                self.send_home(slot);
                sent_home = true;
            }
            class.land();
            if suits {
                return Some(slot);
            }
        }
        if !sent_home {
            return None;
        }
        // What nobody in line may have went to the list; the caller may be one who may.
        match class.list.pop_within(reach) {
            Pop::Slot { slot, .. } => Some(slot),
            Pop::Empty | Pop::Closed => None,
        }
    }
}

/// What a poisoned slot holds.
pub(super) const POISON: u8 = 0xDB;
/// What stands behind a slot in hardened pools.
const CANARY: u8 = 0xC5;
