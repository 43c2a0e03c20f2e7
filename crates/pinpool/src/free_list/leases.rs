//! What begins and ends a lease in the list's books: the short way over the calling thread's desk, stamps,
//! and counts with one writer each.

use super::{FreeList, NIL, Node, home, home_number, link};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// A slot that was taken from the calling thread's desk.
#[derive(Debug)]
pub(crate) struct Near<'a, M> {
    pub(crate) slot: u32,
    pub(crate) generation: Generation,
    pub(crate) meta: &'a M,
}

/// A slot's stamp while it is leased: what a lease must show to give it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Generation(u32);

impl<M> FreeList<M> {
    /// Leases a slot from the calling thread's desk: the short way.
    #[inline]
    pub(crate) fn take_near(&self) -> Option<Near<'_, M>> {
        self.take_near_from(home::known_home())
    }

    #[inline]
    pub(super) fn take_near_from(&self, home: u32) -> Option<Near<'_, M>> {
        let desk = self.desks.of(home)?;
        let slot = self.desks.pop(desk)?;
        let node = self.nodes.get(slot as usize)?;
        desk.count_lease();
        Some(Near { slot, generation: node.lease(), meta: &node.meta })
    }

    /// Gives a slot back to the calling thread's desk: the short way. False if nothing was done. After a
    /// `true` nothing of the list may be touched: the pool may be gone.
    #[inline]
    pub(crate) fn give_near(&self, slot: u32) -> bool {
        self.give_near_to(home::known_home(), slot)
    }

    #[inline]
    pub(super) fn give_near_to(&self, home: u32, slot: u32) -> bool {
        let desk = if slot < self.regular { self.desks.of(home) } else { None };
        desk.is_some_and(|desk| self.desks.push(desk, slot))
    }

    /// Marks a slot leased, which the caller took, and counts it.
    pub(crate) fn lease(&self, slot: u32) -> Generation {
        let home = home_number();
        match self.desks.of(home) {
            Some(desk) => desk.count_lease(),
            None => {
                self.tally(home).leases.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.nodes[slot as usize].lease()
    }

    /// Marks a slot returned, free or in flight, unless its stamp is not the one that was handed out: then
    /// the return is stale and the slot is not the caller's. Gives its metadata as well, for the short way.
    #[inline]
    pub(crate) fn take_back(&self, slot: u32, held: Generation) -> (&M, bool) {
        let node = &self.nodes[slot as usize];
        (&node.meta, node.take_back(held))
    }

    /// The present lease of a slot, told from others of it; `None` while nobody holds it.
    pub(crate) fn held_lease(&self, slot: u32) -> Option<u32> {
        let stamp = self.nodes[slot as usize].stamp.load(Ordering::Relaxed);
        (stamp & 1 == 1).then_some(stamp)
    }

    /// A number that is another one once somebody has leased one of these slots.
    pub(crate) fn usage(&self, slots: std::ops::Range<u32>) -> u64 {
        let stamp = |slot: u32| self.nodes[slot as usize].stamp.load(Ordering::Relaxed);
        slots.map(|slot| u64::from(stamp(slot))).sum()
    }

    /// Leases so far.
    pub(crate) fn leases(&self) -> u64 {
        let tallies = self.tallies.iter().map(|tally| tally.leases.load(Ordering::Relaxed));
        self.desks.leases() + tallies.sum::<u64>()
    }
}

impl<M> Node<M> {
    pub(super) fn new(meta: M) -> Self {
        Self { link: AtomicU64::new(link(NIL, 0)), stamp: AtomicU32::new(0), meta }
    }

    /// The caller took the slot, so it is the only writer (I2).
    #[inline]
    fn lease(&self) -> Generation {
        let stamp = self.stamp.load(Ordering::Relaxed).wrapping_add(1);
        debug_assert!(stamp & 1 == 1, "a slot was handed out twice (I2)");
        self.stamp.store(stamp, Ordering::Relaxed);
        Generation(stamp)
    }

    #[inline]
    fn take_back(&self, Generation(held): Generation) -> bool {
        let stamp = self.stamp.load(Ordering::Relaxed);
        if stamp != held && !crate::seeded::bug("no-generation") {
            return false;
        }
        self.stamp.store(stamp.wrapping_add(1), Ordering::Relaxed);
        true
    }
}
