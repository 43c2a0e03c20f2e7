//! The stager: its crew, opened once, and the buffers that it holds.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::board::Board;
use super::crew::Hand;
use super::job::Job;
use crate::class::ClassRef;
use crate::config::{STAGE_CHUNK_MIN, STAGE_SLOTS_EACH, STAGE_THREADS_MAX};
use crate::error::Error;
use crate::lease::Lease;
use crate::memory::numa::processors_of;
use crate::pool::Pool;
use crate::process::Home;

/// Copies between memory that nobody pinned and a device, through a pool.
///
/// What a program uploads is often not its own to pin: a `Vec`, a mapped file, a tensor of another library. The
/// driver copies such memory through a small buffer of its own, on one thread. A stager has a fixed crew of threads,
/// two slots of the pool each: while the device copies one slot, the thread fills the other.
///
/// * [`Self::upload`] and [`Self::download`] are as the driver's copies of pageable memory, only faster.
/// * [`Self::scope`] lets borrowed memory be copied while the caller goes on.
/// * [`Self::upload_owned`] and [`Self::download_owned`] keep what is copied, and give it back.
/// * [`Self::upload_file`], [`Self::upload_from`] and [`Self::download_to`] need no memory in between.
///
/// Every copy is in the order of the caller's stream: it begins behind the work that is queued there, and work that
/// is queued once the target can be used again sees it. Copies that run at once share the crew, a piece of each in turn.
///
/// Memory is bounded: the crew holds `2 * threads` slots as long as the stager lives, and takes no more; the pool needs a
/// class for them ([`PoolBuilder::stager`](crate::PoolBuilder::stager)). Threads sleep while there is nothing to copy. `upload` and `download` of small
/// copies and of memory that is pinned already go by the driver's own call ([`StagerBuilder::straight_bytes`]).
///
/// In asynchronous code use the owned copies: all else waits in the calling thread. A stager may be shared by threads
/// (`Arc<Stager>`), and keeps its pool open; close it, or drop it, before the pool.
///
/// ```no_run
/// # fn up(stream: std::sync::Arc<pinpool::cudarc::driver::CudaStream>) -> Result<(), Box<dyn std::error::Error>> {
/// use pinpool::{Pool, Stager};
///
/// let pool = Pool::builder().stager().open()?; // with a class for a stager
/// let stager = Stager::new(&pool)?;
/// let weights = vec![0.5_f32; 64 << 20];
/// let mut on_device = stream.alloc_zeros::<f32>(weights.len())?;
/// stager.upload(&weights, &stream, &mut on_device)?; // `weights` has been read; the stream comes behind
/// # Ok(()) }
/// ```
///
/// Dropping a stager waits for nothing: the crew ends what it was given, then gives its slots back.
pub struct Stager {
    pub(super) board: Arc<Board<Job>>,
    pub(super) pool: Pool,
    pub(super) home: Home,
    /// That of the crew's slots, which the pool keeps.
    pub(super) class: ClassRef,
    pub(super) straight: Straight,
    threads: usize,
    chunk_bytes: usize,
    crew: Vec<JoinHandle<()>>,
}

/// How a stager is to be: from [`Stager::builder`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct StagerBuilder {
    pool: Pool,
    threads: usize,
    chunk_bytes: usize,
    straight: Straight,
}

/// The largest copies that go by the driver's own call, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Straight {
    pub(super) up: usize,
    pub(super) down: usize,
}

/// On H200 hosts staged copies were 0.9 to 1.3 times as fast at 4 MiB up, and 0.8 to 1.1 times at 1 MiB down; larger ones faster.
const STRAIGHT_DEFAULT: Straight = Straight { up: 4 << 20, down: 1 << 20 };

impl Stager {
    /// A stager with as many threads and such pieces as the pool's configuration says (`stage_threads`, `stage_chunk`).
    ///
    /// # Errors
    ///
    /// As [`StagerBuilder::build`].
    pub fn new(pool: &Pool) -> Result<Self, Error> {
        Self::builder(pool).build()
    }

    /// A stager in parts.
    pub fn builder(pool: &Pool) -> StagerBuilder {
        let config = &pool.plan().config;
        let threads = config.stage_threads.for_a_stager();
        let chunk_bytes = usize::try_from(config.stage_chunk).unwrap_or(usize::MAX);
        let straight = STRAIGHT_DEFAULT;
        StagerBuilder { pool: pool.clone(), threads, chunk_bytes, straight }
    }

    /// Threads of the crew.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The most bytes of one piece.
    pub fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// The pool whose slots are used.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Ends the crew and waits for it: copies that it was given are done first, and its slots are back in the pool
    /// afterwards. On a thread of the crew, where what an owned copy keeps is dropped, it waits for nothing.
    ///
    /// A copy whose stream stands still is waited for; [`StagedCopy::cancel`](crate::StagedCopy::cancel) ends it.
    pub fn close(mut self) {
        // In a forked child the crew is not there, and a thread of it may have held the board's lock (I12).
        if !self.home.is_here() {
            return;
        }
        self.board.close();
        let crew = std::mem::take(&mut self.crew);
        let own = std::thread::current().id();
        // What an owned copy kept may close it on a thread of the crew, which cannot wait for itself.
        if crew.iter().any(|thread| thread.thread().id() == own) {
            return;
        }
        for thread in crew {
            let _ = thread.join();
        }
    }

