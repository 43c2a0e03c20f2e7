//! Retired slots: slots without a holder whose bytes some work may still use. They wait here, by
//! stream, until the host has seen that work complete.
//!
//! # Structure
//!
//! ```text
//! drop -> inbox (lock-free stack) -> lines (one per stream, in recording order) -> home
//! ```
//!
//! Retiring a slot is one compare-and-swap on the *inbox*: a drop takes no lock here and asks no
//! fence. Whoever wants slots back makes a *pass*: it sorts the inbox into *lines* and probes them.
//! Work in one stream completes in order, so one complete fence settles all that were recorded
//! before it, and a line is probed by galloping: first its head, then farther and farther behind.
//! Fences without a stream are asked one by one.
//!
//! # Why it is correct
//!
//! * **One owner (I2).** A retired slot is in the inbox, in one entry of one line, or gone home.
//!   The inbox is a stack that is only pushed to and taken whole, so that a stale top cannot harm
//!   it. Lines change under their lock.
//! * **Only complete slots go home (I3).** An entry leaves its line for home when its own fence was
//!   seen complete, or one of its stream was that began to be recorded after this one's recording
//!   had ended ([`Order`]). A slot with more fences moves on to the next one's line.
//! * **No lock over foreign calls (I17).** A fence is cloned under the lock and asked without it.
//!   Several threads may ask the same fence; each applies what it learnt. Fences that are over are
//!   handed out to be dropped without the lock.
//! * **No gap.** A slot goes home under the lock that its entry leaves under. So a pass that began
//!   after a fence was complete finds the slot in the free list or in a line, never in between.
//! * **No lost wake-up of the keeper.** Before it sleeps the keeper turns every empty inbox to
//!   *asleep*, in the one word that a retirement must change: who finds *asleep* there wakes it.

mod line;

use std::cell::Cell;
use std::time::{Duration, Instant};

use crossbeam::utils::CachePadded;

use crate::attached::{AnyFence, Attached};
use crate::clock;
use crate::error::Error;
use crate::fence::FenceStatus;
use crate::free_list::home_number;
use crate::slot::SlotState;
#[cfg(any(feature = "cuda", test))]
use crate::sync::AtomicU64;
use crate::sync::{AtomicU32, Mutex, MutexGuard, Ordering, thread_local};

use line::{Line, Probe};

/// Retired slots of one class.
#[derive(Debug)]
pub(crate) struct Reclaim {
    /// Top of the stack of slots retired since the last pass, or [`EMPTY`] or [`ASLEEP`]. `Release`
    /// in `retire` pairs with `Acquire` in `sort`: publishes the slot's link and fences.
    inbox: CachePadded<AtomicU32>,
    /// The clock of [`Order`](crate::attached::Order): recordings so far.
    #[cfg(any(feature = "cuda", test))]
    recordings: CachePadded<AtomicU64>,
    lines: Mutex<Lines>,
}

#[derive(Debug)]
struct Lines {
    /// One per stream; a line is never moved, so that passes can go by number.
    all: Vec<Line>,
    /// Slots in all lines.
    waiting: usize,
    /// What was taken from the inbox and is in no line yet, linked in order of retirement.
    unsorted: u32,
}

/// What a pass does with slots, without knowing what they are.
pub(crate) trait Home {
    /// The state of a slot.
    fn state(&self, slot: u32) -> &SlotState;
    /// Takes a slot whose work is over, and which is wanted on that shard of the free list. Called under
    /// a lock that leases can take: no system call, no driver call, no foreign code.
    fn settle(&mut self, slot: u32, shard: u32);
    /// Takes out of use a slot whose fence failed. Called without a lock.
    fn quarantine(&mut self, slot: u32, error: &Error);
    /// Finishes what `settle` could not do under the lock, and takes a fence that is over.
    fn after(&mut self, fences: &mut dyn Iterator<Item = AnyFence>);
    /// True once the pass need not go on; may be asked again.
    fn enough(&mut self) -> bool;
}

/// A slot that waits here, for reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stuck {
    pub(crate) slot: u32,
    pub(crate) age: Duration,
}

impl Reclaim {
    pub(crate) fn new() -> Self {
        Self {
            inbox: CachePadded::new(AtomicU32::new(EMPTY)),
            #[cfg(any(feature = "cuda", test))]
            recordings: CachePadded::new(AtomicU64::new(0)),
            lines: Mutex::new(Lines { all: Vec::new(), waiting: 0, unsorted: EMPTY }),
        }
    }

    /// Read before an event is recorded; see [`Order`](crate::attached::Order).
    #[cfg(any(feature = "cuda", test))]
    pub(crate) fn before_recording(&self) -> u64 {
        self.recordings.load(Ordering::Acquire)
    }

    /// Taken after an event was recorded.
    #[cfg(any(feature = "cuda", test))]
    pub(crate) fn after_recording(&self) -> u64 {
        self.recordings.fetch_add(1, Ordering::AcqRel)
    }

