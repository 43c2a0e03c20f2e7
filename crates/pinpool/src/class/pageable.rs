//! Pageable buffers, which stand in for the slots of an empty class: ordinary memory, allocated by whoever
//! needs it first and kept until it is idle.

use std::alloc::{Layout as Block, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use super::added::Added;
use super::{Class, ClassRef};
use crate::memory::limits::page_size;
use crate::sync::Ordering;
use crate::waiters::Handed;

impl Added {
    fn block(&self) -> Option<Block> {
        Block::from_size_align(self.buffer_bytes, page_size()).ok()
    }
}

impl Class {
    /// True for a slot whose memory is pageable.
    pub(crate) fn is_pageable(&self, slot: u32) -> bool {
        slot >= self.first_slab && self.list.bay_of(slot) == Some(self.list.pageable())
    }

    /// A pageable slot, if the class may use them and one is left.
    pub(super) fn pop_pageable(&self) -> Option<u32> {
        self.list.pop_bay(self.list.pageable())
    }

    /// Sees to it that a slot, which the caller owns, has memory. False if the system has none.
    pub(super) fn back(&self, slot: u32) -> bool {
        if !self.is_pageable(slot) {
            return true;
        }
        let buffer = &self.added.buffers[self.place(slot).1];
        if buffer.load(Ordering::Relaxed) == 0 {
            // SAFETY: the layout is not empty: a slot has at least one byte.
            let block = self.added.block().map(|block| unsafe { alloc_zeroed(block) });
            let Some(start) = block.and_then(NonNull::new) else { return false };
            self.prepare(start);
            buffer.store(start.as_ptr().expose_provenance(), Ordering::Relaxed);
            // Who sleeps for good must see to it that the buffer goes when it is idle.
            self.shared.ring_for_growth();
        }
        self.added.counts.pageable.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Takes the buffer from a pageable slot, which the caller owns.
    fn take_buffer(&self, place: usize) -> usize {
        self.added.buffers[place].swap(0, Ordering::Relaxed)
    }

    /// Frees a buffer that was taken from its slot. Returns its bytes; 0 where there was none.
    fn free_buffer(&self, address: usize) -> u64 {
        let start = std::ptr::with_exposed_provenance_mut::<u8>(address);
        let Some(block) = self.added.block().filter(|_| address != 0) else { return 0 };
        // SAFETY: I2, the slot's owner took the address out, once; it came of `back` with this layout.
        unsafe { dealloc(start, block) };
        self.added.buffer_bytes as u64
    }

    /// Frees all pageable buffers: every slot is home, or the class goes.
    pub(super) fn unback_all(&self) {
        (0..self.added.buffers.len()).for_each(|place| {
            self.free_buffer(self.take_buffer(place));
        });
    }
}

impl ClassRef {
    /// Frees the buffers of pageable slots that nobody has.
    pub(super) fn free_buffers(self) -> u64 {
        let class = self.get();
        let mut taken = Vec::new();
        while let Some(slot) = class.list.pop_bay(class.list.pageable()) {
            taken.push(slot);
        }
        // Back at once: whoever leases meanwhile is refused. Freeing gives pages back to the system.
        let unbacked: Vec<_> =
            taken.iter().map(|slot| class.take_buffer(class.place(*slot).1)).collect();
        let mut handed = Handed::default();
        for slot in taken {
            handed.append(class.waiters.give(&class.list, slot));
        }
        self.settle_handed(handed);
        unbacked.into_iter().map(|address| class.free_buffer(address)).sum()
    }
}
