//! What must hold after every step.

use super::ops::holds;
use super::shadow::{Place, Shadow};
use super::world::World;
use crate::free_list::Reach;
use crate::keeper::Next;
use crate::waiters::Line;

/// Slots of one class by where the simulator knows them to be.
#[derive(Debug, Default)]
struct Sums {
    /// Pinned and pageable ones that nobody holds: in hands of those who wait, with work that is not
    /// over, with work that is over and perhaps not home, and home for certain.
    hands: u32,
    pending: u32,
    ripe: [u32; 2],
    home: [u32; 2],
    /// Of those that are over: perhaps not found yet by whoever looks.
    hidden: u32,
    out: u32,
    flying: u32,
    /// Pageable ones that are in use for certain.
    pageable: u32,
}

impl World {
    /// Everything, for the classes that the last step may have changed and one more.
    pub(super) fn audit(&mut self, step: u64) {
        let turn = usize::try_from(step).unwrap_or(0) % self.classes.len();
        self.note_lost();
        let now = self.now();
        let open = if self.closed { 0 } else { self.classes.len() };
        for class in 0..open {
            if self.touched >> class & 1 == 1 || class == turn {
                self.audit_class(class, now);
            }
        }
        self.audit_memory();
        self.audit_keeper();
    }

    fn audit_class(&mut self, at: usize, now: u64) {
        let shadow = &mut self.classes[at];
        shadow.note_slabs();
        let line = shadow.class.get().line();
        shadow.audit_places(&line, now);
        shadow.audit_counts();
        self.audit_line(at, &line);
        let shadow = &self.classes[at];
        // Work that is not over finds the bytes as its owner left them.
        let number = self.rng.index(shadow.slots.len());
        let (slot, number) = (&shadow.slots[number], u32::try_from(number).unwrap());
        let used = slot.marks.iter().any(|mark| !mark.is_over(now));
        if used && shadow.is_there(number) {
            let start = shadow.class.get().slot_ptr(number);
            // SAFETY: I2, nobody writes to a slot in flight; its slab is there.
            let bytes =
                unsafe { std::slice::from_raw_parts(start.as_ptr(), shadow.plan.slot_bytes) };
            assert!(holds(bytes, slot.owner), "I3: slot {number} was touched under its work");
        }
    }

    /// First come, first served, one wake-up each, and nobody in line beside a slot.
    fn audit_line(&mut self, at: usize, line: &Line) {
        let shadow = &self.classes[at];
        let class = shadow.class.get();
        let mut waiting = 0;
        let mut woken = 0;
        // The best that still waits, and the worst that was served since the last look.
        let mut first = (true, u64::MAX);
        let mut last = (false, 0);
        for task in self.tasks.iter_mut().filter(|task| task.class == at) {
            let rank = (!task.urgent, task.place);
            match task.bell.count() {
                0 => {
                    waiting += 1;
                    // One that came in this step did so after its own look served others.
                    if !std::mem::take(&mut task.fresh) {
                        first = first.min(rank);
                    }
                    let hopes = shadow.hopes(shadow.reach(task.urgent));
                    assert!(hopes > 0 || self.closed, "I9: a task waits though nothing can come");
                }
                count => {
                    assert_eq!(count, 1, "I9: a task was woken twice");
                    woken += 1;
                    if !std::mem::replace(&mut task.seen, true) {
                        last = last.max(rank);
                    }
                }
            }
        }
        assert_eq!(waiting, line.waiting, "I9: those in line are those not woken");
        assert_eq!(woken, line.served + line.dismissed, "I9: those served are those woken");
        assert!(line.dismissed > 0 || last < first, "I9: {last:?} was served before {first:?}");
        if let Some(want) = line.first {
            assert!(!self.closed, "I6: somebody is in line of a closed class");
            let free = class.free_within(want.reach);
            assert_eq!(free, 0, "I9: somebody waits beside a free slot");
        }
    }

    /// I4: what is pinned is what the budget says, and no more than may be.
    fn audit_memory(&self) {
        let (pinned, mapped, stuck, wrong) =
            self.memory.look(|books| (books.pinned, books.mapped, books.stuck, books.wrong));
        assert_eq!(wrong, None, "the memory's contract");
        assert_eq!(self.shared.budget.used(), pinned, "I4: pinned bytes");
        assert!(pinned <= self.shared.budget.cap(), "I4: more is pinned than may be");
        assert_eq!(self.shared.mapped_bytes(), mapped, "mapped bytes");
        assert_eq!(self.shared.stuck_bytes(), stuck, "stuck bytes");
    }

    /// The keeper does not sleep over what it must look at.
    fn audit_keeper(&self) {
        let asleep = matches!(self.next, Next::SleepUntilRung(_)) && !self.shared.bell.is_rung();
        if !asleep || self.rounds.is_none() {
            return;
        }
        for (number, shadow) in self.classes.iter().enumerate() {
            let line = shadow.class.get().line();
            let retired = |(slot, number): (&super::shadow::Slot, u32)| {
                slot.place == Place::Back
                    && line.hands >> number & 1 == 0
                    && !slot.marks.is_empty()
                    && slot.marks.iter().any(|mark| !mark.is_over(self.now()))
            };
            let left = shadow.slots.iter().zip(0u32..).any(retired);
            assert!(!left, "the keeper sleeps over retired slots of class {number}");
        }
        for awaited in &self.landings {
            let over = !awaited.polled || awaited.bell.count() > 0;
            assert!(over, "the keeper sleeps over a task that awaits work");
        }
    }

