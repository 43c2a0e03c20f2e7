//! Anonymous mappings: reserve, fork policy, guards, populate, unmap. Shared by the host and CUDA
//! backends.

use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use super::{ForkPolicy, MemoryCause, MemoryError, MemoryStep, Region, limits::page_size};

/// How a region is mapped. It is released with the options it was reserved with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MapOptions {
    pub(crate) fork: ForkPolicy,
    /// A page that nobody may touch lies before the region, and one behind it.
    pub(crate) guarded: bool,
}

impl MapOptions {
    /// Bytes of each guard.
    fn guard(self) -> usize {
        if self.guarded { page_size() } else { 0 }
    }

    /// Bytes of a region with its guards.
    fn mapped_bytes(self, bytes: usize) -> Result<usize, MemoryError> {
        bytes.checked_add(2 * self.guard()).ok_or(MemoryError {
            step: MemoryStep::Reserve,
            bytes,
            cause: MemoryCause::Other("the size exceeds the address space"),
        })
    }
}

/// Maps `bytes` of private zero pages, a multiple of the page size.
pub(crate) fn reserve(bytes: usize, options: MapOptions) -> Result<NonNull<u8>, MemoryError> {
    let (guard, mapped_bytes) = (options.guard(), options.mapped_bytes(bytes)?);
    let open = ProtFlags::READ | ProtFlags::WRITE;
    let protection = if options.guarded { ProtFlags::empty() } else { open };
    let mapped = map(mapped_bytes, protection)
        .map_err(|error| MemoryError::os(MemoryStep::Reserve, bytes, error))?;
    // SAFETY: the guard lies within the mapping.
    let start = unsafe { mapped.add(guard) };
    let prepared = || {
        if options.fork == ForkPolicy::Deny {
            // A child must not share pages that a device writes: after copy-on-write the parent would
            // move to new pages while the device keeps the old ones.
            let advice = Advice::LinuxDontFork;
            // SAFETY: the range was mapped above and nobody else knows it.
            unsafe { rustix::mm::madvise(mapped.as_ptr().cast(), mapped_bytes, advice) }
                .map_err(|error| MemoryError::os(MemoryStep::Advise, bytes, error))?;
        }
        if options.guarded {
            let open = MprotectFlags::READ | MprotectFlags::WRITE;
            // SAFETY: as above; the region lies between the guards.
            unsafe { rustix::mm::mprotect(start.as_ptr().cast(), bytes, open) }
                .map_err(|error| MemoryError::os(MemoryStep::Reserve, bytes, error))?;
        }
        Ok(start)
    };
    prepared().inspect_err(|_| {
        // The first error is the one to report (I10).
        // SAFETY: as above.
        let _ = unsafe { rustix::mm::munmap(mapped.as_ptr().cast(), mapped_bytes) };
    })
}

/// A new private anonymous mapping at an address of the kernel's choice.
pub(super) fn map(bytes: usize, protection: ProtFlags) -> Result<NonNull<u8>, Errno> {
    // SAFETY: a mapping at an address of the kernel's choice touches nothing of ours.
    let mapped = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)
    }?;
    NonNull::new(mapped.cast()).ok_or(Errno::NOMEM)
}

/// Backs every page of `part`.
///
/// # Safety
///
/// `part` is mapped, page-aligned and used by nobody.
pub(crate) unsafe fn populate(part: Region) -> Result<(), MemoryError> {
    let start = part.start.as_ptr().cast();
    // SAFETY: the caller owns the mapped part; populating changes no byte.
    match unsafe { rustix::mm::madvise(start, part.bytes, Advice::LinuxPopulateWrite) } {
        Ok(()) => Ok(()),
        // Kernels before 5.14 do not know the advice.
        Err(Errno::INVAL) => {
            for offset in (0..part.bytes).step_by(page_size()) {
                // SAFETY: the offset lies within the part.
                let page = unsafe { part.start.add(offset) };
                // SAFETY: nobody uses the part, and a fresh page holds zero already.
                unsafe { page.write_volatile(0) };
            }
            Ok(())
        }
        Err(error) => Err(MemoryError::os(MemoryStep::Populate, part.bytes, error)),
    }
}

/// Gives the memory of `part` back and keeps its addresses. If it fails, the memory is given back with them.
///
/// # Safety
///
/// `part` is mapped, page-aligned, not locked and used by nobody.
pub(crate) unsafe fn forgo(part: Region) {
    // SAFETY: the caller's duty; a page that is touched again is zero.
    let _ = unsafe {
        rustix::mm::madvise(part.start.as_ptr().cast(), part.bytes, Advice::LinuxDontNeed)
    };
}

/// Unmaps a region and its guards.
///
/// # Safety
///
/// `region` is exactly one mapping from [`reserve`] with these options, and nobody uses it.
pub(crate) unsafe fn release(region: Region, options: MapOptions) -> Result<(), MemoryError> {
    let mapped = region.start.as_ptr().wrapping_sub(options.guard());
    // SAFETY: the caller's duty; the guards belong to the region.
    unsafe { rustix::mm::munmap(mapped.cast(), options.mapped_bytes(region.bytes)?) }
        .map_err(|error| MemoryError::os(MemoryStep::Release, region.bytes, error))
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests;
