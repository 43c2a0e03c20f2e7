//! What the simulator sees of a class beyond its counts.

use super::Class;
use crate::free_list::Reach;
use crate::waiters::Line;

impl Class {
    /// The added slabs whose slots can be handed out, as bits.
    pub(crate) fn open_slabs(&self) -> u64 {
        self.added.open_slabs()
    }

    /// Those who wait, and what they got.
    pub(crate) fn line(&self) -> Line {
        self.waiters.line()
    }

    /// Slots in the list that somebody with this reach may take.
    pub(crate) fn free_within(&self, reach: Reach) -> u32 {
        self.list.census(reach).0
    }

    /// All slots of which each has a record.
    pub(crate) fn records(&self) -> u32 {
        self.list.slots()
    }
}
