//! Where slabs come from: the contract between the pool and whatever reserves and pins memory.

mod heap;
pub(crate) mod huge;
pub(crate) mod limits;
pub(crate) mod mapping;
mod mlock;
pub(crate) mod numa;
#[cfg(not(any(loom, shuttle, miri)))]
pub(crate) mod page;
mod scan;
mod smaps;
mod tier;

pub use heap::Heap;
pub(crate) use limits::Headroom;
pub use limits::{KeepFree, Memlock};
pub use mlock::{LockMode, Mlock};
pub use numa::Numa;
pub use tier::{HugePages, Obtained, PageTier};

use std::any::Any;
use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::time::Duration;

/// Reserves, populates, pins and gives back whole regions of host memory.
///
/// The pool calls, for each slab: `tiers` once; `reserve_as` or `reserve_near` once; `populate` on parts, from several
/// threads at once; `obtained` once; `pin` on chunks, in order; later `unpin` on every pinned chunk, in
/// reverse; `release` once. A step that fails is followed by the undoing of those before it. Where a kind
/// of pages cannot be had, the pool releases the region and starts over with the next kind of `tiers`.
/// All calls are made outside the pool's locks and never from `try_lease` or the drop of a lease that
/// leaves others out.
///
/// # Safety
///
/// An implementation keeps these duties; the pool's memory safety rests on them.
///
/// * **B1** `reserve`, `reserve_as` and `reserve_near` return memory that is zeroed, readable and writable, aligned
///   to a page, used by nobody else, and `bytes` long. It stays mapped until `release`, whatever else fails.
/// * **B2** `populate`, `obtained` and `pin` change no byte that a `reserve`d region holds.
/// * **B3** A call that fails has no effect: the region is as before it (I10).
/// * **B4** `Pinned::locked` is true only if every page of the chunk is locked in RAM until `unpin`.
/// * **B5** `Pinned::device_base` is an address at which every device of the context may read and
///   write the chunk until `unpin`.
/// * **B6** No call unwinds, and none calls back into the pool.
/// * **B7** Once every part of a region was populated, no access to it faults for lack of memory.
pub unsafe trait PageLock: Send + Sync + fmt::Debug {
    /// What this is, for reports.
    fn kind(&self) -> BackendKind;

    /// Reserves `bytes` bytes, a multiple of the page size and not zero.
    ///
    /// # Errors
    ///
    /// The system has no room.
    fn reserve(&self, bytes: usize) -> Result<NonNull<u8>, MemoryError>;

    /// The kinds of pages to try for a region of `bytes`, best first. What the region really lies on must be
    /// at least the last of them, or it will not do.
    fn tiers(&self, bytes: usize) -> Vec<PageTier> {
        let _ = bytes;
        vec![PageTier::Base]
    }

    /// As [`Self::reserve`], for pages of this kind, which is one of `tiers`. For [`PageTier::Huge`]
    /// `bytes` is a multiple of the system's default huge page; such a region is released whole.
    ///
    /// # Errors
    ///
    /// The system has no room, or no such pages. The pool tries the next kind then.
    fn reserve_as(&self, bytes: usize, tier: PageTier) -> Result<NonNull<u8>, MemoryError> {
        let _ = tier;
        self.reserve(bytes)
    }

    /// As [`Self::reserve_as`], for a class of one device ([`ClassConfig::device`](crate::ClassConfig::device)): the
    /// region is to lie near it, where that can be. The default takes no notice. A wrapper passes on what it wraps.
    ///
    /// # Errors
    ///
    /// As [`Self::reserve_as`].
    fn reserve_near(
        &self,
        bytes: usize,
        tier: PageTier,
        device: u32,
    ) -> Result<NonNull<u8>, MemoryError> {
        let _ = device;
        self.reserve_as(bytes, tier)
    }

    /// What a region lies on that was reserved for pages of this kind: read back from the system, not what
    /// was asked for.
    ///
    /// # Safety
    ///
    /// `region` is a reserved region, or its beginning, of which every part was populated.
    unsafe fn obtained(&self, region: Region, tier: PageTier) -> Obtained {
        let _ = (region, tier);
        Obtained::default()
    }

    /// Backs every page of `part` with memory. Called from several threads on disjoint parts.
    ///
    /// # Errors
    ///
    /// The system has no memory.
    ///
    /// # Safety
    ///
    /// `part` lies within one reserved region that nobody uses yet.
    unsafe fn populate(&self, part: Region) -> Result<(), MemoryError>;

