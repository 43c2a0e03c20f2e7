//! How threads and tasks wait for slots of a class: look, get in line, look once more at what may be
//! complete, sleep.

use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use super::{ClassRef, Taken, Unfit};
use crate::clock;
use crate::config::OnEmpty;
use crate::error::LeaseError;
use crate::free_list::Quiet;
use crate::sync::{Condvar, Ordering};
use crate::waiters::{Sleeper, Ticket, Want, Woken};

/// Somebody in line, who must leave it or be served.
#[derive(Debug)]
pub(crate) struct Waiting {
    class: ClassRef,
    want: Want,
    ticket: Ticket,
    since: Instant,
}

/// What a wait gave.
#[derive(Debug)]
pub(crate) enum Got<T, R> {
    /// Of the class that was waited for.
    Own(T),
    /// Something else.
    Other(R),
}

impl ClassRef {
    /// Takes a slot, waiting until `deadline` if none is free: as a pool does for a class that nothing
    /// stands in for.
    #[cfg(all(test, shuttle))]
    pub(crate) fn take(
        self,
        urgent: bool,
        since: Instant,
        deadline: Option<Instant>,
    ) -> Result<Taken, LeaseError> {
        match self.try_take(urgent) {
            Err(LeaseError::Exhausted(_)) if self.get().waits() => {
                match self.wait(urgent, since, deadline, || None)? {
                    Got::Own(taken) | Got::Other(taken) => Ok(taken),
                }
            }
            settled => settled,
        }
    }

    /// Gets in line for a slot, and sleeps until `deadline`. `look` is asked at times whether there is
    /// something else for the first in line.
    pub(crate) fn wait<R>(
        self,
        urgent: bool,
        since: Instant,
        deadline: Option<Instant>,
        look: impl Fn() -> Option<R>,
    ) -> Result<Got<Taken, R>, LeaseError> {
        let want = Want { count: 1, reach: self.get().reach(urgent) };
        match self.take_waiting(want, since, deadline, look)? {
            Got::Own(taken) => only(taken).map(Got::Own),
            Got::Other(other) => Ok(Got::Other(other)),
        }
    }

    /// Takes several slots or none, without waiting.
    pub(crate) fn try_take_many(self, count: u32) -> Result<Vec<Taken>, LeaseError> {
        self.find_many(count)?.ok_or_else(|| self.get().miss())
    }

    /// Takes several slots or none, waiting until `deadline`.
    pub(crate) fn take_many(
        self,
        count: u32,
        since: Instant,
        deadline: Option<Instant>,
    ) -> Result<Vec<Taken>, LeaseError> {
        let class = self.get();
        if let Some(taken) = self.find_many(count)? {
            return Ok(taken);
        }
        if !class.waits() {
            return Err(class.miss());
        }
        class.count_miss();
        let want = Want { count, reach: class.reach(false) };
        match self.take_waiting(want, since, deadline, || None)? {
            Got::Own(taken) | Got::Other(taken) => Ok(taken),
        }
    }

    /// Several slots, or `None` where there are not so many.
    fn find_many(self, count: u32) -> Result<Option<Vec<Taken>>, LeaseError> {
        // Leases are made when all slots are there: one that is not given is not counted.
        let mut slots = Vec::new();
        while slots.len() < count as usize {
            match self.find_any() {
                Ok(Some(slot)) => slots.push(slot),
                none => {
                    for slot in slots {
                        self.send_home(slot);
                    }
                    return none.map(|_| None);
                }
            }
        }
        let taken = self.adopt_all(slots).ok();
        self.get().sample_high_water();
        Ok(taken)
    }

    #[cold]
    fn take_waiting<R>(
        self,
        want: Want,
        since: Instant,
        deadline: Option<Instant>,
        look: impl Fn() -> Option<R>,
    ) -> Result<Got<Vec<Taken>, R>, LeaseError> {
        let class = self.get();
        class.counters.waits.fetch_add(1, Ordering::Relaxed);
        let ready = Arc::new(Condvar::default());
        loop {
            let Some(quiet) = class.list.quiet_soon() else {
                // Somebody was put aside at its desk, and is waited for; not beside a free slot, nor for ever.
                let found = if want.count == 1 { self.find(want.reach)? } else { None };
                let passed = deadline.is_some_and(|at| at <= clock::now());
                let woken = match found {
                    Some(slot) => Woken::Slots(vec![slot]),
                    None if passed => Woken::TimedOut,
                    None => continue,
                };
                match self.settle_wait(woken, since) {
                    Some(settled) => return settled.map(Got::Own),
                    None => continue,
                }
            };
            let woken = match self.enter(want, Sleeper::Thread(Arc::clone(&ready)), since, quiet) {
                Ok(Waiting { ticket, .. }) => loop {
                    let (woken, handed) =
                        class.waiters.sleep(&class.list, ticket, &ready, deadline);
                    self.settle_handed(handed);
                    if woken != Woken::Look {
                        break woken;
                    }
                    if let Some(other) = look() {
                        self.leave_served(ticket, since);
                        return Ok(Got::Other(other));
                    }
                },
                Err(woken) => woken,
            };
            if let Some(settled) = self.settle_wait(woken, since) {
                return settled.map(Got::Own);
            }
        }
    }

    /// Gets in line for one slot, to be woken as a task.
    pub(crate) fn wait_async(
        self,
        urgent: bool,
        waker: &Waker,
    ) -> Result<Waiting, Result<Taken, LeaseError>> {
        self.get().counters.waits.fetch_add(1, Ordering::Relaxed);
        let want = Want { count: 1, reach: self.get().reach(urgent) };
        self.line_up(want, waker, clock::now())
    }

