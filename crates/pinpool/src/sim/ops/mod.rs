//! What can happen in one step, and what must come of it.

mod flights;
mod waiting;

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use super::shadow::Place;
use super::world::World;
use crate::clock;
use crate::error::LeaseError;
use crate::free_list::Reach;
use crate::lease::Lease;

/// A step.
pub(in crate::sim) type Step = fn(&mut World);

/// The kinds of steps, how often each is usually chosen, and whether the world stands still without it.
pub(in crate::sim) const KINDS: [(Step, u64, bool); 20] = [
    (World::try_one, 32, true),
    (World::begin_task, 20, false),
    (World::poll_task, 40, true),
    (World::cancel_task, 3, false),
    (World::give_one_back, 40, true),
    (World::retire_one, 30, false),
    (World::fly_one, 20, false),
    (World::look_at_flight, 25, true),
    (World::await_flight, 8, false),
    (World::look_at_landing, 8, true),
    (World::round, 30, true),
    (World::wait_a_while, 30, true),
    (World::try_many, 4, false),
    (World::wait_for_one, 2, false),
    (World::share_one, 6, false),
    (World::drop_share, 10, true),
    (World::panic_with_one, 1, false),
    (World::forget_one, 1, false),
    (World::trouble_a_stream, 2, true),
    (World::rarely, 4, false),
];

impl World {
    /// One step that the weights choose.
    pub(in crate::sim) fn step(&mut self) {
        let all: u64 = self.options.weights.iter().sum();
        let mut at = self.rng.below(all);
        let chosen = self.options.weights.iter().position(|weight| {
            let here = at < *weight;
            at = at.wrapping_sub(*weight);
            here
        });
        if self.options.homes > 1 {
            let home = self.rng.below(u64::from(self.options.homes));
            #[allow(clippy::cast_possible_truncation, reason = "few")]
            crate::free_list::set_home(home as u32);
        }
        self.touched = 0;
        for shadow in &mut self.classes {
            shadow.late_before = shadow.counted.late_writes;
        }
        KINDS[chosen.unwrap_or(0)].0(self);
    }

    pub(in crate::sim) fn touch(&mut self, class: usize) {
        self.touched |= 1 << class;
    }

    pub(in crate::sim) fn some_len(&mut self) -> (usize, usize) {
        let class = self.rng.index(self.classes.len());
        (class, self.classes[class].plan.slot_bytes)
    }

    /// A lease was given: nobody else has the slot, its work is over, its bytes are what was promised.
    pub(in crate::sim) fn received(
        &mut self,
        mut lease: Lease,
        asked: usize,
        urgent: bool,
    ) -> Lease {
        let (class, number) = (lease.class().index(), lease.slot());
        let now = self.now();
        self.touch(class);
        self.touch(asked);
        self.owners += 1;
        let owner = self.owners;
        let shadow = &mut self.classes[class];
        let whole = lease.capacity();
        assert_eq!(whole, shadow.plan.slot_bytes);
        lease.set_len(whole).unwrap();
        shadow.open |= shadow.class.get().open_slabs();
        assert!(shadow.is_there(number), "slot {number} of a slab that is not there");
        let mut reach = shadow.reach(urgent);
        if class != asked {
            reach = Reach::REGULAR;
            assert!(whole <= self.classes[asked].class.get().spill_bytes(), "spilled too far");
            self.classes[asked].counted.spilled += 1;
        }
        let shadow = &mut self.classes[class];
        assert!(shadow.is_within(number, reach), "slot {number} is not for this lease");
        let (promised, pageable) = (shadow.promised(), shadow.is_pageable(number));
        assert_eq!(pageable, lease.is_pageable());
        shadow.counted.pageable += u64::from(pageable);
        shadow.counted.leases += 1;
        let slot = &mut shadow.slots[number as usize];
        assert_eq!(slot.place, Place::Back, "I2: slot {number} has an owner");
        let complete = slot.marks.iter().all(|mark| mark.is_complete(now));
        assert!(complete, "I3: slot {number} was handed out before its work was over");
        let bytes = lease.as_slice();
        match promised {
            Some(byte) => assert!(
                bytes.iter().all(|held| *held == byte),
                "I16: slot {number} shows what it held"
            ),
            None => assert!(
                holds(bytes, slot.owner) || (holds(bytes, 0) && (pageable || slot.owner == 0)),
                "I2: slot {number} was written by somebody else than its last owner"
            ),
        }
        assert!(!slot.spoilt, "a slot was handed out that was written late");
        // It was washed, and so its canary was looked at.
        shadow.counted.overruns += u64::from(mem::take(&mut slot.overrun));
        slot.place = Place::Out;
        slot.marks.clear();
        slot.leased_at = now;
        slot.told = false;
        slot.owner = owner;
        fill(lease.as_mut_slice(), owner);
        lease
    }

