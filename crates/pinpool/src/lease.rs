//! An owned slot: its bytes, its length, its type; dropping it gives the slot back.

use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, size_of};
use std::ops::RangeBounds;
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::Pod;

use crate::attached::{Attached, Part};
use crate::class::{ClassRef, Taken};
use crate::error::{ClassName, Error, LeaseError};
use crate::fence::FenceStatus;
use crate::memory::BackendKind;
use crate::size_class::ClassId;
use crate::slot::SlotState;
use crate::tag::Tag;
use crate::view::{LeaseView, LeaseViewMut, SlotOf, within};

/// A slot of pinned memory that belongs to the holder alone, as `len` elements of `T`.
///
/// It is four words, moves between threads and outlives the pool safely. Dropping it waits for
/// nothing, and makes no system call unless somebody waits for a slot or the pool is closed and this
/// is its last lease; forgetting it costs its slot and no more. While work that the pool knows of
/// still uses the bytes, a dropped lease's slot stays in flight and comes home by itself.
///
/// The contents are those of the slot's previous owner (zero for a fresh slab), unless its class scrubs
/// ([`Scrub`](crate::Scrub)). Any bytes are valid values of a [`Pod`] type, so reading them is safe.
///
/// There is no `Deref` to a slice on purpose: a plain slice of pinned memory passed to a GPU library
/// starts a copy that nobody waits for.
#[must_use = "dropping a lease gives its slot back at once"]
pub struct Lease<T: Pod = u8> {
    class: ClassRef,
    taken: Taken,
    start: NonNull<T>,
    len: usize,
    owns: PhantomData<T>,
}

// SAFETY: I2, the lease is the slot's only owner, so it moves like a `Box<[T]>`.
unsafe impl<T: Pod + Send> Send for Lease<T> {}
// SAFETY: shared access to a lease only reads, like a `Box<[T]>`.
unsafe impl<T: Pod + Sync> Sync for Lease<T> {}

impl Lease<u8> {
    /// Takes over a slot. `len` bytes fit it.
    #[inline]
    pub(crate) fn new(class: ClassRef, taken: Taken, len: usize) -> Self {
        debug_assert!(len <= class.get().slot_bytes(), "the request fits the slot");
        Self { class, taken, start: class.get().slot_ptr(taken.slot), len, owns: PhantomData }
    }

    /// As [`Self::new`], for a slot of the first slab.
    #[inline]
    pub(crate) fn of_first_slab(class: ClassRef, taken: Taken, len: usize) -> Self {
        debug_assert!(len <= class.get().slot_bytes(), "the request fits the slot");
        let start = class.get().first_slab_ptr(taken.slot);
        Self { class, taken, start, len, owns: PhantomData }
    }
}

