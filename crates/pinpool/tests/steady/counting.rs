//! What a thread allocates, and how often the kernel had to do with it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator with a count per thread.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

std::thread_local! {
    // Has no destructor, so it counts until the thread's very end.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// What the calling thread has allocated so far; a block that grows counts again.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.get()
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: each call is the system allocator's, with the caller's arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's duty, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's duty, passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's duty, passed on.
        unsafe { System.realloc(start, layout, bytes) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's duty, passed on.
        unsafe { System.dealloc(start, layout) };
    }
}

/// The kernel's counts for the calling thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Thread {
    /// Page faults without and with a disk.
    faults: (i64, i64),
    /// How often it gave up the processor: it slept.
    sleeps: i64,
}

impl Thread {
    pub(crate) fn now() -> Self {
        // SAFETY: all zeros is a valid value of these numbers.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes the numbers of the calling thread.
        let read = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
        assert_eq!(read, 0, "the kernel counts");
        Self { faults: (usage.ru_minflt, usage.ru_majflt), sleeps: usage.ru_nvcsw }
    }
}
