//! Stacks of slots that are not everybody's at all times: a reserve, slabs that come and go, and
//! pageable buffers; it knows which slots they are, not what they are for.

use std::ops::Range;

use crossbeam::utils::CachePadded;

use super::{CLOSED, FreeList, NIL, Pop, Shard, link, next, top};
use crate::sync::{AtomicU64, Ordering};

/// Which slots a list has, by their numbers in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Layout {
    /// Everybody's, in the shards.
    pub(crate) regular: u32,
    /// For those whose reach includes it. Open from the start.
    pub(crate) reserve: u32,
    /// How many slabs can be added, and the slots of each. Closed at first; anybody's once open.
    pub(crate) slabs: u32,
    pub(crate) slab_slots: u32,
    /// For those whose reach includes them. Open from the start.
    pub(crate) pageable: u32,
}

/// One bay, by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BayId(usize);

/// Which bays somebody may take from, beside what is everybody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reach {
    pub(crate) reserve: bool,
    pub(crate) pageable: bool,
}

/// One stack and the slots that live in it.
#[derive(Debug)]
pub(super) struct Bay {
    first: u32,
    slots: u32,
    stack: Shard,
}

impl From<u32> for Layout {
    fn from(regular: u32) -> Self {
        Self { regular, ..Self::default() }
    }
}

impl Layout {
    /// All slots.
    pub(crate) fn slots(&self) -> u32 {
        self.first_slab() + self.slabs * self.slab_slots + self.pageable
    }

    /// Slots that are there from the start, on one slab.
    pub(crate) fn first_slab(&self) -> u32 {
        self.regular + self.reserve
    }

    pub(super) fn bays(&self) -> Box<[CachePadded<Bay>]> {
        let closed = |first, slots| Bay { first, slots, stack: Shard::closed() };
        let added = (0..self.slabs)
            .map(|number| closed(self.first_slab() + number * self.slab_slots, self.slab_slots));
        std::iter::once(closed(self.regular, self.reserve))
            .chain(added)
            .chain(std::iter::once(closed(self.slots() - self.pageable, self.pageable)))
            .map(CachePadded::new)
            .collect()
    }
}

impl BayId {
    /// The reserve.
    pub(crate) const RESERVE: Self = Self(0);

    /// The bay of the slab with this number among those that can be added.
    pub(crate) fn of_slab(number: usize) -> Self {
        Self(1 + number)
    }

    /// The number of the slab among those that can be added; one past the last is the pageable bay's.
    pub(crate) fn slab(self) -> Option<usize> {
        self.0.checked_sub(1)
    }
}

impl Reach {
    /// What is everybody's.
    #[cfg(test)]
    pub(crate) const REGULAR: Self = Self { reserve: false, pageable: false };
    /// Whatever is pinned.
    pub(crate) const PINNED: Self = Self { reserve: true, pageable: false };
}

impl<M> FreeList<M> {
    /// The pageable bay.
    pub(crate) fn pageable(&self) -> BayId {
        BayId(self.bays.len() - 1)
    }

    /// Where a slot lives; `None` for one of the shards.
    pub(crate) fn bay_of(&self, slot: u32) -> Option<BayId> {
        if slot < self.regular {
            return None;
        }
        // In rising order, and an empty one begins where the next does.
        let above = self.bays.partition_point(|bay| bay.first + bay.slots <= slot);
        Some(BayId(above.min(self.bays.len() - 1)))
    }

    /// Whether a slot that lives there may be taken with this reach.
    pub(crate) fn is_within(&self, bay: Option<BayId>, reach: Reach) -> bool {
        match bay {
            Some(BayId::RESERVE) => reach.reserve,
            Some(bay) => reach.pageable || bay != self.pageable(),
            None => true,
        }
    }

    /// The slots that live in a bay.
    pub(crate) fn slots_of(&self, bay: BayId) -> Range<u32> {
        let Bay { first, slots, .. } = *self.bays[bay.0];
        first..first + slots
    }

    /// How many slots of a bay are free.
    pub(crate) fn free_in(&self, bay: BayId) -> u32 {
        self.depth(self.bays[bay.0].stack.head.load(Ordering::Acquire))
    }

    /// Opens a closed bay with all its slots, which the caller owns. False if the list is closed.
    ///
    /// Callers hold the waiters' lock, and then serve the waiters: this wakes nobody.
    pub(crate) fn open_bay(&self, bay: BayId) -> bool {
        !self.is_closed() && {
            self.fill(bay);
            true
        }
    }

    /// Takes a bay's free slots out and lets none in. Returns how many they were.
    pub(crate) fn close_bay(&self, bay: BayId) -> u32 {
        self.close_stack(&self.bays[bay.0].stack)
    }

    /// Takes one slot of a bay.
    pub(crate) fn pop_bay(&self, bay: BayId) -> Option<u32> {
        match self.pop_shard(&self.bays[bay.0].stack)? {
            Pop::Slot { slot, .. } => Some(slot),
            Pop::Empty | Pop::Closed => None,
        }
    }

    /// Puts all slots of a closed, empty bay into it and opens it.
    pub(super) fn fill(&self, bay: BayId) {
        let Range { start, end } = self.slots_of(bay);
        let mut above = NIL;
        for (depth, slot) in (1u32..).zip((start..end).rev()) {
            self.nodes[slot as usize].link.store(link(above, depth), Ordering::Relaxed);
            above = slot;
        }
        let stack = &self.bays[bay.0].stack;
        stack.low.store(end - start, Ordering::Relaxed);
        let mut head = stack.head.load(Ordering::Acquire);
        // Only the flags change meanwhile: nobody takes from a closed bay or gives to it.
        while let Err(now) = stack.head.compare_exchange_weak(
            head,
            next(head, above) & !CLOSED,
            Ordering::Release,
            Ordering::Acquire,
        ) {
            debug_assert!(top(now) == NIL && now & CLOSED != 0, "the bay is closed and empty");
            head = now;
        }
    }

    /// The stack in which a slot lives that is in no shard.
    #[cold]
    #[inline(never)]
    pub(super) fn stack_of(&self, slot: u32) -> &Shard {
        let bay = self.bay_of(slot).unwrap_or(BayId::RESERVE);
        &self.bays[bay.0].stack
    }

    /// The stacks of the bays within reach, in the order in which they are taken from.
    pub(super) fn within(&self, reach: Reach) -> impl Iterator<Item = &Shard> {
        let (first, last) = (0, self.bays.len() - 1);
        let slabs = self.bays[1..last].iter();
        let reserve = reach.reserve.then(|| &self.bays[first]);
        let pageable = reach.pageable.then(|| &self.bays[last]);
        slabs.chain(reserve).chain(pageable).map(|bay| &bay.stack)
    }

    /// All stacks.
    pub(super) fn stacks(&self) -> impl Iterator<Item = &Shard> {
        let shards = self.shards.iter().map(|shard| &**shard);
        shards.chain(self.bays.iter().map(|bay| &bay.stack))
    }
}

impl Shard {
    /// An empty stack that nothing may be given to.
    fn closed() -> Self {
        let shard = Self::new();
        Self { head: AtomicU64::new(u64::from(NIL) | CLOSED), ..shard }
    }
}