    /// The bytes of a lease are its holder's.
    pub(in crate::sim) fn verify(&self, lease: &Lease) {
        let slot = &self.classes[lease.class().index()].slots[lease.slot() as usize];
        assert!(matches!(slot.place, Place::Out | Place::Flying));
        assert!(holds(lease.raw_slice(), slot.owner), "I2: somebody wrote to a leased slot");
    }

    /// A lease of `asked` was refused because there is none: nothing that was complete `then` is left.
    pub(in crate::sim) fn refused(&self, asked: usize, reach: Reach, then: u64) {
        let shadow = &self.classes[asked];
        let hands = shadow.class.get().line().hands;
        let left = shadow.ripe(reach, hands, then);
        assert_eq!(left, None, "I13: class {asked} is not empty");
        let most = shadow.class.get().spill_bytes();
        // Those in line come first.
        let waited = shadow.class.get().is_waited();
        for (number, larger) in self.classes.iter().enumerate().skip(asked + 1) {
            let alike = shadow.class.get().scrubs_like(larger.class.get());
            if alike && !waited && larger.plan.slot_bytes <= most {
                let hands = larger.class.get().line().hands;
                let left = larger.ripe(Reach::REGULAR, hands, then);
                assert_eq!(left, None, "I13: class {number} could have helped class {asked}");
            }
        }
    }

    pub(in crate::sim) fn missed(&mut self, asked: usize, urgent: bool, then: u64) {
        // A miss looks through the larger classes as well.
        self.touched = u64::MAX;
        self.classes[asked].counted.misses += 1;
        self.note_lost();
        self.refused(asked, self.classes[asked].reach(urgent), then);
    }

    pub(in crate::sim) fn note_lost(&mut self) {
        self.classes.iter_mut().for_each(super::shadow::Shadow::note_lost);
    }

    pub(in crate::sim) fn try_one(&mut self) {
        if self.held.len() > 24 {
            return self.give_one_back();
        }
        let (class, len) = self.some_len();
        let urgent = self.rng.chance(200);
        let now = self.now();
        let outcome =
            if urgent { self.pool().try_lease_priority(len) } else { self.pool().try_lease(len) };
        match outcome {
            Ok(lease) => {
                self.touched = u64::MAX;
                let lease = self.received(lease, class, urgent);
                self.held.push(lease);
            }
            Err(LeaseError::Exhausted(_)) => self.missed(class, urgent, now),
            Err(error) => self.refused_for(&error),
        }
    }

    pub(in crate::sim) fn refused_for(&mut self, error: &LeaseError) {
        assert!(self.closed && *error == LeaseError::Closed, "refused: {error}");
    }

    pub(in crate::sim) fn give_one_back(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.rng.index(self.held.len());
        let lease = self.held.swap_remove(at);
        self.give_back(lease);
    }

    pub(in crate::sim) fn give_back(&mut self, lease: Lease) {
        self.verify(&lease);
        let (class, taken) = (lease.class().index(), lease.taken());
        self.touch(class);
        drop(lease);
        self.classes[class].back(taken);
    }

    pub(in crate::sim) fn round(&mut self) {
        self.keep();
    }

    pub(in crate::sim) fn wait_a_while(&mut self) {
        let time = if self.rng.chance(20) {
            self.rng.below(60_000_000)
        } else {
            self.rng.below(self.options.stride)
        };
        clock::simulated::pass(Duration::from_nanos(time));
        // Somebody's work may be over now: the keeper comes by.
        if self.rng.chance(300) {
            self.keep();
        }
    }

    pub(in crate::sim) fn share_one(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.rng.index(self.held.len());
        let lease = self.held.swap_remove(at);
        let (taken, shared) = (lease.taken(), lease.share());
        let clones = (0..self.rng.index(3)).map(|_| shared.clone()).collect::<Vec<_>>();
        self.shares.push((taken, clones.into_iter().chain([shared]).collect()));
    }

    pub(in crate::sim) fn drop_share(&mut self) {
        if self.shares.is_empty() {
            return;
        }
        let at = self.rng.index(self.shares.len());
        self.drop_one_of(at);
    }

    pub(in crate::sim) fn drop_one_of(&mut self, at: usize) {
        let taken = self.shares[at].0;
        let Some(share) = self.shares[at].1.pop() else { return };
        let class = share.class().index();
        let owner = self.classes[class].slots[taken.slot as usize].owner;
        assert!(holds(share.as_slice(), owner), "I2: somebody wrote to a shared slot");
        if !self.shares[at].1.is_empty() {
            return drop(share);
        }
        self.shares.swap_remove(at);
        if self.rng.chance(512) {
            // The last one has the lease again.
            let Ok(lease) = share.into_lease() else { unreachable!("the last of its clones") };
            return self.held.push(lease);
        }
        self.touch(class);
        drop(share);
        self.classes[class].back(taken);
    }

