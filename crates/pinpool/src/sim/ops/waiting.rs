//! Tasks and calls that wait in line, and several leases at once.

use std::sync::Arc;
use std::time::Duration;

use super::super::shadow::Place;
use super::super::world::{Task, Woken, World, nanos, poll};
use crate::error::LeaseError;

impl World {
    pub(in crate::sim) fn begin_task(&mut self) {
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
        let (misses_then, waits_then) = (before.misses_total(), before.events().waits);
        let now = self.now();
        let ready = poll(&mut task.future, &task.bell);
        let after = self.classes[class].class.get();
        let missed = after.misses_total() - misses_then;
        let waited = after.events().waits - waits_then;
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
    pub(in crate::sim) fn hopeless(&self, class: usize, urgent: bool) {
        let shadow = &self.classes[class];
        // Or what it was handed had been written to while nobody had it.
        let spoilt = shadow.class.get().events().late_writes > shadow.late_before;
        let hopes = shadow.hopes(shadow.reach(urgent));
        assert!(hopes == 0 || spoilt, "I9: a wait was given up, though {hopes} slots may come");
    }

    pub(in crate::sim) fn poll_task(&mut self) {
        if self.tasks.is_empty() {
            return;
        }
        let at = self.rng.index(self.tasks.len());
        self.fetch(at);
    }

    /// Polls one task, and gives it up if its deadline passed.
    pub(in crate::sim) fn fetch(&mut self, at: usize) {
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

    pub(in crate::sim) fn cancel_task(&mut self) {
        if !self.tasks.is_empty() {
            let at = self.rng.index(self.tasks.len());
            self.cancel(at);
        }
    }

    pub(in crate::sim) fn cancel(&mut self, at: usize) {
        let task = self.tasks.swap_remove(at);
        self.touch(task.class);
        let shadow = &mut self.classes[task.class];
        shadow.counted.cancelled += 1;
        // What it got and did not fetch goes on, or back to the list, as it is.
        drop(task);
    }

    pub(in crate::sim) fn try_many(&mut self) {
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
    pub(in crate::sim) fn recount(&mut self) {
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

    pub(in crate::sim) fn wait_for_one(&mut self) {
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
        let misses_now = self.classes[class].class.get().misses_total();
        let counted = &mut self.classes[class].counted;
        let (waited, missed) = (events.waits - counted.waits, misses_now - counted.misses);
        (counted.waits, counted.misses) = (events.waits, misses_now);
        match outcome {
            Ok(lease) => {
                assert!([(0, 0), (1, 1)].contains(&(missed, waited)));
                let lease = self.received(lease, class, urgent);
                self.held.push(lease);
            }
            Err(LeaseError::Timeout { waited: time, .. }) => {
                assert_eq!((missed, waited), (1, 1));
                assert!(nanos(time) <= self.now() - now);
                self.classes[class].counted.timeouts += 1;
                self.refused(class, self.classes[class].reach(urgent), now);
            }
            Err(LeaseError::Exhausted(_)) if waited == 1 => self.hopeless(class, urgent),
            Err(LeaseError::Exhausted(_)) => assert!(!self.classes[class].waits()),
            Err(error) => self.refused_for(&error),
        }
    }
}
