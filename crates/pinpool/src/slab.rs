//! One pinned region cut into slots: it is obtained in steps, and whatever was obtained is undone in
//! reverse when a step fails or the slab is dropped.

mod course;
mod obtain;
mod populate;

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock;
use crate::config::Threads;
use crate::foreign::tell;
use crate::memory::{MemoryCause, MemoryError, MemoryStep, Obtained, Pinned, Region};
use crate::shared::Shared;

pub(crate) use course::Course;

/// The memory of one class.
#[derive(Debug)]
pub(crate) struct Slab {
    region: Region,
    /// Bytes from the start that can be handed out: all, unless it was cut.
    usable: usize,
    /// The region as it was reserved: what is behind its end nobody uses.
    mapped: Region,
    obtained: Obtained,
    chunk_bytes: usize,
    /// The chunks pinned so far, in order.
    pinned: Vec<Pinned>,
    locked: bool,
    /// How long others are let in while it is unpinned.
    pause: Duration,
    /// Bytes whose unpin failed.
    stuck: u64,
    shared: Arc<Shared>,
}

/// How large a slab is, how much of it is pinned by one call, and where it is to lie.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlabShape {
    pub(crate) bytes: usize,
    pub(crate) chunk_bytes: usize,
    /// Near this device; else where the memory puts all.
    pub(crate) device: Option<u32>,
}

/// Why a slab could not be made, or is smaller than planned.
#[derive(Debug)]
pub(crate) struct SlabFailure {
    pub(crate) error: MemoryError,
    /// Bytes that the pool had pinned at that moment.
    pub(crate) pinned: u64,
    /// Where in the slab it failed, in bytes from its start.
    pub(crate) offset: usize,
}

// SAFETY: a slab only hands out addresses; access to the bytes is by slot, one owner each (I2).
unsafe impl Send for Slab {}
// SAFETY: as above; all methods that take `&self` read.
unsafe impl Sync for Slab {}

/// Time spent per step of opening, from its beginning to its end, however many threads worked.
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
    /// Reserves, populates and, with `pin`, pins. On failure nothing is left; but on a partial course
    /// what came before the failure stays, with the reason.
    pub(crate) fn open(
        shape: SlabShape,
        pin: bool,
        threads: Threads,
        course: &Course,
        shared: &Arc<Shared>,
        times: &mut StartupTimes,
    ) -> Result<(Self, Option<SlabFailure>), SlabFailure> {
        // Read before the half-made slab is dropped and its share is gone.
        let failure =
            |offset| move |error| SlabFailure { error, pinned: shared.budget.used(), offset };
        let SlabShape { bytes, chunk_bytes, .. } = shape;
        let backed = obtain::obtain(shape, threads, course, shared, times).map_err(failure(0))?;
        let usable = backed.cut.as_ref().map_or(bytes, |(_, done)| bytes.min(*done));
        let mut slab = Self {
            region: Region { start: backed.region.start, bytes },
            mapped: backed.region,
            obtained: backed.obtained,
            usable,
            chunk_bytes,
            pinned: Vec::with_capacity(bytes.div_ceil(chunk_bytes)),
            locked: false,
            pause: course.pause(),
            stuck: 0,
            shared: Arc::clone(shared),
        };
        // From here `slab`'s drop undoes what was done (I10).
        let mut cut = backed.cut.map(|(error, done)| failure(done)(error));
        if pin {
            if let Err(error) = timed(&mut times.pin, || slab.pin(course)) {
                cut = Some(slab.cut_at(slab.pinned.len() * chunk_bytes, error, course)?);
            }
            slab.settle_lock();
        }
        if cut.is_some() {
            slab.forgo_rest();
            // What it was refused it does without: the next class, and others, may ask again.
            shared.admission.leave_line();
        }
        Ok((slab, cut))
    }

    /// What failed at `offset` is the end of the slab, if there is anything before it and it may end there.
    fn cut_at(
        &mut self,
        offset: usize,
        error: MemoryError,
        course: &Course,
    ) -> Result<SlabFailure, SlabFailure> {
        let stays = course.may_end_at(offset, &error);
        let failure = SlabFailure { error, pinned: self.shared.budget.used(), offset };
        if !stays {
            return Err(failure);
        }
        self.usable = offset;
        Ok(failure)
    }

    /// Gives back the memory beyond what is usable.
    fn forgo_rest(&self) {
        let rest = self.mapped.bytes - self.usable;
        // SAFETY: the part lies within the region.
        let part = unsafe { self.mapped.part(self.usable, rest) };
        // SAFETY: I1, it is the end of our region; chunks are pinned in order, and those that are lie
        // before it.
        unsafe { self.shared.memory.forgo(part) };
    }

    /// Bytes from the start that can be handed out.
    pub(crate) fn usable_bytes(&self) -> usize {
        self.usable
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
        let error = MemoryError { step: MemoryStep::Pin, bytes, cause };
        Err(SlabFailure { error, pinned, offset: 0 })
    }

    /// Where the GPU sees the byte at `offset`.
    pub(crate) fn device_address(&self, offset: usize) -> Option<u64> {
        let chunk = self.pinned.get(offset / self.chunk_bytes)?;
        Some(chunk.device_base? + (offset % self.chunk_bytes) as u64)
    }

    fn pin(&mut self, course: &Course) -> Result<(), MemoryError> {
        while let Some(chunk) = self.chunk(self.pinned.len()) {
            course.let_others_in();
            course.check(MemoryStep::Pin, chunk.bytes)?;
            let bytes = chunk.bytes as u64;
            self.shared.budget.reserve(bytes).map_err(|full| MemoryError {
                step: MemoryStep::Pin,
                bytes: chunk.bytes,
                cause: MemoryCause::Cap { used: full.used, cap: full.cap },
            })?;
            let began = clock::now();
            // SAFETY: the chunk lies within our region and was not pinned before.
            match unsafe { self.shared.memory.pin(chunk) } {
                Ok(pinned) => {
                    if !pinned.locked {
                        self.shared.budget.release(bytes);
                    }
                    self.pinned.push(pinned);
                    course.pinned(chunk.bytes, clock::elapsed(began));
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
        Ok(())
    }

    /// All that is pinned is locked, or nothing stays so: half a slab locked is of no use to anybody and only
    /// takes from the limit.
    fn settle_lock(&mut self) {
        self.locked = self.pinned.iter().all(|pinned| pinned.locked);
        if !self.locked {
            self.unpin();
        }
    }

    /// Unpins every pinned chunk in reverse and counts the bytes that could not be.
    fn unpin(&mut self) {
        let course = Course::paced(self.pause);
        while let Some(pinned) = self.pinned.pop() {
            let held = pinned.locked || pinned.device_base.is_some();
            let Some(chunk) = self.chunk(self.pinned.len()).filter(|_| held) else {
                continue;
            };
            if crate::seeded::bug("forgotten-unpin") {
                continue;
            }
            course.let_others_in();
            let began = clock::now();
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
            course.kept_others_out(clock::elapsed(began));
        }
    }

    /// The chunk with this number, if there is one.
    fn chunk(&self, number: usize) -> Option<Region> {
        let offset = number.checked_mul(self.chunk_bytes)?;
        let rest = self.usable.checked_sub(offset).filter(|rest| *rest > 0)?;
        // SAFETY: offset and length were checked against what is usable of the region.
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
