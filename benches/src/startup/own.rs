//! A thread of this process that goes on with its work while another one pins: it copies to the device,
//! or maps pages where there is none.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::opens::milliseconds;
use super::strategies::Ground;
use crate::BenchError;
use crate::cuda_rig::DeviceMemory;
use crate::rivals::pinned_cuda::DriverPages;

/// How this process's thread knows what to do.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// What it does counts.
    pub(super) counts: AtomicBool,
    /// Something did count.
    pub(super) counted: AtomicBool,
    /// It is to end.
    pub(super) ends: AtomicBool,
}

/// Milliseconds of each turn that fell into the time that counts, at both ends too.
pub(super) fn work(
    ground: &Ground,
    signals: &Signals,
    ready: &SyncSender<()>,
) -> Result<Vec<f64>, BenchError> {
    let mut turn = Turn::new(ground)?;
    for _ in 0..WARM_UP {
        turn.take()?;
    }
    // Whoever waits for this has gone only if it failed.
    let _ = ready.send(());
    let mut times = Vec::new();
    while !signals.ends.load(Ordering::Relaxed) {
        let counted = signals.counts.load(Ordering::Relaxed);
        let started = Instant::now();
        turn.take()?;
        let took = milliseconds(started.elapsed());
        // A turn may be held up that began a moment before the others.
        if counted || signals.counts.load(Ordering::Relaxed) {
            times.push(took);
            signals.counted.store(true, Ordering::Relaxed);
        }
        thread::sleep(PAUSE);
    }
    Ok(times)
}

/// One piece of its work.
enum Turn {
    Copy(Box<(DriverPages, DeviceMemory)>),
    Map,
}

impl Turn {
    fn new(ground: &Ground) -> Result<Self, BenchError> {
        ground.bind()?;
        match ground {
            Ground::Cuda(rig) => {
                let rig = rig.with_own_stream()?;
                let source = DriverPages::new(&rig.context, COPY_BYTES)?;
                Ok(Self::Copy(Box::new((source, rig.device_memory(COPY_BYTES)?))))
            }
            Ground::Host => Ok(Self::Map),
        }
    }

    fn take(&mut self) -> Result<(), BenchError> {
        match self {
            Self::Copy(ends) => ends.1.copy_in(ends.0.bytes_mut()),
            Self::Map => map_a_page().map_err(|cause| BenchError::failed("mapping a page", cause)),
        }
    }
}

/// Maps a page, touches it and unmaps it.
pub(crate) fn map_a_page() -> rustix::io::Result<()> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a private anonymous mapping at an address of the kernel's choice touches no memory that
    // exists.
    let page = unsafe { mmap_anonymous(ptr::null_mut(), PAGE_BYTES, access, MapFlags::PRIVATE) }?;
    // SAFETY: the page was mapped above, writable, and nobody else knows it.
    unsafe { page.cast::<u8>().write_volatile(1) };
    // SAFETY: as above; it is not used any more.
    unsafe { munmap(page, PAGE_BYTES) }
}

/// Bytes of one copy.
pub(super) const COPY_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;
const WARM_UP: usize = 20;
/// Between two turns: a thread that has work all the time would itself hold up who pins.
const PAUSE: Duration = Duration::from_micros(200);
