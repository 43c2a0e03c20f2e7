//! How retired slots of a class come home: to who waits, into the free list, to be washed, to a closed
//! class's count, or into quarantine; and what follows once no lock is held.

use super::ClassRef;
use crate::attached::AnyFence;
use crate::error::Error;
use crate::free_list::{Pop, Push, Reach};
use crate::reclaim::Home;
use crate::slot::SlotState;
use crate::waiters::Handed;

/// One pass over the retired slots of a class.
pub(super) struct Homecoming {
    class: ClassRef,
    /// The pass is for one slot within this reach, and ends with it.
    wants: Option<Reach>,
    pub(super) found: Option<u32>,
    /// What is left to do for slots that went home while somebody waited.
    handed: Handed,
}

impl Homecoming {
    /// For all that is complete.
    pub(super) fn new(class: ClassRef) -> Self {
        Self { class, wants: None, found: None, handed: Handed::default() }
    }

    /// For one slot.
    pub(super) fn of_one(class: ClassRef, reach: Reach) -> Self {
        Self { wants: Some(reach), ..Self::new(class) }
    }
}

impl Home for Homecoming {
    fn state(&self, slot: u32) -> &SlotState {
        self.class.get().slot_state(slot)
    }

    fn settle(&mut self, slot: u32, shard: u32) {
        let class = self.class.get();
        if class.wash.is_needed() {
            // It stays in flight until it is washed.
            class.wash.add(slot);
            return;
        }
        // A pass for one slot takes it from its own shard at once.
        let pushed = match self.wants {
            Some(_) => class.list.push(slot),
            None => class.list.push_for(shard, slot),
        };
        match pushed {
            Push::Free => {}
            Push::Waited => self.handed.append(class.waiters.give(&class.list, slot)),
            Push::Closed => self.handed.homeless.push(slot),
        }
        // Last: who finds nothing in flight finds the slot in the list.
        class.land();
    }

    fn quarantine(&mut self, slot: u32, error: &Error) {
        self.class.quarantine(slot, error);
    }

    fn after(&mut self, fences: &mut dyn Iterator<Item = AnyFence>) {
        let class = self.class.get();
        for fence in fences {
            class.shared.recycle(fence);
        }
        self.class.settle_handed(std::mem::take(&mut self.handed));
    }

    fn enough(&mut self) -> bool {
        let Some(reach) = self.wants.filter(|_| self.found.is_none()) else {
            return self.wants.is_some();
        };
        if let Pop::Slot { slot, .. } = self.class.get().list.pop_within(reach) {
            self.found = Some(slot);
        }
        self.found.is_some()
    }
}
