//! Backs a region with memory from several threads; it decides nothing about the region.

use std::sync::RwLock;

use super::Course;
use crate::config::Threads;
use crate::memory::limits::admission::Admitted;
use crate::memory::{MemoryCause, MemoryError, MemoryStep, PageTier, Region, huge};
use crate::shared::Shared;
use crate::sync::pause;
use crate::sync::plain::{AtomicUsize, Ordering};

/// Backs the region in pieces of whole pages of its kind. A thread that cannot be started is no
/// failure: the others, the caller first, take its share. A failure tells up to where all is backed.
pub(super) fn populate(
    shared: &Shared,
    region: Region,
    tier: PageTier,
    threads: Threads,
    course: &Course,
) -> Result<(), (MemoryError, usize)> {
    let piece_bytes = PIECE_BYTES.next_multiple_of(huge::granule(tier));
    let pieces = region.bytes.div_ceil(piece_bytes);
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(pieces));
    course.backs();
    let bytes_of = |piece: usize| piece_bytes.min(region.bytes - piece * piece_bytes);
    let back = |piece: usize| {
        // SAFETY: the piece lies within the region.
        let part = unsafe { region.part(piece * piece_bytes, bytes_of(piece)) };
        // SAFETY: the region was reserved by this memory, and nobody uses it yet.
        unsafe { shared.memory.populate(part) }?;
        course.backed(part.bytes);
        Ok(())
    };
    let fails_at = |piece: usize| failed.fetch_min(piece, Ordering::Relaxed);
    let work = || {
        loop {
            let ahead = next.load(Ordering::Relaxed);
            // Nobody needs what lies behind one that failed.
            if ahead >= failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            // Room first: who waits for it holds no piece that others would leave behind as a gap.
            let room = course.check(MemoryStep::Populate, bytes_of(ahead));
            let room = room.and_then(|()| room_for(bytes_of(ahead), tier, shared));
            let _room = match room {
                Ok(room) => room,
                Err(error) => {
                    let first = next.load(Ordering::Relaxed);
                    if first >= pieces {
                        // Others took the last ones meanwhile: it was refused what nobody needs.
                        shared.admission.leave_line();
                        return Ok(());
                    }
                    fails_at(first);
                    return Err(error);
                }
            };
            // This one or a later one, which is no larger.
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            back(piece).inspect_err(|_| {
                fails_at(piece);
            })?;
        }
    };
    let result = on_threads(thread_count(region.bytes, threads).min(pieces), region.bytes, &work);
    // Whoever began a piece before that one ended it. Without such a piece nothing is known.
    let first = failed.load(Ordering::Relaxed);
    let done = if first < pieces { first * piece_bytes } else { 0 };
    course.is_backed();
    result.map_err(|error| (error, done))
}

/// Runs `work` on the calling thread and on others beside it.
fn on_threads(
    count: usize,
    bytes: usize,
    work: &(impl Fn() -> Result<(), MemoryError> + Sync),
) -> Result<(), MemoryError> {
    // Faults hold the lock under which what a thread starts with is mapped: threads that began would keep the
    // others from starting, and those that start would keep them from going on. So all are let go together, once
    // they are there.
    let (gate, there) = (RwLock::new(()), AtomicUsize::new(0));
    let closed = gate.write();
    let released = || {
        there.fetch_add(1, Ordering::Relaxed);
        drop(gate.read());
        work()
    };
    let released = &released;
    std::thread::scope(|scope| {
        let helpers: Vec<_> = (1..count)
            .map_while(|_| {
                let named = std::thread::Builder::new().name("pinpool-prefault".into());
                named.spawn_scoped(scope, released).ok()
            })
            .collect();
        let mut round = 0;
        while there.load(Ordering::Relaxed) < helpers.len() {
            pause(round);
            round = round.saturating_add(1);
        }
        drop(closed);
        let mut result = work();
        for helper in helpers {
            result = result.and(helper.join().unwrap_or(Err(MemoryError {
                step: MemoryStep::Populate,
                bytes,
                cause: MemoryCause::Other("a prefault thread panicked"),
            })));
        }
        result
    })
}

/// Room for a piece, if it is one that takes any: reserved huge pages were taken before.
fn room_for(
    bytes: usize,
    tier: PageTier,
    shared: &Shared,
) -> Result<Option<Admitted<'_>>, MemoryError> {
    if tier == PageTier::Huge {
        return Ok(None);
    }
    shared.admission.admit(bytes as u64).map(Some)
}

fn thread_count(bytes: usize, threads: Threads) -> usize {
    match threads {
        Threads::Count(count) => count,
        Threads::Auto => {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            bytes.div_ceil(BYTES_PER_THREAD).min(processors).min(AUTO_THREADS_MAX)
        }
    }
}

/// Small enough that all threads end at about the same time, large enough that the counter between them is idle:
/// 16 threads back so much in 1.5 ms each.
const PIECE_BYTES: usize = 4 << 20;
/// Below this a second thread costs more than it saves.
const BYTES_PER_THREAD: usize = 64 << 20;
/// More threads gain nothing: the memory is the limit.
const AUTO_THREADS_MAX: usize = 16;
