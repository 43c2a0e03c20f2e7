//! Ordinary allocated memory behind the backend's contract: for tests and tools such as sanitizers.

use std::alloc::Layout;
use std::ptr::NonNull;

use super::{
    BackendKind, MemoryCause, MemoryError, MemoryStep, PageLock, Pinned, Region, limits::page_size,
};

/// Memory of the global allocator. It claims to be locked when told so, to test reports.
#[derive(Debug, Clone, Copy, Default)]
pub struct Heap {
    claims_locked: bool,
}

impl Heap {
    /// Unlocked memory, honestly so.
    pub fn new() -> Self {
        Self::default()
    }

    /// For tests of accounting: `pin` answers "locked".
    pub fn claiming_locked() -> Self {
        Self { claims_locked: true }
    }

    fn layout(bytes: usize) -> Result<Layout, MemoryError> {
        Layout::from_size_align(bytes, page_size()).map_err(|_| MemoryError {
            step: MemoryStep::Reserve,
            bytes,
            cause: MemoryCause::Other("the size exceeds the address space"),
        })
    }
}

// SAFETY: B1 alloc_zeroed gives exclusive zeroed memory of the layout; B2 and B3 the other steps do
// nothing; B4 is waived for `claiming_locked`, which only tests use; B5 no device address is
// claimed; B6 nothing here unwinds or calls the pool; B7 is the allocator's, as for all memory of it.
unsafe impl PageLock for Heap {
    fn kind(&self) -> BackendKind {
        BackendKind::Heap
    }

    fn reserve(&self, bytes: usize) -> Result<NonNull<u8>, MemoryError> {
        let layout = Self::layout(bytes)?;
        // SAFETY: the contract excludes zero bytes.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        NonNull::new(start)
            .ok_or_else(|| MemoryError::os(MemoryStep::Reserve, bytes, rustix::io::Errno::NOMEM))
    }

    unsafe fn populate(&self, _: Region) -> Result<(), MemoryError> {
        Ok(())
    }

    unsafe fn pin(&self, _: Region) -> Result<Pinned, MemoryError> {
        Ok(Pinned { locked: self.claims_locked, device_base: None })
    }

    unsafe fn unpin(&self, _: Region) -> Result<(), MemoryError> {
        Ok(())
    }

    unsafe fn release(&self, region: Region) -> Result<(), MemoryError> {
        let layout = Self::layout(region.bytes)?;
        // SAFETY: `reserve` allocated exactly this region with this layout (caller).
        unsafe { std::alloc::dealloc(region.start.as_ptr(), layout) };
        Ok(())
    }

    /// The allocator's memory becomes RAM when it is written to, and no limit is held against it.
    fn takes_system_memory(&self) -> bool {
        false
    }
}
