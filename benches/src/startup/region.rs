//! Memory that is mapped, backed and pinned by direct calls, as a pool does it but without one.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use pinpool::cudarc::driver::{CudaContext, DriverError, sys};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous, munlock, munmap};

use super::strategies::Ground;
use crate::BenchError;

/// A private anonymous mapping. What was done to it is undone when it is closed, or dropped.
#[derive(Debug)]
pub(super) struct Region {
    /// The mapping that this value owns alone: its start and its length, 0 once it is unmapped.
    mapped: NonNull<c_void>,
    mapped_bytes: usize,
    /// The part that is used, on a boundary of huge pages.
    start: NonNull<u8>,
    bytes: usize,
    pinned: Pinned,
}

/// The pages that are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pages {
    /// Transparent huge ones, as a pool asks for.
    Huge,
    /// None in particular.
    Any,
}

/// How a region is kept in RAM.
#[derive(Debug)]
enum Pinned {
    Not,
    Locked,
    Registered(Arc<CudaContext>),
}

// SAFETY: a region only hands out no reference to its bytes; its address may be used anywhere.
unsafe impl Send for Region {}
// SAFETY: as above; `populate`, the only call that several threads share, gives each piece to one.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `bytes`, a multiple of the page size and not zero, as a pool maps a slab.
    pub(super) fn map(bytes: usize, pages: Pages) -> Result<Self, BenchError> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let mapped_bytes = bytes + HUGE_PAGE_BYTES;
        // SAFETY: a private anonymous mapping at an address of the kernel's choice touches no
        // memory that exists.
        let mapped =
            unsafe { mmap_anonymous(ptr::null_mut(), mapped_bytes, access, MapFlags::PRIVATE) };
        let mapped = mapped.map_err(|cause| failed("mapping", bytes, cause))?;
        let mapped = NonNull::new(mapped).ok_or_else(|| failed("mapping", bytes, "no address"))?;
        let lead = mapped.addr().get().next_multiple_of(HUGE_PAGE_BYTES) - mapped.addr().get();
        // SAFETY: the mapping is longer by a huge page than what is used of it.
        let start = unsafe { mapped.cast::<u8>().add(lead) };
        let region = Self { mapped, mapped_bytes, start, bytes, pinned: Pinned::Not };
        // SAFETY: the range is the mapping made above, which nobody else knows.
        unsafe { madvise(mapped.as_ptr(), mapped_bytes, Advice::LinuxDontFork) }
            .map_err(|cause| failed("setting the fork policy of", bytes, cause))?;
        if pages == Pages::Huge {
            // A kernel that has none refuses; the pool goes on without them too.
            // SAFETY: as above.
            let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        }
        Ok(region)
    }

    /// Backs all of it with zeroed pages, by so many threads.
    pub(super) fn populate(&self, threads: usize) -> Result<(), BenchError> {
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let offset = next.fetch_add(PIECE_BYTES, Ordering::Relaxed);
                if offset >= self.bytes {
                    return Ok(());
                }
                let bytes = PIECE_BYTES.min(self.bytes - offset);
                // SAFETY: the offset lies within the mapping.
                let piece = unsafe { self.start.add(offset) };
                back(piece, bytes).map_err(|cause| failed("backing", bytes, cause))?;
            }
        };
        // A thread that begins keeps others from starting: its faults hold the lock that maps stacks.
        let all_there = Barrier::new(threads);
        let together = || {
            all_there.wait();
            work()
        };
        thread::scope(|scope| {
            let helpers: Vec<_> = (1..threads).map(|_| scope.spawn(together)).collect();
            let own = together();
            helpers.into_iter().fold(own, |result, helper| {
                let of_helper = helper.join().unwrap_or_else(|_| {
                    Err(BenchError::Failed("a thread that backs memory panicked".to_owned()))
                });
                result.and(of_helper)
            })
        })
    }

    /// Registers all of it with the driver by one call, or locks it where there is none.
    pub(super) fn pin(&mut self, ground: &Ground) -> Result<(), BenchError> {
        let start = self.start.as_ptr().cast();
        match ground {
            Ground::Host => {
                // SAFETY: the range is our mapping; locking does not change its contents.
                unsafe { mlock(start, self.bytes) }
                    .map_err(|cause| failed("locking", self.bytes, cause))?;
                self.pinned = Pinned::Locked;
            }
            Ground::Cuda(rig) => {
                let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
                // SAFETY: the range is our mapping, and the rig's context shows that the driver is
                // loaded.
                unsafe { sys::cuMemHostRegister_v2(start, self.bytes, flags) }
                    .result()
                    .map_err(|cause| failed("registering", self.bytes, cause))?;
                self.pinned = Pinned::Registered(Arc::clone(&rig.context));
            }
        }
        Ok(())
    }

    /// Undoes everything.
    pub(super) fn close(mut self) -> Result<(), BenchError> {
        self.undo()
    }

    fn undo(&mut self) -> Result<(), BenchError> {
        if self.mapped_bytes == 0 {
            return Ok(());
        }
        let (start, bytes) = (self.start.as_ptr().cast(), self.bytes);
        match std::mem::replace(&mut self.pinned, Pinned::Not) {
            Pinned::Not => {}
            // SAFETY: the range was locked by `pin` and is still mapped.
            Pinned::Locked => unsafe { munlock(start, bytes) }
                .map_err(|cause| failed("unlocking", bytes, cause))?,
            Pinned::Registered(context) => {
                unregister(&context, self.start)
                    .map_err(|cause| failed("unregistering", bytes, cause))?;
            }
        }
        let mapped_bytes = std::mem::replace(&mut self.mapped_bytes, 0);
        // SAFETY: this value owned the mapping alone, and nothing of it is pinned any more.
        unsafe { munmap(self.mapped.as_ptr(), mapped_bytes) }
            .map_err(|cause| failed("unmapping", bytes, cause))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // Only reached with memory mapped when a run fails; the first error is the one to report.
        let _ = self.undo();
    }
}

