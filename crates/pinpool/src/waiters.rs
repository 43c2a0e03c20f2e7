//! The queue of those who wait for slots of one class, threads and tasks alike; it knows slots as
//! numbers only.
//!
//! # Structure
//!
//! ```text
//! lines   urgent first, then first come first served: [ wants n | got so far | whom to wake ]
//! settled by ticket: what came of a wait, until its owner fetches it
//! ```
//!
//! # Why it is correct
//!
//! * **Nobody barges.** While somebody is in line, every stack of the list is flagged as watched, so
//!   that a returned slot is not pushed but handed over here, under the lock, to the first in line that
//!   may have it. A newcomer finds the list empty: it never gets a slot that an earlier waiter could
//!   have had.
//! * **No lost wake-up (I9).** Who comes into the line flags the list first and looks into it last, under the
//!   lock. A slot that was pushed before the flag is found by that look; one that comes after it is
//!   handed over under the lock, to somebody who is in line by then.
//! * **One wake for each wait.** Who is served leaves the line in the same step, and is woken once, after
//!   the lock was let go.
//! * **Nothing is lost by leaving.** Whoever leaves the line, by a deadline or by being dropped, hands what it
//!   got to the next in line, under the lock.
//! * **No deadlock within a class.** Only the first in line gathers slots, until it has all it wants.

mod turns;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use crate::clock;
use crate::foreign::{caught, tell};
use crate::free_list::{FreeList, Pop, Push, Reach};
use crate::sync::{Condvar, Mutex};

/// Those who wait for slots of one class.
#[derive(Debug)]
pub(crate) struct Waiters {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Tickets so far.
    tickets: u64,
    /// In the order in which they are served. The list is watched while there is one.
    line: BTreeMap<Ticket, Waiter>,
    /// What came of waits whose owners have not fetched it yet.
    settled: HashMap<Ticket, Woken>,
}

/// A place in the line, kept until the wait is settled or left. Urgent ones sort first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket {
    patient: bool,
    number: u64,
}

#[derive(Debug)]
struct Waiter {
    want: Want,
    got: Vec<u32>,
    sleeper: Sleeper,
    /// It was told to look elsewhere, and stays in line meanwhile.
    looks: bool,
}

/// What somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Want {
    pub(crate) count: u32,
    /// Whose reach includes the reserve is urgent.
    pub(crate) reach: Reach,
}

/// Whom to wake.
#[derive(Debug, Clone)]
pub(crate) enum Sleeper {
    Thread(Arc<Condvar>),
    Task(Waker),
}

/// The line as the simulator sees it.
#[cfg(all(test, not(any(loom, shuttle))))]
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// How many are in line, and what the first wants.
    pub(crate) waiting: usize,
    pub(crate) first: Option<Want>,
    /// Waits that ended with slots, and otherwise, and were not fetched yet.
    pub(crate) served: usize,
    pub(crate) dismissed: usize,
    /// Slots of those who were served, and of who is served in parts, as bits.
    pub(crate) hands: u64,
}

/// Why a wait ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The caller owns these slots now, as many as it wanted.
    Slots(Vec<u32>),
    /// The deadline passed.
    TimedOut,
    /// The caller is in line as before; there may be something for it elsewhere.
    Look,
    /// The pool closed.
    Closed,
    /// No slot can come home any more.
    Hopeless,
}

/// What is left to do once the lock was let go.
#[derive(Debug, Default)]
#[must_use = "sleepers are woken, and slots of a closed list are counted home"]
pub(crate) struct Handed {
    sleepers: Vec<Sleeper>,
    /// Of waits that ended otherwise. A waker's destructor is foreign code (I17).
    awake: Vec<Sleeper>,
    /// Slots that a closed list did not take: they stay the caller's.
    pub(crate) homeless: Vec<u32>,
}

