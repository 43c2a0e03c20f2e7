//! How slots of a class come back: to the free list, to who waits, to be reclaimed later, or to a closed
//! class's count.

use super::{ClassRef, Taken};
use crate::free_list::Push;
use crate::waiters::Handed;

/// Whether a slot was counted as in flight before its holder let go of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Departed {
    /// By the copy that held it.
    Before,
    /// A lease with fences was dropped: it is now.
    Now,
}

impl ClassRef {
    /// Gives a slot back, now or once its fences are complete. The caller owned it, and does not use
    /// this reference again for it.
    #[inline]
    pub(crate) fn give_back(self, taken: Taken) {
        let class = self.get();
        let (state, taken_back) = class.list.take_back(taken.slot, taken.generation);
        if !taken_back {
            class.stale_return(taken.slot);
        } else if state.is_used() || !class.list.give_near(taken.slot) {
            self.give_further(taken.slot);
        }
        // The pool may be gone by now: nothing of it is touched after this.
    }

    /// Gives a slot back, which is marked as returned, to anywhere but the calling thread's desk as it is.
    #[cold]
    #[inline(never)]
    fn give_further(self, slot: u32) {
        let class = self.get();
        // What is washed on its way is at no desk.
        if class.list.meta(slot).is_used() || class.wash.is_needed() {
            return self.retire_returned(slot, Departed::Now);
        }
        match class.list.push(slot) {
            Push::Free => {}
            Push::Waited => self.give_back_waking(slot),
            Push::Closed => self.arrive(slot),
        }
    }

    /// Leaves a slot with fences to whoever sees them complete. Waits for nothing.
    #[inline(never)]
    pub(crate) fn retire(self, taken: Taken, departed: Departed) {
        let class = self.get();
        if class.list.take_back(taken.slot, taken.generation).1 {
            self.retire_returned(taken.slot, departed);
        } else {
            class.stale_return(taken.slot);
        }
    }

    fn retire_returned(self, slot: u32, departed: Departed) {
        let class = self.get();
        let state = class.list.meta(slot);
        if departed == Departed::Now {
            class.depart();
        }
        if crate::seeded::bug("scrubs-early") {
            class.launder(slot);
        }
        // Somebody waits: the keeper must hurry.
        let quiet = !class.list.is_watched();
        if !(quiet && class.reclaim.retire(slot, state)) {
            self.retire_waking(slot);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn retire_waking(self, slot: u32) {
        let class = self.get();
        if !class.shared.is_here() {
            // A forked child has no keeper, and its bell may be held for ever (I12).
            return;
        }
        // Whoever gets the slot may drop the pool before we have rung.
        class.lifetime.hold();
        class.reclaim.retire_waking(slot, class.list.meta(slot));
        if !crate::seeded::bug("silent-retire") {
            class.shared.bell.ring();
        }
        if class.lifetime.end_hold() {
            self.all_home();
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn give_back_waking(self, slot: u32) {
        let class = self.get();
        if !class.shared.is_here() {
            // In a forked child nobody waits, and the queue's lock may be held for ever (I12).
            return;
        }
        // Whoever gets the slot may drop the pool before we have woken anybody.
        class.lifetime.hold();
        self.hand_over(slot);
        if class.lifetime.end_hold() {
            self.all_home();
        }
    }

    /// Gives a slot that the caller owns to the free list, or to who waits for it. The caller keeps the class
    /// alive.
    pub(super) fn send_home(self, slot: u32) {
        match self.get().list.push(slot) {
            Push::Free => {}
            Push::Waited => self.hand_over(slot),
            Push::Closed => self.arrive(slot),
        }
    }

    /// Hands a slot to the first in line, or to the list if there is none by now.
    pub(super) fn hand_over(self, slot: u32) {
        let class = self.get();
        self.settle_handed(class.waiters.give(&class.list, slot));
    }

    /// Wakes whoever was served, and counts home what a closed list did not take.
    pub(super) fn settle_handed(self, handed: Handed) {
        handed.wake().into_iter().for_each(|slot| self.arrive(slot));
    }

    /// Counts a slot of a closed list or bay home; the last one lets the memory go.
    #[cold]
    #[inline(never)]
    pub(super) fn arrive(self, slot: u32) {
        let class = self.get();
        if !class.shared.is_here() && !crate::seeded::bug("child-unmaps") {
            // The parent's: its memory is not here (I12).
            return;
        }
        // Whoever else comes home may be the last.
        class.lifetime.hold();
        if slot >= class.first_slab {
            self.arrive_added(slot);
        } else {
            class.lifetime.arrive();
        }
        // Quarantined slots never come home: once they alone are out, nobody else tells the keeper.
        if class.has_lost() && class.is_done() {
            class.shared.bell.ring();
        }
        if class.lifetime.end_hold() {
            self.all_home();
        }
    }
}
