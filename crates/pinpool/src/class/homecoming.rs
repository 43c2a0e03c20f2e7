//! How retired slots of a class come home: into the free list, to a closed class's count, or into
//! quarantine; and what follows once no lock is held.

use super::ClassRef;
use crate::attached::{AnyFence, Attached};
use crate::error::Error;
use crate::free_list::{Pop, Push};
use crate::reclaim::Home;
use crate::slot::SlotState;

/// One pass over the retired slots of a class.
pub(super) struct Homecoming {
    class: ClassRef,
    /// The pass is for one slot, and ends with it.
    wants: bool,
    pub(super) found: Option<u32>,
    /// Slots that went home while somebody waited.
    wakes: u32,
    /// Slots of a closed class.
    arrived: u32,
}

impl Homecoming {
    /// For all that is complete.
    pub(super) fn new(class: ClassRef) -> Self {
        Self { class, wants: false, found: None, wakes: 0, arrived: 0 }
    }

    /// For one slot.
    pub(super) fn of_one(class: ClassRef) -> Self {
        Self { wants: true, ..Self::new(class) }
    }
}

impl Home for Homecoming {
    fn state(&self, slot: u32) -> &SlotState {
        self.class.get().slot_state(slot)
    }

    fn settle(&mut self, slot: u32, last: &Attached) {
        let class = self.class.get();
        // A pass for one slot takes it from its own shard at once.
        let pushed =
            if self.wants { class.list.push(slot) } else { class.list.push_for(last.shard, slot) };
        let pushed = match pushed {
            Push::Waited => {
                self.wakes += 1;
                class.list.push_waited(slot)
            }
            done => done,
        };
        self.arrived += u32::from(pushed == Push::Closed);
        // Last: who finds nothing in flight finds the slot in the list.
        class.land();
    }

    fn quarantine(&mut self, slot: u32, error: &Error) {
        self.class.get().quarantine(slot, error);
    }

    fn after(&mut self, fences: &mut dyn Iterator<Item = AnyFence>) {
        let class = self.class.get();
        for fence in fences {
            class.shared.recycle(fence);
        }
        for _ in 0..std::mem::take(&mut self.wakes) {
            class.waiters.wake_one();
        }
        for _ in 0..std::mem::take(&mut self.arrived) {
            self.class.arrive();
        }
    }

    fn enough(&mut self) -> bool {
        if !self.wants || self.found.is_some() {
            return self.wants;
        }
        if let Pop::Slot { slot, .. } = self.class.get().list.pop() {
            self.found = Some(slot);
        }
        self.found.is_some()
    }
}