impl Handed {
    /// Wakes whoever was served. Called without a lock: it may call the system, or foreign code.
    pub(crate) fn wake(self) -> Vec<u32> {
        self.awake.into_iter().for_each(|sleeper| {
            let _ = caught(|| drop(sleeper));
        });
        if !crate::seeded::bug("lost-wake") {
            turns::wake_in_turn(self.sleepers);
        }
        self.homeless
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.sleepers.append(&mut other.sleepers);
        self.awake.append(&mut other.awake);
        self.homeless.append(&mut other.homeless);
    }
}

impl Sleeper {
    /// Whether it wakes the same task; this calls no foreign code.
    fn is(&self, waker: &Waker) -> bool {
        matches!(self, Self::Task(mine) if mine.will_wake(waker))
    }

    /// Called without a lock: it may call the system, or foreign code.
    pub(crate) fn wake(self) {
        match self {
            Self::Thread(ready) => ready.notify_one(),
            Self::Task(waker) => {
                if caught(|| waker.wake()).is_none() {
                    tell!(error, "a waker panicked");
                }
            }
        }
    }
}

impl Waiters {
    pub(crate) fn new() -> Self {
        Self { queue: Mutex::new(Queue::default()) }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.queue.lock().line.len()
    }

    /// What the simulator compares with its own.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn line(&self) -> Line {
        let queue = self.queue.lock();
        let mut line = Line { waiting: queue.line.len(), ..Line::default() };
        line.first = queue.line.first_key_value().map(|(_, first)| first.want);
        let got = queue.line.values().map(|waiter| &waiter.got);
        let served = queue.settled.values().filter_map(|woken| match woken {
            Woken::Slots(slots) => Some(slots),
            _ => None,
        });
        line.hands = got.chain(served).flatten().fold(0, |bits, slot| bits | 1 << slot);
        line.served =
            queue.settled.values().filter(|woken| matches!(woken, Woken::Slots(_))).count();
        line.dismissed = queue.settled.len() - line.served;
        line
    }

    /// Gets in line, unless there is enough to have at once, or nothing ever will be. After an `Ok`
    /// whoever returns a slot serves this waiter in its turn.
    pub(crate) fn enter<M>(
        &self,
        list: &FreeList<M>,
        want: Want,
        sleeper: Sleeper,
        hopeless: impl Fn() -> bool,
    ) -> (Result<Ticket, Woken>, Handed) {
        let mut queue = self.queue.lock();
        let mut handed = Handed::default();
        if queue.line.is_empty() {
            list.watch();
        }
        queue.tickets += 1;
        let ticket = Ticket { patient: !want.reach.reserve, number: queue.tickets };
        queue.line.insert(ticket, Waiter { want, got: Vec::new(), sleeper, looks: false });
        let closed = queue.serve(list, &mut handed) == Pop::Closed;
        if let Some(woken) = queue.settled.remove(&ticket) {
            // Whoever is awake already needs no waking: nobody else was in line for these slots.
            handed.awake.append(&mut handed.sleepers);
            return (Err(woken), handed);
        }
        if closed || hopeless() {
            queue.withdraw(list, ticket, &mut handed);
            return (Err(if closed { Woken::Closed } else { Woken::Hopeless }), handed);
        }
        (Ok(ticket), handed)
    }

    /// Sleeps until the wait is settled or the deadline passes. The thread's own `ready` was entered.
    pub(crate) fn sleep<M>(
        &self,
        list: &FreeList<M>,
        ticket: Ticket,
        ready: &Condvar,
        deadline: Option<Instant>,
    ) -> (Woken, Handed) {
        let mut queue = self.queue.lock();
        let mut handed = Handed::default();
        loop {
            if let Some(woken) = queue.settled.remove(&ticket) {
                return (woken, handed);
            }
            if queue.line.get_mut(&ticket).is_some_and(|waiter| std::mem::take(&mut waiter.looks)) {
                return (Woken::Look, handed);
            }
            // A deadline that has passed is no sleep, not even a short one.
            let passed = deadline.is_some_and(|at| at <= clock::now());
            if passed || ready.wait(&mut queue, deadline) {
                let woken = queue.settled.remove(&ticket).unwrap_or(Woken::TimedOut);
                queue.withdraw(list, ticket, &mut handed);
                return (woken, handed);
            }
        }
    }

    /// What came of a task's wait; else `waker` is woken when it is settled.
    pub(crate) fn poll(&self, ticket: Ticket, waker: &Waker) -> Option<Woken> {
        let mut queue = self.queue.lock();
        if let Some(woken) = queue.settled.remove(&ticket) {
            return Some(woken);
        }
        if queue.line.get(&ticket).is_some_and(|waiter| !waiter.looks && waiter.sleeper.is(waker)) {
            return None;
        }
        drop(queue);
        // Cloning a waker and dropping one is foreign code (I17).
        let mut other = Sleeper::Task(waker.clone());
        let mut queue = self.queue.lock();
        let mut woken = queue.settled.remove(&ticket);
        if let Some(waiter) = queue.line.get_mut(&ticket) {
            std::mem::swap(&mut waiter.sleeper, &mut other);
            woken = std::mem::take(&mut waiter.looks).then_some(Woken::Look);
        }
        drop(queue);
        // A panic here would lose the slots that were handed over (I7).
        let _ = caught(|| drop(other));
        woken
    }

    /// Tells the first in line, if it wants one slot, to look elsewhere; it stays where it is. The caller
    /// wakes who is returned.
    pub(crate) fn nudge(&self) -> Option<Sleeper> {
        let mut queue = self.queue.lock();
        let mut first = queue.line.first_entry()?;
        let waiter = first.get_mut();
        if waiter.want.count > 1 || std::mem::replace(&mut waiter.looks, true) {
            return None;
        }
        match &mut waiter.sleeper {
            Sleeper::Thread(ready) => Some(Sleeper::Thread(Arc::clone(ready))),
            // Taken, for a clone is foreign code (I17). It leaves another when it looks.
            Sleeper::Task(waker) => {
                Some(Sleeper::Task(std::mem::replace(waker, Waker::noop().clone())))
            }
        }
    }

    /// Leaves the line, and hands on what this waiter got.
    pub(crate) fn leave<M>(&self, list: &FreeList<M>, ticket: Ticket) -> Handed {
        let mut queue = self.queue.lock();
        let mut handed = Handed::default();
        if let Some(Woken::Slots(slots)) = queue.settled.remove(&ticket)
            && !crate::seeded::bug("swallow")
        {
            for slot in slots {
                queue.give(list, slot, &mut handed);
            }
        }
        queue.withdraw(list, ticket, &mut handed);
        handed
    }

    /// Hands a returned slot to the first in line that may have it, else to the list.
    pub(crate) fn give<M>(&self, list: &FreeList<M>, slot: u32) -> Handed {
        let mut handed = Handed::default();
        let mut queue = self.queue.lock();
        if crate::seeded::bug("barge") && list.push_unwanted(slot) == Push::Free {
            return handed;
        }
        queue.give(list, slot, &mut handed);
        handed
    }

    /// Lets `open` add slots to the list, and hands them to whoever is in line.
    pub(crate) fn open<M>(
        &self,
        list: &FreeList<M>,
        open: impl FnOnce() -> bool,
    ) -> (bool, Handed) {
        let mut queue = self.queue.lock();
        let mut handed = Handed::default();
        let opened = open();
        if opened {
            let _ = queue.serve(list, &mut handed);
        }
        (opened, handed)
    }

    /// Ends the waits that `hopeless` holds for: no slot can come home any more.
    pub(crate) fn despair<M>(&self, list: &FreeList<M>, hopeless: impl Fn(Want) -> bool) -> Handed {
        let mut handed = Handed::default();
        self.queue.lock().dismiss(list, &Woken::Hopeless, hopeless, &mut handed);
        handed
    }

    /// Closes the list and ends every wait, those too that were served and whose owners have not fetched
    /// it: a task that stalls, or was forgotten, must not keep the memory.
    ///
    /// `count` is told the free slots that were taken out, before a second closer can get past the
    /// lock. Its answer is returned, or `None` if the list was closed before.
    pub(crate) fn close<M, R>(
        &self,
        list: &FreeList<M>,
        count: impl FnOnce(u32) -> R,
    ) -> (Option<R>, Handed) {
        let mut queue = self.queue.lock();
        let counted = list.close().map(count);
        let mut handed = Handed::default();
        queue.dismiss(list, &Woken::Closed, |_| true, &mut handed);
        for settled in queue.settled.values_mut() {
            if let Woken::Slots(slots) = settled {
                handed.homeless.append(slots);
                *settled = Woken::Closed;
            }
        }
        (counted, handed)
    }
}