fn unregister(context: &Arc<CudaContext>, start: NonNull<u8>) -> Result<(), DriverError> {
    context.bind_to_thread()?;
    // SAFETY: the region was registered with this start, and every copy from it was waited for.
    unsafe { sys::cuMemHostUnregister(start.as_ptr().cast()) }.result()
}

/// Backs a part of a mapping that nobody uses yet.
fn back(start: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the range is mapped; backing it changes no byte.
    match unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite) } {
        // Kernels before 5.14 do not know the advice.
        Err(Errno::INVAL) => {
            for offset in (0..bytes).step_by(PAGE_BYTES) {
                // SAFETY: the offset lies within the range.
                let page = unsafe { start.add(offset) };
                // SAFETY: nobody uses the mapping, and a fresh page holds zero already.
                unsafe { page.write_volatile(0) };
            }
            Ok(())
        }
        other => other,
    }
}

/// As many as a pool takes by default: one for each 64 MiB, at most 16 and at most the processors.
pub(super) fn default_threads(bytes: usize) -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    bytes.div_ceil(BYTES_PER_THREAD).min(processors).min(THREADS_MAX)
}

fn failed(what: &str, bytes: usize, cause: impl std::fmt::Display) -> BenchError {
    BenchError::failed(&format!("{what} {bytes} bytes"), cause)
}

/// The pieces that the threads share, as in a pool.
const PIECE_BYTES: usize = 16 << 20;
const BYTES_PER_THREAD: usize = 64 << 20;
const THREADS_MAX: usize = 16;
/// The smallest page of any system.
const PAGE_BYTES: usize = 4096;
/// A transparent huge page of most systems.
const HUGE_PAGE_BYTES: usize = 2 << 20;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    /// Pages of the region that are in RAM.
    fn pages_in_ram(region: &Region) -> usize {
        let mut pages = vec![0u8; region.bytes / PAGE_BYTES];
        let start = region.start.as_ptr().cast();
        // SAFETY: the range is mapped, and there is a byte for each of its pages.
        let result = unsafe { libc::mincore(start, region.bytes, pages.as_mut_ptr()) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        pages.iter().filter(|page| **page & 1 == 1).count()
    }

    #[test]
    fn every_page_is_backed_once_it_is_populated_and_none_before() {
        // Three pieces, the last of them short.
        let bytes = 2 * PIECE_BYTES + (1 << 20);
        for (threads, pages) in [(1, Pages::Any), (3, Pages::Any), (3, Pages::Huge)] {
            let region = Region::map(bytes, pages).unwrap();
            assert_eq!(pages_in_ram(&region), 0);
            region.populate(threads).unwrap();
            assert_eq!(pages_in_ram(&region), bytes / PAGE_BYTES);
            region.close().unwrap();
        }
    }

    #[test]
    fn locking_backs_untouched_memory() {
        let mut region = Region::map(1 << 20, Pages::Any).unwrap();
        region.pin(&Ground::Host).unwrap();
        assert_eq!(pages_in_ram(&region), (1 << 20) / PAGE_BYTES);
        region.close().unwrap();
    }
}
