//! The book that [`Counted`](super::Counted) keeps: what is reserved and pinned, and every breach of
//! the order that `PageLock` promises.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;
use pinpool::{MemoryStep, PageLock, Region};

use super::{STEPS, index};

/// A view of what a memory was asked to do, and of what is open now.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    book: Arc<Mutex<Book>>,
}

#[derive(Debug, Default)]
struct Book {
    calls: [u64; STEPS.len()],
    failures: [u64; STEPS.len()],
    /// Reserved regions by first address.
    regions: BTreeMap<usize, Held>,
    pinned_bytes: usize,
    pinned_bytes_peak: usize,
    /// A region may end where its memory does.
    may_end: bool,
    violations: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Held {
    bytes: usize,
    populated_bytes: usize,
    /// Pinned chunks (offset, bytes) in the order of their pinning.
    pinned: Vec<(usize, usize)>,
    /// The offset of the last unpinned chunk: the next one lies below it.
    unpinned_from: usize,
}

impl Ledger {
    /// Calls of a step, failed ones included.
    pub fn calls(&self, step: MemoryStep) -> u64 {
        self.book.lock().calls[index(step)]
    }

    /// Failed calls of a step.
    pub fn failures(&self, step: MemoryStep) -> u64 {
        self.book.lock().failures[index(step)]
    }

    /// Calls of all steps together.
    pub fn calls_total(&self) -> u64 {
        self.book.lock().calls.iter().sum()
    }

    /// Bytes reserved now.
    pub fn reserved_bytes(&self) -> usize {
        self.book.lock().regions.values().map(|held| held.bytes).sum()
    }

    /// Regions reserved now.
    pub fn regions(&self) -> usize {
        self.book.lock().regions.len()
    }

    /// Bytes pinned now.
    pub fn pinned_bytes(&self) -> usize {
        self.book.lock().pinned_bytes
    }

    /// The most bytes that were pinned at once.
    pub fn pinned_bytes_peak(&self) -> usize {
        self.book.lock().pinned_bytes_peak
    }

    /// Every call that broke the order of a slab's life.
    pub fn violations(&self) -> Vec<String> {
        self.book.lock().violations.clone()
    }

    /// From now on a region may be pinned up to where it is populated, as with `min_bytes`.
    pub fn expect_less(&self) {
        self.book.lock().may_end = true;
    }

    /// The pinned chunks, by rising address: where each begins, and its bytes.
    pub fn pinned_chunks(&self) -> Vec<(usize, usize)> {
        let book = self.book.lock();
        let chunks = book.regions.iter().flat_map(|(start, held)| {
            held.pinned.iter().map(move |(offset, bytes)| (start + offset, *bytes))
        });
        let mut chunks: Vec<_> = chunks.collect();
        chunks.sort_unstable();
        chunks
    }

    /// Gives back to `memory`, which must be what the counted memory stands on, all that is still
    /// pinned or reserved: for tests that made the pool leave something behind.
    pub fn give_back(&self, memory: &impl PageLock) {
        for (start, held) in std::mem::take(&mut self.book.lock().regions) {
            let start = NonNull::new(start as *mut u8).expect("a region has an address");
            let region = Region { start, bytes: held.bytes };
            for (offset, bytes) in held.pinned.into_iter().rev() {
                // SAFETY: the book has seen this chunk pinned within the region.
                let chunk = unsafe { region.part(offset, bytes) };
                // SAFETY: it was pinned so and never unpinned; no pool uses it any more.
                unsafe { memory.unpin(chunk) }.expect("the memory itself does not fail");
            }
            // SAFETY: the book has seen it reserved and not released; nothing of it is pinned.
            unsafe { memory.release(region) }.expect("the memory itself does not fail");
        }
        self.book.lock().pinned_bytes = 0;
    }

    /// Nothing is reserved or pinned and no call broke the order.
    pub fn assert_clean(&self) {
        let book = self.book.lock();
        assert!(book.violations.is_empty(), "broken order: {:#?}", book.violations);
        assert_eq!(book.pinned_bytes, 0, "bytes are still pinned");
        assert!(book.regions.is_empty(), "still reserved: {:?}", book.regions);
    }

    pub(super) fn count(&self, step: MemoryStep, failed: bool) {
        let mut book = self.book.lock();
        book.calls[index(step)] += 1;
        book.failures[index(step)] += u64::from(failed);
    }

