//! What is remembered about one slot, in ordinary memory and never inside the slab (I1).

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The state of one slot. Written by the slot's owner only; others read it for reports.
#[derive(Debug)]
pub(crate) struct SlotState {
    /// Twice the number of leases this slot has had, plus one while it is out. It tells a stale
    /// return from a true one (I14) and, summed over the slots, counts the leases of a class
    /// without a shared counter on the hot path.
    generation: AtomicU64,
    /// The holder's tag, 0 for none.
    tag: AtomicU32,
}

/// Low half of a slot's generation while it is leased: what a lease must show to give it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Generation(u32);

impl SlotState {
    pub(crate) fn new() -> Self {
        Self { generation: AtomicU64::new(0), tag: AtomicU32::new(0) }
    }

    /// Marks the slot leased. The caller took it from the free list, so it is the only writer (I2).
    #[inline]
    pub(crate) fn lease(&self) -> Generation {
        let generation = self.generation.load(Ordering::Relaxed).wrapping_add(1);
        debug_assert!(generation & 1 == 1, "a slot was handed out twice (I2)");
        self.generation.store(generation, Ordering::Relaxed);
        Generation::low(generation)
    }

    /// Marks the slot free, unless `held` is not the generation that was handed out: then the
    /// return is stale and the slot is not the caller's.
    #[inline]
    pub(crate) fn give_back(&self, held: Generation) -> bool {
        let generation = self.generation.load(Ordering::Relaxed);
        if Generation::low(generation) != held && !crate::seeded::bug("no-generation") {
            return false;
        }
        if self.tag.load(Ordering::Relaxed) != 0 {
            self.tag.store(0, Ordering::Relaxed);
        }
        self.generation.store(generation.wrapping_add(1), Ordering::Relaxed);
        true
    }

    /// How many times this slot was leased, the present lease included.
    pub(crate) fn leases(&self) -> u64 {
        self.generation.load(Ordering::Relaxed).div_ceil(2)
    }

    pub(crate) fn set_tag(&self, tag: u32) {
        self.tag.store(tag, Ordering::Relaxed);
    }

    pub(crate) fn tag(&self) -> u32 {
        self.tag.load(Ordering::Relaxed)
    }
}

impl Generation {
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the low half is what a lease carries")]
    fn low(generation: u64) -> Self {
        Self(generation as u32)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_second_return_of_one_lease_is_refused() {
        let slot = SlotState::new();
        let first = slot.lease();
        assert!(slot.give_back(first));
        assert!(!slot.give_back(first), "the slot is free: nothing to give back");
        let second = slot.lease();
        assert!(!slot.give_back(first), "the slot has another owner now");
        assert!(slot.give_back(second));
        assert_eq!(slot.leases(), 2);
    }

    #[test]
    fn a_tag_does_not_outlive_its_lease() {
        let slot = SlotState::new();
        let held = slot.lease();
        slot.set_tag(7);
        assert!(slot.give_back(held));
        let _held = slot.lease();
        assert_eq!(slot.tag(), 0);
    }
}
