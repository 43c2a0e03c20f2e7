//! The lock-free list of free slots of one class: sharded stacks, and in front of them a desk for each
//! thread ([`desks`]); it knows slots as numbers only.
//!
//! # Structure
//!
//! A thread takes a slot from its desk if there is one, and puts it back there, with no more than loads
//! and stores. What follows is about the stacks behind the desks, which are for everything else.
//!
//! A list has a power of two of *shards*. A shard is one 64-bit word on its own cache line that
//! holds the top slot of a stack, two flags and a tag. Every slot has a *node*, and the node's link
//! holds the slot below it and the depth of the stack there. A thread takes from and gives to its
//! *home shard*; when that is empty it takes from the others, so nothing is stranded in a shard
//! whose thread is idle or dead (I13), and no hook at thread exit is needed.
//!
//! ```text
//! head  [ tag: 40 bits | closed | waited | top: 22 bits ]
//! link  [ depth: 32 bits | below: 32 bits ]
//! ```
//!
//! Slots that are not everybody's at all times live in *bays* ([`Layout`]): a bay is one more such
//! stack, and its slots never leave it for another. So a reserve cannot be eaten by others, and a bay
//! can be opened and closed by itself.
//!
//! # Why it is correct
//!
//! * **One owner (I2).** A slot leaves a stack only by the compare-and-swap that replaces its head
//!   word, and every successful change of a head word raises the tag. A taker that read `top` and
//!   its link, and then lost the slot and got it back underneath, fails its compare-and-swap: the
//!   tag differs. 40 bits of tag outlast any stall a thread can have: at a hundred million
//!   operations a second in one shard they wrap after three hours.
//! * **No torn link.** Links are atomics and only the slot's owner writes one, before the `Release`
//!   compare-and-swap that publishes it. All changes of a head are read-modify-writes, so each
//!   continues the release sequence of every earlier push: the `Acquire` load of a head makes the
//!   links, and the bytes, of every slot below visible. A link read just before its slot was taken
//!   by somebody else may be newer than the head; then the head has changed and the swap fails.
//! * **Empty means empty.** `pop` answers `Empty` only after it saw every stack within its reach empty
//!   and then saw every head word unchanged. Tags never repeat in that time, so between the two
//!   readings all these stacks were empty at once: every slot was really out.
//! * **No lost wake-up.** A waiter sets the *waited* flag in every head before its last look. The
//!   flag and the stack are one word: a push either came before (and the look finds the slot) or it
//!   sees the flag in the word that it replaces and reports it.
//! * **No slot after close.** `close` takes each stack and sets the *closed* flag in one step. From
//!   then on `pop` refuses and `push` hands the slot back to its caller, which counts it home. While a list
//!   is watched or closed its desks are quiet, so that slots come here.
//! * **Stale returns (I14).** Every slot has a *stamp*, odd while it is leased. A lease shows the stamp that
//!   it was given when it returns the slot, which makes it even: one that comes twice finds another.

mod bays;
mod desks;
mod home;
mod leases;

use std::collections::TryReserveError;

use crossbeam::utils::CachePadded;

use crate::sync::{AtomicU32, AtomicU64, Ordering};

use bays::Bay;
pub(crate) use bays::{BayId, Layout, Reach};
pub(crate) use desks::Quiet;
use desks::{BRIEF, Desks, Published};
pub(crate) use home::home as home_number;
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) use home::set_home;
pub(crate) use leases::{Generation, Near};

/// The free slots of one class, each with caller's metadata `M` beside its link.
#[derive(Debug)]
pub(crate) struct FreeList<M> {
    desks: Desks,
    nodes: Box<[Node<M>]>,
    /// Slots from this one on are in bays.
    regular: u32,
    shards: Box<[CachePadded<Shard>]>,
    bays: Box<[CachePadded<Bay>]>,
    /// By home shard. Apart from the heads, which every thread that finds nothing reads.
    tallies: Box<[CachePadded<Tally>]>,
}

