//! Anonymous mappings: reserve, page and fork policy, guards, populate, unmap. Shared by the host and
//! CUDA backends.

use std::ptr::NonNull;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use super::numa::{self, NodeSet};
use super::{ForkPolicy, HugePages, MemoryCause, MemoryError, MemoryStep, Obtained, PageTier};
use super::{Region, huge, limits::page_size, smaps};

/// How a region is mapped. It is released with the options it was reserved with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MapOptions {
    pub(crate) fork: ForkPolicy,
    /// A page that nobody may touch lies before the region, and one behind it.
    pub(crate) guarded: bool,
    pub(crate) huge: HugePages,
    /// Where its pages are to lie.
    pub(crate) nodes: NodeSet,
}

impl Default for MapOptions {
    /// As plain as it can be.
    fn default() -> Self {
        Self {
            fork: ForkPolicy::default(),
            guarded: false,
            huge: HugePages::Off,
            nodes: NodeSet::NONE,
        }
    }
}

impl MapOptions {
    /// Bytes of each guard.
    fn guard(self) -> usize {
        if self.guarded { page_size() } else { 0 }
    }

    /// Bytes of a region with its guards.
    fn mapped_bytes(self, bytes: usize) -> Result<usize, MemoryError> {
        bytes.checked_add(2 * self.guard()).ok_or_else(|| too_long(bytes))
    }
}

/// Maps `bytes` of private zero pages, a multiple of the page size, or for [`PageTier::Huge`] of the
/// huge page size.
pub(crate) fn reserve(
    bytes: usize,
    tier: PageTier,
    options: MapOptions,
) -> Result<NonNull<u8>, MemoryError> {
    if tier == PageTier::Huge && options.guarded {
        // A guard is an ordinary page, which such a mapping cannot have.
        let cause = MemoryCause::Other("reserved huge pages have no guards");
        return Err(MemoryError { step: MemoryStep::Reserve, bytes, cause });
    }
    let whole = options.mapped_bytes(bytes)?;
    let open = ProtFlags::READ | ProtFlags::WRITE;
    let protection = if options.guarded { ProtFlags::empty() } else { open };
    let mapped = match tier {
        PageTier::Base => map(whole, protection),
        PageTier::Huge => map_with(whole, protection, MapFlags::HUGETLB),
        PageTier::Transparent => {
            let align = huge::transparent_bytes().unwrap_or(page_size());
            map_aligned(whole, options.guard(), align, protection)
        }
    };
    let mapped = mapped.map_err(|error| MemoryError::os(MemoryStep::Reserve, bytes, error))?;
    // SAFETY: the guard lies within the mapping.
    let start = unsafe { mapped.add(options.guard()) };
    // SAFETY: mapped above, and nobody else knows it.
    let prepared = unsafe { prepare(Region { start, bytes }, tier, options) };
    prepared.map(|()| start).inspect_err(|_| {
        // The first error is the one to report (I10).
        // SAFETY: as above.
        let _ = unsafe { rustix::mm::munmap(mapped.as_ptr().cast(), whole) };
    })
}

/// Sets what must be set before a page is touched. Whatever fails, unmapping undoes it.
///
/// # Safety
///
/// `region` was just mapped with these options, and nobody knows it.
unsafe fn prepare(region: Region, tier: PageTier, options: MapOptions) -> Result<(), MemoryError> {
    let Region { start, bytes } = region;
    let advised = |result: Result<(), Errno>| {
        result.map_err(|error| MemoryError::os(MemoryStep::Advise, bytes, error))
    };
    if options.fork == ForkPolicy::Deny {
        // A child must not share pages that a device writes: after copy-on-write the parent would
        // move to new pages while the device keeps the old ones.
        let mapped = start.as_ptr().wrapping_sub(options.guard()).cast();
        let whole = options.mapped_bytes(bytes)?;
        // SAFETY: the caller's duty.
        advised(unsafe { rustix::mm::madvise(mapped, whole, Advice::LinuxDontFork) })?;
    }
    if options.guarded {
        let open = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: as above; the region lies between the guards.
        unsafe { rustix::mm::mprotect(start.as_ptr().cast(), bytes, open) }
            .map_err(|error| MemoryError::os(MemoryStep::Reserve, bytes, error))?;
    }
    if tier == PageTier::Transparent {
        // SAFETY: as above.
        let advised =
            unsafe { rustix::mm::madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        advised.map_err(|error| match error {
            // A kernel that has none.
            Errno::INVAL => MemoryError {
                step: MemoryStep::Advise,
                bytes,
                cause: MemoryCause::NotHuge { huge: 0 },
            },
            error => MemoryError::os(MemoryStep::Advise, bytes, error),
        })?;
    }
    // A preference: memory elsewhere is better than none, and it is looked at afterwards.
    // SAFETY: as above.
    let _ = unsafe { numa::place(region, options.nodes) };
    Ok(())
}

/// A new mapping whose byte at `offset` lies at a multiple of `align`, a power of two.
fn map_aligned(
    bytes: usize,
    offset: usize,
    align: usize,
    protection: ProtFlags,
) -> Result<NonNull<u8>, Errno> {
    let over = align - page_size();
    let wide = bytes.checked_add(over).ok_or(Errno::NOMEM)?;
    let mapped = map(wide, protection)?;
    let lead =
        (mapped.addr().get() + offset).next_multiple_of(align) - mapped.addr().get() - offset;
    let cut = |from: usize, bytes: usize| {
        let edge = mapped.as_ptr().wrapping_add(from).cast();
        // SAFETY: an edge of the mapping, or all of it, which nobody knows yet.
        if bytes == 0 { Ok(()) } else { unsafe { rustix::mm::munmap(edge, bytes) } }
    };
    let mut held = wide;
    let behind = cut(lead + bytes, over - lead).map(|()| held = lead + bytes);
    behind.and_then(|()| cut(0, lead)).inspect_err(|_| {
        // The first error is the one to report (I10).
        let _ = cut(0, held);
    })?;
    NonNull::new(mapped.as_ptr().wrapping_add(lead)).ok_or(Errno::NOMEM)
}

/// A new private anonymous mapping at an address of the kernel's choice.
pub(super) fn map(bytes: usize, protection: ProtFlags) -> Result<NonNull<u8>, Errno> {
    map_with(bytes, protection, MapFlags::empty())
}

fn map_with(bytes: usize, protection: ProtFlags, flags: MapFlags) -> Result<NonNull<u8>, Errno> {
    let flags = MapFlags::PRIVATE | flags;
    // SAFETY: a mapping at an address of the kernel's choice touches nothing of ours.
    let mapped =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) }?;
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
        // Reserved huge pages, whose touch may kill, are not used there.
        Err(Errno::INVAL) if !populate_is_known() => {
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

/// Whether the kernel knows the advice to populate: from 5.14 on. Asked once.
pub(crate) fn populate_is_known() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        // SAFETY: nothing is advised about no bytes.
        unsafe { rustix::mm::madvise(std::ptr::null_mut(), 0, Advice::LinuxPopulateWrite) }.is_ok()
    })
}

/// What a populated region lies on, as the system tells.
pub(crate) fn obtained(region: Region, tier: PageTier) -> Obtained {
    let (pages, huge_bytes) = smaps::pages(region, tier);
    Obtained { pages, huge_bytes, node: numa::node(region) }
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

fn too_long(bytes: usize) -> MemoryError {
    let cause = MemoryCause::Other("the size exceeds the address space");
    MemoryError { step: MemoryStep::Reserve, bytes, cause }
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests;
