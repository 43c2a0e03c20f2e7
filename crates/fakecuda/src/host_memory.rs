//! Which host memory is pinned: the registrations and the allocations made by the driver.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::abi::Res;
use crate::codes;

/// `PORTABLE` of registration and allocation alike: pinned for every context.
pub(crate) const PORTABLE: u32 = 1;
/// `DEVICEMAP` of registration and allocation alike: has a device address.
pub(crate) const DEVICE_MAP: u32 = 2;

/// One page-locked range.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) len: usize,
    pub(crate) flags: u32,
    pub(crate) context: usize,
    /// Made by `cuMemHostAlloc`, so freed by `cuMemFreeHost` and pinned for every context.
    pub(crate) allocated: bool,
}

impl Region {
    /// Whether a copy on a stream of `context` may use it without staging.
    pub(crate) fn pinned_for(&self, context: usize) -> bool {
        self.allocated || self.flags & PORTABLE != 0 || self.context == context
    }
}

/// All page-locked ranges of the process, by their first address.
#[derive(Debug)]
pub(crate) struct HostMemory {
    regions: BTreeMap<usize, Region>,
    pinned_bytes: u64,
}

impl HostMemory {
    pub(crate) const fn new() -> Self {
        Self { regions: BTreeMap::new(), pinned_bytes: 0 }
    }

    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes
    }

    /// Bytes of ranges of which some page is not mapped any more.
    pub(crate) fn lost_bytes(&self) -> u64 {
        let lost = self.regions.iter().filter(|(base, region)| !is_mapped(**base, region.len));
        lost.map(|(_, region)| region.len as u64).sum()
    }

    /// Adds a range; fails when it shares a page with another.
    pub(crate) fn insert(&mut self, base: usize, region: Region) -> Res {
        let pages = page_span(base, region.len).ok_or(codes::INVALID_VALUE)?;
        if self.regions.iter().any(|(&base, other)| {
            page_span(base, other.len).is_some_and(|other| overlap(&other, &pages))
        }) {
            return Err(codes::HOST_MEMORY_ALREADY_REGISTERED);
        }
        self.pinned_bytes += region.len as u64;
        self.regions.insert(base, region);
        Ok(())
    }

    pub(crate) fn remove(&mut self, base: usize) -> Option<Region> {
        let region = self.regions.remove(&base)?;
        self.pinned_bytes -= region.len as u64;
        Some(region)
    }

    /// The range that begins exactly at `base`.
    pub(crate) fn at(&self, base: usize) -> Option<&Region> {
        self.regions.get(&base)
    }

    /// The range that holds `address`.
    pub(crate) fn holding(&self, address: usize) -> Option<(usize, &Region)> {
        let (&base, region) = self.regions.range(..=address).next_back()?;
        (address - base < region.len).then_some((base, region))
    }

    /// Finds the one range that holds all of `address..address + len`.
    ///
    /// `None` is memory that no range touches. A span that leaves its range, into another one or
    /// into pageable memory, is `CUDA_ERROR_INVALID_VALUE`, as on a real device.
    pub(crate) fn find(&self, address: usize, len: usize) -> Res<Option<&Region>> {
        let end = address.checked_add(len).ok_or(codes::INVALID_VALUE)?;
        match self.regions.range(..end).next_back() {
            Some((&base, region)) if base + region.len > address => {
                let whole = base <= address && end <= base + region.len;
                if whole { Ok(Some(region)) } else { Err(codes::INVALID_VALUE) }
            }
            _ => Ok(None),
        }
    }

    /// The ranges of one context, in address order.
    pub(crate) fn of_context(&self, context: usize) -> Vec<usize> {
        let mine = |(&base, region): (&usize, &Region)| (region.context == context).then_some(base);
        self.regions.iter().filter_map(mine).collect()
    }
}

pub(crate) fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// The pages that hold `address..address + len`; `None` when that wraps around.
fn page_span(address: usize, len: usize) -> Option<Range<usize>> {
    let page = page_bytes();
    let end = address.checked_add(len)?.checked_next_multiple_of(page)?;
    Some(address - address % page..end)
}

