//! A few slots under one head word, which is biased to one thread or anybody's to take from; see
//! [`desks`](super).

use super::MODELLED;
use super::desk::Desk;
use crate::free_list::home::NUMBERS;
use crate::free_list::tag_step;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Magazine {
    pub(super) head: AtomicU64,
    pub(super) slots: [AtomicU32; SLOTS],
}

/// A magazine is its owner's alone.
pub(super) struct Biased;

impl Magazine {
    pub(super) fn new() -> Self {
        Self { head: AtomicU64::new(0), slots: std::array::from_fn(|_| AtomicU32::new(0)) }
    }

    fn swap(&self, from: u64, to: u64) -> bool {
        self.head.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether it is nobody's and as `wanted`, a moment ago.
    pub(super) fn is_free(&self, wanted: impl Fn(u32) -> bool) -> bool {
        let head = self.head.load(Ordering::Acquire);
        head & BIASED == 0 && wanted(count(head))
    }

    /// Makes it the caller's alone, if it is nobody's and as `wanted`.
    pub(super) fn bias(&self, home: u32, wanted: impl Fn(u32) -> bool) -> bool {
        loop {
            let head = self.head.load(Ordering::Acquire);
            if head & BIASED != 0 || !wanted(count(head)) {
                return false;
            }
            let mine = head & !OWNER | u64::from(home) << OWNER_SHIFT | BIASED;
            if self.swap(head, next(mine, 0)) {
                return true;
            }
        }
    }

    /// Makes it everybody's, if it is the caller's, who is in no section.
    pub(super) fn unbias(&self, home: u32) {
        loop {
            let head = self.head.load(Ordering::Acquire);
            let mine = head & BIASED != 0 && owner(head) == home as usize;
            if !mine || self.swap(head, next(head & !BIASED, 0)) {
                return;
            }
        }
    }

    /// Makes it everybody's, if it is the owner's whose bias was turned `off` and who was waited for. False
    /// if that owner has turned it on again.
    pub(super) fn clear(&self, home: usize, desk: &Desk, off: u32) -> bool {
        loop {
            let head = self.head.load(Ordering::Acquire);
            if head & BIASED == 0 || owner(head) != home {
                return true;
            }
            // After the head was read: if it is as it was, nobody works in this magazine, and if not, the
            // tag has changed or changes before the owner works.
            if desk.bias.load(Ordering::Acquire) != off && !crate::seeded::bug("stale-clear") {
                return false;
            }
            if self.swap(head, next(head & !BIASED, 0)) {
                return true;
            }
        }
    }

    /// Takes a slot, unless the magazine is biased and somebody may work under that bias.
    pub(super) fn take(&self, calm: bool) -> Result<Option<u32>, Biased> {
        loop {
            let head = self.head.load(Ordering::Acquire);
            let Some(top) = (count(head) as usize).checked_sub(1) else { return Ok(None) };
            if head & BIASED != 0 && !calm {
                return Err(Biased);
            }
            let slot = self.slots[top].load(Ordering::Relaxed);
            if self.swap(head, next(head, -1)) {
                return Ok(Some(slot));
            }
        }
    }

    pub(super) fn take_all(&self) -> u32 {
        loop {
            let head = self.head.load(Ordering::Acquire);
            if self.swap(head, next(head & !(BIASED | COUNT), 0)) {
                return count(head);
            }
        }
    }
}

/// The number of the desk that the magazine is on, if it is biased.
#[allow(clippy::cast_possible_truncation, reason = "masked to eight bits")]
pub(super) fn owner(head: u64) -> usize {
    ((head & OWNER) >> OWNER_SHIFT) as usize
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "masked to four bits")]
pub(super) fn count(head: u64) -> u32 {
    (head & COUNT) as u32
}

/// The head after `head` with so many slots more or less: the tag rises.
#[inline]
pub(super) fn next(head: u64, more: i64) -> u64 {
    let head = head.wrapping_add_signed(more);
    if cfg!(loom) {
        let tag = (head >> TAG_SHIFT).wrapping_add(tag_step()) & 7;
        return tag << TAG_SHIFT | head & (OWNER | BIASED | COUNT);
    }
    head.wrapping_add(tag_step() << TAG_SHIFT)
}

/// The most slots in a magazine: with its head a cache line.
pub(super) const SLOTS: usize = if MODELLED { 2 } else { 14 };
const COUNT: u64 = 15;
pub(super) const BIASED: u64 = 16;
const OWNER_SHIFT: u32 = 5;
const OWNER: u64 = (NUMBERS as u64 - 1) << OWNER_SHIFT;
pub(super) const TAG_SHIFT: u32 = 13;
