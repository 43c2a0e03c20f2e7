//! The ladder of page kinds: reserve, back with memory, read back; on failure undo and take the next
//! kind. It pins nothing.

use super::populate::populate;
use super::{Course, SlabShape, StartupTimes, timed};
use crate::config::Threads;
use crate::foreign::tell;
use crate::memory::{MemoryCause, MemoryError, MemoryStep, Obtained, PageTier, Region, huge};
use crate::shared::Shared;

/// A region that is backed with memory and counted as mapped. [`give_back`] undoes both.
#[derive(Debug)]
pub(super) struct Backed {
    /// As it was reserved: at least as long as was asked for.
    pub(super) region: Region,
    pub(super) obtained: Obtained,
    /// Why only so many bytes from its start are backed, on a partial course.
    pub(super) cut: Option<(MemoryError, usize)>,
}

/// Obtains a slab's bytes on the best kind of pages that can be had. On failure nothing is left; but on a partial
/// course what was backed of the least demanding kind, or of the one that a limit had no room for.
pub(super) fn obtain(
    shape: SlabShape,
    threads: Threads,
    course: &Course,
    shared: &Shared,
    times: &mut StartupTimes,
) -> Result<Backed, MemoryError> {
    let bytes = shape.bytes;
    let tiers = shared.memory.tiers(bytes);
    let least = tiers.last().copied().unwrap_or_default();
    let mut failure = None;
    for tier in tiers {
        course.check(MemoryStep::Reserve, bytes)?;
        match attempt(shape, tier, tier == least, threads, course, shared, times) {
            Ok(backed) if backed.obtained.pages >= least => return Ok(backed),
            Ok(backed) => {
                give_back(backed.region, shared);
                failure = Some(not_huge(bytes, backed.obtained));
            }
            // Another kind of pages finds no more room.
            Err(error) if error.is_stop() || error.is_no_room() => return Err(error),
            Err(error) => failure = Some(error),
        }
    }
    // The least demanding kind's reason; a memory without any kind has none.
    Err(failure.unwrap_or_else(|| not_huge(bytes, Obtained::default())))
}

/// One kind of pages, all the way; the `last` one may end before its end, and each where there is no room.
fn attempt(
    shape: SlabShape,
    tier: PageTier,
    last: bool,
    threads: Threads,
    course: &Course,
    shared: &Shared,
    times: &mut StartupTimes,
) -> Result<Backed, MemoryError> {
    let memory = &*shared.memory;
    let SlabShape { bytes, device, .. } = shape;
    let granule = huge::granule(tier);
    let bytes = bytes.checked_next_multiple_of(granule).ok_or(MemoryError {
        step: MemoryStep::Reserve,
        bytes,
        cause: MemoryCause::Other("the size exceeds the address space"),
    })?;
    let start = timed(&mut times.reserve, || match device {
        None => memory.reserve_as(bytes, tier),
        Some(device) => memory.reserve_near(bytes, tier, device),
    })?;
    let region = Region { start, bytes };
    shared.slab_opened(bytes as u64);
    let populated = timed(&mut times.populate, || populate(shared, region, tier, threads, course));
    let cut = match populated {
        Ok(()) => None,
        // Where there is no room another kind finds none either.
        Err((error, done)) if (last || error.is_no_room()) && course.may_end_at(done, &error) => {
            Some((error, done))
        }
        Err((error, _)) => {
            give_back(region, shared);
            return Err(error);
        }
    };
    // What was never backed lies on nothing.
    let done = cut.as_ref().map_or(bytes, |(_, done)| bytes.min(*done));
    // SAFETY: the beginning lies within the region.
    let beginning = unsafe { region.part(0, done) };
    // SAFETY: reserved and populated above.
    let mut obtained = unsafe { memory.obtained(beginning, tier) };
    if crate::seeded::bug("assumed-pages") {
        obtained.pages = tier;
    }
    Ok(Backed { region, obtained, cut })
}

/// Gives back a region of which nothing is pinned, and counts it out.
fn give_back(region: Region, shared: &Shared) {
    if crate::seeded::bug("forgotten-tier") {
        return;
    }
    // SAFETY: the region was reserved by this memory, nothing of it is pinned, and nobody uses it.
    let released = unsafe { shared.memory.release(region) };
    let bytes = region.bytes as u64;
    let stuck = released.err().map_or(0, |error| {
        tell!(error, %error, "memory stays mapped");
        bytes
    });
    shared.slab_closed(bytes, stuck);
}

fn not_huge(bytes: usize, obtained: Obtained) -> MemoryError {
    let cause = MemoryCause::NotHuge { huge: obtained.huge_bytes };
    MemoryError { step: MemoryStep::Populate, bytes, cause }
}