    /// Bytes of one piece of a copy: so small that filling overlaps with copying, and not too small.
    pub(super) fn piece_bytes(&self, bytes: usize) -> usize {
        let even = bytes.div_ceil(self.threads * PIECES_EACH).next_multiple_of(PIECE_STEP);
        even.clamp(PIECE_MIN.min(self.chunk_bytes), self.chunk_bytes)
    }
}

impl StagerBuilder {
    /// Threads of the crew, 1 to 64. Each holds two slots.
    pub fn threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// The most bytes that are copied in one piece: what a slot must hold, and at least 4 KiB.
    pub fn chunk_bytes(self, chunk_bytes: usize) -> Self {
        Self { chunk_bytes, ..self }
    }

    /// The largest copies that [`Stager::upload`] and [`Stager::download`] leave to the driver's own call, in bytes; 0 for none.
    /// Default: what is no slower on H200 hosts, 4 MiB to the device and 1 MiB from it. Copies of a scope, owned ones, files, readers and
    /// writers always go through the crew, so that their caller goes on.
    pub fn straight_bytes(self, bytes: usize) -> Self {
        Self { straight: Straight { up: bytes, down: bytes }, ..self }
    }

    /// Leases the buffers and starts the threads.
    ///
    /// # Errors
    ///
    /// [`Error::StagerSize`] for numbers out of range, [`Error::StagerBuffers`] when the pool cannot spare two slots
    /// for each thread, [`Error::StagerWithoutDevice`] on a pool without a GPU, and [`Error::StagerThread`]. Nothing is
    /// kept then.
    pub fn build(self) -> Result<Stager, Error> {
        let Self { pool, threads, chunk_bytes, straight } = self;
        let few = (chunk_bytes as u64) < STAGE_CHUNK_MIN;
        if !(1..=STAGE_THREADS_MAX).contains(&threads) || few {
            return Err(Error::StagerSize { threads, chunk_bytes });
        }
        let home = Home::here().map_err(Error::Mark)?;
        let mut buffers = buffers(&pool, threads, chunk_bytes)?;
        let class = buffers[0].class_ref();
        if !buffers.iter().all(Lease::is_copyable) {
            return Err(Error::StagerWithoutDevice { reason: pool.startup().reason.clone() });
        }
        let processors = processors_near(&pool, class);
        let board = Arc::new(Board::new(threads));
        let mut crew = Vec::new();
        for number in 0..threads {
            let own = buffers.split_off(buffers.len() - STAGE_SLOTS_EACH);
            let near = processors.clone();
            let hand = Hand::new(number, &board, pool.clone(), chunk_bytes, own, near);
            match hand.start() {
                Ok(thread) => crew.push(thread),
                Err(error) => {
                    board.close();
                    for thread in crew {
                        drop(thread.join());
                    }
                    return Err(Error::StagerThread(error));
                }
            }
        }
        Ok(Stager { board, pool, home, class, straight, threads, chunk_bytes, crew })
    }
}

/// Two slots for each thread, all or none.
fn buffers(pool: &Pool, threads: usize, chunk_bytes: usize) -> Result<Vec<Lease>, Error> {
    let needed = threads * STAGE_SLOTS_EACH;
    let leases = pool.try_lease_many(&vec![chunk_bytes; needed]);
    let mut leases = leases.map_err(|error| Error::StagerBuffers { needed, chunk_bytes, error })?;
    let tag = pool.tag("stager");
    for lease in &mut leases {
        lease.set_tag(tag);
    }
    Ok(leases)
}

/// The processors of the NUMA node that the class's memory lies on, as far as that is known.
fn processors_near(pool: &Pool, class: ClassRef) -> Vec<u32> {
    let name = class.get().name();
    let slab = pool.startup().slabs.iter().find(|slab| slab.class == name);
    let node = slab.and_then(|slab| slab.node);
    node.map(|node| processors_of(node, Path::new("/sys"))).unwrap_or_default()
}

impl Drop for Stager {
    fn drop(&mut self) {
        if self.home.is_here() {
            self.board.close();
        } else {
            // The parent's threads: their numbers may be those of others by now.
            std::mem::forget(std::mem::take(&mut self.crew));
        }
    }
}

impl fmt::Debug for Stager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stager")
            .field("threads", &self.threads)
            .field("chunk_bytes", &self.chunk_bytes)
            .finish_non_exhaustive()
    }
}

/// Of a copy that is not large, for each thread: while the first is filled nothing is copied, while the last is
/// copied nothing is filled. Small pieces at the ends of a large one, which mend that too, cost more than they win: 0.89
/// instead of 0.93 of a lease's bandwidth at 1 GiB, 0.77 instead of 0.84 at 256 MiB (H200 host).
const PIECES_EACH: usize = 2 * STAGE_SLOTS_EACH;
/// Pieces are no smaller than this, where the copy is not: 16 MiB went 2.8 times as fast as the driver's own copy in
/// pieces of 1 MiB, 2.0 times in pieces of 384 KiB (H200 hosts).
const PIECE_MIN: usize = 1 << 20;
/// Whole pages, and whole blocks of a disk.
const PIECE_STEP: usize = 64 << 10;