    /// Pins `chunk`.
    ///
    /// # Errors
    ///
    /// A limit or a lack of memory.
    ///
    /// # Safety
    ///
    /// `chunk` lies within one reserved region and is not pinned.
    unsafe fn pin(&self, chunk: Region) -> Result<Pinned, MemoryError>;

    /// Undoes one `pin`.
    ///
    /// # Errors
    ///
    /// The chunk stays pinned; the pool keeps it mapped and counts it.
    ///
    /// # Safety
    ///
    /// `chunk` is exactly one that `pin` took, and no device uses it any more.
    unsafe fn unpin(&self, chunk: Region) -> Result<(), MemoryError>;

    /// Gives the memory of `part` back to the system, whose address space stays reserved: the slab turned
    /// out smaller than planned. The default keeps it.
    ///
    /// # Safety
    ///
    /// `part` is the end of a reserved region, nothing of it is pinned, nobody uses it.
    unsafe fn forgo(&self, part: Region) {
        let _ = part;
    }

    /// Gives a reserved region back.
    ///
    /// # Errors
    ///
    /// The region stays mapped.
    ///
    /// # Safety
    ///
    /// `region` is exactly one that `reserve` gave, nothing of it is pinned, nobody uses it.
    unsafe fn release(&self, region: Region) -> Result<(), MemoryError>;

    /// Whether its memory is RAM of this system that `populate`, or `reserve`, takes. Then the pool looks
    /// at the machine's free memory and at the limit of its control group before each of these calls, and
    /// refuses what does not fit. A wrapper passes on what it wraps.
    ///
    /// False for memory that was set aside before, on a device, or that is not really there.
    fn takes_system_memory(&self) -> bool {
        true
    }

    /// Whether `pin` fails where `RLIMIT_MEMLOCK` has no room for the chunk. Then the pool holds the
    /// limit against all that it is to pin before it takes anything. A wrapper passes on what it wraps.
    fn needs_memlock(&self) -> bool {
        false
    }

    /// Itself, if callers may use more of it than this contract; a wrapper passes on what it wraps.
    /// GPU copies look for the CUDA backend here.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }
}

/// A range of host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// First byte.
    pub start: NonNull<u8>,
    /// Length in bytes.
    pub bytes: usize,
}

// SAFETY: a region is an address and a length; whoever dereferences it answers for the access.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// The part of `bytes` bytes at `offset`.
    ///
    /// # Safety
    ///
    /// `offset + bytes` is at most `self.bytes`, and the region is one allocation.
    pub unsafe fn part(self, offset: usize, bytes: usize) -> Self {
        debug_assert!(offset + bytes <= self.bytes, "the part lies within the region");
        // SAFETY: the caller keeps the offset within the allocation.
        Self { start: unsafe { self.start.add(offset) }, bytes }
    }
}

/// What a forked child gets of a pool's memory. The pool itself refuses there, in both cases.
///
/// In a child every call that leases, copies or waits answers
/// [`LeaseError::Forked`](crate::LeaseError::Forked) at once; drops, [`Pool::close`](crate::Pool::close)
/// and [`Pool::trim`](crate::Pool::trim) do nothing; accessors of a lease wait for nothing, and
/// [`Pool::stats`](crate::Pool::stats) shows counts of the moment of the fork. No call takes a lock that
/// another thread of the parent may have held, and none reaches the driver. The parent is unaffected.
///
/// A child may open pools of its own. That starts a thread, which the standard library cannot do in a
/// child that was forked while another thread of its parent was being started or was ending: such a
/// child hangs, and must become another program (`exec`) instead. A fence or a waker that forks while the
/// pool calls it must not return in the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ForkPolicy {
    /// Nothing: a child that touches a lease of its parent is killed by the system (`SIGSEGV`). Forking
    /// never copies a page, and a device never loses its pages to copy-on-write.
    #[default]
    Deny,
    /// A copy of its own, as of ordinary memory: what the child writes the parent does not see. On
    /// kernels before 5.12 a write by the parent after the fork can move its page away from a device
    /// that still uses the old one. Memory that the CUDA driver allocated itself, where it cannot
    /// register, follows the driver's own rule.
    Inherit,
}

impl fmt::Display for ForkPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Deny => "deny",
            Self::Inherit => "inherit",
        })
    }
}

