//! General allocators, which know all sizes and no bound. No page of what they give is touched.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::Source;

/// mimalloc, called as a function: nothing else of the process allocates from it.
#[derive(Debug)]
pub struct Mimalloc(pub usize);

/// The C library's `malloc` and `free`.
#[derive(Debug)]
pub struct Malloc(pub usize);

/// An allocation that goes back to the allocator `A`.
#[derive(Debug)]
pub struct Allocation<A: Allocator> {
    address: NonNull<c_void>,
    allocator: PhantomData<fn() -> A>,
}

// SAFETY: the allocation has one owner, and both allocators free on any thread.
unsafe impl<A: Allocator> Send for Allocation<A> {}

/// Two functions.
pub trait Allocator: Send + Sync + 'static {
    /// The bytes of an allocation.
    fn bytes(&self) -> usize;

    /// Allocates `bytes`; null where there are none.
    fn allocate(bytes: usize) -> *mut c_void;

    /// Frees.
    ///
    /// # Safety
    /// `address` came from [`Self::allocate`] of the same allocator and is freed once.
    unsafe fn free(address: *mut c_void);
}

impl Allocator for Mimalloc {
    #[inline]
    fn bytes(&self) -> usize {
        self.0
    }

    #[inline]
    fn allocate(bytes: usize) -> *mut c_void {
        // SAFETY: it may be called with any size, on any thread.
        unsafe { libmimalloc_sys::mi_malloc(bytes) }
    }

    #[inline]
    unsafe fn free(address: *mut c_void) {
        // SAFETY: the caller's word.
        unsafe { libmimalloc_sys::mi_free(address) }
    }
}

impl Allocator for Malloc {
    #[inline]
    fn bytes(&self) -> usize {
        self.0
    }

    #[inline]
    fn allocate(bytes: usize) -> *mut c_void {
        // SAFETY: it may be called with any size, on any thread.
        unsafe { libc::malloc(bytes) }
    }

    #[inline]
    unsafe fn free(address: *mut c_void) {
        // SAFETY: the caller's word.
        unsafe { libc::free(address) }
    }
}

impl<A: Allocator> Source for A {
    type Held<'a> = Allocation<A>;

    #[inline]
    fn take(&self) -> Option<Allocation<A>> {
        let address = NonNull::new(A::allocate(self.bytes()))?;
        Some(Allocation { address, allocator: PhantomData })
    }

    #[inline]
    fn address(held: &Allocation<A>) -> *const u8 {
        held.address.as_ptr().cast()
    }
}

impl<A: Allocator> Drop for Allocation<A> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `take` allocated it with `A`, and this value was its only owner.
        unsafe { A::free(self.address.as_ptr()) }
    }
}
