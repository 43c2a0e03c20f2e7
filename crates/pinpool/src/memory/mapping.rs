//! Anonymous mappings: reserve, fork policy, populate, unmap. Shared by the host and CUDA backends.

use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::{MemoryError, MemoryStep, Region, limits::page_size};

/// Maps `bytes` of private zero pages that a forked child does not get.
pub(crate) fn reserve(bytes: usize) -> Result<NonNull<u8>, MemoryError> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing of ours.
    let mapped = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)
    };
    let mapped = mapped.map_err(|error| MemoryError::os(MemoryStep::Reserve, bytes, error))?;
    let Some(start) = NonNull::new(mapped.cast::<u8>()) else {
        return Err(MemoryError::os(MemoryStep::Reserve, bytes, Errno::NOMEM));
    };
    let region = Region { start, bytes };
    // A child must not share pages that a device writes: after copy-on-write the parent would move
    // to new pages while the device keeps the old ones.
    // SAFETY: `region` was mapped above and nobody else knows it.
    match unsafe { rustix::mm::madvise(mapped, bytes, Advice::LinuxDontFork) } {
        Ok(()) => Ok(start),
        Err(error) => {
            // SAFETY: as above.
            let _ = unsafe { release(region) };
            Err(MemoryError::os(MemoryStep::Advise, bytes, error))
        }
    }
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

/// Unmaps.
///
/// # Safety
///
/// `region` is exactly one mapping from [`reserve`], and nobody uses it.
pub(crate) unsafe fn release(region: Region) -> Result<(), MemoryError> {
    // SAFETY: the caller's duty.
    unsafe { rustix::mm::munmap(region.start.as_ptr().cast(), region.bytes) }
        .map_err(|error| MemoryError::os(MemoryStep::Release, region.bytes, error))
}
