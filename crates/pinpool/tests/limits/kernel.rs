//! The limit as the kernel keeps it while a pool opens, though there seemed to be room before; and what
//! it keeps of memory that was given back.

use std::ptr::NonNull;

use pinpool::{Mlock, PageLock, Pinned, Region};

use super::*;

/// Host memory that does not let the pool look at the limit before: as if somebody else locked memory
/// between the look and the lock.
#[derive(Debug)]
struct Unasked(Mlock);

// SAFETY: every duty is the inner memory's.
unsafe impl PageLock for Unasked {
    fn kind(&self) -> BackendKind {
        self.0.kind()
    }

    fn reserve(&self, bytes: usize) -> Result<NonNull<u8>, MemoryError> {
        self.0.reserve(bytes)
    }

    unsafe fn populate(&self, part: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.0.populate(part) }
    }

    unsafe fn pin(&self, chunk: Region) -> Result<Pinned, MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.0.pin(chunk) }
    }

    unsafe fn unpin(&self, chunk: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.0.unpin(chunk) }
    }

    unsafe fn release(&self, region: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.0.release(region) }
    }
}

/// Opens a pool that meets the limit when `already` bytes are locked.
fn assert_met(builder: PoolBuilder, needed: u64, soft: u64, already: u64) {
    let builder = builder.memory(Unasked(Mlock::new(LockMode::Require)));
    let (text, source) = assert_refused(builder, needed, soft, already);
    let code = if soft == 0 { libc::EPERM } else { libc::ENOMEM };
    assert_eq!(source.cause, MemoryCause::Os(code), "{text}");
}

/// A slab that is locked in several calls and fails in a later one: what was locked is named, and
/// unlocked again.
#[test]
fn a_failure_in_a_later_chunk_unlocks_the_earlier_ones() {
    bound("kernel::a_failure_in_a_later_chunk_unlocks_the_earlier_ones", || {
        let chunk = 16 * PAGE;
        let pool = || builder().class("chunks", 4096, 64).pin_chunk(chunk);
        assert_eq!(pool().plan().unwrap().classes[0].chunk_bytes as u64, chunk);
        for chunks in 0..4 {
            for extra in [0, PAGE, chunk - 1] {
                let soft = chunks * chunk + extra;
                set_soft(Some(soft));
                assert_over_the_limit(pool(), 4 * chunk, soft);
                assert_met(pool(), 4 * chunk, soft, chunks * chunk);
                assert_opens(pool().lock(LockMode::Try), false, 4 * chunk);
            }
        }
        set_soft(Some(4 * chunk));
        assert_opens(pool(), true, 4 * chunk);
    });
}

#[test]
fn when_only_the_second_class_does_not_fit_the_first_is_unlocked() {
    bound("kernel::when_only_the_second_class_does_not_fit_the_first_is_unlocked", || {
        let pool = || builder().class("small", 4096, 4).class("large", 64 << 10, 2);
        let (small, total) = (4 * PAGE, 4 * PAGE + (128 << 10));
        for soft in [small, small + PAGE, total - PAGE] {
            set_soft(Some(soft));
            assert_over_the_limit(pool(), total, soft);
            assert_met(pool(), total, soft, small);
            // Leniently each class is what it could become, and says so.
            let before = readings();
            let open = pool().lock(LockMode::Try).open().unwrap();
            assert!(!open.is_pinned());
            assert!(open.try_lease(4096).unwrap().is_pinned());
            assert!(!open.try_lease(4097).unwrap().is_pinned());
            assert_eq!(open.stats().pinned_bytes, small);
            assert_eq!(proc::locked_bytes() - before.0, small);
            drop(open);
            assert_eq!(readings(), before);
        }
        set_soft(Some(total));
        assert_opens(pool(), true, total);
    });
}

/// The kernel counts what is locked until it is unlocked, and no longer: a pool as large as the limit
/// opens again at once. The limit is each process's own, so that a second one has as much again.
///
/// Case limits-2.
#[test]
fn a_pool_as_large_as_the_limit_opens_again_at_once_and_in_two_processes() {
    const NAME: &str =
        "kernel::a_pool_as_large_as_the_limit_opens_again_at_once_and_in_two_processes";
    let twice = || {
        set_soft(Some(SLAB + PAGE));
        for round in 0..100 {
            let pool = small().open().unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert_eq!(proc::locked_bytes(), SLAB, "round {round}");
            drop(pool);
            assert_eq!(proc::locked_bytes(), 0, "round {round}");
        }
    };
    if child::in_child() {
        return bound(NAME, twice);
    }
    std::thread::scope(|scope| {
        let other = scope.spawn(|| bound(NAME, twice));
        bound(NAME, twice);
        other.join().unwrap();
    });
}
