//! Part `storm`: many threads fill, copy and drop; every copy is read back and compared.

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use pinpool::cudarc::driver::{CudaSlice, CudaStream, CudaViewMut};
use pinpool::{BackendChoice, LockMode, Pool};

use super::report::Storm;
use super::{BYTES, PATIENCE, Scale};
use crate::BenchError;
use crate::cuda_rig::CudaRig;
use crate::procfs;
use crate::timing::rounded;

/// Runs it; what went wrong with the copies or the slots is in the result.
pub(super) fn run(rig: &CudaRig, scale: &Scale) -> Result<Storm, BenchError> {
    let pool = Pool::builder()
        .env(false)
        .backend(BackendChoice::Cuda)
        .device(0)
        .lock(LockMode::Require)
        .class("storm", BYTES, SLOTS)
        .class("read-back", RING * BYTES, THREADS)
        .open()
        .map_err(|cause| BenchError::opening_pool(&cause))?;
    rig.bind()?;
    let streams = (0..STREAMS).map(|_| rig.context.new_stream()).collect::<Result<Vec<_>, _>>();
    let streams = streams.map_err(|cause| BenchError::failed("creating a stream", cause))?;

    let each = scale.storm_rounds / THREADS as u64;
    let warm_up = each / 20;
    let mut mismatches = round_all(&pool, &streams, 0, warm_up)?;
    let resident = procfs::resident_bytes()?;
    let started = Instant::now();
    mismatches += round_all(&pool, &streams, warm_up, warm_up + each)?;
    let seconds = started.elapsed().as_secs_f64();
    // Before the close gives the slabs back.
    let drift = procfs::resident_bytes()?.cast_signed() - resident.cast_signed();

    let rounds = each * THREADS as u64;
    Ok(Storm {
        threads: THREADS as u64,
        streams: STREAMS as u64,
        slots: SLOTS as u64,
        bytes: BYTES as u64,
        rounds,
        seconds: rounded(seconds),
        rounds_per_s: rounded(rounds as f64 / seconds),
        mismatches,
        leaks: leaks(&pool),
        resident_drift_bytes: drift,
    })
}

/// Slots that are not free once all is done, and those that a close finds missing.
fn leaks(pool: &Pool) -> u64 {
    let missing = || -> u64 {
        let stats = pool.stats();
        stats.classes.iter().map(|class| u64::from(class.slots - class.free)).sum()
    };
    let started = Instant::now();
    // Every stream is dry; the keeper may need a moment.
    while missing() > 0 && started.elapsed() < SETTLES {
        thread::sleep(Duration::from_millis(1));
    }
    let missing = missing();
    let closed = pool.close(SETTLES);
    let still_out: usize = closed.still_out.iter().map(|(_, slots)| slots).sum();
    missing.max((still_out + closed.in_flight.len()) as u64).max(closed.slabs_left as u64)
}

/// Rounds `from` to `to` of all threads. Returns how many copies arrived wrong.
fn round_all(
    pool: &Pool,
    streams: &[Arc<CudaStream>],
    from: u64,
    to: u64,
) -> Result<u64, BenchError> {
    thread::scope(|scope| {
        let started: Vec<_> = (0..THREADS)
            .map(|thread| {
                let stream = &streams[thread % streams.len()];
                let worker = Worker { pool, stream, thread: thread as u64 };
                scope.spawn(move || worker.run(from, to))
            })
            .collect();
        let mut mismatches = 0;
        for thread in started {
            let joined = thread.join();
            mismatches += joined
                .unwrap_or_else(|_| Err(BenchError::Failed("a thread panicked".to_owned())))?;
        }
        Ok(mismatches)
    })
}

struct Worker<'a> {
    pool: &'a Pool,
    stream: &'a Arc<CudaStream>,
    thread: u64,
}

impl Worker<'_> {
    fn run(&self, from: u64, to: u64) -> Result<u64, BenchError> {
        let bound = self.stream.context().bind_to_thread();
        bound.map_err(|cause| BenchError::failed("binding the context", cause))?;
        let allocated = self.stream.alloc_zeros::<u64>(RING * WORDS);
        let mut ring =
            allocated.map_err(|cause| BenchError::failed("allocating on the device", cause))?;
        let mut mismatches = 0;
        for first in (from..to).step_by(RING) {
            let rounds = first..to.min(first + RING as u64);
            for (round, start) in rounds.clone().zip((0..).step_by(WORDS)) {
                self.send(round, &mut ring.slice_mut(start..start + WORDS))?;
            }
            mismatches += self.wrong(rounds, &ring)?;
        }
        Ok(mismatches)
    }

    fn send(&self, round: u64, target: &mut CudaViewMut<'_, u64>) -> Result<(), BenchError> {
        let lease = self.pool.lease_timeout_of::<u64>(WORDS, PATIENCE);
        let mut lease = lease.map_err(|cause| BenchError::failed("leasing", cause))?;
        for (word, stamp) in lease.as_mut_slice().iter_mut().zip(self.stamps(round)) {
            *word = stamp;
        }
        let copy = lease.upload(self.stream, target);
        drop(copy.map_err(|cause| BenchError::failed("uploading", cause))?);
        Ok(())
    }

    /// Reads the ring back, in stream order, so behind the copies to it. Returns how many of these
    /// rounds did not arrive as they were sent.
    fn wrong(&self, rounds: Range<u64>, ring: &CudaSlice<u64>) -> Result<u64, BenchError> {
        let lease = self.pool.lease_timeout_of::<u64>(RING * WORDS, PATIENCE);
        let lease = lease.map_err(|cause| BenchError::failed("leasing", cause))?;
        let copy = lease.download(ring, self.stream);
        let copy = copy.map_err(|cause| BenchError::failed("downloading", cause))?;
        let lease = copy.wait().map_err(|cause| BenchError::failed("waiting", cause))?;
        let found = rounds.zip(lease.as_slice().chunks_exact(WORDS));
        let wrong = found.filter(|(round, found)| !found.iter().copied().eq(self.stamps(*round)));
        Ok(wrong.count() as u64)
    }

    /// What one round writes: no word is that of another thread, round or place.
    fn stamps(&self, round: u64) -> impl Iterator<Item = u64> {
        let base = ((self.thread + 1) << 56) | (round << 16);
        (0..WORDS as u64).map(move |word| base | word)
    }
}

const THREADS: usize = 8;
const STREAMS: usize = 4;
const SLOTS: usize = 64;
/// Copies between two readings back.
const RING: usize = 16;
const WORDS: usize = BYTES / size_of::<u64>();
const SETTLES: Duration = Duration::from_secs(10);