pub(crate) fn page_bytes() -> usize {
    // SAFETY: sysconf reads a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

/// Whether every page of the range is mapped in this process.
pub(crate) fn is_mapped(address: usize, len: usize) -> bool {
    /// Pages asked about per system call.
    const STEP: usize = 4096;
    let Some(span) = page_span(address, len) else { return false };
    let page = page_bytes();
    let mut residency = [0_u8; STEP];
    let mut at = span.start;
    while at < span.end {
        let bytes = (span.end - at).min(STEP * page);
        let pages = std::ptr::without_provenance_mut(at);
        // SAFETY: mincore checks the addresses itself, and writes one byte per page, at most STEP.
        if unsafe { libc::mincore(pages, bytes, residency.as_mut_ptr()) } != 0 {
            return false;
        }
        at += bytes;
    }
    true
}

/// Maps fresh zeroed pages; `None` when the system has none.
pub(crate) fn map(len: usize) -> Option<usize> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing else.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
    (at != libc::MAP_FAILED).then(|| at.expose_provenance())
}

/// Unmaps what [`map`] gave, so that a later use of it crashes instead of reading old bytes.
pub(crate) fn unmap(address: usize, len: usize) {
    // SAFETY: the pages came from `map`, and the region that owned them is gone.
    let result = unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(address), len) };
    debug_assert_eq!(result, 0);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    fn region(len: usize) -> Region {
        Region { len, flags: 0, context: 1, allocated: false }
    }

    #[test]
    fn a_span_is_inside_one_range_or_wrong() {
        let mut memory = HostMemory::new();
        memory.insert(0x10_000, region(0x2000)).unwrap();
        memory.insert(0x12_000, region(0x1000)).unwrap();
        assert!(memory.find(0x10_000, 0x2000).unwrap().is_some());
        assert!(memory.find(0x11_fff, 1).unwrap().is_some());
        assert!(memory.find(0x13_000, 64).unwrap().is_none());
        assert!(memory.find(0xf_000, 0x1000).unwrap().is_none());
        assert!(memory.find(0x11_000, 0x1001).is_err(), "spans two registrations");
        assert!(memory.find(0xf_fff, 2).is_err(), "begins before the first");
        assert!(memory.find(0x12_fff, 2).is_err(), "runs past the last");
        assert!(memory.find(usize::MAX, 2).is_err(), "wraps around");
    }

    #[test]
    fn ranges_that_share_a_page_collide() {
        let mut memory = HostMemory::new();
        memory.insert(0x10_000, region(100)).unwrap();
        assert_eq!(
            memory.insert(0x10_800, region(100)),
            Err(codes::HOST_MEMORY_ALREADY_REGISTERED)
        );
        assert_eq!(memory.pinned_bytes(), 100);
        memory.remove(0x10_000).unwrap();
        memory.insert(0x10_800, region(50)).unwrap();
        assert_eq!(memory.pinned_bytes(), 50);
    }

    #[test]
    fn memory_unmapped_while_registered_is_lost() {
        let len = 3 * page_bytes();
        // As below: another thread may be given the pages.
        let lost = (0..100).any(|_| {
            let mut memory = HostMemory::new();
            let at = map(len).unwrap();
            memory.insert(at, region(len)).unwrap();
            assert_eq!(memory.lost_bytes(), 0);
            unmap(at + page_bytes(), page_bytes());
            let lost = memory.lost_bytes();
            unmap(at, len);
            lost == len as u64
        });
        assert!(lost, "unmapped pages are never missed");
    }

    #[test]
    fn mapped_pages_are_told_from_unmapped() {
        let len = 3 * page_bytes();
        // Another test's thread may be given the pages as soon as they are free: try again then.
        let told = (0..100).any(|_| {
            let at = map(len).unwrap();
            assert!(is_mapped(at, len));
            assert!(is_mapped(at + 5, 1));
            unmap(at, len);
            !is_mapped(at, 1)
        });
        assert!(told, "unmapped pages are never seen as such");
        assert!(!is_mapped(0, 1));
    }
}