/// One stack.
#[derive(Debug)]
struct Shard {
    /// Top slot, flags and tag. `Release` in `push` pairs with `Acquire` in `pop`: publishes the
    /// slot's link and bytes.
    head: AtomicU64,
    /// The lowest depth this stack ever had. A hint for high-water sampling; `Relaxed`, and a lost
    /// update only costs a sample.
    low: AtomicU32,
}

/// One slot's place in a stack, its stamp, and what the caller keeps of it. A cache line each: neighbours
/// belong to other threads.
#[derive(Debug)]
#[repr(align(64))]
struct Node<M> {
    link: AtomicU64,
    /// Twice the number of leases this slot has had, plus one while it is out. Written by the slot's
    /// owner only; others read it for reports.
    stamp: AtomicU32,
    meta: M,
}

/// What threads without a desk count.
#[derive(Debug, Default)]
struct Tally {
    /// `pop` calls that found every slot out.
    misses: AtomicU64,
    leases: AtomicU64,
}

/// What `pop` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pop {
    /// The caller owns this slot now. `new_low`: its stack was never this shallow before.
    Slot { slot: u32, new_low: bool },
    /// Every slot was out at one instant.
    Empty,
    /// The list is closed.
    Closed,
}

/// What became of a pushed slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Push {
    /// It is free. Nothing of the list may be touched any more: the pool may be gone.
    Free,
    /// The list is watched by a waiter: nothing was pushed yet, see [`FreeList::push_waited`].
    Waited,
    /// The list is closed: the slot stays the caller's, to be counted home.
    Closed,
}

impl<M> FreeList<M> {
    /// Bytes of one slot's record.
    pub(crate) const NODE_BYTES: usize = size_of::<Node<M>>();

    /// A list of free slots, the regular ones in `shards` stacks (a power of two), with desks for threads
    /// with numbers below `desks`. Fails when there is no memory for their records.
    ///
    /// There are at most [`SLOTS_MAX`] slots, which the plan enforces.
    pub(crate) fn new(
        layout: impl Into<Layout>,
        shards: usize,
        desks: usize,
        mut meta: impl FnMut() -> M,
    ) -> Result<Self, TryReserveError> {
        let layout = layout.into();
        let slots = layout.slots();
        assert!(slots <= SLOTS_MAX, "a free list holds at most {SLOTS_MAX} slots");
        assert!(shards.is_power_of_two(), "shards are a power of two");
        // The one large allocation: millions of slots must not abort the process.
        let mut nodes = Vec::new();
        nodes.try_reserve_exact(slots as usize)?;
        nodes.extend((0..slots).map(|_| Node::new(meta())));
        let list = Self {
            desks: Desks::new(desks),
            nodes: nodes.into_boxed_slice(),
            regular: layout.regular,
            shards: (0..shards).map(|_| CachePadded::new(Shard::new())).collect(),
            bays: layout.bays(),
            tallies: (0..shards).map(|_| CachePadded::new(Tally::default())).collect(),
        };
        // Highest first, so that each stack's lowest slot is on top and is used first.
        for slot in (0..layout.regular).rev() {
            let shard = &list.shards[slot as usize & (shards - 1)];
            let head = shard.head.load(Ordering::Relaxed);
            let depth = list.depth(head) + 1;
            list.nodes[slot as usize].link.store(link(top(head), depth), Ordering::Relaxed);
            shard.head.store(next(head, slot), Ordering::Relaxed);
            shard.low.store(depth, Ordering::Relaxed);
        }
        list.fill(BayId::RESERVE);
        list.fill(list.pageable());
        Ok(list)
    }

