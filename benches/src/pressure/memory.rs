//! The neighbour's working set: ordinary memory that several threads touch and read.

use std::hint::black_box;
use std::ptr::{self, NonNull};
use std::slice;
use std::thread;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::BenchError;

/// A mapping of this process alone, every page of it touched.
#[derive(Debug)]
pub(super) struct Memory {
    /// The start of the mapping that this value owns alone.
    start: NonNull<u8>,
    bytes: usize,
}

impl Memory {
    /// Maps `bytes`, which must not be zero, and touches them.
    pub(super) fn map(bytes: usize) -> Result<Self, BenchError> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a private anonymous mapping at an address of the kernel's choice touches no memory
        // that exists.
        let mapped = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
        let failed = |cause: String| {
            BenchError::Failed(format!("mapping a working set of {bytes} bytes: {cause}"))
        };
        let mapped = mapped.map_err(|cause| failed(cause.to_string()))?;
        let Some(start) = NonNull::new(mapped.cast()) else {
            return Err(failed("it begins at address zero".to_owned()));
        };
        let mut memory = Self { start, bytes };
        memory.touch();
        Ok(memory)
    }

    fn touch(&mut self) {
        let part = part_bytes(self.bytes);
        // SAFETY: the mapping is `bytes` long, zeroed by the kernel, owned by this value, and borrowed
        // mutably through it.
        let all = unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) };
        thread::scope(|scope| {
            for part in all.chunks_mut(part) {
                scope.spawn(move || {
                    for page in part.chunks_mut(PAGE_BYTES) {
                        page[0] = 1;
                    }
                    black_box(part);
                });
            }
        });
    }

    /// Reads all of it once; the number of its pages.
    pub(super) fn stream(&self) -> u64 {
        // SAFETY: as in `touch`, borrowed through this value.
        let all = unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) };
        let sum = |part: &[u8]| -> u64 {
            let words = part.chunks_exact(size_of::<u64>());
            words
                .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
                .fold(0, u64::wrapping_add)
        };
        thread::scope(|scope| {
            let parts = all.chunks(part_bytes(self.bytes));
            let threads: Vec<_> = parts.map(|part| scope.spawn(move || sum(part))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).fold(0, u64::wrapping_add)
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this value owned the mapping alone, and no slice of it outlives a borrow of it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// What each thread works on: whole pages.
fn part_bytes(bytes: usize) -> usize {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    bytes.div_ceil(threads).next_multiple_of(PAGE_BYTES)
}

const PAGE_BYTES: usize = 4096;
const THREADS_MAX: usize = 8;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_touched_and_read_once() {
        for pages in [1, 2, 1000, 1001] {
            let memory = Memory::map(pages * PAGE_BYTES).unwrap();
            // The first byte of each page is 1, all others are 0.
            assert_eq!(
                memory.stream(),
                (pages as u64) * u64::from_ne_bytes([1, 0, 0, 0, 0, 0, 0, 0])
            );
        }
    }
}
