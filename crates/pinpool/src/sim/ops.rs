//! What can happen in one step, and what must come of it.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::fence::{Mark, Outcome, SimFence, Stream};
use super::shadow::Place;
use super::world::{Awaited, Task, Woken, World, poll};
use crate::attached::{Attached, Order};
use crate::class::Taken;
use crate::clock;
use crate::error::LeaseError;
use crate::free_list::Reach;
use crate::in_flight::{InFlight, TryTakeError};
use crate::lease::Lease;

/// A step.
pub(super) type Step = fn(&mut World);

/// The kinds of steps, and how often each is usually chosen.
pub(super) const KINDS: [(Step, u64); 20] = [
    (World::try_one, 40),
    (World::begin_task, 30),
    (World::poll_task, 30),
    (World::cancel_task, 3),
    (World::give_one_back, 40),
    (World::retire_one, 30),
    (World::fly_one, 20),
    (World::look_at_flight, 25),
    (World::await_flight, 8),
    (World::look_at_landing, 8),
    (World::round, 30),
    (World::wait_a_while, 30),
    (World::try_many, 4),
    (World::wait_for_one, 2),
    (World::share_one, 6),
    (World::drop_share, 10),
    (World::panic_with_one, 1),
    (World::forget_one, 1),
    (World::trouble_a_stream, 2),
    (World::rarely, 4),
];

impl World {
    /// One step that the weights choose.
    pub(super) fn step(&mut self) {
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
        KINDS[chosen.unwrap_or(0)].0(self);
    }

    fn touch(&mut self, class: usize) {
        self.touched |= 1 << class;
    }

    fn some_len(&mut self) -> (usize, usize) {
        let class = self.rng.index(self.classes.len());
        (class, self.classes[class].plan.slot_bytes)
    }

    /// A lease was given: nobody else has the slot, its work is over, its bytes are what was promised.
    fn received(&mut self, mut lease: Lease, asked: usize, urgent: bool) -> Lease {
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
        slot.place = Place::Out;
        slot.marks.clear();
        slot.leased_at = now;
        slot.told = false;
        slot.owner = owner;
        fill(lease.as_mut_slice(), owner);
        lease
    }

    /// The bytes of a lease are its holder's.
    fn verify(&self, lease: &Lease) {
        let slot = &self.classes[lease.class().index()].slots[lease.slot() as usize];
        assert!(matches!(slot.place, Place::Out | Place::Flying));
        assert!(holds(lease.raw_slice(), slot.owner), "I2: somebody wrote to a leased slot");
    }

    /// A lease of `asked` was refused because there is none: nothing that was complete `then` is left.
    fn refused(&self, asked: usize, reach: Reach, then: u64) {
        let shadow = &self.classes[asked];
        let hands = shadow.class.get().line().hands;
        let left = shadow.ripe(reach, hands, then);
        assert_eq!(left, None, "I13: class {asked} is not empty");
        let most = shadow.class.get().spill_bytes();
        for (number, larger) in self.classes.iter().enumerate().skip(asked + 1) {
            let alike = shadow.class.get().scrubs_like(larger.class.get());
            if alike && larger.plan.slot_bytes <= most {
                let hands = larger.class.get().line().hands;
                let left = larger.ripe(Reach::REGULAR, hands, then);
                assert_eq!(left, None, "I13: class {number} could have helped class {asked}");
            }
        }
    }

    fn missed(&mut self, asked: usize, urgent: bool, then: u64) {
        // A miss looks through the larger classes as well.
        self.touched = u64::MAX;
        self.classes[asked].counted.misses += 1;
        self.note_lost();
        self.refused(asked, self.classes[asked].reach(urgent), then);
    }

    pub(super) fn note_lost(&mut self) {
        self.classes.iter_mut().for_each(super::shadow::Shadow::note_lost);
    }