impl Queue {
    /// Hands out what is free to those in line, until there is no more or nobody. Says what the list
    /// said last.
    fn serve<M>(&mut self, list: &FreeList<M>, handed: &mut Handed) -> Pop {
        loop {
            // What the first may have is all that anybody may: the urgent, who may have more, are first.
            let Some((_, first)) = self.line.first_key_value() else { return Pop::Empty };
            match list.pop_watched(first.want.reach) {
                Pop::Slot { slot, .. } => self.give(list, slot, handed),
                nothing => return nothing,
            }
        }
    }

    /// Hands a slot to the first in line if it may have it, else to the list.
    fn give<M>(&mut self, list: &FreeList<M>, slot: u32, handed: &mut Handed) {
        let bay = list.bay_of(slot);
        let first = self.line.first_entry();
        let Some(mut first) = first.filter(|first| list.is_within(bay, first.get().want.reach))
        else {
            if list.push_unwanted(slot) == Push::Closed {
                handed.homeless.push(slot);
            }
            return;
        };
        let waiter = first.get_mut();
        waiter.got.push(slot);
        if waiter.got.len() < waiter.want.count as usize {
            return;
        }
        let ticket = *first.key();
        if let Some(Waiter { got, sleeper, .. }) = self.remove(list, ticket) {
            self.settled.insert(ticket, Woken::Slots(got));
            handed.sleepers.push(sleeper);
        }
    }

