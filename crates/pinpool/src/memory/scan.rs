//! Asks the kernel for pages of a range that are not huge (`PAGEMAP_SCAN`, Linux 6.7): it walks no more than up
//! to the first one.

use std::fs::File;
use std::os::fd::AsRawFd;

use super::Region;

/// What is known of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scanned {
    /// Every page is there, and huge.
    Huge,
    /// So many bytes from the start are, and the next page is not.
    UpTo(usize),
}

/// Looks for ordinary pages, and for such as are not there. `None` where the kernel cannot tell.
pub(super) fn ordinary(range: Region) -> Option<Scanned> {
    let pagemap = File::open("/proc/self/pagemap").ok()?;
    let start = range.start.addr().get() as u64;
    let mut found = PageRegion::default();
    let mut question = Question {
        size: size_of::<Question>() as u64,
        flags: 0,
        start,
        end: start + range.bytes as u64,
        walk_end: 0,
        vec: (&raw mut found).expose_provenance() as u64,
        vec_len: 1,
        max_pages: 1,
        category_inverted: IS_HUGE,
        category_mask: IS_HUGE,
        category_anyof_mask: 0,
        return_mask: IS_HUGE,
    };
    // SAFETY: the kernel reads and writes the question, which is as long as it says, and writes at most
    // one region where it was told to.
    let regions = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut question) };
    match regions {
        0 if question.walk_end == question.end => Some(Scanned::Huge),
        1 => {
            let bytes = found.start.checked_sub(start)?;
            usize::try_from(bytes).ok().map(Scanned::UpTo)
        }
        _ => None,
    }
}

/// `struct pm_scan_arg` of `linux/fs.h`.
#[repr(C)]
#[derive(Debug)]
struct Question {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region` of the same file.
#[repr(C)]
#[derive(Debug, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// `PAGE_IS_HUGE`: mapped as a whole, reserved or transparent.
const IS_HUGE: u64 = 1 << 6;
/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::Ioctl = (3 << 30 | (size_of::<Question>() << 16) | (0x66 << 8) | 16) as _;

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::ptr::NonNull;

    use super::*;

    const BYTES: usize = 1 << 16;

    /// A kernel that cannot tell is the fallback's business: `None` is said aloud and passes.
    #[test]
    fn small_pages_are_no_huge_ones() {
        let mut memory = vec![1u8; BYTES + 4096];
        let offset = memory.as_ptr().align_offset(4096);
        let start = NonNull::new(memory[offset..].as_mut_ptr()).unwrap();
        match ordinary(Region { start, bytes: BYTES }) {
            Some(scanned) => assert!(matches!(scanned, Scanned::UpTo(bytes) if bytes < BYTES)),
            None => println!("NOT RUN: this kernel has no PAGEMAP_SCAN"),
        }
    }
}
