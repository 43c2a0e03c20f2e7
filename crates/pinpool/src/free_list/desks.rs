//! Desks: a few slots close at hand for each thread, in front of the stacks; it knows slots as numbers
//! only.
//!
//! # Structure
//!
//! Slots lie in *magazines*, small arrays under one head word. Every thread that has a number of its own
//! has a *desk* in every list, with one magazine on it: that one is *biased* to the thread, which takes
//! from it and gives to it with plain loads and stores. Magazines on no desk only shrink: anybody takes
//! one slot at a time by compare-and-swap, or the whole magazine to its desk. An owner whose magazine is
//! full publishes it as it is and goes on with an empty one; an owner whose magazine is empty looks for a
//! published one. So slots that one thread leases and another drops move a magazine at a time.
//!
//! ```text
//! desk     [ bias: odd while it is on | busy | which magazine is hot | ... ]
//! magazine [ tag: 51 bits | owner: 8 | biased | count: 4 ]  14 slots
//! ```
//!
//! # Why it is correct
//!
//! * **The owner is alone in its biased magazine.** It works in *sections*: `busy = 1`, a light barrier,
//!   look whether the bias is on, work, `busy = 0`. Who wants such slots turns the bias off, passes a heavy
//!   barrier and waits until `busy` is 0. Of the two barriers one comes first ([`barrier`]): either the
//!   section saw that the bias is off and did nothing, or its `busy = 1` is seen, and then its end is
//!   waited for. The load that sees `busy = 0` acquires everything the owner did before.
//! * **Nobody else changes a biased magazine.** All others change a head by compare-and-swap, and not
//!   while it says *biased*. The owner sets that bit by compare-and-swap, and every change raises the
//!   tag: who read the head before fails. The bit is cleared by the owner, outside of sections, or by
//!   somebody who saw the owner's bias off, waited, read the head, and saw the bias as it had left it
//!   *after* that. If the owner has turned it on again since, either that last look or the tag says so.
//! * **The owner's bias is on only while its hot magazine is biased.** The owner turns the bias on before
//!   it sets the bit, and changes magazines, outside of sections both. If the bias is turned off in
//!   between, its next section sees that.
//! * **One owner (I2).** A slot's number is read before the compare-and-swap that takes it; numbers below
//!   the count are only overwritten by an owner, whose setting of the bit changed the head.
//! * **Nothing is stranded (I13).** A published magazine is anybody's, and a biased one is after a
//!   revocation, whatever its owner does or does not do any more. A slot is in some magazine or stack
//!   at every instant or with somebody: none is carried from one to another.
//! * **Waiting and closing.** They need every desk *quiet*: they count themselves in `quiet`, then revoke
//!   every bias. An owner turns its bias on first and then looks at `quiet`, with a full barrier in
//!   between on both sides: it sees the count and turns it off again before any section, or it is
//!   revoked. While a list is quiet slots go to the stacks, whose flags tell of waiters and of the end.
//! * **A bounded wait.** A section is some ten instructions without a call, so that `busy` stays set only
//!   if its thread was put aside there. A taker then sleeps a little, which lets that thread run also
//!   where priorities are strict, and gives up after two milliseconds.

mod desk;
mod magazine;

use crossbeam::utils::CachePadded;

use super::home::NUMBERS;
use crate::barrier;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

use desk::{Desk, REST, is_on};
use magazine::{BIASED, Biased, Magazine, TAG_SHIFT, count, next, owner};

/// The desks of one list.
#[derive(Debug)]
pub(super) struct Desks {
    all: Box<[Desk]>,
    /// So many for each desk, its group; wherever they are used.
    magazines: Box<[Magazine]>,
    /// Magazines that were ever used, as bits. Set before the first slot comes.
    used: Box<[AtomicU64]>,
    // Apart from what every lease reads.
    /// Biases that are on, or were turned off and may still be worked under.
    unsettled: CachePadded<AtomicU32>,
    /// Those who need the desks quiet.
    quiet: CachePadded<AtomicU32>,
}

/// What [`Desks::take_published`] found.
#[derive(Debug)]
pub(super) enum Published {
    /// Nobody's slot before.
    Slot(u32),
    /// Nothing but slots in magazines that are biased.
    Biased,
    None,
}

/// Keeps all desks of a list without a bias.
#[derive(Debug)]
#[must_use = "the desks are quiet as long as this lives"]
pub(crate) struct Quiet<'a>(&'a Desks);

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        self.0.end_quiet();
    }
}

