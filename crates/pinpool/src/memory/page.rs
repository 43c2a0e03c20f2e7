//! One page that a forked child finds empty.

use std::ffi::c_void;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, ProtFlags};

use super::limits::page_size;
use super::mapping::map;

/// One page of zeroes, for good, which the kernel empties in every forked child; and whether it will:
/// before 4.14 it does not.
pub(crate) fn wiped_on_fork() -> Result<(NonNull<c_void>, bool), Errno> {
    let bytes = page_size();
    let page: NonNull<c_void> = map(bytes, ProtFlags::READ | ProtFlags::WRITE)?.cast();
    let advice = Advice::LinuxWipeOnFork;
    // SAFETY: the page was mapped above and nobody else knows it.
    match unsafe { rustix::mm::madvise(page.as_ptr(), bytes, advice) } {
        Ok(()) => Ok((page, true)),
        Err(Errno::INVAL) => Ok((page, false)),
        Err(error) => {
            // SAFETY: as above.
            unsafe { release(page) };
            Err(error)
        }
    }
}

/// Gives back a page that was not wanted after all.
///
/// # Safety
///
/// `page` is one from [`wiped_on_fork`] that nobody uses.
pub(crate) unsafe fn release(page: NonNull<c_void>) {
    // SAFETY: the caller's duty. A page that stays mapped harms nobody.
    let _ = unsafe { rustix::mm::munmap(page.as_ptr(), page_size()) };
}