    pub(in crate::sim) fn panic_with_one(&mut self) {
        if self.held.is_empty() || !self.rng.chance(100) {
            return;
        }
        let at = self.rng.index(self.held.len());
        let lease = self.held.swap_remove(at);
        self.verify(&lease);
        let (class, taken) = (lease.class().index(), lease.taken());
        self.touch(class);
        let unwound = catch_unwind(AssertUnwindSafe(move || {
            let _held = lease;
            resume_unwind(Box::new(()));
        }));
        assert!(unwound.is_err());
        self.classes[class].back(taken);
    }

    pub(in crate::sim) fn forget_one(&mut self) {
        if self.held.is_empty() || self.forgotten.len() > 1 || !self.rng.chance(100) {
            return;
        }
        let at = self.rng.index(self.held.len());
        let lease = self.held.swap_remove(at);
        self.forgotten.push((lease.class().index(), lease.taken()));
        mem::forget(lease);
    }

    /// What happens seldom.
    pub(in crate::sim) fn rarely(&mut self) {
        self.touched = u64::MAX;
        match self.rng.below(8) {
            0 => {
                self.pool().trim();
            }
            1 => self.look_at_stats(),
            2 => self.return_twice(),
            3 => {
                let kind = self.rng.index(4);
                let rate = self.options.memory_faults[kind];
                self.memory.look(|books| books.broken[kind] = !books.broken[kind] && rate > 100);
            }
            4 if !self.forgotten.is_empty() => self.remember_one(),
            4 => assert!(matches!(self.pool().try_lease(0), Err(LeaseError::ZeroLen))),
            5 => self.write_past_the_end(),
            6 => self.write_late(),
            _ => {
                self.pool().holders();
            }
        }
    }

    pub(in crate::sim) fn look_at_stats(&mut self) {
        let stats = self.pool().stats();
        for class in &stats.classes {
            assert_eq!(
                class.free + class.leased + class.in_flight + class.quarantined,
                class.slots,
                "I5: {class:?}"
            );
            assert!(class.high_water <= class.slots + class.pageable + class.grown + 64);
        }
    }

    /// A forgotten lease is found again.
    pub(in crate::sim) fn remember_one(&mut self) {
        let at = self.rng.index(self.forgotten.len());
        let (class, taken) = self.forgotten.swap_remove(at);
        self.classes[class].class.give_back(taken);
        self.classes[class].back(taken);
    }

    /// A holder writes behind its slot, where a hardened pool has a canary.
    pub(in crate::sim) fn write_past_the_end(&mut self) {
        let hardened = |lease: &Lease| self.classes[lease.class().index()].checks();
        let Some(lease) = self.held.iter().find(|lease| hardened(lease)) else { return };
        let shadow = &mut self.classes[lease.class().index()];
        let start = shadow.class.get().slot_ptr(lease.slot());
        // SAFETY: the stride is longer than the slot; what lies between belongs to the holder.
        let canary = unsafe { start.add(shadow.plan.slot_bytes) };
        // SAFETY: as above.
        unsafe { canary.write(1) };
        shadow.slots[lease.slot() as usize].overrun = true;
    }

    /// Somebody writes to a slot that it returned: a hardened pool finds out before it hands it out.
    pub(in crate::sim) fn write_late(&mut self) {
        if !self.keep() {
            return;
        }
        let (now, at) = (self.now(), self.rng.index(self.classes.len()));
        let shadow = &mut self.classes[at];
        let spoilt = shadow.slots.iter().any(|slot| slot.spoilt);
        if !shadow.checks() || spoilt {
            return;
        }
        let hands = shadow.class.get().line().hands;
        // A buffer that is pageable may be gone.
        let reach = Reach { reserve: true, pageable: false };
        let Some(number) = shadow.ripe(reach, hands, now) else { return };
        let start = shadow.class.get().slot_ptr(number);
        // SAFETY: a slot that is home, of a slab that is there, while nobody else runs.
        unsafe { start.write(1) };
        shadow.slots[number as usize].spoilt = true;
    }

    /// A lease that is returned twice: the second time is refused, and nobody loses the slot.
    pub(in crate::sim) fn return_twice(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.rng.index(self.held.len());
        let lease = self.held.swap_remove(at);
        let (class, taken) = (lease.class().index(), lease.taken());
        self.give_back(lease);
        self.classes[class].class.give_back(taken);
        self.classes[class].counted.stale += 1;
    }
}

/// Whether every word is the owner's.
pub(in crate::sim) fn holds(bytes: &[u8], owner: u64) -> bool {
    bytemuck::cast_slice::<u8, u64>(bytes).iter().all(|word| *word == owner)
}

fn fill(bytes: &mut [u8], owner: u64) {
    bytemuck::cast_slice_mut::<u8, u64>(bytes).fill(owner);
}