impl Desks {
    /// Desks for threads with numbers below `count`; none where the system has no barrier for them.
    pub(super) fn new(count: usize) -> Self {
        let count = count.min(NUMBERS as usize);
        let count = if count > 0 && barrier::is_available() { count } else { 0 };
        let magazines = count * GROUP;
        Self {
            all: (0..count).map(Desk::new).collect(),
            magazines: (0..magazines).map(|_| Magazine::new()).collect(),
            used: (0..magazines.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            unsettled: CachePadded::new(AtomicU32::new(0)),
            quiet: CachePadded::new(AtomicU32::new(0)),
        }
    }

    /// The desk of the thread with this number, which is the caller's.
    #[inline]
    pub(super) fn of(&self, home: u32) -> Option<&Desk> {
        self.all.get(home as usize)
    }

    /// Whether the caller's bias was on a moment ago.
    pub(super) fn is_on(&self, home: u32) -> bool {
        self.of(home).is_some_and(|desk| is_on(desk.bias.load(Ordering::Acquire)))
    }

    /// Takes a slot from the caller's hot magazine, if its bias is on.
    #[inline]
    pub(super) fn pop(&self, desk: &Desk) -> Option<u32> {
        let mut found = None;
        self.section(desk, |magazine, head| {
            // Of an empty one there is no slot below the count.
            let top = magazine.slots.get((count(head) as usize).wrapping_sub(1))?;
            found = Some(top.load(Ordering::Relaxed));
            Some(next(head, -1))
        });
        found
    }

    /// Gives a slot to the caller's hot magazine, if its bias is on and there is room.
    #[inline]
    pub(super) fn push(&self, desk: &Desk, slot: u32) -> bool {
        let limit = desk.limit.load(Ordering::Relaxed);
        self.section(desk, |magazine, head| {
            let room = magazine.slots.get(count(head) as usize)?;
            if count(head) >= limit {
                return None;
            }
            room.store(slot, Ordering::Relaxed);
            Some(next(head, 1))
        })
    }

    /// Changes the caller's hot magazine alone, if its bias is on.
    #[inline]
    fn section(&self, desk: &Desk, change: impl FnOnce(&Magazine, u64) -> Option<u64>) -> bool {
        desk.busy.store(1, Ordering::Relaxed);
        barrier::light();
        let mut changed = false;
        if is_on(desk.bias.load(Ordering::Relaxed))
            && let Some(magazine) = self.magazines.get(desk.hot.load(Ordering::Relaxed) as usize)
            && let Some(head) = change(magazine, magazine.head.load(Ordering::Relaxed))
        {
            magazine.head.store(head, Ordering::Release);
            changed = true;
        }
        // The last that is touched: a slot that was given may be somebody's, and the pool gone.
        desk.busy.store(0, Ordering::Release);
        changed
    }

    /// Takes a slot from the magazines that are the caller's own, or that it last found one in.
    pub(super) fn take_near(&self, home: u32) -> Option<u32> {
        let desk = self.of(home)?;
        if let Some(slot) = self.pop(desk) {
            return Some(slot);
        }
        let bias = desk.bias.load(Ordering::Acquire);
        if is_on(bias) || self.turn_on(home, desk, bias, holds_some) {
            // Turning it on has found one, if there was one.
            return self.pop(desk).or_else(|| {
                let adopts = |index: &usize| self.adopt(home, desk, *index, holds_some);
                let found = desk.near(home).find(adopts)?;
                desk.comes_back(home, found);
                self.pop(desk)
            });
        }
        desk.near(home).find_map(|index| self.magazines[index].take(false).ok().flatten())
    }

    /// Takes a slot from any published magazine. `calm`: no bias is on, and none comes on meanwhile.
    pub(super) fn take_published(&self, home: u32, calm: bool) -> Published {
        let desk = self.of(home);
        let adopts = !calm && self.is_on(home);
        let mut found = Published::None;
        for index in self.in_use_from(home) {
            let magazine = &self.magazines[index];
            if adopts
                && let Some(desk) = desk
                && self.adopt(home, desk, index, holds_some)
                && let Some(slot) = self.pop(desk)
            {
                return Published::Slot(slot);
            }
            match magazine.take(calm) {
                Ok(Some(slot)) => {
                    if let Some(desk) = desk {
                        desk.found_in(index);
                    }
                    return Published::Slot(slot);
                }
                Ok(None) => {}
                Err(Biased) => found = Published::Biased,
            }
        }
        found
    }

    /// Gives a slot to the caller's desk, which is made ready for it if it can be. False if it goes to the
    /// stacks.
    pub(super) fn push_or_make_room(&self, home: u32, slot: u32) -> bool {
        let Some(desk) = self.of(home) else { return false };
        self.push(desk, slot) || self.make_room(home, desk) && self.push(desk, slot)
    }

    fn make_room(&self, home: u32, desk: &Desk) -> bool {
        let bias = desk.bias.load(Ordering::Acquire);
        if !is_on(bias) {
            let limit = desk.limit.load(Ordering::Relaxed);
            return self.turn_on(home, desk, bias, |count| count < limit);
        }
        desk.near(home).any(|index| self.adopt(home, desk, index, |count| count == 0))
    }

    /// Puts a magazine on the caller's desk if nobody has it and it is as `wanted`, and publishes the one
    /// that was there. The caller's bias is on, and it is in no section.
    fn adopt(&self, home: u32, desk: &Desk, index: usize, wanted: impl Fn(u32) -> bool) -> bool {
        let magazine = &self.magazines[index];
        if !magazine.is_free(&wanted) {
            return false;
        }
        self.mark_used(index);
        let last = desk.hot.load(Ordering::Relaxed) as usize;
        if !magazine.bias(home, wanted) {
            return false;
        }
        desk.hot.store(u32_of(index), Ordering::Relaxed);
        if last != index {
            self.magazines[last].unbias(home);
        }
        desk.found_in(index);
        // If the bias was turned off meanwhile, the next section sees it, and nobody works here.
        true
    }

    /// Turns the caller's bias on, once it has rested long enough and if there is a magazine as `wanted`.
    fn turn_on(&self, home: u32, desk: &Desk, bias: u32, wanted: impl Fn(u32) -> bool) -> bool {
        if !self.is_known(home, desk, bias) {
            return false;
        }
        let rest = desk.rest.load(Ordering::Relaxed);
        if rest > 0 {
            desk.rest.store(rest - 1, Ordering::Relaxed);
            return false;
        }
        if self.quiet.load(Ordering::Relaxed) > 0 {
            desk.rest.store(REST, Ordering::Relaxed);
            return false;
        }
        // Not one that is on another desk: trying for it over and over would keep the bias off.
        let fits = |index: &usize| self.magazines[*index].is_free(&wanted);
        let Some(index) = desk.near(home).find(fits) else { return false };
        self.unsettled.fetch_add(1, Ordering::AcqRel);
        let on = bias.wrapping_add(1);
        // In this order: who sees the magazine biased sees that the bias is on.
        desk.bias.store(on, Ordering::Release);
        let adopted = self.adopt(home, desk, index, wanted);
        fence(Ordering::SeqCst);
        let unasked = self.quiet.load(Ordering::Relaxed) == 0 || crate::seeded::bug("loud-desk");
        if adopted && unasked {
            desk.since.store(desk.leases.load(Ordering::Relaxed), Ordering::Relaxed);
            return true;
        }
        // No section was begun, so there is nothing to wait for.
        if desk.swap_bias(on, on.wrapping_add(1)) {
            self.unsettled.fetch_sub(1, Ordering::AcqRel);
        }
        self.hot(desk).unbias(home);
        desk.known.store(on.wrapping_add(1), Ordering::Relaxed);
        false
    }

    /// Whether the owner knows that its bias is off. If not it does now, and rests, the longer the sooner
    /// it was disturbed.
    fn is_known(&self, home: u32, desk: &Desk, bias: u32) -> bool {
        if desk.known.load(Ordering::Relaxed) == bias {
            return true;
        }
        desk.known.store(bias, Ordering::Relaxed);
        self.hot(desk).unbias(home);
        desk.rest();
        false
    }

    fn hot(&self, desk: &Desk) -> &Magazine {
        &self.magazines[desk.hot.load(Ordering::Relaxed) as usize]
    }

    fn mark_used(&self, index: usize) {
        let (word, bit) = (&self.used[index / 64], 1 << (index % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::AcqRel);
        }
    }

    /// The numbers of the magazines in use.
    fn in_use(&self) -> impl Iterator<Item = usize> {
        self.used.iter().zip((0..).step_by(64)).flat_map(|(word, first)| {
            let mut left = word.load(Ordering::Acquire);
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros() as usize;
                left &= left.wrapping_sub(1);
                (bit < 64).then_some(first + bit)
            })
        })
    }

    /// As [`Self::in_use`]. Everybody begins elsewhere, so that they do not meet.
    fn in_use_from(&self, home: u32) -> impl Iterator<Item = usize> {
        let first = home as usize * GROUP;
        let (after, before) =
            (move |index: &usize| *index >= first, move |index: &usize| *index < first);
        self.in_use().filter(after).chain(self.in_use().filter(before))
    }

    /// Publishes a magazine with slots that was biased. False if all their owners were put aside in the
    /// middle and do not come back within so many rounds.
    pub(super) fn revoke_any(&self, home: u32, rounds: u32) -> bool {
        let mut stuck = false;
        for index in self.in_use_from(home) {
            let head = self.magazines[index].head.load(Ordering::Acquire);
            if head & BIASED != 0 && count(head) > 0 {
                if self.revoke(index, rounds) {
                    return true;
                }
                stuck = true;
            }
        }
        !stuck
    }

    /// Publishes a magazine that was biased. False if its owner was put aside in the middle and does not
    /// come back.
    fn revoke(&self, index: usize, rounds: u32) -> bool {
        if crate::seeded::bug("stranded-desk") {
            return false;
        }
        let magazine = &self.magazines[index];
        loop {
            let head = magazine.head.load(Ordering::Acquire);
            if head & BIASED == 0 {
                return true;
            }
            let desk = &self.all[owner(head)];
            let (off, over) = desk.turn_off_and_owe();
            barrier::heavy();
            if !desk.settle(off, rounds) {
                // It stays unsettled: whoever needs the desks quiet waits for it.
                desk.owe(over);
                return false;
            }
            self.unsettled.fetch_sub(over, Ordering::AcqRel);
            if magazine.clear(owner(head), desk, off) {
                return true;
            }
        }
    }

    /// Makes all desks quiet: once this returns no section is run until it is dropped. May sleep; called
    /// without a lock that leases can take (I17).
    pub(super) fn quiet(&self) -> Quiet<'_> {
        loop {
            if let Some(quiet) = self.quiet_within(u32::MAX) {
                return quiet;
            }
        }
    }

    /// As [`Self::quiet`]; `None` if an owner was put aside in the middle of a section and does not come back
    /// within so many rounds.
    pub(super) fn quiet_within(&self, rounds: u32) -> Option<Quiet<'_>> {
        self.begin_quiet();
        let quiet = Quiet(self);
        fence(Ordering::SeqCst);
        if self.unsettled.load(Ordering::Acquire) > 0 {
            let turned: Vec<_> = self.all.iter().map(Desk::turn_off_and_owe).collect();
            barrier::heavy();
            let mut settled = true;
            for (desk, (off, over)) in self.all.iter().zip(&turned) {
                // Whoever turned it off may not have waited yet.
                let trusts = *over == 0 && crate::seeded::bug("trusting-quiet");
                if trusts || desk.settle(*off, rounds) {
                    self.unsettled.fetch_sub(*over, Ordering::AcqRel);
                } else {
                    desk.owe(*over);
                    settled = false;
                }
            }
            if !settled {
                return None;
            }
            for index in self.in_use() {
                let magazine = &self.magazines[index];
                let owner = owner(magazine.head.load(Ordering::Acquire));
                magazine.clear(owner, &self.all[owner], turned[owner].0);
            }
        }
        Some(quiet)
    }

    /// Turns a bias off, and leaves the waiting to others.
    #[cfg(all(test, loom))]
    pub(super) fn stall(&self, home: u32) {
        self.all[home as usize].turn_off();
    }

    /// The owner is put aside in the middle of a section, or goes on.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn put_aside(&self, home: u32, aside: bool) {
        self.all[home as usize].busy.store(u32::from(aside), Ordering::Release);
    }

    /// Biases that are on or may still be worked under, as they are counted.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn unsettled(&self) -> u32 {
        self.unsettled.load(Ordering::SeqCst)
    }

    /// Counts somebody who needs the desks quiet, while they are.
    pub(super) fn begin_quiet(&self) {
        self.quiet.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn end_quiet(&self) {
        self.quiet.fetch_sub(1, Ordering::AcqRel);
    }

    /// Takes everything out of quiet desks. Returns how many slots that were.
    pub(super) fn take_all(&self) -> u32 {
        if crate::seeded::bug("forgotten-desk") {
            return 0;
        }
        self.in_use().map(|index| self.magazines[index].take_all()).sum()
    }

    /// Slots in all magazines, and a stamp that changes with every change.
    pub(super) fn census(&self) -> (u32, u64) {
        let mut free = 0;
        // Bits are only added and tags only rise.
        let used = self.used.iter().map(|word| word.load(Ordering::Acquire));
        let mut stamp = used.fold(0, u64::wrapping_add);
        for index in self.in_use() {
            let head = self.magazines[index].head.load(Ordering::Acquire);
            free += count(head);
            stamp = stamp.wrapping_add(head >> TAG_SHIFT);
        }
        (free, stamp)
    }

    /// Leases that owners of desks counted.
    pub(super) fn leases(&self) -> u64 {
        self.all.iter().map(|desk| desk.leases.load(Ordering::Relaxed)).sum()
    }
}

fn holds_some(count: u32) -> bool {
    count > 0
}

#[allow(clippy::cast_possible_truncation, reason = "numbers of magazines")]
fn u32_of(index: usize) -> u32 {
    index as u32
}

const MODELLED: bool = cfg!(any(loom, shuttle));
/// Magazines for each desk.
const GROUP: usize = if MODELLED { 2 } else { 4 };
/// Rounds that a taker waits for a section to end: about two milliseconds.
pub(super) const BRIEF: u32 = if MODELLED { u32::MAX } else { 160 };