    fn try_one(&mut self) {
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

    fn refused_for(&mut self, error: &LeaseError) {
        assert!(self.closed && *error == LeaseError::Closed, "refused: {error}");
    }

    fn begin_task(&mut self) {
        if self.tasks.len() > 12 {
            return self.poll_task();
        }
        let (class, len) = self.some_len();
        let urgent = self.rng.chance(200);
        let future = if urgent {
            self.pool().lease_priority_async(len)
        } else {
            self.pool().lease_async(len)
        };
        self.places += 1;
        let deadline = if self.rng.chance(400) {
            self.now() + self.rng.below(self.options.stride * 16)
        } else {
            u64::MAX
        };
        let (bell, place) = (Arc::new(Woken::default()), self.places);
        let mut task =
            Task { future, bell, class, urgent, place, deadline, seen: false, fresh: true };
        self.touched = u64::MAX;
        let before = self.classes[class].class.get();
        let (misses, waits) = (before.misses_total(), before.events().waits);
        let now = self.now();
        let ready = poll(&mut task.future, &task.bell);
        let after = self.classes[class].class.get();
        let missed = after.misses_total() - misses;
        let waited = after.events().waits - waits;
        let counted = &mut self.classes[class].counted;
        counted.misses += missed;
        counted.waits += waited;
        self.note_lost();
        let Some(ready) = ready else {
            assert_eq!((missed, waited), (1, 1), "a task in line is counted");
            assert!(self.classes[class].waits(), "nobody waits here");
            self.refused(class, self.classes[class].reach(urgent), now);
            self.tasks.push(task);
            return;
        };
        assert!(task.bell.count() <= 1, "woken more than once");
        match ready {
            Ok(lease) => {
                assert!([(0, 0), (1, 1)].contains(&(missed, waited)));
                let lease = self.received(lease, class, urgent);
                self.held.push(lease);
            }
            Err(LeaseError::Exhausted(_)) => {
                assert_eq!(missed, 1);
                self.refused(class, self.classes[class].reach(urgent), now);
                if waited == 1 {
                    self.hopeless(class, urgent);
                } else {
                    assert!(!self.classes[class].waits(), "a task was sent away");
                }
            }
            Err(error) => self.refused_for(&error),
        }
    }

    /// A wait ended because no slot can come: none can.
    fn hopeless(&self, class: usize, urgent: bool) {
        let shadow = &self.classes[class];
        let hopes = shadow.hopes(shadow.reach(urgent));
        assert_eq!(hopes, 0, "I9: a wait was given up, though {hopes} slots may come");
    }

    fn poll_task(&mut self) {
        if self.tasks.is_empty() {
            return;
        }
        let at = self.rng.index(self.tasks.len());
        self.fetch(at);
    }

    /// Polls one task, and gives it up if its deadline passed.
    pub(super) fn fetch(&mut self, at: usize) {
        let task = &mut self.tasks[at];
        let (class, urgent, wakes) = (task.class, task.urgent, task.bell.count());
        let Some(ready) = poll(&mut task.future, &task.bell) else {
            assert_eq!(wakes, 0, "I9: a task was woken for nothing");
            if self.tasks[at].deadline <= self.now() {
                self.cancel(at);
            }
            return;
        };
        assert_eq!(wakes, 1, "I9: a task that is ready was not woken, or more than once");
        self.touch(class);
        self.tasks.swap_remove(at);
        match ready {
            Ok(lease) => {
                let lease = self.received(lease, class, urgent);
                self.held.push(lease);
            }
            Err(LeaseError::Exhausted(_)) => self.hopeless(class, urgent),
            Err(error) => self.refused_for(&error),
        }
    }

    fn cancel_task(&mut self) {
        if !self.tasks.is_empty() {
            let at = self.rng.index(self.tasks.len());
            self.cancel(at);
        }
    }

    pub(super) fn cancel(&mut self, at: usize) {
        let task = self.tasks.swap_remove(at);
        self.touch(task.class);
        let shadow = &mut self.classes[task.class];
        shadow.counted.cancelled += 1;
        // What it got and did not fetch goes on, or back to the list, as it is.
        drop(task);
    }

    pub(super) fn give_one_back(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.rng.index(self.held.len());
        let lease = self.held.swap_remove(at);
        self.give_back(lease);
    }

    pub(super) fn give_back(&mut self, lease: Lease) {
        self.verify(&lease);
        let (class, taken) = (lease.class().index(), lease.taken());
        self.touch(class);
        drop(lease);
        self.classes[class].back(taken);
    }

    /// Puts work on a lease, in the order of a stream or with none.
    fn attach(&mut self, lease: &Lease) {
        let (class, number) = (lease.class().index(), lease.slot());
        let stream = self.rng.index(self.streams.len());
        let now = self.now();
        let takes = self.rng.below(self.options.lag);
        let fails = self.rng.chance(self.options.fence_faults);
        let clock = self.classes[class].class.get().recordings();
        let (mark, order) = if stream == 0 {
            let outcome = match fails {
                true if self.rng.chance(300) => Outcome::Panics,
                true => Outcome::Failed,
                false => Outcome::Complete,
            };
            (Arc::new(Mark::new(self.start, now + takes, outcome)), Order::none())
        } else {
            let before = clock.before_recording();
            let mark = self.streams[stream].push(self.start, now, takes, fails);
            let order =
                Order { stream: self.streams[stream].name, before, after: clock.after_recording() };
            (mark, order)
        };
        let attached = Attached { order, ..Attached::user(SimFence(Arc::clone(&mark))) };
        lease.attach(attached);
        self.marks(class, number).push(mark);
    }

    fn attach_some(&mut self, lease: &Lease) {
        self.attach(lease);
        while self.rng.chance(200) {
            self.attach(lease);
        }
    }

    fn retire_one(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.rng.index(self.held.len());
        let lease = self.held.swap_remove(at);
        self.verify(&lease);
        // Two recordings at once: nobody knows which was first.
        let pair = self.held.iter().position(|other| other.class() == lease.class());
        if let Some(other) = pair.filter(|_| self.rng.chance(200)) {
            let other = self.held.swap_remove(other);
            self.verify(&other);
            self.attach_both(&lease, &other);
            self.give_back(other);
        } else {
            self.attach_some(&lease);
        }
        self.give_back(lease);
    }

    /// Work on two leases, recorded in one stream at the same time: the clock may say either order.
    fn attach_both(&mut self, first: &Lease, second: &Lease) {
        let (now, class) = (self.now(), first.class().index());
        let stream = 1 + self.rng.index(self.streams.len() - 1);
        let takes = [self.rng.below(self.options.lag), self.rng.below(self.options.lag)];
        let shared = self.classes[class].class;
        let clock = shared.get().recordings();
        let before = clock.before_recording();
        let [one, two] = self.streams[stream].push_both(self.start, now, takes);
        // The second in the stream takes its tick first.
        for (lease, mark) in [(second, two), (first, one)] {
            let order =
                Order { stream: self.streams[stream].name, before, after: clock.after_recording() };
            let attached = Attached { order, ..Attached::user(SimFence(Arc::clone(&mark))) };
            lease.attach(attached);
            self.classes[class].slots[lease.slot() as usize].marks.push(mark);
        }
    }

    fn fly_one(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.rng.index(self.held.len());
        let lease = self.held.swap_remove(at);
        self.verify(&lease);
        self.attach_some(&lease);
        let (class, number) = (lease.class().index(), lease.slot());
        self.touch(class);
        self.classes[class].slots[number as usize].place = Place::Flying;
        self.flights.push(InFlight::new(lease));
    }

    fn look_at_flight(&mut self) {
        if self.flights.is_empty() {
            return;
        }
        let at = self.rng.index(self.flights.len());
        let flight = self.flights.swap_remove(at);
        match self.rng.below(4) {
            0 => self.drop_flight(flight),
            1 => {
                let (class, Taken { slot: number, .. }) = flight.place();
                self.touch(class);
                let expected = self.settle(class, number);
                let found = flight.is_complete().map_or(Some(false), |over| over.then_some(true));
                assert_eq!(found, expected, "a flight knows whether its work is over");
                self.flights.push(flight);
            }
            2 if self.ends_soon(&flight) => {
                let (class, Taken { slot: number, .. }) = flight.place();
                self.touch(class);
                let outcome = flight.wait();
                let expected = self.settle(class, number);
                self.landed(class, number, expected, outcome.ok());
            }
            _ => self.try_take(flight),
        }
    }

    fn ends_soon(&mut self, flight: &InFlight) -> bool {
        let (class, Taken { slot: number, .. }) = flight.place();
        let soon = self.now() + 50_000;
        self.marks(class, number).iter().all(|mark| mark.over_at() < soon)
    }

    fn try_take(&mut self, flight: InFlight) {
        let (class, Taken { slot: number, .. }) = flight.place();
        self.touch(class);
        let expected = self.settle(class, number);
        match flight.try_take() {
            Err(TryTakeError::Pending(flight)) => {
                assert_eq!(expected, None, "a flight is pending whose work is over");
                self.flights.push(flight);
            }
            Err(TryTakeError::Failed(_)) => self.landed(class, number, expected, None),
            Ok(lease) => self.landed(class, number, expected, Some(lease)),
        }
    }

    /// A flight is over: with a lease, or with a slot that is lost.
    fn landed(&mut self, class: usize, number: u32, expected: Option<bool>, lease: Option<Lease>) {
        assert_eq!(expected, Some(lease.is_some()), "I3: slot {number} of class {class} landed");
        match lease {
            Some(lease) => {
                self.classes[class].slots[number as usize].place = Place::Out;
                self.verify(&lease);
                self.held.push(lease);
            }
            None => self.classes[class].lose(number),
        }
    }

    pub(super) fn drop_flight(&mut self, flight: InFlight) {
        let (class, taken) = flight.place();
        self.touch(class);
        drop(flight);
        self.classes[class].back(taken);
    }

    fn await_flight(&mut self) {
        if self.flights.is_empty() {
            return;
        }
        let at = self.rng.index(self.flights.len());
        let flight = self.flights.swap_remove(at);
        let (class, taken) = flight.place();
        let landing = flight.into_future();
        let bell = Arc::new(Woken::default());
        self.landings.push(Awaited { landing, bell, class, taken, polled: false });
        self.poll_landing(self.landings.len() - 1);
    }

    fn look_at_landing(&mut self) {
        if self.landings.is_empty() {
            return;
        }
        let at = self.rng.index(self.landings.len());
        if self.rng.chance(200) {
            return self.drop_landing(at);
        }
        self.poll_landing(at);
    }

    pub(super) fn drop_landing(&mut self, at: usize) {
        let awaited = self.landings.swap_remove(at);
        self.touch(awaited.class);
        let (class, taken) = (awaited.class, awaited.taken);
        drop(awaited.landing);
        self.classes[class].back(taken);
    }

    pub(super) fn poll_landing(&mut self, at: usize) {
        let (class, slot) = (self.landings[at].class, self.landings[at].taken.slot);
        self.touch(class);
        let expected = self.settle(class, slot);
        let awaited = &mut self.landings[at];
        // One wake-up for each fence that is awaited.
        awaited.bell = Arc::new(Woken::default());
        match poll(&mut awaited.landing, &awaited.bell) {
            None => {
                assert_eq!(expected, None, "a landing is pending whose work is over");
                awaited.polled = true;
            }
            Some(outcome) => {
                self.landings.swap_remove(at);
                self.landed(class, slot, expected, outcome.ok());
            }
        }
    }

    fn round(&mut self) {
        self.keep();
    }

    fn wait_a_while(&mut self) {
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

    fn try_many(&mut self) {
        let count = 1 + self.rng.index(4);
        let places: Vec<_> = (0..count).map(|_| self.some_len()).collect();
        let sizes: Vec<_> = places.iter().map(|(_, len)| *len).collect();
        self.touched = u64::MAX;
        let waiting = self.rng.chance(100);
        let time = Duration::from_micros(self.rng.below(50));
        let outcome = if waiting {
            self.pool().lease_many_timeout(&sizes, time)
        } else {
            self.pool().try_lease_many(&sizes)
        };
        self.note_lost();
        self.recount();
        if let Ok(leases) = outcome {
            for (lease, (class, _)) in leases.into_iter().zip(places) {
                assert_eq!(lease.class().index(), class, "several leases at once never spill");
                let lease = self.received(lease, class, false);
                let counted = &mut self.classes[class].counted;
                counted.leases -= 1;
                counted.pageable -= u64::from(lease.is_pageable());
                self.held.push(lease);
            }
        }
    }

    /// Takes over counts of events of which the simulator does not know how many there were: of
    /// several leases at once, some may have been taken and given back.
    fn recount(&mut self) {
        for shadow in &mut self.classes {
            let class = shadow.class.get();
            let (events, washes) = (class.events(), shadow.washes());
            let counted = &mut shadow.counted;
            let new = [class.leases_total(), class.misses_total(), events.waits, events.timeouts];
            let old = [counted.leases, counted.misses, counted.waits, counted.timeouts];
            assert!(new.iter().zip(old).all(|(new, old)| *new >= old), "I15: a count fell");
            [counted.leases, counted.misses, counted.waits, counted.timeouts] = new;
            counted.pageable = events.pageable;
            let back = shadow.slots.iter_mut().filter(|slot| slot.place == Place::Back);
            back.for_each(|slot| slot.retired |= washes);
        }
    }

    fn wait_for_one(&mut self) {
        let (class, len) = self.some_len();
        let time = Duration::from_nanos(self.rng.below(self.options.stride));
        let urgent = self.rng.chance(200);
        let now = self.now();
        self.touched = u64::MAX;
        let outcome = if urgent {
            self.pool().lease_priority_timeout(len, time)
        } else {
            self.pool().lease_timeout(len, time)
        };
        self.note_lost();
        let events = self.classes[class].class.get().events();
        let misses = self.classes[class].class.get().misses_total();
        let counted = &mut self.classes[class].counted;
        let (waited, missed) = (events.waits - counted.waits, misses - counted.misses);
        (counted.waits, counted.misses) = (events.waits, misses);
        match outcome {
            Ok(lease) => {
                assert!([(0, 0), (1, 1)].contains(&(missed, waited)));
                let lease = self.received(lease, class, urgent);
                self.held.push(lease);
            }
            Err(LeaseError::Timeout { waited: time, .. }) => {
                assert_eq!((missed, waited), (1, 1));
                assert!(super::world::nanos(time) <= self.now() - now);
                self.classes[class].counted.timeouts += 1;
                self.refused(class, self.classes[class].reach(urgent), now);
            }
            Err(LeaseError::Exhausted(_)) if waited == 1 => self.hopeless(class, urgent),
            Err(LeaseError::Exhausted(_)) => assert!(!self.classes[class].waits()),
            Err(error) => self.refused_for(&error),
        }
    }

    fn share_one(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.rng.index(self.held.len());
        let lease = self.held.swap_remove(at);
        let (taken, shared) = (lease.taken(), lease.share());
        let clones = (0..self.rng.index(3)).map(|_| shared.clone()).collect::<Vec<_>>();
        self.shares.push((taken, clones.into_iter().chain([shared]).collect()));
    }

    fn drop_share(&mut self) {
        if self.shares.is_empty() {
            return;
        }
        let at = self.rng.index(self.shares.len());
        self.drop_one_of(at);
    }

    pub(super) fn drop_one_of(&mut self, at: usize) {
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

    fn panic_with_one(&mut self) {
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

    fn forget_one(&mut self) {
        if self.held.is_empty() || self.forgotten.len() > 1 || !self.rng.chance(100) {
            return;
        }
        let at = self.rng.index(self.held.len());
        let lease = self.held.swap_remove(at);
        self.forgotten.push((lease.class().index(), lease.taken()));
        mem::forget(lease);
    }

    fn trouble_a_stream(&mut self) {
        let at = 1 + self.rng.index(self.streams.len() - 1);
        let now = self.now();
        if self.streams[at].stuck {
            self.streams[at].release(now, &mut self.rng);
        } else if self.rng.chance(300) {
            self.streams[at].stuck = true;
        }
        // A new one takes the place of one that failed.
        if self.streams[at].broken && !self.streams[at].stuck {
            let name = self.streams[at].name + 4;
            self.streams[at] = Stream::named(name);
        }
    }

    /// What happens seldom.
    fn rarely(&mut self) {
        self.touched = u64::MAX;
        match self.rng.below(6) {
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
            4 => assert!(matches!(self.pool().try_lease(0), Err(LeaseError::ZeroLen))),
            _ => {
                self.pool().holders();
            }
        }
    }

    fn look_at_stats(&mut self) {
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

    /// A lease that is returned twice: the second time is refused, and nobody loses the slot.
    fn return_twice(&mut self) {
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
pub(super) fn holds(bytes: &[u8], owner: u64) -> bool {
    bytemuck::cast_slice::<u8, u64>(bytes).iter().all(|word| *word == owner)
}

fn fill(bytes: &mut [u8], owner: u64) {
    bytemuck::cast_slice_mut::<u8, u64>(bytes).fill(owner);
}
