//! What the simulator knows by itself of one class: where each slot is, what it holds, and what was
//! counted.

use std::sync::Arc;

use super::fence::Mark;
use crate::class::{ClassRef, Taken};
use crate::config::{OnEmpty, Scrub};
use crate::free_list::Reach;
use crate::plan::ClassPlan;

/// Where a slot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Nobody holds it: it is free, in flight, or in the hands of somebody who waits.
    Back,
    /// Leased.
    Out,
    /// Locked away until work is over.
    Flying,
    /// Out of use for good.
    Lost,
}

/// One slot.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Slot {
    pub(super) place: Place,
    /// Work on it that was not seen to be over.
    pub(super) marks: Vec<Arc<Mark>>,
    /// It went back by way of the retired slots.
    pub(super) retired: bool,
    /// The last owner, who filled it; 0 for none.
    pub(super) owner: u64,
    pub(super) leased_at: u64,
    /// Told as a leak.
    pub(super) told: bool,
    /// Its canary was damaged by its last owner; its bytes were written while nobody had it.
    pub(super) overrun: bool,
    pub(super) spoilt: bool,
}

/// Events that the simulator counts itself.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) leases: u64,
    pub(super) misses: u64,
    pub(super) waits: u64,
    pub(super) timeouts: u64,
    pub(super) cancelled: u64,
    pub(super) spilled: u64,
    pub(super) pageable: u64,
    pub(super) leaks: u64,
    pub(super) stale: u64,
    pub(super) overruns: u64,
    pub(super) late_writes: u64,
}

/// One class.
#[derive(Debug)]
pub(super) struct Shadow {
    pub(super) class: ClassRef,
    pub(super) plan: ClassPlan,
    pub(super) regular: u32,
    pub(super) slots: Vec<Slot>,
    pub(super) counted: Counted,
    /// Open added slabs when last looked at, as bits.
    pub(super) open: u64,
    /// Grown, failed and trimmed slabs, and landed slots, when last looked at.
    pub(super) rising: [u64; 4],
    pub(super) lost: u32,
    /// Late writes that were found before this step.
    pub(super) late_before: u64,
}

impl Shadow {
    pub(super) fn new(class: ClassRef, plan: ClassPlan) -> Self {
        let slot = || Slot {
            place: Place::Back,
            marks: Vec::new(),
            retired: false,
            owner: 0,
            leased_at: 0,
            told: false,
            overrun: false,
            spoilt: false,
        };
        Self {
            class,
            regular: plan.count - plan.reserve,
            slots: (0..class.get().records()).map(|_| slot()).collect(),
            counted: Counted::default(),
            open: 0,
            rising: [0; 4],
            lost: 0,
            late_before: 0,
            plan,
        }
    }

    /// Slots are washed between owners.
    pub(super) fn washes(&self) -> bool {
        self.plan.scrub != Scrub::None || self.checks()
    }

    pub(super) fn checks(&self) -> bool {
        self.plan.stride_bytes > self.plan.slot_bytes
    }

    /// What every byte of a slot holds when it is handed out, where that is promised.
    pub(super) fn promised(&self) -> Option<u8> {
        match self.plan.scrub {
            Scrub::Zero => Some(0),
            Scrub::Poison => Some(0xDB),
            Scrub::None => self.checks().then_some(0xDB),
        }
    }

    /// The added slab that a slot is on; `None` for the first slab and pageable buffers.
    pub(super) fn slab_of(&self, slot: u32) -> Option<u32> {
        let grow = self.plan.grow?;
        let beyond = slot.checked_sub(self.plan.count)?;
        (beyond < grow.slots_max()).then_some(beyond / grow.by)
    }

    pub(super) fn is_pageable(&self, slot: u32) -> bool {
        slot >= self.plan.count && self.slab_of(slot).is_none()
    }

    /// The slot is there: its slab is, or the first or a pageable one is meant.
    pub(super) fn is_there(&self, slot: u32) -> bool {
        self.slab_of(slot).is_none_or(|slab| self.open >> slab & 1 == 1)
    }

