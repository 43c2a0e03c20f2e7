//! A lease with several readers: the slot goes home after the last of them.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::RangeBounds;

use bytemuck::Pod;

use crate::attached::Attached;
use crate::error::{ClassName, Error, LeaseError};
use crate::fence::{Fence, FenceStatus};
use crate::lease::Lease;
use crate::size_class::ClassId;
use crate::view::LeaseView;

/// One slot with several holders, who may all read it and copy it to devices, and none may write.
///
/// A clone is as cheap as a counter: it allocates nothing. The slot goes home once the last clone is
/// dropped and every copy from it is complete.
#[must_use = "dropping the last clone gives the slot back"]
pub struct SharedLease<T: Pod = u8> {
    /// Taken out once, by the last clone's drop.
    lease: ManuallyDrop<Lease<T>>,
}

impl<T: Pod> Lease<T> {
    /// Gives up the right to write, so that there may be several holders.
    pub fn share(self) -> SharedLease<T> {
        // Work that writes must be over before anybody reads.
        self.wait_written();
        SharedLease { lease: ManuallyDrop::new(self) }
    }
}

impl<T: Pod> SharedLease<T> {
    /// The elements in use.
    pub fn as_slice(&self) -> &[T] {
        self.lease.as_slice()
    }

    /// Elements in use.
    pub fn len(&self) -> usize {
        self.lease.len()
    }

    /// True if the lease was shared after `set_len(0)`.
    pub fn is_empty(&self) -> bool {
        self.lease.is_empty()
    }

    /// The first element's address.
    pub fn as_ptr(&self) -> *const T {
        self.lease.as_ptr()
    }

    /// A part of the elements in use.
    ///
    /// # Errors
    ///
    /// [`LeaseError::OutOfRange`] when the range does not lie within them.
    pub fn view(&self, range: impl RangeBounds<usize>) -> Result<LeaseView<'_, T>, LeaseError> {
        self.lease.view(range)
    }

    /// The size class.
    pub fn class(&self) -> ClassId {
        self.lease.class()
    }

    /// The size class's name.
    pub fn class_name(&self) -> ClassName {
        self.lease.class_name()
    }

    /// The slot's number within its class.
    pub fn slot(&self) -> u32 {
        self.lease.slot()
    }

    /// Lets go of this clone. The slot does not come home before `fence` is complete as well.
    pub fn retire_after(self, fence: impl Fence) {
        self.lease.attach(Attached::user(fence));
    }

    /// Waits for the copies from this lease, and other work on it, that the pool knows of by now.
    /// Not for copies by cudarc's own calls in other threads, which may be about to begin.
    ///
    /// # Errors
    ///
    /// Some of it failed. The slot will be quarantined.
    pub fn wait(&self) -> Result<(), Error> {
        self.lease.slot_of().check_here()?;
        let used = self.lease.state().all(|attached| attached.fence.is_unborrowed());
        let mut outcome = Ok(());
        for attached in used {
            outcome = outcome.and(attached.fence.wait());
        }
        outcome
    }

    /// The lease again, to write to: if this is the last clone and no copy is in flight.
    ///
    /// # Errors
    ///
    /// This value again, otherwise. A copy that failed counts as in flight for ever.
    pub fn into_lease(self) -> Result<Lease<T>, Self> {
        let sole = self.lease.state().is_sole_share();
        if !sole || !matches!(self.lease.settle(), Ok(FenceStatus::Complete)) {
            return Err(self);
        }
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so the lease is taken out once.
        Ok(unsafe { ManuallyDrop::take(&mut this.lease) })
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn lease(&self) -> &Lease<T> {
        &self.lease
    }
}

impl<T: Pod> Clone for SharedLease<T> {
    fn clone(&self) -> Self {
        self.lease.state().clone_share();
        Self { lease: ManuallyDrop::new(self.lease.alias()) }
    }
}

impl<T: Pod> Drop for SharedLease<T> {
    fn drop(&mut self) {
        if self.lease.state().drop_share() {
            // SAFETY: this is the last clone (I2) and drops once.
            unsafe { ManuallyDrop::drop(&mut self.lease) };
        }
    }
}

impl<T: Pod> AsRef<[T]> for SharedLease<T> {
    fn as_ref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<T: Pod> fmt::Debug for SharedLease<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedLease").field(&*self.lease).finish()
    }
}