    /// Puts a slot in the inbox, unless the keeper sleeps: then nothing was done, and the caller
    /// uses [`Self::retire_waking`]. After a `true` nothing of the class may be touched: the slot
    /// may be home and the pool gone.
    #[inline]
    pub(crate) fn retire(&self, slot: u32, state: &SlotState) -> bool {
        let mut top = self.inbox.load(Ordering::Relaxed);
        loop {
            if top == ASLEEP {
                return false;
            }
            state.set_next(top);
            match self.inbox.compare_exchange_weak(top, slot, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(now) => top = now,
            }
        }
    }

    /// Puts a slot in the inbox although the keeper sleeps; the caller then wakes it.
    pub(crate) fn retire_waking(&self, slot: u32, state: &SlotState) {
        let mut top = self.inbox.load(Ordering::Relaxed);
        loop {
            state.set_next(if top == ASLEEP { EMPTY } else { top });
            match self.inbox.compare_exchange_weak(top, slot, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Announces that the keeper goes to sleep. False if something waits here, or among what passes
    /// have settled and `is_over` does not yet hold for: it must not.
    pub(crate) fn fall_asleep(&self, is_over: impl Fn() -> bool) -> bool {
        // Held over the swap: a pass that empties the inbox does so under it.
        let lines = self.lines();
        let over = lines.is_empty() && is_over();
        if !over && !crate::seeded::bug("sleeps-over") {
            return false;
        }
        let slept =
            self.inbox.compare_exchange(EMPTY, ASLEEP, Ordering::Relaxed, Ordering::Relaxed);
        drop(lines);
        slept.is_ok() || slept == Err(ASLEEP)
    }

    /// The keeper is awake again.
    pub(crate) fn wake_up(&self) {
        let _ = self.inbox.compare_exchange(ASLEEP, EMPTY, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Probes everything that waits, until all that is complete went home or `home` has enough.
    ///
    /// A user's fence may lease and so come here again: on one thread only the outer pass probes.
    pub(crate) fn pass(&self, home: &mut impl Home) {
        let Some(_outer) = Passing::begin() else { return };
        loop {
            while !self.sort(home) {}
            home.after(&mut std::iter::empty());
            let mut moved = false;
            // Threads that miss at once begin at different lines: one answer settles a line for all.
            let first = home_number() as usize;
            let count = self.lines().all.len();
            for step in 0..count {
                moved |= self.probe_line(first.wrapping_add(step) % count, home);
                if home.enough() {
                    return;
                }
            }
            // A slot with several fences may have moved to a line that was probed before.
            if !moved {
                return;
            }
        }
    }

    /// When to look again, or `None` when nothing waits here.
    pub(crate) fn due(&self, now: Instant) -> Option<Duration> {
        let lines = self.lines();
        lines.all.iter().filter_map(|line| line.due(now)).min()
    }

    /// How long the longest of the slots in lines has waited.
    pub(crate) fn oldest(&self, now: Instant) -> Option<Duration> {
        let lines = self.lines();
        lines.all.iter().flat_map(|line| line.stuck(now)).map(|stuck| stuck.age).max()
    }

    /// Slots that wait, the longest first.
    pub(crate) fn stuck(&self, home: &mut impl Home) -> Vec<Stuck> {
        while !self.sort(home) {}
        home.after(&mut std::iter::empty());
        let now = clock::now();
        let lines = self.lines();
        let mut stuck: Vec<_> = lines.all.iter().flat_map(|line| line.stuck(now)).collect();
        drop(lines);
        stuck.sort_by_key(|stuck| std::cmp::Reverse(stuck.age));
        stuck
    }

    /// The lines' lock. It is held for a few microseconds at the most: asking for it a while is cheaper
    /// than a sleep and a wake-up. (With 8 threads the 99th percentile of a round fell by 15 %.)
    fn lines(&self) -> MutexGuard<'_, Lines> {
        #[cfg(not(any(loom, shuttle)))]
        for _ in 0..LOCK_TRIES {
            if let Some(lines) = self.lines.try_lock() {
                return lines;
            }
            std::hint::spin_loop();
        }
        self.lines.lock()
    }

    /// Moves a part of what was retired into the lines: little enough that others do not wait long for
    /// the lock. True when all is sorted.
    fn sort(&self, home: &mut impl Home) -> bool {
        let mut lines = self.lines();
        if lines.unsorted == EMPTY {
            let mut slot = self.take_inbox();
            // Last in, first out: turned round, so that each line is appended to.
            while slot != EMPTY {
                let state = home.state(slot);
                let next = state.next();
                state.set_next(lines.unsorted);
                lines.unsorted = slot;
                slot = next;
            }
        }
        for _ in 0..SORTED_AT_ONCE {
            let slot = lines.unsorted;
            if slot == EMPTY {
                return true;
            }
            let state = home.state(slot);
            lines.unsorted = state.next();
            if state.is_used() {
                lines.enter(slot, state);
            } else {
                home.settle(slot, home_number());
            }
        }
        lines.unsorted == EMPTY
    }

    /// The whole inbox, leaving it empty; `ASLEEP` stays.
    fn take_inbox(&self) -> u32 {
        let mut top = self.inbox.load(Ordering::Acquire);
        while top != EMPTY && top != ASLEEP {
            match self.inbox.compare_exchange_weak(top, EMPTY, Ordering::Acquire, Ordering::Acquire)
            {
                Ok(_) => return top,
                Err(now) => top = now,
            }
        }
        EMPTY
    }

    /// Probes one line. True if a slot moved to another line.
    fn probe_line(&self, number: usize, home: &mut impl Home) -> bool {
        let mut moved = false;
        let mut gallop = self.lines().all[number].gallop();
        loop {
            let probe = self.lines().all[number].probe(&mut gallop);
            let Some(probe) = probe else {
                return moved | self.send_home(number, home);
            };
            match probe.fence.poll() {
                Ok(FenceStatus::Pending) => {
                    gallop.pending();
                    // Its entry may have gone meanwhile: then this is the last reference.
                    home.after(&mut std::iter::once(probe.fence));
                }
                Ok(FenceStatus::Complete) => {
                    let batch = self.lines().all[number].complete(&probe);
                    gallop.complete();
                    // First: a fence that somebody holds is not used again.
                    home.after(&mut std::iter::once(probe.fence));
                    moved |= batch && self.send_home(number, home);
                    // A gallop is short and settles many; questions one by one may be one too many.
                    if batch && gallop.is_long() && home.enough() {
                        return moved;
                    }
                }
                Err(error) => self.give_up(number, probe, &error, home),
            }
        }
    }

    /// Sends home what is complete in one line, a few at a time.
    fn send_home(&self, number: usize, home: &mut impl Home) -> bool {
        let mut moved = false;
        loop {
            let mut over = [const { None::<Attached> }; BATCH];
            let mut lines = self.lines();
            let mut more = true;
            for place in &mut over {
                let Some((slot, attached)) = lines.leave(number) else {
                    more = false;
                    break;
                };
                if home.state(slot).is_used() && !crate::seeded::bug("one-fence") {
                    moved = true;
                    lines.enter(slot, home.state(slot));
                } else {
                    home.settle(slot, attached.shard);
                }
                *place = Some(attached);
            }
            drop(lines);
            home.after(&mut over.into_iter().flatten().map(|attached| attached.fence));
            if !more {
                return moved;
            }
        }
    }

    /// Takes a slot out whose fence failed, with all its fences.
    fn give_up(&self, number: usize, probe: Probe, error: &Error, home: &mut impl Home) {
        let mut lines = self.lines();
        let removed = lines.all[number].remove(&probe);
        if removed.is_some() {
            lines.waiting -= 1;
        }
        drop(lines);
        // Somebody else who asked the same fence may have been first.
        let Some(fence) = removed else { return };
        home.quarantine(probe.slot, error);
        let slot = probe.slot;
        drop(probe);
        let rest = std::iter::from_fn(|| home.state(slot).detach()).map(|attached| attached.fence);
        let mut over: Vec<_> = std::iter::once(fence).chain(rest).collect();
        home.after(&mut over.drain(..));
    }
}

impl Lines {
    fn is_empty(&self) -> bool {
        self.waiting == 0 && self.unsorted == EMPTY
    }

    /// Puts a slot in the line of one of its fences.
    fn enter(&mut self, slot: u32, state: &SlotState) {
        // Attached fences are only taken off by the slot's owner, which is this list now.
        let Some(attached) = state.detach() else { return };
        let stream = attached.order.line();
        let known = self.all.iter().position(|line| line.is_of(stream));
        // A line that nobody uses any more is given to the new stream: only lines in use count.
        let number = known.or_else(|| self.all.iter().position(Line::is_vacant));
        let number = number.unwrap_or_else(|| {
            self.all.push(Line::new());
            self.all.len() - 1
        });
        self.all[number].enter(slot, attached);
        self.waiting += 1;
    }

    /// Takes the next complete slot out of a line.
    fn leave(&mut self, number: usize) -> Option<(u32, Attached)> {
        let left = self.all[number].leave();
        self.waiting -= usize::from(left.is_some());
        left
    }
}

thread_local! {
    // Has no destructor, so it still answers while other thread-locals are torn down (I7).
    #[allow(clippy::missing_const_for_thread_local, reason = "the model checkers have no const form")]
    static PASSING: Cell<bool> = Cell::new(false);
}

/// A pass of the calling thread, while it lasts.
struct Passing(());

impl Passing {
    /// `None` within another pass.
    fn begin() -> Option<Self> {
        (!PASSING.with(|passing| passing.replace(true))).then(|| Self(()))
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        PASSING.with(|passing| passing.set(false));
    }
}

/// Nothing in the inbox.
const EMPTY: u32 = u32::MAX;
/// Nothing in the inbox, and the keeper sleeps.
const ASLEEP: u32 = u32::MAX - 1;
/// Slots that are sorted under one lock: a few microseconds' worth.
const SORTED_AT_ONCE: usize = 64;
/// Slots that go home under one lock: enough to share its cost, few enough to be short.
const BATCH: usize = 16;

/// About three microseconds.
#[cfg(not(any(loom, shuttle)))]
const LOCK_TRIES: u32 = 100;

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod models;
