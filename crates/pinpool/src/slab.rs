//! One pinned region cut into slots: it is obtained in steps, and whatever was obtained is undone in
//! reverse when a step fails or the slab is dropped.

mod obtain;
mod populate;

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::Threads;
use crate::foreign::tell;
use crate::memory::{MemoryCause, MemoryError, MemoryStep, Obtained, Pinned, Region};
use crate::shared::Shared;

/// The memory of one class.
#[derive(Debug)]
pub(crate) struct Slab {
    region: Region,
    /// The region as it was reserved: what is behind its end nobody uses.
    mapped: Region,
    obtained: Obtained,
    chunk_bytes: usize,
    /// The chunks pinned so far, in order.
    pinned: Vec<Pinned>,
    locked: bool,
    /// Bytes whose unpin failed.
    stuck: u64,
    shared: Arc<Shared>,
}

/// How large a slab is, and how much of it is pinned by one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlabSize {
    pub(crate) bytes: usize,
    pub(crate) chunk_bytes: usize,
}

/// Why a slab could not be made, and how many bytes the pool had pinned at that moment.
#[derive(Debug)]
pub(crate) struct SlabFailure {
    pub(crate) error: MemoryError,
    pub(crate) pinned: u64,
}

// SAFETY: a slab only hands out addresses; access to the bytes is by slot, one owner each (I2).
unsafe impl Send for Slab {}
// SAFETY: as above; all methods that take `&self` read.
unsafe impl Sync for Slab {}

/// Seconds spent per step of opening.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StartupTimes {
    /// Reserving address space.
    pub reserve: Duration,
    /// Backing it with zeroed pages.
    pub populate: Duration,
    /// Locking or registering it.
    pub pin: Duration,
}

impl Slab {
    /// Reserves, populates and, with `pin`, pins. On failure nothing is left.
    pub(crate) fn open(
        size: SlabSize,
        pin: bool,
        threads: Threads,
        shared: &Arc<Shared>,
        times: &mut StartupTimes,
    ) -> Result<Self, SlabFailure> {
        // Read before the half-made slab is dropped and its share is gone.
        let failure = |error| SlabFailure { error, pinned: shared.budget.used() };
        let SlabSize { bytes, chunk_bytes } = size;
        let backed = obtain::obtain(bytes, threads, shared, times).map_err(failure)?;
        let mut slab = Self {
            region: Region { start: backed.region.start, bytes },
            mapped: backed.region,
            obtained: backed.obtained,
            chunk_bytes,
            pinned: Vec::with_capacity(bytes.div_ceil(chunk_bytes)),
            locked: false,
            stuck: 0,
            shared: Arc::clone(shared),
        };
        // From here `slab`'s drop undoes what was done (I10).
        if pin {
            timed(&mut times.pin, || slab.pin()).map_err(failure)?;
        }
        Ok(slab)
    }

    /// The first byte of a slot.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.region.start
    }

    /// Bytes that are mapped for it.
    pub(crate) fn mapped_bytes(&self) -> usize {
        self.mapped.bytes
    }

    /// What it really lies on.
    pub(crate) fn obtained(&self) -> Obtained {
        self.obtained
    }

    /// The pool's common ground.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Every page is locked in RAM.
    pub(crate) fn is_locked(&self) -> bool {
        self.locked
    }

    /// Refuses a slab that is not locked beside one that is: a class's slots are all alike.
    pub(crate) fn locked_as(self, locked: bool) -> Result<Self, SlabFailure> {
        if self.locked == locked {
            return Ok(self);
        }
        let (bytes, pinned) = (self.region.bytes, self.shared.budget.used());
        let cause = MemoryCause::Other("a limit lets no more memory be locked");
        Err(SlabFailure { error: MemoryError { step: MemoryStep::Pin, bytes, cause }, pinned })
    }

    /// Where the GPU sees the byte at `offset`.
    pub(crate) fn device_address(&self, offset: usize) -> Option<u64> {
        let chunk = self.pinned.get(offset / self.chunk_bytes)?;
        Some(chunk.device_base? + (offset % self.chunk_bytes) as u64)
    }

    fn pin(&mut self) -> Result<(), MemoryError> {
        while let Some(chunk) = self.chunk(self.pinned.len()) {
            let bytes = chunk.bytes as u64;
            self.shared.budget.reserve(bytes).map_err(|full| MemoryError {
                step: MemoryStep::Pin,
                bytes: chunk.bytes,
                cause: MemoryCause::Cap { used: full.used, cap: full.cap },
            })?;
            // SAFETY: the chunk lies within our region and was not pinned before.
            match unsafe { self.shared.memory.pin(chunk) } {
                Ok(pinned) => {
                    if !pinned.locked {
                        self.shared.budget.release(bytes);
                    }
                    self.pinned.push(pinned);
                }
                Err(error) => {
                    self.shared.budget.release(bytes);
                    if crate::seeded::bug("ignored-error") {
                        self.pinned.push(Pinned::default());
                        continue;
                    }
                    return Err(error);
                }
            }
        }
        self.locked = self.pinned.iter().all(|pinned| pinned.locked);
        if !self.locked {
            // Half a slab locked is of no use to anybody and only takes from the limit.
            self.unpin();
        }
        Ok(())
    }

    /// Unpins every pinned chunk in reverse and counts the bytes that could not be.
    fn unpin(&mut self) {
        while let Some(pinned) = self.pinned.pop() {
            let held = pinned.locked || pinned.device_base.is_some();
            let Some(chunk) = self.chunk(self.pinned.len()).filter(|_| held) else {
                continue;
            };
            if crate::seeded::bug("forgotten-unpin") {
                continue;
            }
            // SAFETY: the chunk is one that was pinned; every slot is home or was never given out,
            // so no device uses it (I1, I3).
            match unsafe { self.shared.memory.unpin(chunk) } {
                Ok(()) if pinned.locked => self.shared.budget.release(chunk.bytes as u64),
                Ok(()) => {}
                Err(error) => {
                    self.stuck += chunk.bytes as u64;
                    tell!(error, %error, "memory stays pinned and mapped");
                }
            }
        }
    }

    /// The chunk with this number, if there is one.
    fn chunk(&self, number: usize) -> Option<Region> {
        let offset = number.checked_mul(self.chunk_bytes)?;
        let rest = self.region.bytes.checked_sub(offset).filter(|rest| *rest > 0)?;
        // SAFETY: offset and length were checked against the region.
        Some(unsafe { self.region.part(offset, rest.min(self.chunk_bytes)) })
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        self.unpin();
        // What a device or the kernel still holds must not be unmapped under it (I6).
        if self.stuck == 0 {
            // SAFETY: the region is ours, nothing of it is pinned, and no slot is out.
            if let Err(error) = unsafe { self.shared.memory.release(self.mapped) } {
                self.stuck = self.mapped.bytes as u64;
                tell!(error, %error, "memory stays mapped");
            }
        }
        self.shared.slab_closed(self.mapped.bytes as u64, self.stuck);
    }
}

fn timed<T>(total: &mut Duration, step: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = step();
    *total += start.elapsed();
    result
}