    /// Takes a free slot that is anybody's.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn pop(&self) -> Pop {
        self.pop_within(Reach::REGULAR)
    }

    /// Sends all slots to the stacks from now on, until it is dropped. May sleep; called without a lock
    /// that leases can take (I17). Needed before the list is watched or closed.
    pub(crate) fn quiet(&self) -> Quiet<'_> {
        self.desks.quiet()
    }

    /// As [`Self::quiet`], within two milliseconds or so. `None` if a thread was put aside at its desk.
    pub(crate) fn quiet_soon(&self) -> Option<Quiet<'_>> {
        self.desks.quiet_within(BRIEF)
    }

    /// Takes a free slot that `reach` allows: from the calling thread's desk or shard, else from any other,
    /// else from a bay.
    pub(crate) fn pop_within(&self, reach: Reach) -> Pop {
        self.pop_from(home_number(), reach, false)
    }

    /// As [`Self::pop_within`], for who watches the list: its desks are quiet.
    pub(crate) fn pop_watched(&self, reach: Reach) -> Pop {
        self.pop_from(home_number(), reach, true)
    }

    /// Gives a slot back. The caller owns `slot`.
    pub(crate) fn push(&self, slot: u32) -> Push {
        self.push_to(home_number(), slot, FLAGS)
    }

    /// As [`Self::push`], for another thread's shard.
    pub(crate) fn push_for(&self, home: u32, slot: u32) -> Push {
        self.push_shard(home, slot, FLAGS)
    }

    /// Gives a slot back although the list is watched, for want of a waiter that may have it.
    pub(crate) fn push_unwanted(&self, slot: u32) -> Push {
        self.push_shard(home_number(), slot, CLOSED)
    }

    /// True while a waiter watches the list, or did a moment ago.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.shard(home_number()).head.load(Ordering::Relaxed) & WAITED != 0
    }

    /// Makes every later `push` answer [`Push::Waited`]. The desks are quiet, by the caller, and stay so.
    pub(crate) fn watch(&self) {
        self.desks.begin_quiet();
        for shard in self.stacks() {
            shard.head.fetch_or(WAITED, Ordering::AcqRel);
        }
    }

    /// Ends `watch`.
    pub(crate) fn unwatch(&self) {
        for shard in self.stacks() {
            shard.head.fetch_and(!WAITED, Ordering::AcqRel);
        }
        self.desks.end_quiet();
    }

    /// Refuses everything from now on and returns how many free slots of the first slab were taken out,
    /// or `None` if it was closed before; other bays are closed by themselves, after it. Callers do not
    /// race each other: they hold the waiters' lock. The desks are quiet, by the caller, and stay so.
    pub(crate) fn close(&self) -> Option<u32> {
        if self.is_closed() {
            return None;
        }
        self.desks.begin_quiet();
        let in_shards = self.shards.iter().map(|shard| self.close_stack(shard)).sum::<u32>();
        Some(in_shards + self.desks.take_all() + self.close_bay(BayId::RESERVE))
    }

    /// Takes a stack whole and flags it closed, in one step. Returns how many slots were in it.
    fn close_stack(&self, shard: &Shard) -> u32 {
        let mut head = shard.head.load(Ordering::Acquire);
        loop {
            let depth = self.depth(head);
            let closed = next(head, NIL) | CLOSED;
            match shard.head.compare_exchange_weak(
                head,
                closed,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return depth,
                Err(now) => head = now,
            }
        }
    }

    /// True once `close` began.
    pub(crate) fn is_closed(&self) -> bool {
        self.shards[0].head.load(Ordering::Acquire) & CLOSED != 0
    }

    /// How many slots are free that `reach` allows, and a stamp that changes with every push and pop.
    ///
    /// Two calls with equal stamps enclose an instant at which exactly `free` slots were free.
    pub(crate) fn census(&self, reach: Reach) -> (u32, u64) {
        let (mut free, mut stamp) = self.desks.census();
        for shard in self.shards.iter().map(|shard| &**shard).chain(self.within(reach)) {
            let head = shard.head.load(Ordering::Acquire);
            free += self.depth(head);
            // Tags only rise, so their sum is unchanged only if none changed.
            stamp = stamp.wrapping_add(head >> TAG_SHIFT);
        }
        (free, stamp)
    }

    /// `pop` calls that found nothing.
    pub(crate) fn misses(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.misses.load(Ordering::Relaxed)).sum()
    }

    /// Counts a failed lease on the calling thread's own line.
    /// Returns how many were counted on it by now.
    pub(crate) fn count_miss(&self) -> u64 {
        self.tally(home_number()).misses.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The metadata of a slot, whoever owns it.
    #[inline]
    pub(crate) fn meta(&self, slot: u32) -> &M {
        &self.nodes[slot as usize].meta
    }

    /// All slots, those that are not there now included.
    #[allow(clippy::cast_possible_truncation, reason = "at most SLOTS_MAX")]
    pub(crate) fn slots(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// The metadata of all slots.
    pub(crate) fn metas(&self) -> impl Iterator<Item = &M> {
        self.nodes.iter().map(|node| &node.meta)
    }

    #[inline]
    fn shard(&self, home: u32) -> &Shard {
        &self.shards[home as usize & (self.shards.len() - 1)]
    }

    fn tally(&self, home: u32) -> &Tally {
        &self.tallies[home as usize & (self.tallies.len() - 1)]
    }

    /// `calm`: the desks are quiet.
    fn pop_from(&self, home: u32, reach: Reach, calm: bool) -> Pop {
        // Where a thread returns slots to, it finds the warmest.
        let near = || {
            let slot = self.desks.take_near(home)?;
            Some(Pop::Slot { slot, new_low: false })
        };
        let shard = || self.pop_shard(self.shard(home));
        let found =
            if self.desks.is_on(home) { near().or_else(shard) } else { shard().or_else(near) };
        found.unwrap_or_else(|| self.pop_elsewhere(home, reach, calm))
    }

    /// One attempt at one shard: `None` when its stack is empty.
    #[inline]
    fn pop_shard(&self, shard: &Shard) -> Option<Pop> {
        let mut head = shard.head.load(Ordering::Acquire);
        loop {
            if top(head) == NIL {
                return (head & CLOSED != 0).then_some(Pop::Closed);
            }
            let slot = top(head);
            let below = self.nodes[slot as usize].link.load(Ordering::Relaxed);
            match shard.head.compare_exchange_weak(
                head,
                next(head, below_of(below)),
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    let depth = depth_of(below) - 1;
                    let new_low = depth < shard.low.load(Ordering::Relaxed);
                    if new_low {
                        shard.low.store(depth, Ordering::Relaxed);
                    }
                    return Some(Pop::Slot { slot, new_low });
                }
                Err(now) => head = now,
            }
        }
    }

    /// Takes from anywhere within reach, or proves that all was empty at one instant.
    #[cold]
    #[inline(never)]
    fn pop_elsewhere(&self, home: u32, reach: Reach, calm: bool) -> Pop {
        if let Published::Slot(slot) = self.desks.take_published(home, calm) {
            return Pop::Slot { slot, new_low: false };
        }
        if let Some(found) = self.pop_shards(home) {
            return found;
        }
        loop {
            let (free, before) = self.census(reach);
            if free > 0
                && let Some(found) = self.search(home, reach, calm)
            {
                return found;
            }
            // Somebody moved a slot while we looked: it may have gone where we had been.
            if self.census(reach) == (0, before) {
                return if self.is_closed() { Pop::Closed } else { Pop::Empty };
            }
            std::hint::spin_loop();
            #[cfg(loom)]
            loom::thread::yield_now();
        }
    }

    /// From any shard, the next ones first.
    fn pop_shards(&self, home: u32) -> Option<Pop> {
        (home..).take(self.shards.len()).find_map(|home| self.pop_shard(self.shard(home)))
    }

    /// One look at everything. `None` if there was nothing.
    fn search(&self, home: u32, reach: Reach, calm: bool) -> Option<Pop> {
        let mut rounds = BRIEF;
        loop {
            let published = self.desks.take_published(home, calm);
            if let Published::Slot(slot) = published {
                return Some(Pop::Slot { slot, new_low: false });
            }
            if let Some(found) = self.pop_shards(home) {
                return Some(found);
            }
            for bay in self.within(reach) {
                // One that is closed is as good as empty: the class may be open.
                if let Some(found @ Pop::Slot { .. }) = self.pop_shard(bay) {
                    return Some(found);
                }
            }
            let Published::Biased = published else { return None };
            if !self.desks.revoke_any(home, rounds) {
                if rounds == 1 {
                    return Some(Pop::Empty);
                }
                // Others may have given something back meanwhile.
                rounds = 1;
            }
        }
    }

    /// To the home's desk, if it can be made ready, else to its shard.
    fn push_to(&self, home: u32, slot: u32, stop_at: u64) -> Push {
        if slot < self.regular && self.desks.push_or_make_room(home, slot) {
            return Push::Free;
        }
        self.push_shard(home, slot, stop_at)
    }

    #[inline]
    fn push_shard(&self, home: u32, slot: u32, stop_at: u64) -> Push {
        let shard = if slot < self.regular { self.shard(home) } else { self.stack_of(slot) };
        let mut head = shard.head.load(Ordering::Acquire);
        loop {
            if head & stop_at != 0 {
                return if head & CLOSED != 0 { Push::Closed } else { Push::Waited };
            }
            let depth = self.depth(head) + 1;
            self.nodes[slot as usize].link.store(link(top(head), depth), Ordering::Relaxed);
            match shard.head.compare_exchange_weak(
                head,
                next(head, slot),
                Ordering::Release,
                Ordering::Acquire,
            ) {
                Ok(_) => return Push::Free,
                Err(now) => head = now,
            }
        }
    }

    /// The depth of the stack that `head` is the top of.
    #[inline]
    fn depth(&self, head: u64) -> u32 {
        match top(head) {
            NIL => 0,
            slot => depth_of(self.nodes[slot as usize].link.load(Ordering::Relaxed)),
        }
    }
}