    fn line_up(
        self,
        want: Want,
        waker: &Waker,
        since: Instant,
    ) -> Result<Waiting, Result<Taken, LeaseError>> {
        loop {
            // Should a thread be put aside at its desk, this lasts until it is back.
            let quiet = self.get().list.quiet();
            let woken = match self.enter(want, Sleeper::Task(waker.clone()), since, quiet) {
                Ok(waiting) => return Ok(waiting),
                Err(woken) => woken,
            };
            if let Some(settled) = self.settle_wait(woken, since) {
                return Err(settled.and_then(only));
            }
        }
    }

    fn enter(
        self,
        want: Want,
        sleeper: Sleeper,
        since: Instant,
        quiet: Quiet<'_>,
    ) -> Result<Waiting, Woken> {
        let class = self.get();
        let hopeless = || class.available(want.reach) < want.count;
        let (entered, handed) = class.waiters.enter(&class.list, want, sleeper, hopeless);
        drop(quiet);
        self.settle_handed(handed);
        let waiting = Waiting { class: self, want, ticket: entered?, since };
        // What was complete before we were in line is nobody else's to find. What becomes complete
        // later is the keeper's.
        if class.in_flight() > 0 {
            self.reclaim();
            self.wash(usize::MAX);
            class.shared.bell.ring();
        }
        if class.added.want() {
            class.shared.ring_for_growth();
        }
        if class.spills() {
            // It looks at the larger classes from now on.
            class.shared.bell.ring();
        }
        Ok(waiting)
    }

    /// What came of a wait. `None` when a slot that was handed over turned out to be lost: then there
    /// are others to wait for, or no hope, which getting in line again tells.
    fn settle_wait(self, woken: Woken, since: Instant) -> Option<Result<Vec<Taken>, LeaseError>> {
        let class = self.get();
        let settled = match woken {
            Woken::Slots(slots) => match self.adopt_all(slots) {
                Ok(taken) => Ok(taken),
                Err(Unfit::Lost) => return None,
                Err(Unfit::Unbacked) => Err(LeaseError::Exhausted(class.exhausted())),
            },
            Woken::Look => return None,
            Woken::Closed => Err(LeaseError::Closed),
            Woken::Hopeless => Err(LeaseError::Exhausted(class.exhausted())),
            Woken::TimedOut => {
                class.counters.timeouts.fetch_add(1, Ordering::Relaxed);
                let waited = clock::elapsed(since);
                Err(LeaseError::Timeout { exhausted: class.exhausted(), waited })
            }
        };
        class.counters.waited(clock::elapsed(since));
        Some(settled)
    }

    /// Leaves the line with something from elsewhere.
    fn leave_served(self, ticket: Ticket, since: Instant) {
        let class = self.get();
        self.settle_handed(class.waiters.leave(&class.list, ticket));
        class.counters.waited(clock::elapsed(since));
    }

    /// Makes handed slots the caller's own; all or none.
    fn adopt_all(self, slots: Vec<u32>) -> Result<Vec<Taken>, Unfit> {
        let mut taken = Vec::with_capacity(slots.len());
        let mut unfit = None;
        for slot in slots {
            match self.adopt(slot) {
                Ok(one) => taken.push(one),
                Err(Unfit::Unbacked) => unfit = Some(Unfit::Unbacked),
                Err(Unfit::Lost) => unfit = unfit.or(Some(Unfit::Lost)),
            }
        }
        let Some(unfit) = unfit else { return Ok(taken) };
        for one in taken {
            self.give_back(one);
        }
        Err(unfit)
    }
}

/// The one slot of a wait for one.
fn only(mut taken: Vec<Taken>) -> Result<Taken, LeaseError> {
    taken.pop().ok_or(LeaseError::Closed)
}

impl super::Class {
    /// Who finds the class empty may wait.
    pub(crate) fn waits(&self) -> bool {
        self.on_empty != OnEmpty::Fail && !self.is_lost()
    }
}

impl Waiting {
    /// What came of it; else `waker` is woken when there is something. `look` is asked when there may be
    /// something elsewhere.
    pub(crate) fn poll<R>(
        &mut self,
        waker: &Waker,
        look: impl Fn() -> Option<R>,
    ) -> Option<Result<Got<Taken, R>, LeaseError>> {
        let class = self.class.get();
        if !class.shared.is_here() {
            // In a forked child nobody is in line, and the queue's lock may be held for ever (I12).
            return Some(Err(LeaseError::Forked));
        }
        let woken = class.waiters.poll(self.ticket, waker)?;
        if woken == Woken::Look {
            let other = look()?;
            self.class.leave_served(self.ticket, self.since);
            return Some(Ok(Got::Other(other)));
        }
        if let Some(settled) = self.class.settle_wait(woken, self.since) {
            return Some(settled.and_then(only).map(Got::Own));
        }
        match self.class.line_up(self.want, waker, self.since) {
            Ok(waiting) => {
                *self = waiting;
                None
            }
            Err(settled) => Some(settled.map(Got::Own)),
        }
    }

    /// Gives up.
    pub(crate) fn leave(self) {
        let class = self.class.get();
        if !class.shared.is_here() {
            // In a forked child nobody is in line, and the queue's lock may be held for ever (I12).
            return;
        }
        class.counters.cancelled.fetch_add(1, Ordering::Relaxed);
        self.class.settle_handed(class.waiters.leave(&class.list, self.ticket));
    }
}
