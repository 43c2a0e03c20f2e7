//! The simulator's memory: it keeps its own books of what is mapped and pinned, and its calls fail by
//! chance, once or for ever.

use std::ptr::NonNull;

use super::rng::Rng;
use crate::memory::{
    BackendKind, Heap, MemoryCause, MemoryError, MemoryStep, PageLock, Pinned, Region,
};
use crate::sync::Mutex;

/// Ordinary memory that claims to be pinned.
#[derive(Debug)]
pub(super) struct Pages {
    heap: Heap,
    books: Mutex<Books>,
}

/// What is mapped and pinned, in truth.
#[derive(Debug)]
pub(super) struct Books {
    rng: Rng,
    /// How many of 1024 calls fail, by kind of call: reserve, pin, unpin, release.
    pub(super) rates: [u64; 4],
    /// Kinds of calls that fail from now on.
    pub(super) broken: [bool; 4],
    /// Each with whether a call to give it back failed.
    pub(super) regions: Vec<(Region, bool)>,
    chunks: Vec<Region>,
    pub(super) pinned: u64,
    pub(super) mapped: u64,
    /// Bytes whose unpin failed, and regions that could not be unmapped.
    pub(super) stuck: u64,
    pub(super) wrong: Option<&'static str>,
}

impl Pages {
    pub(super) fn new(rng: Rng) -> Self {
        let books = Books {
            rng,
            rates: [0; 4],
            broken: [false; 4],
            regions: Vec::new(),
            chunks: Vec::new(),
            pinned: 0,
            mapped: 0,
            stuck: 0,
            wrong: None,
        };
        Self { heap: Heap::claiming_locked(), books: Mutex::new(books) }
    }

    /// The books.
    pub(super) fn look<R>(&self, look: impl FnOnce(&mut Books) -> R) -> R {
        look(&mut self.books.lock())
    }

    /// Frees what was never given back. Nobody uses it any more.
    pub(super) fn clear(&self) {
        let left = self.look(|books| std::mem::take(&mut books.regions));
        for (region, _) in left {
            // SAFETY: `heap` reserved it, and the world that used it is over.
            let _ = unsafe { self.heap.release(region) };
        }
    }
}

impl Books {
    fn fails(&mut self, step: MemoryStep, bytes: usize) -> Result<(), MemoryError> {
        let kind = match step {
            MemoryStep::Reserve => 0,
            MemoryStep::Pin => 1,
            MemoryStep::Unpin => 2,
            _ => 3,
        };
        if self.broken[kind] || self.rng.chance(self.rates[kind]) {
            let cause = MemoryCause::Other("the simulator says no");
            return Err(MemoryError { step, bytes, cause });
        }
        Ok(())
    }

    fn check(&mut self, holds: bool, wrong: &'static str) {
        if !holds {
            self.wrong.get_or_insert(wrong);
        }
    }
}

// SAFETY: B1 and B2 are the heap's; B3 a call that fails did nothing; B4 is waived: nothing is locked
// in truth, and only reports depend on it; B5 no device address is claimed; B6 nothing unwinds.
unsafe impl PageLock for Pages {
    fn kind(&self) -> BackendKind {
        BackendKind::Custom("simulated")
    }

    fn takes_system_memory(&self) -> bool {
        false
    }

    fn reserve(&self, bytes: usize) -> Result<NonNull<u8>, MemoryError> {
        self.look(|books| books.fails(MemoryStep::Reserve, bytes))?;
        let start = self.heap.reserve(bytes)?;
        self.look(|books| {
            books.regions.push((Region { start, bytes }, false));
            books.mapped += bytes as u64;
        });
        Ok(start)
    }

    unsafe fn populate(&self, _: Region) -> Result<(), MemoryError> {
        Ok(())
    }

    unsafe fn pin(&self, chunk: Region) -> Result<Pinned, MemoryError> {
        self.look(|books| {
            books.fails(MemoryStep::Pin, chunk.bytes)?;
            books.check(!books.chunks.contains(&chunk), "a chunk was pinned twice");
            books.chunks.push(chunk);
            books.pinned += chunk.bytes as u64;
            Ok(Pinned { locked: true, device_base: None })
        })
    }

    unsafe fn unpin(&self, chunk: Region) -> Result<(), MemoryError> {
        self.look(|books| {
            let at = books.chunks.iter().position(|known| *known == chunk);
            books.check(at.is_some(), "a chunk was unpinned that was not pinned");
            if let Err(error) = books.fails(MemoryStep::Unpin, chunk.bytes) {
                books.stuck += chunk.bytes as u64;
                let around = |(region, _): &&mut (Region, bool)| within(region, &chunk);
                for (_, stuck) in books.regions.iter_mut().filter(around) {
                    *stuck = true;
                }
                return Err(error);
            }
            let _ = at.map(|at| books.chunks.swap_remove(at));
            books.pinned -= chunk.bytes as u64;
            Ok(())
        })
    }

    unsafe fn release(&self, region: Region) -> Result<(), MemoryError> {
        self.look(|books| {
            let pinned = books.chunks.iter().any(|chunk| within(&region, chunk));
            books.check(!pinned, "memory was unmapped while pinned");
            let at = books.regions.iter().position(|(known, _)| *known == region);
            books.check(at.is_some(), "memory was unmapped that was not mapped");
            if let Err(error) = books.fails(MemoryStep::Release, region.bytes) {
                books.stuck += region.bytes as u64;
                if let Some(at) = at {
                    books.regions[at].1 = true;
                }
                return Err(error);
            }
            let _ = at.map(|at| books.regions.swap_remove(at));
            books.mapped -= region.bytes as u64;
            Ok(())
        })?;
        // SAFETY: `heap` reserved it (the caller), and the books had it once.
        unsafe { self.heap.release(region) }
    }
}

/// Whether a chunk lies within a region.
fn within(region: &Region, chunk: &Region) -> bool {
    let offset = chunk.start.addr().get().wrapping_sub(region.start.addr().get());
    offset < region.bytes
}
