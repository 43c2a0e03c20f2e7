//! One staged copy as its crew sees it: what was lent on the host's side, where on the device, and what it
//! comes behind.

use std::any::Any;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use cudarc::driver::CudaContext;

use super::board::Work;
use super::error::StageCause;
use super::file::FilePart;
use super::past_cache;
use super::tally::Tally;
use crate::cuda::lane::{Lane, LaneId, Mark, drop_in_time};
use crate::foreign::caught;
use crate::sync::Mutex;

/// A copy in pieces. What it borrows it may use until its tally is over, and a source until all of it has
/// been read (I18).
#[derive(Debug)]
pub(super) struct Job {
    /// Handles and fences have it, too: they keep nothing else.
    pub(super) tally: Arc<Tally>,
    host: Host,
    /// The device's side.
    device: u64,
    bytes: usize,
    piece_bytes: usize,
    pub(super) context: Arc<CudaContext>,
    /// What the caller's stream had queued before.
    start: Mark,
    /// Lanes that have some of it.
    lanes: Mutex<Vec<LaneId>>,
    /// What an owned copy keeps alive.
    kept: Option<Kept>,
}

impl Drop for Job {
    fn drop(&mut self) {
        // Device memory is given back to the driver, on a thread of the crew.
        drop_in_time(self.kept.take());
    }
}

/// What a copy owns.
pub(super) type Kept = Arc<dyn Any + Send + Sync>;

/// The host's side of a copy.
#[derive(Debug)]
pub(super) enum Host {
    /// Bytes to read.
    From(Lent<u8>),
    /// A part of a file to read, from any thread at any place.
    FromFile(FilePart),
    /// Bytes in their order.
    FromReader(Mutex<Lent<Reader>>),
    /// Bytes to write.
    To(Lent<u8>),
    /// Bytes in their order.
    ToWriter(Mutex<Lent<Writer>>),
}

/// What a caller lends until its copy is over.
pub(super) struct Lent<T: ?Sized>(*mut T);

impl<T: ?Sized> fmt::Debug for Lent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lent")
    }
}

// SAFETY: I18, the lender keeps it alive and away from others; readers and writers are `Send` and used by
// one thread at a time, and bytes have no thread.
unsafe impl<T: ?Sized> Send for Lent<T> {}
// SAFETY: as above: pieces of bytes do not overlap, and a lock is around all else.
unsafe impl<T: ?Sized> Sync for Lent<T> {}

impl Host {
    /// Lends bytes to read.
    pub(super) fn from_bytes(start: *const u8) -> Self {
        Self::From(Lent(start.cast_mut()))
    }

    /// Lends bytes to write.
    pub(super) fn to_bytes(start: *mut u8) -> Self {
        Self::To(Lent(start))
    }

    /// Lends a file, from `offset` on.
    pub(super) fn from_file(file: BorrowedFd<'_>, offset: u64) -> Self {
        // SAFETY: I18, the lender keeps the file open until it has been read.
        let file = unsafe { BorrowedFd::borrow_raw(file.as_raw_fd()) };
        Self::FromFile(FilePart::new(file, offset))
    }

    /// Lends a reader.
    pub(super) fn from_reader<'a>(reader: &'a mut (dyn Read + Send + 'a)) -> Self {
        // SAFETY: I18, only the lifetime changes: the lender waits for the end of the copy.
        let lent =
            unsafe { std::mem::transmute::<&'a mut (dyn Read + Send + 'a), &mut Reader>(reader) };
        Self::FromReader(Mutex::new(Lent(lent)))
    }

    /// Lends a writer.
    pub(super) fn to_writer<'a>(writer: &'a mut (dyn Write + Send + 'a)) -> Self {
        // SAFETY: as for readers.
        let lent =
            unsafe { std::mem::transmute::<&'a mut (dyn Write + Send + 'a), &mut Writer>(writer) };
        Self::ToWriter(Mutex::new(Lent(lent)))
    }
}

type Reader = dyn Read + Send;
type Writer = dyn Write + Send;

/// The device's side of a copy.
pub(super) struct Device {
    pub(super) address: u64,
    pub(super) context: Arc<CudaContext>,
    pub(super) start: Mark,
}

