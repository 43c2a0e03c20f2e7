//! Which process a pool belongs to: a mark that a forked child does not inherit, so that asking costs
//! one load and no system call.

use std::io;

use crate::sync::plain::{AtomicU32, Ordering};

/// The process that made this value.
///
/// `std::process::id` would be a system call each time, and a child's number can be that of a process
/// that ended. The mark is read alone and orders nothing: a fork copies one thread's view of memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Home {
    /// The process's epoch, or 0 in a child that has not asked for its own yet.
    mark: &'static AtomicU32,
    epoch: u32,
}

impl Home {
    /// The calling process.
    ///
    /// # Errors
    ///
    /// The first call of a process maps a page, and the system has no room for it.
    pub(crate) fn here() -> io::Result<Self> {
        let mark = mark()?;
        let epoch = match mark.load(Ordering::Relaxed) {
            0 => stamp(mark),
            epoch => epoch,
        };
        Ok(Self { mark, epoch })
    }

    /// True in the process that made this value, false in every child of it.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.mark.load(Ordering::Relaxed) == self.epoch
    }
}

/// Gives the process an epoch, unless another thread has just done so.
fn stamp(mark: &AtomicU32) -> u32 {
    /// The last epoch given. A child inherits it, so that its own differs from those of all its
    /// ancestors, whose pools it may have inherited.
    static EPOCHS: AtomicU32 = AtomicU32::new(0);
    let fresh = EPOCHS.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    match mark.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => fresh,
        Err(epoch) => epoch,
    }
}

/// Model checkers and Miri neither map nor fork.
#[cfg(any(loom, shuttle, miri))]
fn mark() -> io::Result<&'static AtomicU32> {
    static MARK: AtomicU32 = AtomicU32::new(0);
    Ok(&MARK)
}

#[cfg(not(any(loom, shuttle, miri)))]
use page::mark;

/// The page with the mark.
#[cfg(not(any(loom, shuttle, miri)))]
mod page {
    use std::io;
    use std::ptr::null_mut;

    use crate::memory::page::{release, wiped_on_fork};
    use crate::sync::plain::{AtomicPtr, AtomicU32, Ordering};

    /// No lock guards it: a fork may catch another thread in the middle, and the child would wait for
    /// ever. `Release` pairs with `Acquire`: who finds the page finds it zeroed or stamped.
    static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());

    /// Where the mark is.
    pub(super) fn mark() -> io::Result<&'static AtomicU32> {
        if let Some(mark) = known() {
            return Ok(mark);
        }
        let (page, wiped) = wiped_on_fork()?;
        // Before anybody can see the page.
        let watched = if wiped { Ok(()) } else { watch_forks() };
        let ours = page.as_ptr().cast::<AtomicU32>();
        let won = watched
            .map(|()| MARK.compare_exchange(null_mut(), ours, Ordering::AcqRel, Ordering::Acquire));
        let mark = match won {
            Ok(Ok(_)) => ours,
            Ok(Err(theirs)) => {
                // SAFETY: the page was not published.
                unsafe { release(page) };
                theirs
            }
            Err(error) => {
                // SAFETY: as above.
                unsafe { release(page) };
                return Err(error);
            }
        };
        // SAFETY: a published page is zeroed or stamped, aligned, and never unmapped.
        Ok(unsafe { &*mark })
    }

    fn known() -> Option<&'static AtomicU32> {
        // SAFETY: as above; null before the first call.
        unsafe { MARK.load(Ordering::Acquire).as_ref() }
    }

    /// For kernels that do not wipe: the C library empties the mark in each child that it forks. Asked
    /// for twice by two threads, it does so twice.
    fn watch_forks() -> io::Result<()> {
        unsafe extern "C" fn forget() {
            if let Some(mark) = known() {
                mark.store(0, Ordering::Relaxed);
            }
        }
        // SAFETY: the handler only stores, which is allowed in a child of a process with threads.
        match unsafe { libc::pthread_atfork(None, None, Some(forget)) } {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests;
