//! The host backend: anonymous memory locked in RAM with `mlock`, for machines without a GPU.

use std::fmt;
use std::ptr::NonNull;

use super::mapping::{self, MapOptions};
use super::{BackendKind, HugePages, MemoryError, MemoryStep, Obtained, PageLock, PageTier};
use super::{Pinned, Region, huge};

/// Whether host memory is locked in RAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LockMode {
    /// Locked, or the pool does not open.
    #[default]
    Require,
    /// Locked if the limits allow; else the pool opens unlocked and says so.
    Try,
    /// Not locked, and never registered with a GPU either.
    Off,
}

/// Host memory that is mapped, populated and locked.
#[derive(Debug, Clone, Copy)]
pub struct Mlock {
    mode: LockMode,
    options: MapOptions,
}

impl Mlock {
    /// With `LockMode::Try` a refused lock leaves the memory unlocked; with `Off` nothing is locked.
    pub fn new(mode: LockMode) -> Self {
        Self { mode, options: MapOptions::default() }
    }

    /// The same, on huge pages if this says so. Default: [`HugePages::Off`].
    pub fn huge_pages(mut self, huge: HugePages) -> Self {
        self.options.huge = huge;
        self
    }

    /// The same, mapped in this way.
    pub(crate) fn mapped(self, options: MapOptions) -> Self {
        Self { options, ..self }
    }
}

impl fmt::Display for LockMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Require => "require",
            Self::Try => "try",
            Self::Off => "off",
        })
    }
}

// SAFETY: B1 mmap gives private zero pages; B2 mlock, populate and looking change no byte; B3 each step
// is one system call, and reserve undoes its mapping when the advice fails; B4 `locked` reports mlock's
// success, which does nothing to reserved huge pages: those never leave RAM; B5 no device address is
// claimed; B6 nothing here unwinds or calls the pool; B7 populating answers where a touch would kill.
unsafe impl PageLock for Mlock {
    fn kind(&self) -> BackendKind {
        BackendKind::Host
    }

    fn reserve(&self, bytes: usize) -> Result<NonNull<u8>, MemoryError> {
        self.reserve_as(bytes, PageTier::Base)
    }

    fn tiers(&self, bytes: usize) -> Vec<PageTier> {
        huge::tiers(bytes, self.options)
    }

    fn reserve_as(&self, bytes: usize, tier: PageTier) -> Result<NonNull<u8>, MemoryError> {
        mapping::reserve(bytes, tier, self.options)
    }

    unsafe fn obtained(&self, region: Region) -> Obtained {
        mapping::obtained(region)
    }

    unsafe fn populate(&self, part: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { mapping::populate(part) }
    }

    unsafe fn pin(&self, chunk: Region) -> Result<Pinned, MemoryError> {
        if self.mode == LockMode::Off {
            return Ok(Pinned::default());
        }
        // SAFETY: the chunk is mapped (caller); locking changes no byte.
        match unsafe { rustix::mm::mlock(chunk.start.as_ptr().cast(), chunk.bytes) } {
            Ok(()) => Ok(Pinned { locked: true, device_base: None }),
            Err(error) => {
                // A refused lock may have locked a prefix of the range.
                // SAFETY: the chunk is mapped; unlocking what is not locked is no error.
                let _ = unsafe { rustix::mm::munlock(chunk.start.as_ptr().cast(), chunk.bytes) };
                let error = MemoryError::os(MemoryStep::Pin, chunk.bytes, error);
                if self.mode == LockMode::Try && error.is_lock_limit() {
                    return Ok(Pinned::default());
                }
                Err(error)
            }
        }
    }

    unsafe fn unpin(&self, chunk: Region) -> Result<(), MemoryError> {
        // SAFETY: the chunk is mapped and locked (caller).
        unsafe { rustix::mm::munlock(chunk.start.as_ptr().cast(), chunk.bytes) }
            .map_err(|error| MemoryError::os(MemoryStep::Unpin, chunk.bytes, error))
    }

    unsafe fn release(&self, region: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { mapping::release(region, self.options) }
    }

    fn needs_memlock(&self) -> bool {
        self.mode == LockMode::Require
    }
}
