//! Parts of files, read at any place by several threads: what lies in the page cache is copied from there,
//! and what does not is read past it, where that is possible.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fstat};
use rustix::io::{Errno, pread};

use crate::memory::limits::page_size;

/// A file from some place on.
#[derive(Debug)]
pub(super) struct FilePart {
    file: BorrowedFd<'static>,
    offset: u64,
    /// The same file, opened to be read past the page cache, where its file system can.
    direct: Option<OwnedFd>,
}

impl FilePart {
    pub(super) fn new(file: BorrowedFd<'static>, offset: u64) -> Self {
        let direct = if may_be_opened(file) { open_direct(file) } else { None };
        Self { file, offset, direct }
    }

    /// Fills `buffer` from `at` behind the part's beginning.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` where the file ends before, and what the system says.
    pub(super) fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let offset = self.offset.checked_add(at).ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut got = 0;
        if self.direct.is_some() && !is_cached(self.file, offset, buffer.len()) {
            got = self.read_direct(offset, buffer);
        }
        while got < buffer.len() {
            match pread(self.file, &mut buffer[got..], offset + got as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(more) => got += more,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Bytes read past the page cache: whole blocks, where offset and address allow it.
    fn read_direct(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let Some(direct) = &self.direct else { return 0 };
        let blocks = buffer.len() / BLOCK * BLOCK;
        let address = buffer.as_ptr().addr();
        let aligned = offset.is_multiple_of(BLOCK as u64) && address.is_multiple_of(BLOCK);
        let mut got = 0;
        while aligned && got < blocks {
            match pread(direct, &mut buffer[got..blocks], offset + got as u64) {
                Ok(more) if more > 0 => got += more,
                Err(Errno::INTR) => {}
                // The end of the file, or a file system that refuses after all: the usual way tells.
                _ => break,
            }
            if !got.is_multiple_of(BLOCK) {
                break;
            }
        }
        got
    }
}

/// Whether opening it once more changes nothing and gives no right that its descriptor lacks: opening a named pipe
/// waits for whoever writes to it, and opening a device may do anything.
fn may_be_opened(file: BorrowedFd<'_>) -> bool {
    let is_file = fstat(file).is_ok_and(|stat| {
        matches!(
            FileType::from_raw_mode(stat.st_mode),
            FileType::RegularFile | FileType::BlockDevice
        )
    });
    let reads = |flags: OFlags| flags & (OFlags::RWMODE | OFlags::PATH);
    is_file
        && fcntl_getfl(file)
            .is_ok_and(|flags| [OFlags::RDONLY, OFlags::RDWR].contains(&reads(flags)))
}

fn open_direct(file: BorrowedFd<'_>) -> Option<OwnedFd> {
    let again = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    rustix::fs::open(again, flags, Mode::empty()).ok()
}

/// Whether most of a part lies in the page cache, or nobody can tell. The question changes nothing there; an attempt
/// to read what is cached would make the kernel read ahead what is not, into a cache that is then passed by.
fn is_cached(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> bool {
    // `struct cachestat_range` and `struct cachestat`, whose first field counts pages that are there.
    let (range, mut counts) = ([offset, bytes as u64], [0_u64; 5]);
    let (file, nothing) = (file.as_raw_fd(), 0);
    // SAFETY: the kernel reads two numbers and writes five.
    let asked =
        unsafe { libc::syscall(CACHESTAT, file, range.as_ptr(), counts.as_mut_ptr(), nothing) };
    asked != 0 || counts[0].saturating_mul(page_size() as u64) > bytes as u64 / 2
}

/// Linux 6.5 and later; the number is that of all architectures.
const CACHESTAT: libc::c_long = 451;

/// No disk asks for more.
const BLOCK: usize = 4096;
