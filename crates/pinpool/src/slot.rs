//! What is remembered about one slot, in ordinary memory and never inside the slab (I1).

use std::time::Instant;

use crate::attached::{AnyFence, Attached};
use crate::sync::{AtomicU32, Mutex, Ordering};

/// The state of one slot. Written by the slot's owner only; others read it for reports.
#[derive(Debug)]
pub(crate) struct SlotState {
    /// The holder's tag, 0 for none. That of the last holder stays until the next one comes.
    tag: AtomicU32,
    /// Clones of a shared lease, beside the first.
    clones: AtomicU32,
    /// [`READ`] and [`WRITTEN`], for the fences below: what a holder must look at before it touches
    /// or returns the slot. `Release` in `attach` pairs with `Acquire` in the readers.
    uses: AtomicU32,
    /// The next slot in the reclaim inbox, while this one is in it.
    next: AtomicU32,
    /// Uses of the bytes that may not be over. Never contended but by holders of one shared lease.
    fences: Mutex<Vec<Attached>>,
}

/// Some fence stands for work that reads the bytes.
const READ: u32 = 1;
/// Some fence stands for work that may write the bytes.
const WRITTEN: u32 = 2;

impl SlotState {
    pub(crate) fn new() -> Self {
        Self {
            tag: AtomicU32::new(0),
            clones: AtomicU32::new(0),
            uses: AtomicU32::new(0),
            next: AtomicU32::new(0),
            fences: Mutex::new(Vec::new()),
        }
    }

    /// A lease begins. The caller took the slot from the free list, so it is the only writer (I2).
    #[inline]
    pub(crate) fn begin(&self) {
        debug_assert!(!self.is_used(), "a slot was handed out in flight (I3)");
        if self.tag.load(Ordering::Relaxed) != 0 {
            self.tag.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_tag(&self, tag: u32) {
        self.tag.store(tag, Ordering::Relaxed);
    }

    pub(crate) fn tag(&self) -> u32 {
        self.tag.load(Ordering::Relaxed)
    }

    /// One more holder of a shared lease. The caller is one, so that the slot stays theirs.
    pub(crate) fn clone_share(&self) {
        // Clones that are forgotten by the thousand million would make the count wrap, and the slot
        // free while it is held: the standard library's `Arc` gives up in the same way.
        if self.clones.fetch_add(1, Ordering::Relaxed) > u32::MAX / 2 {
            std::process::abort();
        }
    }

    /// One holder less. True for the last, who owns the slot alone then: everything that the others
    /// did happened before.
    pub(crate) fn drop_share(&self) -> bool {
        // Alone already: nobody else can clone.
        if self.clones.load(Ordering::Acquire) == 0 {
            return true;
        }
        // `Release` for those before the last, `Acquire` for the last. Below zero means none left.
        if self.clones.fetch_sub(1, Ordering::AcqRel) == 0 {
            self.clones.store(0, Ordering::Relaxed);
            return true;
        }
        false
    }

    /// True while the caller is the only holder.
    pub(crate) fn is_sole_share(&self) -> bool {
        self.clones.load(Ordering::Acquire) == 0
    }

    /// Some work may still use the bytes.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.uses.load(Ordering::Acquire) != 0
    }

    /// Some work may still write the bytes.
    #[inline]
    pub(crate) fn is_written(&self) -> bool {
        self.uses.load(Ordering::Acquire) & WRITTEN != 0
    }

    /// Attaches a fence. The caller holds the slot. Gives back an older fence of the same stream,
    /// which the new one stands for as well, and how many there are now.
    #[must_use]
    pub(crate) fn attach(&self, mut attached: Attached) -> (Option<AnyFence>, usize) {
        let mut fences = self.fences.lock();
        let old = fences.iter().position(|old| attached.covers(old));
        let old = old.map(|at| fences.swap_remove(at));
        attached.writes |= old.as_ref().is_some_and(|old| old.writes);
        let uses = if attached.writes { WRITTEN } else { READ };
        fences.push(attached);
        self.uses.fetch_or(uses, Ordering::Release);
        (old.map(|old| old.fence), fences.len())
    }

    /// One of the fences, by its present place. The caller holds the slot.
    pub(crate) fn nth(&self, at: usize) -> Option<Attached> {
        self.fences.lock().get(at).cloned()
    }

    /// Takes a fence off. The caller owns the slot alone.
    pub(crate) fn detach(&self) -> Option<Attached> {
        let mut fences = self.fences.lock();
        let last = fences.pop();
        if fences.is_empty() {
            self.uses.store(0, Ordering::Release);
        }
        last
    }

    /// The fence that [`Self::detach`] would take off. The caller owns the slot alone.
    pub(crate) fn last(&self) -> Option<Attached> {
        self.fences.lock().last().cloned()
    }

    /// A fence that `wanted` picks; it stays attached. The caller holds the slot.
    #[cfg(feature = "cuda")]
    pub(crate) fn find(&self, wanted: impl Fn(&Attached) -> bool) -> Option<Attached> {
        self.fences.lock().iter().find(|attached| wanted(attached)).cloned()
    }

    /// All fences that `wanted` picks; they stay attached. The caller holds the slot.
    pub(crate) fn all(&self, wanted: impl Fn(&Attached) -> bool) -> Vec<Attached> {
        self.fences.lock().iter().filter(|attached| wanted(attached)).cloned().collect()
    }

    /// Takes a fence off that is complete and that nobody borrows. The caller holds the slot.
    pub(crate) fn remove(&self, fence: &AnyFence) -> Option<Attached> {
        let mut fences = self.fences.lock();
        let at = fences.iter().position(|attached| attached.fence.is(fence))?;
        let removed = fences.swap_remove(at);
        let left = fences.iter().map(|left| if left.writes { WRITTEN } else { READ });
        self.uses.store(left.fold(0, |all, one| all | one), Ordering::Release);
        Some(removed)
    }

    /// Since when some work uses the bytes, if any does. Anyone may ask.
    pub(crate) fn used_since(&self) -> Option<Instant> {
        if !self.is_used() {
            return None;
        }
        self.fences.lock().iter().map(|attached| attached.since).min()
    }

    /// The next slot in the inbox.
    pub(crate) fn next(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    /// Sets the next slot in the inbox. The caller retires the slot.
    pub(crate) fn set_next(&self, slot: u32) {
        self.next.store(slot, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_tag_does_not_outlive_its_lease() {
        let slot = SlotState::new();
        slot.begin();
        slot.set_tag(7);
        slot.begin();
        assert_eq!(slot.tag(), 0);
    }
}
