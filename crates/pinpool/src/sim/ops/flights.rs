//! Leases with work on them: in the order of streams or with none, held, awaited or let go of.

use std::sync::Arc;

use super::super::fence::{Mark, Outcome, SimFence, Stream};
use super::super::shadow::Place;
use super::super::world::{Awaited, Woken, World, poll};
use crate::attached::{Attached, Order};
use crate::class::Taken;
use crate::in_flight::{InFlight, TryTakeError};
use crate::lease::Lease;

impl World {
    /// Puts work on a lease, in the order of a stream or with none.
    pub(in crate::sim) fn attach(&mut self, lease: &Lease) {
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

    pub(in crate::sim) fn attach_some(&mut self, lease: &Lease) {
        self.attach(lease);
        while self.rng.chance(200) {
            self.attach(lease);
        }
    }

    pub(in crate::sim) fn retire_one(&mut self) {
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
    pub(in crate::sim) fn attach_both(&mut self, first: &Lease, second: &Lease) {
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

    pub(in crate::sim) fn fly_one(&mut self) {
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

    pub(in crate::sim) fn look_at_flight(&mut self) {
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

    pub(in crate::sim) fn ends_soon(&mut self, flight: &InFlight) -> bool {
        let (class, Taken { slot: number, .. }) = flight.place();
        let soon = self.now() + 50_000;
        self.marks(class, number).iter().all(|mark| mark.over_at() < soon)
    }

    pub(in crate::sim) fn try_take(&mut self, flight: InFlight) {
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
    pub(in crate::sim) fn landed(
        &mut self,
        class: usize,
        number: u32,
        expected: Option<bool>,
        lease: Option<Lease>,
    ) {
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

    pub(in crate::sim) fn drop_flight(&mut self, flight: InFlight) {
        let (class, taken) = flight.place();
        self.touch(class);
        drop(flight);
        self.classes[class].back(taken);
    }

    pub(in crate::sim) fn await_flight(&mut self) {
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

    pub(in crate::sim) fn look_at_landing(&mut self) {
        if self.landings.is_empty() {
            return;
        }
        let at = self.rng.index(self.landings.len());
        if self.rng.chance(200) {
            return self.drop_landing(at);
        }
        self.poll_landing(at);
    }

    pub(in crate::sim) fn drop_landing(&mut self, at: usize) {
        let awaited = self.landings.swap_remove(at);
        self.touch(awaited.class);
        let (class, taken) = (awaited.class, awaited.taken);
        drop(awaited.landing);
        self.classes[class].back(taken);
    }

    pub(in crate::sim) fn poll_landing(&mut self, at: usize) {
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

    pub(in crate::sim) fn trouble_a_stream(&mut self) {
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
}
