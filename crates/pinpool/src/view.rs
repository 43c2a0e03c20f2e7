//! Parts of a lease, by range: they borrow it, so the slot cannot go home under them.

use std::fmt;
use std::ops::{Bound, Range, RangeBounds};

use bytemuck::Pod;

use crate::error::LeaseError;

/// A part of a lease's elements.
#[derive(Clone, Copy)]
pub struct LeaseView<'a, T: Pod> {
    part: &'a [T],
}

/// A part of a lease's elements, to write.
pub struct LeaseViewMut<'a, T: Pod> {
    part: &'a mut [T],
}

impl<'a, T: Pod> LeaseView<'a, T> {
    pub(crate) fn new(part: &'a [T]) -> Self {
        Self { part }
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
        Ok(Self { part: &self.part[within(&range, self.part.len())?] })
    }
}

impl<'a, T: Pod> LeaseViewMut<'a, T> {
    pub(crate) fn new(part: &'a mut [T]) -> Self {
        Self { part }
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
    pub fn as_slice(&self) -> &[T] {
        self.part
    }

    /// The elements, to write.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
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
        Ok((Self { part: left }, Self { part: right }))
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