impl Job {
    /// A copy of so many bytes.
    ///
    /// # Safety
    ///
    /// I18: what `host` borrows and the device memory stay, and nobody else uses them in a way that
    /// conflicts, until the tally is over; or they are `kept`. Of a source, until it has been read.
    pub(super) unsafe fn new(
        tally: Tally,
        host: Host,
        device: Device,
        (bytes, piece_bytes): (usize, usize),
        kept: Option<Kept>,
    ) -> Self {
        let Device { address, context, start } = device;
        let lanes = Mutex::new(Vec::new());
        let (device, tally) = (address, Arc::new(tally));
        Self { tally, host, device, bytes, piece_bytes, context, start, lanes, kept }
    }

    /// Whether it goes to the device.
    pub(super) fn is_upload(&self) -> bool {
        matches!(self.host, Host::From(_) | Host::FromFile(_) | Host::FromReader(_))
    }

    /// Bytes of a piece.
    pub(super) fn len(&self, piece: usize) -> usize {
        self.piece_bytes.min(self.bytes - piece * self.piece_bytes)
    }

    /// A piece's place on the device.
    pub(super) fn address(&self, piece: usize) -> u64 {
        self.device + (piece * self.piece_bytes) as u64
    }

    /// Notes that a lane has some of it.
    pub(super) fn goes_by(&self, lane: &Lane) {
        let mut lanes = self.lanes.lock();
        if !lanes.contains(&lane.id()) {
            lanes.push(lane.id());
        }
    }

    /// The lanes that have some of it.
    pub(super) fn lanes(&self) -> Vec<LaneId> {
        self.lanes.lock().clone()
    }

    /// Reads a piece of the source into `buffer`, which is as long.
    pub(super) fn fill(&self, piece: usize, buffer: &mut [u8]) -> Result<(), StageCause> {
        let offset = piece * self.piece_bytes;
        match &self.host {
            Host::From(Lent(start)) => {
                let (start, target) = (start.wrapping_add(offset), buffer.as_mut_ptr());
                let copy = if self.bytes <= CACHED_MAX {
                    past_cache::copy
                } else {
                    std::ptr::copy_nonoverlapping
                };
                // SAFETY: I18, the source has these bytes, nobody writes them, and the slot is no part of
                // them: its owner has it exclusively.
                unsafe { copy(start, target, buffer.len()) };
                Ok(())
            }
            Host::FromFile(file) => ended(file.read(offset as u64, buffer)),
            Host::FromReader(reader) => {
                let lent = reader.lock();
                let reader: *mut Reader = lent.0;
                // SAFETY: I18, and the lock makes this its only user.
                let reader = unsafe { &mut *reader };
                ended(caught(|| reader.read_exact(buffer)).ok_or(StageCause::Panicked)?)
            }
            Host::To(_) | Host::ToWriter(_) => Ok(()),
        }
    }

    /// Writes a piece that came from the device to its target.
    pub(super) fn drain(&self, piece: usize, bytes: &[u8]) -> Result<(), StageCause> {
        match &self.host {
            Host::To(Lent(start)) => {
                let start = start.wrapping_add(piece * self.piece_bytes);
                // SAFETY: I18, the target has room for them, no other piece writes there, and a slot is
                // no part of it: whoever lent it holds it by `&mut`.
                unsafe { past_cache::copy(bytes.as_ptr(), start, bytes.len()) };
                Ok(())
            }
            Host::ToWriter(writer) => {
                let lent = writer.lock();
                let writer: *mut Writer = lent.0;
                // SAFETY: as for readers.
                let writer = unsafe { &mut *writer };
                let written = caught(|| writer.write_all(bytes)).ok_or(StageCause::Panicked)?;
                written.map_err(StageCause::Write)
            }
            Host::From(_) | Host::FromFile(_) | Host::FromReader(_) => Ok(()),
        }
    }
}

impl Work for Job {
    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn is_serial(&self) -> bool {
        matches!(self.host, Host::FromReader(_) | Host::ToWriter(_))
    }

    fn is_written(&self) -> bool {
        matches!(self.host, Host::ToWriter(_))
    }

    fn is_ready(&self) -> bool {
        self.start.is_reached()
    }
}

/// Sources up to this size often lie in the cache. Of these, pieces written past the cache go 1.3 to 1.7 times as
/// fast (1 to 16 MiB, H200 host), of larger ones 0.7 times; targets of downloads 1.3 times at 1 GiB.
const CACHED_MAX: usize = 32 << 20;

fn ended(read: io::Result<()>) -> Result<(), StageCause> {
    read.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            // What a reader put into it is the caller's.
            let _ = caught(|| drop(error));
            StageCause::Truncated
        }
        _ => StageCause::Read(error),
    })
}
