//! Locked host memory for each frame: `mmap`, populate, `mlock`, and all of it undone after.

use std::io;
use std::ptr::{self, NonNull};
use std::slice;

use rustix::mm::{MapFlags, ProtFlags, mlock, mmap_anonymous, munlock, munmap};

use super::{BufferSource, FrameBuffer};
use crate::BenchError;

/// Maps and locks a buffer for each frame.
#[derive(Debug)]
pub struct PinnedHost {
    bytes: usize,
    lock: bool,
}

impl PinnedHost {
    /// Buffers of `bytes`; `lock` false leaves out the locking, where the system refuses it.
    pub fn new(bytes: usize, lock: bool) -> Self {
        Self { bytes, lock }
    }
}

impl BufferSource for PinnedHost {
    type Buffer = HostPages;

    fn acquire(&mut self) -> Result<HostPages, BenchError> {
        HostPages::new(self.bytes, self.lock)
    }

    fn release(&mut self, buffer: HostPages) -> Result<(), BenchError> {
        buffer.release()
    }
}

/// An anonymous mapping, populated, and locked if asked.
#[derive(Debug)]
pub struct HostPages {
    /// The start of the mapping that this value owns alone; `None` once it is unmapped.
    address: Option<NonNull<u8>>,
    bytes: usize,
    locked: bool,
}

impl HostPages {
    /// Maps `bytes`, which must not be zero.
    ///
    /// # Errors
    /// [`BenchError::LockRefused`] with nothing left mapped, or why the mapping failed.
    pub fn new(bytes: usize, lock: bool) -> Result<Self, BenchError> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: a private anonymous mapping at an address of the kernel's choice touches no
        // memory that exists.
        let mapped = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, flags) };
        let mapped = mapped.map_err(|cause| BenchError::failed("mapping a frame", cause))?;
        let mut pages = Self { address: NonNull::new(mapped.cast()), bytes, locked: false };
        if lock {
            // SAFETY: the range is the mapping made above; locking does not change its contents.
            unsafe { mlock(mapped, bytes) }
                .map_err(|cause| BenchError::LockRefused { bytes, source: cause.into() })?;
            pages.locked = true;
        }
        Ok(pages)
    }

    /// Unlocks and unmaps it.
    ///
    /// # Errors
    /// The system's reason.
    pub fn release(mut self) -> Result<(), BenchError> {
        self.unmap().map_err(|cause| BenchError::failed("unmapping a frame", cause))
    }

    fn unmap(&mut self) -> io::Result<()> {
        let Some(address) = self.address.take() else { return Ok(()) };
        let address = address.as_ptr().cast();
        if self.locked {
            // SAFETY: the range was locked by `new` and is still mapped.
            unsafe { munlock(address, self.bytes) }?;
        }
        // SAFETY: this value owned the mapping alone, and `address` was taken out of it, so no
        // slice of it can be made any more.
        unsafe { munmap(address, self.bytes) }?;
        Ok(())
    }
}

impl FrameBuffer for HostPages {
    fn fill(&mut self, frame: &[u8]) {
        if let Some(address) = self.address {
            // SAFETY: the mapping is `bytes` long, initialised (zero) by the kernel, owned by this
            // value, and borrowed mutably through it.
            let pages = unsafe { slice::from_raw_parts_mut(address.as_ptr(), self.bytes) };
            pages.copy_from_slice(frame);
        }
    }

    fn bytes(&self) -> &[u8] {
        let Some(address) = self.address else { return &[] };
        // SAFETY: the mapping is `bytes` long, initialised by the kernel, and lives as long as the
        // borrow of this value.
        unsafe { slice::from_raw_parts(address.as_ptr(), self.bytes) }
    }
}

impl Drop for HostPages {
    fn drop(&mut self) {
        // Only reached with pages mapped when a run ends; the process is about to end too.
        let _ = self.unmap();
    }
}
