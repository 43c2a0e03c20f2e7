//! The stagers of a run and the pool that they share: a class for each size of chunk, and one slot for the
//! largest copy, which the pinned side copies from and to.

use std::thread;

use pinpool::{BackendChoice, Lease, LockMode, Pool, Stager};

use crate::BenchError;

/// How many threads a stager has, and how much each of them moves at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Crew {
    /// Threads.
    pub threads: usize,
    /// Bytes of a chunk.
    pub chunk_bytes: usize,
}

impl Crew {
    /// That of a stager as it is by default on this machine.
    ///
    /// # Errors
    /// A pool or a stager that does not open.
    pub fn by_default() -> Result<Self, BenchError> {
        let stager = Stager::new(&open_pool(&[(CHUNK_BYTES_MAX, 2 * THREADS_MAX)])?)
            .map_err(|cause| BenchError::failed("opening a stager", cause))?;
        Ok(Self { threads: stager.threads(), chunk_bytes: stager.chunk_bytes() })
    }

    /// The same threads with other chunks.
    pub fn with_chunks(self, chunk_bytes: usize) -> Self {
        Self { chunk_bytes, ..self }
    }

    /// The same chunks with [`THREADS`], as far as there are processors, and its own.
    pub(super) fn with_all_threads(self) -> Vec<Self> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let counts = THREADS.into_iter().filter(|&threads| threads <= processors);
        let mut crews: Vec<Self> = counts.map(|threads| Self { threads, ..self }).collect();
        crews.push(self);
        crews.sort_unstable();
        crews.dedup();
        crews
    }
}

/// Stagers, and a lease that is always there.
#[derive(Debug)]
pub struct Stagers {
    // Before the pool that it is of.
    stagers: Vec<(Crew, Stager)>,
    pinned: Lease,
}

impl Stagers {
    /// A stager for each crew, and a lease of `pinned_bytes`.
    ///
    /// # Errors
    /// A pool or a stager that does not open.
    pub fn open(crews: &[Crew], pinned_bytes: usize) -> Result<Self, BenchError> {
        let mut crews = crews.to_vec();
        crews.sort_unstable_by_key(|crew| (crew.chunk_bytes, crew.threads));
        crews.dedup();
        let mut classes: Vec<(usize, usize)> = Vec::new();
        for crew in &crews {
            match classes.last_mut() {
                Some((bytes, count)) if *bytes == crew.chunk_bytes => *count += 2 * crew.threads,
                _ => classes.push((crew.chunk_bytes, 2 * crew.threads)),
            }
        }
        // More than any chunk, so that the lease is of a class of its own.
        let pinned_bytes = pinned_bytes.max(2 * CHUNK_BYTES_MAX);
        classes.push((pinned_bytes, 1));
        let pool = open_pool(&classes)?;
        let opened = crews.into_iter().map(|crew| {
            let stager = Stager::builder(&pool)
                .threads(crew.threads)
                .chunk_bytes(crew.chunk_bytes)
                .build()
                .map_err(|cause| BenchError::failed("opening a stager", cause))?;
            Ok((crew, stager))
        });
        let stagers = opened.collect::<Result<_, BenchError>>()?;
        let pinned = pool
            .try_lease(pinned_bytes)
            .map_err(|cause| BenchError::failed("leasing a buffer", cause))?;
        Ok(Self { stagers, pinned })
    }

    /// The one of this crew.
    ///
    /// # Errors
    /// There is none.
    pub fn of(&self, crew: Crew) -> Result<&Stager, BenchError> {
        let found = self.stagers.iter().find(|(of, _)| *of == crew);
        found.map(|(_, stager)| stager).ok_or_else(|| {
            BenchError::Failed(format!("no stager of {} threads was opened", crew.threads))
        })
    }

    /// The lease's memory.
    pub fn pinned(&mut self) -> &mut [u8] {
        self.pinned.as_mut_slice()
    }
}

fn open_pool(classes: &[(usize, usize)]) -> Result<Pool, BenchError> {
    let mut builder =
        Pool::builder().env(false).backend(BackendChoice::Cuda).device(0).lock(LockMode::Require);
    for (index, &(bytes, count)) in classes.iter().enumerate() {
        builder = builder.class(&format!("staged-{index}"), bytes, count);
    }
    builder.open().map_err(|cause| BenchError::opening_pool(&cause))
}

/// The numbers of threads that are compared.
pub(super) const THREADS: [usize; 6] = [1, 2, 4, 6, 8, THREADS_MAX];
const THREADS_MAX: usize = 12;
/// The sizes of chunks that are compared.
pub(super) const CHUNKS_BYTES: [usize; 4] = [1 << 20, 2 << 20, 4 << 20, CHUNK_BYTES_MAX];
const CHUNK_BYTES_MAX: usize = 8 << 20;