    /// After a round everything that is complete is home, or with somebody who waited for it.
    pub(super) fn audit_round(&mut self) {
        let now = self.now();
        self.note_lost();
        for (number, shadow) in self.classes.iter().enumerate() {
            let (census, sums) = (shadow.class.get().census(), shadow.sums(0, now));
            if !self.closed {
                let flying = sums.flying + sums.pending;
                let home = flying..=flying + sums.hidden;
                let found = census.in_flight;
                assert!(home.contains(&found), "class {number} after a round: {found} of {home:?}");
            }
        }
        for awaited in self.landings.iter().filter(|awaited| awaited.polled) {
            let marks = &self.classes[awaited.class].slots[awaited.taken.slot as usize].marks;
            let over = marks.last().is_some_and(|mark| mark.is_over(now));
            let woken = awaited.bell.count();
            assert_eq!(woken > 0, over, "tasks are woken when their work is over, and not before");
        }
    }
}

impl Shadow {
    /// Slabs that came and went: fresh memory holds nothing.
    fn note_slabs(&mut self) {
        let open = self.class.get().open_slabs();
        let fresh = open & !self.open;
        let count = self.plan.count;
        if let Some(grow) = self.plan.grow.filter(|_| fresh != 0) {
            for slab in (0..grow.slabs).filter(|slab| fresh >> slab & 1 == 1) {
                let slots = count + slab * grow.by..count + (slab + 1) * grow.by;
                for number in slots {
                    let slot = &mut self.slots[number as usize];
                    if slot.place == Place::Back {
                        (slot.owner, slot.retired) = (0, false);
                        self.counted.overruns += u64::from(std::mem::take(&mut slot.overrun));
                        slot.spoilt = false;
                        slot.marks.clear();
                    }
                }
            }
        }
        self.open = open;
    }

    fn sums(&self, hands: u64, now: u64) -> Sums {
        let mut sums = Sums::default();
        for (slot, number) in self.slots.iter().zip(0u32..) {
            let pageable = self.is_pageable(number);
            let kind = usize::from(pageable);
            let mut used = true;
            match slot.place {
                Place::Out => sums.out += 1,
                Place::Flying => sums.flying += 1,
                Place::Lost => {}
                Place::Back if !self.is_there(number) => used = false,
                Place::Back if hands >> number & 1 == 1 => sums.hands += 1,
                Place::Back if slot.marks.iter().all(|mark| mark.is_complete(now)) => {
                    used = false;
                    sums.hidden += u32::from(!slot.marks.iter().all(|mark| mark.is_plain(now)));
                    if slot.retired {
                        sums.ripe[kind] += 1;
                    } else {
                        sums.home[kind] += 1;
                    }
                }
                Place::Back => sums.pending += 1,
            }
            sums.pageable += u32::from(used && pageable);
        }
        sums
    }

    /// I5 and I2: each slot is in one place, and the counts say so.
    fn audit_places(&self, line: &Line, now: u64) {
        let class = self.class.get();
        let census = class.census();
        let sums = self.sums(line.hands, now);
        let grown = self.plan.grow.map_or(0, |grow| grow.by * self.open.count_ones());
        let all = census.free + census.leased + census.in_flight + census.quarantined;
        assert_eq!(all, census.slots, "I5: {census:?}");
        let pageable = census.slots - self.plan.count - grown;
        assert_eq!(census.quarantined, self.lost, "quarantined: {census:?}, {sums:?}");
        assert_eq!(census.leased, sums.out + sums.hands, "leased: {census:?}, {sums:?}");
        // Of what is over, so much is not home yet.
        let late = pageable.checked_sub(sums.pageable);
        let late = late.filter(|late| *late <= sums.ripe[1]);
        assert!(late.is_some(), "pageable: {census:?}, {sums:?}");
        let late = late.unwrap_or(0);
        let later = census.in_flight.checked_sub(sums.flying + sums.pending + late);
        let later = later.filter(|later| *later <= sums.ripe[0]);
        assert!(later.is_some(), "in flight: {census:?}, {sums:?}");
        let free = sums.home[0] + sums.ripe[0] - later.unwrap_or(0);
        assert_eq!(census.free, free, "free: {census:?}, {sums:?}");
        assert_eq!(census.free, class.free_within(Reach::PINNED));
        for number in (0u32..64).filter(|number| line.hands >> number & 1 == 1) {
            let slot = &self.slots[number as usize];
            let complete = slot.marks.iter().all(|mark| mark.is_complete(now));
            assert!(slot.place == Place::Back && complete, "I3: slot {number} was handed over");
        }
    }

    /// Events are counted as they happened, and sums only rise (I15).
    fn audit_counts(&mut self) {
        let class = self.class.get();
        let events = class.events();
        let found = super::shadow::Counted {
            leases: class.leases_total(),
            misses: class.misses_total(),
            waits: events.waits,
            timeouts: events.timeouts,
            cancelled: events.cancelled,
            spilled: events.spilled,
            pageable: events.pageable,
            leaks: events.leaks,
            stale: class.stale_returns_total(),
            overruns: events.overruns,
            late_writes: events.late_writes,
        };
        // A damaged canary is found when its slot is washed, which may not have been yet.
        let damaged = self.slots.iter().filter(|slot| slot.overrun && slot.place == Place::Back);
        let more = found.overruns.checked_sub(self.counted.overruns);
        assert!(more.is_some_and(|more| more <= damaged.count() as u64), "overruns");
        let known = self.counted.overruns;
        self.counted.overruns = found.overruns;
        assert_eq!(found, self.counted, "events");
        self.counted.overruns = known;
        let rising = [events.grown, events.grow_failures, events.trimmed, class.landed_total()];
        assert!(rising.iter().zip(self.rising).all(|(new, old)| *new >= old), "I15: a count fell");
        self.rising = rising;
        let open = events.grown - events.trimmed;
        assert_eq!(u64::from(self.open.count_ones()), open, "slabs grown and trimmed");
    }
}