    /// Takes somebody out of the line.
    fn remove<M>(&mut self, list: &FreeList<M>, ticket: Ticket) -> Option<Waiter> {
        let removed = self.line.remove(&ticket);
        if removed.is_some() && self.line.is_empty() {
            list.unwatch();
        }
        removed
    }

    /// Takes somebody out of the line who gives up, and hands on what it got.
    fn withdraw<M>(&mut self, list: &FreeList<M>, ticket: Ticket, handed: &mut Handed) {
        let Some(Waiter { got, sleeper, .. }) = self.remove(list, ticket) else { return };
        handed.awake.push(sleeper);
        for slot in got {
            self.give(list, slot, handed);
        }
    }

    /// Ends the waits in line that `ended` holds for.
    fn dismiss<M>(
        &mut self,
        list: &FreeList<M>,
        why: &Woken,
        ended: impl Fn(Want) -> bool,
        handed: &mut Handed,
    ) {
        if self.line.is_empty() {
            return;
        }
        let mut left = Vec::new();
        let (over, line) = std::mem::take(&mut self.line)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(_, waiter)| ended(waiter.want));
        self.line = line;
        for (ticket, Waiter { got, sleeper, .. }) in over {
            self.settled.insert(ticket, why.clone());
            handed.sleepers.push(sleeper);
            left.extend(got);
        }
        if self.line.is_empty() {
            list.unwatch();
        }
        for slot in left {
            self.give(list, slot, handed);
        }
    }
}

#[cfg(all(test, loom))]
mod models;