    pub(super) fn is_within(&self, slot: u32, reach: Reach) -> bool {
        if slot < self.regular {
            true
        } else if slot < self.plan.count {
            reach.reserve
        } else {
            reach.pageable || !self.is_pageable(slot)
        }
    }

    /// What somebody may have who asks with or without priority.
    pub(super) fn reach(&self, urgent: bool) -> Reach {
        let reserve = urgent;
        Reach { reserve, pageable: self.plan.pageable_max > 0 }
    }

    /// Slots within reach that are not lost, those included that may be added.
    pub(super) fn hopes(&self, reach: Reach) -> u32 {
        let kept = |slot: &u32| {
            self.is_within(*slot, reach) && self.slots[*slot as usize].place != Place::Lost
        };
        (0u32..).take(self.slots.len()).filter(kept).count().try_into().unwrap_or(u32::MAX)
    }

    /// Events by name, for the verdict that all of them happened.
    pub(super) fn tally(&self) -> [(&'static str, u64); 16] {
        let counted = &self.counted;
        let [grown, grow_failures, trimmed, landed] = self.rising;
        [
            ("leases", counted.leases),
            ("misses", counted.misses),
            ("waits", counted.waits),
            ("timeouts", counted.timeouts),
            ("cancelled", counted.cancelled),
            ("spilled", counted.spilled),
            ("pageable", counted.pageable),
            ("leaks", counted.leaks),
            ("stale returns", counted.stale),
            ("overruns", counted.overruns),
            ("late writes", counted.late_writes),
            ("grown", grown),
            ("grow failures", grow_failures),
            ("trimmed", trimmed),
            ("landed", landed),
            ("lost", self.lost.into()),
        ]
    }

    /// Whether somebody who finds the class empty may wait.
    pub(super) fn waits(&self) -> bool {
        self.plan.on_empty != OnEmpty::Fail && self.lost < self.class.get().records()
    }

    /// A slot that nobody holds, whose work is complete, which is in nobody's `hands`, and which may be
    /// had with this reach.
    pub(super) fn ripe(&self, reach: Reach, hands: u64, now: u64) -> Option<u32> {
        (0u32..).zip(&self.slots).find_map(|(number, slot)| {
            let ripe = slot.place == Place::Back
                && hands >> number & 1 == 0
                && self.is_there(number)
                && self.is_within(number, reach)
                && slot.marks.iter().all(|mark| mark.is_plain(now));
            ripe.then_some(number)
        })
    }

    /// Notes slots whose failed work the pool was told of.
    pub(super) fn note_lost(&mut self) {
        // There is one spoilt slot at most.
        if self.checks() && self.class.get().events().late_writes > self.counted.late_writes {
            self.counted.late_writes += 1;
            let spoilt = self.slots.iter_mut().find(|slot| slot.spoilt);
            let Some(slot) = spoilt else { unreachable!("a late write was found that was none") };
            (slot.spoilt, slot.place) = (false, Place::Lost);
            self.counted.overruns += u64::from(std::mem::take(&mut slot.overrun));
            self.lost += 1;
        }
        for slot in &mut self.slots {
            if slot.place == Place::Back && slot.marks.iter().any(|mark| mark.told_failure()) {
                slot.place = Place::Lost;
                slot.marks.clear();
                self.lost += 1;
            }
        }
    }

    /// A holder's slot is out of use.
    pub(super) fn lose(&mut self, slot: u32) {
        let slot = &mut self.slots[slot as usize];
        slot.place = Place::Lost;
        slot.marks.clear();
        self.lost += 1;
    }

    /// A holder let go of its slot.
    pub(super) fn back(&mut self, taken: Taken) {
        let washes = self.washes();
        let slot = &mut self.slots[taken.slot as usize];
        slot.place = Place::Back;
        slot.retired = washes || !slot.marks.is_empty();
        slot.marks.iter().for_each(|mark| mark.ask_again());
    }
}
