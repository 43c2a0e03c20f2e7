//! A leased slot, and parts of a lease by range: they borrow it, so the slot cannot go home under them.

use std::fmt;
use std::ops::{Bound, Range, RangeBounds};

use bytemuck::Pod;

use crate::attached::Attached;
#[cfg(feature = "cuda")]
use crate::attached::{AnyFence, Order};
use crate::class::ClassRef;
use crate::error::{Error, LeaseError};

/// A part of a lease's elements.
#[derive(Clone, Copy)]
pub struct LeaseView<'a, T: Pod> {
    part: &'a [T],
    slot: SlotOf,
}

/// A part of a lease's elements, to write.
pub struct LeaseViewMut<'a, T: Pod> {
    part: &'a mut [T],
    slot: SlotOf,
}

/// The slot that a view is part of. The lease that the view borrows keeps it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotOf {
    pub(crate) class: ClassRef,
    pub(crate) slot: u32,
}

impl SlotOf {
    /// Attaches a fence: from now on the slot is not free before it is complete.
    pub(crate) fn attach(self, attached: Attached) {
        let class = self.class.get();
        if let Some(covered) = class.slot_state(self.slot).attach(attached) {
            class.shared().recycle(covered);
        }
    }

    /// Takes off a fence that is complete, unless another thread did so.
    pub(crate) fn take_off(self, attached: Attached) {
        let class = self.class.get();
        let over = class.slot_state(self.slot).remove(&attached.fence);
        // First: a fence that somebody else holds is not used again.
        drop(attached);
        if let Some(over) = over {
            class.shared().recycle(over.fence);
        }
    }

    /// Waits for the work that `wanted` picks. A fence that fails stays, so that the slot is
    /// quarantined when its holder lets go.
    pub(crate) fn wait_for(self, wanted: impl Fn(&Attached) -> bool) -> Result<(), Error> {
        let state = self.class.get().slot_state(self.slot);
        while let Some(attached) = state.find(&wanted) {
            attached.fence.wait()?;
            self.take_off(attached);
        }
        Ok(())
    }

    /// As [`Self::wait_for`], where nobody can be told of a failure.
    pub(crate) fn wait_logged(self, wanted: impl Fn(&Attached) -> bool) {
        let state = self.class.get().slot_state(self.slot);
        if !state.is_used() {
            return;
        }
        if let Err(error) = self.wait_for(wanted) {
            tracing::error!(%error, slot = self.slot, "work on a lease failed");
        }
    }

    /// Puts a new use on `stream` behind work on other streams: behind what writes the bytes, and if
    /// the new use writes them, behind all. Work on one stream is in order. `order` may have the
    /// stream wait for a fence; where it says that it did not, this waits.
    #[cfg(feature = "cuda")]
    pub(crate) fn come_behind_others(
        self,
        stream: u64,
        writes: bool,
        order: impl Fn(&AnyFence) -> bool,
    ) -> Result<(), Error> {
        let state = self.class.get().slot_state(self.slot);
        if !state.is_used() {
            return Ok(());
        }
        let other = |order: Order| order.stream != stream || stream == Order::NO_STREAM;
        for used in state.all(|used| (writes || used.writes) && other(used.order)) {
            if !order(&used.fence) {
                used.fence.wait()?;
                self.take_off(used);
            }
        }
        Ok(())
    }
}

impl<'a, T: Pod> LeaseView<'a, T> {
    pub(crate) fn new(part: &'a [T], slot: SlotOf) -> Self {
        Self { part, slot }
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn slot(&self) -> SlotOf {
        self.slot
    }

    /// Elements in the part.
    pub fn len(&self) -> usize {
        self.part.len()
    }

    /// True for an empty range.
    pub fn is_empty(&self) -> bool {
        self.part.is_empty()
    }

    /// The elements.
    pub fn as_slice(&self) -> &'a [T] {
        self.part
    }

    /// A part of the part.
    ///
    /// # Errors
    ///
    /// [`LeaseError::OutOfRange`] when the range does not lie within it.
    pub fn view(&self, range: impl RangeBounds<usize>) -> Result<Self, LeaseError> {
        Ok(Self { part: &self.part[within(&range, self.part.len())?], slot: self.slot })
    }
}

impl<'a, T: Pod> LeaseViewMut<'a, T> {
    pub(crate) fn new(part: &'a mut [T], slot: SlotOf) -> Self {
        Self { part, slot }
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn slot(&self) -> SlotOf {
        self.slot
    }

    /// Elements in the part.
    pub fn len(&self) -> usize {
        self.part.len()
    }

    /// True for an empty range.
    pub fn is_empty(&self) -> bool {
        self.part.is_empty()
    }

    /// The elements. Waits for work that may write them, as
    /// [`Lease::as_slice`](crate::Lease::as_slice) does.
    pub fn as_slice(&self) -> &[T] {
        self.slot.wait_logged(|used| used.writes);
        self.part
    }

    /// The elements, to write. Waits for all work on them, as
    /// [`Lease::as_mut_slice`](crate::Lease::as_mut_slice) does.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        self.slot.wait_logged(|_| true);
        self.part
    }

    /// The elements, whatever work is on them.
    #[cfg(feature = "cuda")]
    pub(crate) fn raw_slice(&self) -> &[T] {
        self.part
    }

    /// The elements to write, whatever work is on them.
    #[cfg(feature = "cuda")]
    pub(crate) fn raw_mut_slice(&mut self) -> &mut [T] {
        self.part
    }

    /// Two parts that can be written at the same time, the first `middle` elements long.
    ///
    /// # Errors
    ///
    /// [`LeaseError::OutOfRange`] when the part is shorter; the view is lost then, not the lease.
    pub fn split_at(self, middle: usize) -> Result<(Self, Self), LeaseError> {
        let len = self.part.len();
        let (left, right) = self
            .part
            .split_at_mut_checked(middle)
            .ok_or(LeaseError::OutOfRange { start: 0, end: middle, len })?;
        Ok((Self { part: left, slot: self.slot }, Self { part: right, slot: self.slot }))
    }
}

/// The range in numbers, if it lies within `len` elements.
pub(crate) fn within(
    range: &impl RangeBounds<usize>,
    len: usize,
) -> Result<Range<usize>, LeaseError> {
    let start = match range.start_bound() {
        Bound::Included(at) => *at,
        Bound::Excluded(at) => at.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(at) => at.saturating_add(1),
        Bound::Excluded(at) => *at,
        Bound::Unbounded => len,
    };
    if start > end || end > len {
        return Err(LeaseError::OutOfRange { start, end, len });
    }
    Ok(start..end)
}

impl<T: Pod> fmt::Debug for LeaseView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseView").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<T: Pod> fmt::Debug for LeaseViewMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseViewMut").field("len", &self.len()).finish_non_exhaustive()
    }
}
