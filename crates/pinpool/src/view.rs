//! A leased slot, and parts of a lease by range: they borrow it, so the slot cannot go home under them.

use std::fmt;
use std::ops::{Bound, Range, RangeBounds};

use bytemuck::Pod;

#[cfg(feature = "cuda")]
use crate::attached::{AnyFence, Order};
use crate::attached::{Attached, Part};
use crate::class::ClassRef;
use crate::error::{Error, LeaseError};
use crate::fence::FenceStatus;
use crate::foreign::tell;
use crate::sync::plain::{AtomicUsize, Ordering};

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
    /// The bytes that are meant.
    pub(crate) bytes: Part,
}

impl SlotOf {
    /// A part of these bytes: elements of `T`, counted from the part's start.
    fn part<T>(self, range: &Range<usize>) -> Self {
        let at = |element: usize| self.bytes.start.saturating_add(element * size_of::<T>());
        Self { bytes: Part { start: at(range.start), end: at(range.end) }, ..self }
    }

    /// Attaches a fence: from now on the slot is not free before it is complete.
    pub(crate) fn attach(self, attached: Attached) {
        let class = self.class.get();
        if !class.shared().is_here() {
            // In a forked child the slot's lock may be held for ever (I12).
            return;
        }
        let (covered, count) = class.slot_state(self.slot).attach(attached);
        if let Some(covered) = covered {
            class.shared().recycle(covered);
        }
        if count > FENCES_KEPT {
            self.prune(count);
        }
    }

    /// Takes off what is complete of a few fences, others at each call: a lease that is kept and used
    /// again and again must not collect them.
    #[cold]
    fn prune(self, count: usize) {
        let turn = TURN.fetch_add(PRUNED_AT_ONCE, Ordering::Relaxed);
        let state = self.class.get().slot_state(self.slot);
        for at in turn..turn + PRUNED_AT_ONCE {
            let Some(attached) = state.nth(at % count).filter(|one| one.fence.is_unborrowed())
            else {
                continue;
            };
            if matches!(attached.fence.poll(), Ok(FenceStatus::Complete)) {
                self.take_off(attached);
            }
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

    /// Waits for the work on these bytes that `wanted` picks, all of it even if some fails. A fence
    /// that fails stays, so that the slot is quarantined when its holder lets go.
    ///
    /// The caller may read the bytes (then `wanted` picks what writes) or write them (then all): so
    /// nobody is about to record what it waits for.
    pub(crate) fn wait_for(self, wanted: impl Fn(&Attached) -> bool) -> Result<(), Error> {
        let state = self.class.get().slot_state(self.slot);
        self.check_here()?;
        let mut outcome = Ok(());
        for attached in state.all(|used| wanted(used) && used.bytes.overlaps(self.bytes)) {
            match attached.fence.wait() {
                Ok(()) => self.take_off(attached),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    /// Refuses in a forked child: the work is the parent's, and the slot's lock may be held for ever
    /// (I12).
    pub(crate) fn check_here(self) -> Result<(), Error> {
        if self.class.get().shared().is_here() || crate::seeded::bug("child-waits") {
            return Ok(());
        }
        Err(Error::Lease(LeaseError::Forked))
    }

    /// As [`Self::wait_for`], where nobody can be told of a failure. In a forked child it waits for
    /// nothing.
    pub(crate) fn wait_logged(self, wanted: impl Fn(&Attached) -> bool) {
        let state = self.class.get().slot_state(self.slot);
        if !state.is_used() || self.check_here().is_err() {
            return;
        }
        if let Err(error) = self.wait_for(wanted) {
            tell!(error, %error, slot = self.slot, "work on a lease failed");
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
        let conflict = |used: &Attached| {
            (writes || used.writes) && other(used.order) && used.bytes.overlaps(self.bytes)
        };
        let mut outcome = Ok(());
        for used in state.all(conflict) {
            if order(&used.fence) {
                continue;
            }
            match used.fence.wait() {
                Ok(()) => self.take_off(used),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }
}

impl<'a, T: Pod> LeaseView<'a, T> {
    /// The elements `range` of `all`, which are the whole of `slot`.
    pub(crate) fn new(all: &'a [T], range: Range<usize>, slot: SlotOf) -> Self {
        Self { slot: slot.part::<T>(&range), part: &all[range] }
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
        let range = within(&range, self.part.len())?;
        let slot = self.slot.part::<T>(&range);
        Ok(Self { part: &self.part[range], slot })
    }
}

impl<'a, T: Pod> LeaseViewMut<'a, T> {
    /// The elements `range` of `all`, which are the whole of `slot`.
    pub(crate) fn new(all: &'a mut [T], range: Range<usize>, slot: SlotOf) -> Self {
        Self { slot: slot.part::<T>(&range), part: &mut all[range] }
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
        let (first, second) =
            (self.slot.part::<T>(&(0..middle)), self.slot.part::<T>(&(middle..len)));
        Ok((Self { part: left, slot: first }, Self { part: right, slot: second }))
    }
}

/// Whose turn it is to be pruned; any start does.
static TURN: AtomicUsize = AtomicUsize::new(0);
/// More fences than this on one held slot are rare.
const FENCES_KEPT: usize = 16;
/// More than one, so that the number falls again.
const PRUNED_AT_ONCE: usize = 4;

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