impl Shard {
    fn new() -> Self {
        Self { head: AtomicU64::new(u64::from(NIL)), low: AtomicU32::new(0) }
    }
}

/// The head word after `head` with `top` on the stack: flags stay, the tag rises.
#[inline]
fn next(head: u64, top: u32) -> u64 {
    let flags = head & FLAGS;
    let tag = (head >> TAG_SHIFT).wrapping_add(tag_step()) & TAG_MASK;
    (tag << TAG_SHIFT) | flags | u64::from(top)
}

/// How far each change moves the tag.
#[inline]
fn tag_step() -> u64 {
    u64::from(!crate::seeded::bug("no-tag"))
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "masked to 22 bits")]
fn top(head: u64) -> u32 {
    (head & u64::from(NIL)) as u32
}

#[inline]
fn link(below: u32, depth: u32) -> u64 {
    (u64::from(depth) << 32) | u64::from(below)
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "the low half")]
fn below_of(link: u64) -> u32 {
    link as u32
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "the high half")]
fn depth_of(link: u64) -> u32 {
    (link >> 32) as u32
}

const TOP_BITS: u32 = 22;
/// "No slot": all ones, so that one mask extracts and marks.
const NIL: u32 = (1 << TOP_BITS) - 1;
const WAITED: u64 = 1 << TOP_BITS;
const CLOSED: u64 = 1 << (TOP_BITS + 1);
const FLAGS: u64 = WAITED | CLOSED;
const TAG_SHIFT: u32 = TOP_BITS + 2;
/// Under the model the tag wraps after four changes, so that a wrap is within reach of a model.
const TAG_BITS: u32 = if cfg!(loom) { 2 } else { 64 - TAG_SHIFT };
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
/// The most slots one list can number.
pub(crate) const SLOTS_MAX: u32 = NIL - 1;

const _: () = assert!(TAG_SHIFT + 40 == 64, "top, flags and a tag of 40 bits fill the head word");

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

#[cfg(all(test, loom))]
mod models;