impl<T: Pod> Lease<T> {
    /// Elements in use: as many as were asked for.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True after `set_len(0)`; a fresh lease is never empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Elements that the slot has room for.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.class.get().slot_bytes() / size_of::<T>().max(1)
    }

    /// Changes how many elements are in use, up to the capacity; new ones hold what the slot held.
    ///
    /// # Errors
    ///
    /// [`LeaseError::OutOfRange`] past the capacity; the length stays.
    pub fn set_len(&mut self, len: usize) -> Result<(), LeaseError> {
        let capacity = self.capacity();
        if len > capacity {
            return Err(LeaseError::OutOfRange { start: 0, end: len, len: capacity });
        }
        self.len = len;
        Ok(())
    }

    /// The elements in use.
    ///
    /// Waits for work that may write them and that the pool knows of: copies that cudarc's own calls
    /// queued, and what `record_use` was told. If such work fails, the bytes are what the device left.
    #[inline]
    pub fn as_slice(&self) -> &[T] {
        if self.state().is_written() {
            self.wait_written();
        }
        self.raw_slice()
    }

    /// The elements in use, whatever work is on them.
    #[inline]
    pub(crate) fn raw_slice(&self) -> &[T] {
        // SAFETY: I1 and I2, the slot is mapped, initialised and ours; `len` fits it, and any bytes
        // are a valid `T`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The elements in use, to write.
    ///
    /// Waits for all work on them that the pool knows of, as [`Self::as_slice`] does for writes.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        if self.state().is_used() {
            self.wait_used();
        }
        self.raw_mut_slice()
    }

    /// The elements in use to write, whatever work is on them.
    #[inline]
    pub(crate) fn raw_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as `raw_slice`, and `&mut self` makes it the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// The first element's address. Work of others that is given it is invisible to the pool until
    /// `record_use` tells of it.
    #[inline]
    pub fn as_ptr(&self) -> *const T {
        self.start.as_ptr()
    }

    /// The first element's address, to write.
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.start.as_ptr()
    }

    /// A part of the elements in use.
    ///
    /// # Errors
    ///
    /// [`LeaseError::OutOfRange`] when the range does not lie within them.
    pub fn view(&self, range: impl RangeBounds<usize>) -> Result<LeaseView<'_, T>, LeaseError> {
        let range = within(&range, self.len)?;
        Ok(LeaseView::new(self.as_slice(), range, self.slot_of()))
    }

    /// A part of the elements in use, to write.
    ///
    /// # Errors
    ///
    /// As [`Self::view`].
    pub fn view_mut(
        &mut self,
        range: impl RangeBounds<usize>,
    ) -> Result<LeaseViewMut<'_, T>, LeaseError> {
        let range = within(&range, self.len)?;
        let slot = self.slot_of();
        Ok(LeaseViewMut::new(self.as_mut_slice(), range, slot))
    }

    /// The bytes in use as elements of another type.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Misaligned`] when the address or the length does not suit `U`.
    pub fn typed<U: Pod>(&self) -> Result<&[U], LeaseError> {
        self.check_cast::<U>()?;
        bytemuck::try_cast_slice(self.as_slice()).map_err(|_| misaligned::<U>(0))
    }

    /// The bytes in use as elements of another type, to write.
    ///
    /// # Errors
    ///
    /// As [`Self::typed`].
    pub fn typed_mut<U: Pod>(&mut self) -> Result<&mut [U], LeaseError> {
        self.check_cast::<U>()?;
        bytemuck::try_cast_slice_mut(self.as_mut_slice()).map_err(|_| misaligned::<U>(0))
    }

    /// The same slot as a lease of another type.
    ///
    /// # Errors
    ///
    /// As [`Self::typed`], with the lease unchanged.
    pub fn cast<U: Pod>(self) -> Result<Lease<U>, (Self, LeaseError)> {
        match self.check_cast::<U>() {
            Err(error) => Err((self, error)),
            Ok(len) => {
                let old = ManuallyDrop::new(self);
                let start = old.start.cast();
                Ok(Lease { class: old.class, taken: old.taken, start, len, owns: PhantomData })
            }
        }
    }

    /// Elements of `U` in the bytes in use.
    fn check_cast<U: Pod>(&self) -> Result<usize, LeaseError> {
        let bytes = self.len * size_of::<T>();
        if size_of::<U>() == 0 {
            return Err(LeaseError::ZeroLen);
        }
        if !self.start.cast::<U>().is_aligned() {
            return Err(misaligned::<U>(0));
        }
        match bytes % size_of::<U>() {
            0 => Ok(bytes / size_of::<U>()),
            leftover => Err(misaligned::<U>(leftover)),
        }
    }

    /// Names the holder. Anyone who has the lease can read the name; it goes when the slot goes home.
    pub fn set_tag(&mut self, tag: Tag) {
        self.class.get().slot_state(self.taken.slot).set_tag(tag.number());
    }

    /// The holder's name.
    pub fn tag(&self) -> Option<Arc<str>> {
        Tag::name(self.class.get().slot_state(self.taken.slot).tag())
    }

    /// The size class's name.
    pub fn class_name(&self) -> ClassName {
        self.class.get().name()
    }

    /// The size class.
    pub fn class(&self) -> ClassId {
        self.class.get().id()
    }

    /// The slot's number within its class.
    pub fn slot(&self) -> u32 {
        self.taken.slot
    }

    /// True when every page is locked in RAM: it is never swapped out. Only
    /// [`Self::is_device_accessible`] tells whether a GPU can copy from it without staging.
    pub fn is_pinned(&self) -> bool {
        self.class.get().is_locked(self.taken.slot)
    }

    /// True when the memory is registered with the CUDA driver, so that copies run at the speed of
    /// the link and kernels can reach it.
    pub fn is_device_accessible(&self) -> bool {
        self.class.get().is_device_accessible() && !self.is_pageable()
    }

    /// True for a pageable buffer, which stands in for a pinned slot with `on_empty = "pageable"`: copies
    /// from it and to it are staged by the driver, at a fraction of the speed.
    pub fn is_pageable(&self) -> bool {
        self.class.get().is_pageable(self.taken.slot)
    }

    /// What the memory is.
    pub fn backend(&self) -> BackendKind {
        if self.is_pageable() { BackendKind::Pageable } else { self.class.get().backend() }
    }

    /// The driver can copy from it and to it, staged or not.
    #[cfg(feature = "cuda")]
    pub(crate) fn is_copyable(&self) -> bool {
        self.class.get().is_device_accessible()
    }

    /// The address at which a GPU reads and writes this memory in place, without a copy. `None`
    /// where no GPU can.
    ///
    /// A kernel that uses the address is invisible to the pool: tell it with `record_use` behind the
    /// launch, or wait for the kernel before the lease is dropped.
    pub fn device_ptr(&self) -> Option<u64> {
        self.class.get().device_address(self.taken.slot)
    }

    pub(crate) fn class_ref(&self) -> ClassRef {
        self.class
    }

    pub(crate) fn slot_of(&self) -> SlotOf {
        let bytes = Part { start: 0, end: self.class.get().slot_bytes() };
        SlotOf { class: self.class, slot: self.taken.slot, bytes }
    }

    pub(crate) fn taken(&self) -> Taken {
        self.taken
    }

    #[inline]
    pub(crate) fn state(&self) -> &SlotState {
        self.class.get().slot_state(self.taken.slot)
    }

    /// Attaches a fence: from now on the slot is not free before it is complete.
    pub(crate) fn attach(&self, attached: Attached) {
        self.slot_of().attach(attached);
    }

    /// The same slot once more. The caller sees to it that only one of the two is dropped.
    pub(crate) fn alias(&self) -> Self {
        let Self { class, taken, start, len, owns } = *self;
        Self { class, taken, start, len, owns }
    }

    /// Waits for work that may write the bytes. Such a fence is taken off: whoever attached it held
    /// the lease alone, and does so no more.
    #[cold]
    #[inline(never)]
    pub(crate) fn wait_written(&self) {
        self.slot_of().wait_logged(|used| used.writes);
    }

    /// Waits for all work on the bytes.
    #[cold]
    #[inline(never)]
    fn wait_used(&mut self) {
        self.slot_of().wait_logged(|_| true);
    }

    /// Takes off a fence that is complete, unless another thread did so.
    pub(crate) fn take_off(&self, attached: Attached) {
        self.slot_of().take_off(attached);
    }

    /// Asks the fences and takes off complete ones, until none is left or one is pending. Nobody else
    /// attaches fences meanwhile.
    pub(crate) fn settle(&self) -> Result<FenceStatus, Error> {
        self.slot_of().check_here()?;
        while let Some(attached) = self.state().last() {
            if attached.fence.poll()? == FenceStatus::Pending {
                return Ok(FenceStatus::Pending);
            }
            self.take_off(attached);
        }
        Ok(FenceStatus::Complete)
    }

    /// Takes the slot out of use for good: it counts as in flight, and its work may never be over.
    /// The caller forgets the lease. In a forked child that is all.
    pub(crate) fn quarantine(&self, error: &Error) {
        if self.slot_of().check_here().is_err() {
            return;
        }
        self.class.quarantine(self.taken.slot, error);
        // It is nobody's: no holder of it is listed, or told of as a leak.
        let ours = self.class.get().take_back(self.taken);
        debug_assert!(ours, "the lease was its slot's owner (I2)");
        while let Some(lost) = self.state().detach() {
            self.class.get().shared().recycle(lost.fence);
        }
    }
}

impl<T: Pod> Drop for Lease<T> {
    #[inline]
    fn drop(&mut self) {
        self.class.give_back(self.taken);
        if crate::seeded::bug("double-return") {
            self.class.give_back(self.taken);
        }
        if crate::seeded::bug("touch-after-drop") {
            // SAFETY: none. The slot is the next owner's already, or unmapped: sanitizers say so.
            let _ = unsafe { self.start.as_ptr().cast::<u8>().read_volatile() };
        }
    }
}

impl<T: Pod> fmt::Debug for Lease<T> {
    /// Prints what the lease is, never its contents.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = self.class.get();
        f.debug_struct("Lease")
            .field("class", &class.name())
            .field("slot", &self.taken.slot)
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

fn misaligned<U>(leftover: usize) -> LeaseError {
    LeaseError::Misaligned { align: align_of::<U>(), leftover }
}

const _: () = assert!(size_of::<Lease>() <= 4 * size_of::<usize>(), "a lease is four words");