/// How a chunk was pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pinned {
    /// Every page is locked in RAM.
    pub locked: bool,
    /// Where the GPU sees the first byte, if it can.
    pub device_base: Option<u64>,
}

/// What a pool or lease stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendKind {
    /// Host memory pinned through the CUDA driver.
    Cuda,
    /// Anonymous host memory, locked with `mlock` where `lock` says so.
    Host,
    /// Ordinary allocated memory: for tests.
    Heap,
    /// Ordinary allocated memory that stands in for an empty class's slots.
    Pageable,
    /// An implementation of [`PageLock`] from outside.
    Custom(&'static str),
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cuda => "cuda",
            Self::Host => "host",
            Self::Heap => "heap",
            Self::Pageable => "pageable",
            Self::Custom(name) => name,
        })
    }
}

/// One step on memory that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {step} {bytes} bytes: {cause}")]
pub struct MemoryError {
    /// The step.
    pub step: MemoryStep,
    /// How many bytes it was asked for.
    pub bytes: usize,
    /// Why.
    pub cause: MemoryCause,
}

impl MemoryError {
    /// A system call's error.
    pub fn os(step: MemoryStep, bytes: usize, error: impl Into<io::Error>) -> Self {
        let code = error.into().raw_os_error().unwrap_or(0);
        Self { step, bytes, cause: MemoryCause::Os(code) }
    }

    /// True when the opening was to end here: nothing is wrong with the memory.
    pub(crate) fn is_stop(&self) -> bool {
        matches!(self.cause, MemoryCause::Cancelled | MemoryCause::TimedOut(_))
    }

    /// A limit of the system left too little room.
    pub(crate) fn is_no_room(&self) -> bool {
        matches!(self.cause, MemoryCause::NoRoom(_))
    }

    /// True when a locking limit explains the failure.
    pub(crate) fn is_lock_limit(&self) -> bool {
        let refused = [libc::ENOMEM, libc::EPERM, libc::EAGAIN];
        match &self.cause {
            MemoryCause::Os(code) => self.step == MemoryStep::Pin && refused.contains(code),
            MemoryCause::NoRoom(headroom) => headroom.is_memlock(),
            _ => false,
        }
    }
}

/// The steps of a slab's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryStep {
    /// Address space.
    Reserve,
    /// Fork and huge-page policy.
    Advise,
    /// Backing with pages.
    Populate,
    /// Locking or registering.
    Pin,
    /// Unlocking or unregistering.
    Unpin,
    /// Unmapping.
    Release,
}

impl fmt::Display for MemoryStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Reserve => "reserve",
            Self::Advise => "set the fork and page policy of",
            Self::Populate => "back with memory",
            Self::Pin => "pin",
            Self::Unpin => "unpin",
            Self::Release => "unmap",
        })
    }
}

/// Why a step failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryCause {
    /// The system's error number.
    Os(i32),
    /// The CUDA driver's error name.
    Driver(String),
    /// The cap on pinned bytes has no room: bytes in use, and the cap.
    Cap {
        /// Bytes reserved by this pool.
        used: u64,
        /// The most it may pin.
        cap: u64,
    },
    /// The opening was cancelled.
    Cancelled,
    /// The opening took longer than `open_timeout`, which is this.
    TimedOut(Duration),
    /// Huge pages are required, and the region does not lie on them.
    NotHuge {
        /// Bytes of it that do.
        huge: u64,
    },
    /// A limit of the system leaves too little room: which, and its figures.
    NoRoom(Box<Headroom>),
    /// A reason from outside.
    Other(&'static str),
}

impl fmt::Display for MemoryCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os(code) => write!(f, "{}", io::Error::from_raw_os_error(*code)),
            Self::Driver(name) => write!(f, "the CUDA driver says {name}"),
            Self::Cap { used, cap } => write!(f, "max_pinned is {cap} bytes and {used} are in use"),
            Self::Cancelled => f.write_str("the opening was cancelled"),
            Self::TimedOut(after) => write!(f, "open_timeout of {after:?} is over"),
            Self::NotHuge { huge } => {
                write!(f, "huge_pages is \"require\", and only {huge} bytes lie on huge pages")
            }
            Self::NoRoom(headroom) => write!(f, "{headroom}; {}", headroom.remedy()),
            Self::Other(reason) => f.write_str(reason),
        }
    }
}