    pub(super) fn reserved(&self, region: Region) {
        let mut book = self.book.lock();
        let start = region.start.as_ptr() as usize;
        let held = Held {
            bytes: region.bytes,
            populated_bytes: 0,
            pinned: Vec::new(),
            unpinned_from: usize::MAX,
        };
        if book.regions.insert(start, held).is_some() {
            book.violations.push(format!("{region:?} was reserved twice"));
        }
    }

    pub(super) fn populating(&self, part: Region) {
        self.book.lock().at(part, "populate", |held, offset, bytes| {
            held.populated_bytes += bytes;
            if held.populated_bytes > held.bytes {
                return Some("more was populated than reserved");
            }
            held.overlaps(offset, bytes).then_some("populated while pinned")
        });
    }

    pub(super) fn pinning(&self, chunk: Region) {
        let mut book = self.book.lock();
        let may_end = book.may_end;
        book.at(chunk, "pin", |held, offset, bytes| {
            let needed = if may_end { offset + bytes } else { held.bytes };
            let end = held.pinned.last().map_or(0, |(offset, bytes)| offset + bytes);
            if held.overlaps(offset, bytes) {
                Some("pinned twice")
            } else if offset < end {
                Some("pinned out of order")
            } else if held.populated_bytes < needed {
                Some("pinned before it was populated")
            } else {
                None
            }
        });
    }

    pub(super) fn pinned(&self, chunk: Region) {
        let mut book = self.book.lock();
        book.at(chunk, "pin", |held, offset, bytes| {
            held.pinned.push((offset, bytes));
            held.unpinned_from = usize::MAX;
            None
        });
        book.pinned_bytes += chunk.bytes;
        book.pinned_bytes_peak = book.pinned_bytes_peak.max(book.pinned_bytes);
    }

    pub(super) fn unpinning(&self, chunk: Region) {
        self.book.lock().at(chunk, "unpin", |held, offset, bytes| {
            (!held.pinned.contains(&(offset, bytes))).then_some("unpinned what was not pinned so")
        });
    }

    pub(super) fn unpinned(&self, chunk: Region) {
        let mut book = self.book.lock();
        book.at(chunk, "unpin", |held, offset, bytes| {
            held.pinned.retain(|pinned| *pinned != (offset, bytes));
            let above = std::mem::replace(&mut held.unpinned_from, offset);
            (offset >= above).then_some("not in reverse order")
        });
        book.pinned_bytes = book.pinned_bytes.saturating_sub(chunk.bytes);
    }

    /// Takes the region out of the book, until the release has failed.
    pub(super) fn releasing(&self, region: Region) -> Option<Held> {
        let mut book = self.book.lock();
        book.at(region, "release", |held, offset, bytes| {
            if (offset, bytes) != (0, held.bytes) {
                Some("not the whole region")
            } else if held.pinned.is_empty() {
                None
            } else {
                Some("released while pinned")
            }
        });
        book.regions.remove(&(region.start.as_ptr() as usize))
    }

    pub(super) fn not_released(&self, region: Region, held: Option<Held>) {
        let start = region.start.as_ptr() as usize;
        self.book.lock().regions.extend(held.map(|held| (start, held)));
    }
}

impl Book {
    /// Finds the region that `part` lies in and lets `check` change it; notes what it objects to.
    fn at(
        &mut self,
        part: Region,
        what: &str,
        check: impl FnOnce(&mut Held, usize, usize) -> Option<&'static str>,
    ) {
        let start = part.start.as_ptr() as usize;
        let found = self.regions.range_mut(..=start).next_back();
        let problem = match found {
            Some((base, held)) if start - base + part.bytes <= held.bytes => {
                check(held, start - base, part.bytes)
            }
            _ => Some("outside every reserved region"),
        };
        if let Some(problem) = problem {
            self.violations.push(format!("{what} of {part:?}: {problem}"));
        }
        if part.bytes == 0 {
            self.violations.push(format!("{what} of zero bytes"));
        }
    }
}

impl Held {
    fn overlaps(&self, offset: usize, bytes: usize) -> bool {
        self.pinned.iter().any(|(start, len)| offset < start + len && *start < offset + bytes)
    }
}
