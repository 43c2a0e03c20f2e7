//! A pair of memory barriers of which one side is free: `light` is nothing but an order to the compiler,
//! and `heavy` makes the system run a full barrier on every thread of the process.
//!
//! Together they order as two full barriers do: of two threads that each store, pass their barrier and
//! load what the other stored, at least one sees the other's store. That is what Linux promises of
//! `membarrier(PRIVATE_EXPEDITED)`: between its call and its return every thread of the process has
//! passed a full barrier at some place between two of its instructions; a thread that is not running
//! passed one when it was put aside. Model checkers are given two full barriers.

/// Between a store and a load of the side that is frequent.
#[inline]
pub(crate) fn light() {
    #[cfg(any(loom, shuttle))]
    crate::sync::fence(crate::sync::Ordering::SeqCst);
    #[cfg(not(any(loom, shuttle)))]
    crate::sync::plain::compiler_fence(crate::sync::plain::Ordering::SeqCst);
}

/// Between a store and a load of the side that is rare. Takes some microseconds, and interrupts the
/// processors that run threads of this process.
pub(crate) fn heavy() {
    if !crate::seeded::bug("no-barrier") {
        imp::heavy();
    }
}

/// Whether this process may use the barrier, which may take some milliseconds.
pub(crate) fn is_available() -> bool {
    imp::is_available()
}

#[cfg(any(loom, shuttle, miri))]
mod imp {
    use crate::sync::{Ordering, fence};

    pub(super) fn is_available() -> bool {
        // Miri has no such call, and its threads no such order.
        !cfg!(miri)
    }

    pub(super) fn heavy() {
        fence(Ordering::SeqCst);
    }
}

#[cfg(not(any(loom, shuttle, miri)))]
mod imp {
    use std::time::Duration;

    use crate::foreign::tell;
    use crate::sync::plain::{AtomicU32, Ordering};

    /// Says to the system that it will. The first time, in a process with threads, that takes some
    /// milliseconds.
    pub(super) fn is_available() -> bool {
        call(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
    }

    pub(super) fn heavy() {
        /// 1 once a sandbox that was put up after the pool was opened has refused it.
        static REFUSED: AtomicU32 = AtomicU32::new(0);
        if call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
            return;
        }
        if REFUSED.swap(1, Ordering::Relaxed) == 0 {
            tell!(warn, "membarrier is refused by now: slots move slowly between threads");
        }
        // No processor keeps a store to itself for so long, and no instruction takes so long.
        crate::sync::nap(SETTLED);
    }

    fn call(command: libc::c_int) -> bool {
        const NO_FLAGS: libc::c_uint = 0;
        const ANY_PROCESSOR: libc::c_int = 0;
        // SAFETY: the call takes numbers only and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, NO_FLAGS, ANY_PROCESSOR) == 0 }
    }

    const SETTLED: Duration = Duration::from_millis(2);
}
