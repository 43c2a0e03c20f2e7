//! The four rivals of the scenario `frames`, warmed up, checked, and ready to move frames.

use std::time::Duration;

use pinpool::{BackendChoice, LockMode, Pool};

use crate::BenchError;
use crate::cuda_rig::CudaRig;
use crate::machine;
use crate::rivals::lease::Leases;
use crate::rivals::malloc::Malloc;
use crate::rivals::pinned_cuda::{DriverPages, PinnedCuda};
use crate::rivals::pinned_host::{HostPages, PinnedHost};
use crate::rivals::ring::FixedRing;
use crate::rivals::{Churn, Lane, Rival};
use crate::sink::Sink;
use crate::text;

/// All rivals with a full queue of live frames each, one frame to copy from, one sink.
#[derive(Debug)]
pub struct FrameRig {
    /// In the order of [`Rival::ALL`]. First, so that the buffers go before the sink's context.
    lanes: [Box<dyn Churn>; 4],
    sink: Sink,
    source: Vec<u8>,
    stamp: u64,
    /// The memory backend, "cuda" or "host".
    pub backend: &'static str,
    /// Whether the memory of the rivals that lock theirs is locked.
    pub locked: bool,
    /// What the reader of the result must know.
    pub notes: Vec<String>,
}

impl FrameRig {
    /// Opens all rivals for frames of `bytes`, `depth` of them live in each, and fills their
    /// queues. Where the system refuses to lock the memory, all of them run unlocked.
    ///
    /// # Errors
    /// [`BenchError::Input`] where `backend` is cuda and there is no device; any failed call.
    pub fn open(backend: BackendChoice, bytes: usize, depth: usize) -> Result<Self, BenchError> {
        let mut notes = Vec::new();
        let cuda = match backend {
            BackendChoice::Host => None,
            BackendChoice::Cuda => Some(CudaRig::open()?),
            BackendChoice::Auto => match CudaRig::open() {
                Ok(rig) => Some(rig),
                Err(BenchError::Input(reason)) => {
                    notes.push(format!("backend auto is host here: {reason}"));
                    None
                }
                Err(other) => return Err(other),
            },
        };
        let mut rig = match cuda {
            Some(cuda) => Self::open_cuda(&cuda, bytes, depth)?,
            None => match Self::open_host(bytes, depth, true) {
                Err(BenchError::LockRefused { .. }) => {
                    notes.push(unlocked_note(bytes, depth));
                    Self::open_host(bytes, depth, false)?
                }
                other => other?,
            },
        };
        rig.notes = notes;
        Ok(rig)
    }

    /// Moves one frame through one rival and returns the time that took.
    ///
    /// # Errors
    /// The rival's or the copy's.
    pub fn frame(&mut self, rival: Rival) -> Result<Duration, BenchError> {
        // A new stamp makes every frame different, so a stale one cannot pass for it.
        self.stamp += 1;
        for (byte, stamp) in self.source.iter_mut().zip(self.stamp.to_le_bytes()) {
            *byte = stamp;
        }
        self.lanes[rival as usize].frame(&self.source, &mut self.sink)
    }

    fn open_host(bytes: usize, depth: usize, lock: bool) -> Result<Self, BenchError> {
        let mode = if lock { LockMode::Try } else { LockMode::Off };
        let pool = open_pool(BackendChoice::Host, mode, bytes, depth)?;
        if lock && !pool.is_pinned() {
            let source = std::io::Error::other("the pool opened unlocked");
            return Err(BenchError::LockRefused { bytes: bytes * depth, source });
        }
        let ring = FixedRing::new(depth, || HostPages::new(bytes, lock))?;
        let lanes: [Box<dyn Churn>; 4] = [
            Box::new(Lane::new(Leases::new(pool, bytes), depth)),
            Box::new(Lane::new(PinnedHost::new(bytes, lock), depth)),
            Box::new(Lane::new(Malloc::new(bytes), depth)),
            Box::new(Lane::new(ring, depth)),
        ];
        Self::warm_up("host", lock, lanes, Sink::host(bytes), bytes, depth)
    }

    fn open_cuda(cuda: &CudaRig, bytes: usize, depth: usize) -> Result<Self, BenchError> {
        let pool = open_pool(BackendChoice::Cuda, LockMode::Require, bytes, depth)?;
        let locked = pool.is_pinned();
        let ring = FixedRing::new(depth, || DriverPages::new(&cuda.context, bytes))?;
        let lanes: [Box<dyn Churn>; 4] = [
            Box::new(Lane::new(Leases::new(pool, bytes), depth)),
            Box::new(Lane::new(PinnedCuda::new(cuda.context.clone(), bytes), depth)),
            Box::new(Lane::new(Malloc::new(bytes), depth)),
            Box::new(Lane::new(ring, depth)),
        ];
        Self::warm_up("cuda", locked, lanes, Sink::device(cuda, bytes)?, bytes, depth)
    }

    /// Fills the queue of every rival, so that each counted frame gives one buffer back, and
    /// checks that its frames really arrive.
    fn warm_up(
        backend: &'static str,
        locked: bool,
        lanes: [Box<dyn Churn>; 4],
        sink: Sink,
        bytes: usize,
        depth: usize,
    ) -> Result<Self, BenchError> {
        let source = pattern(bytes);
        let mut rig = Self { lanes, sink, source, stamp: 0, backend, locked, notes: Vec::new() };
        let blank = vec![0; bytes];
        for rival in Rival::ALL {
            for _ in 0..depth {
                rig.frame(rival)?;
            }
            rig.sink.copy(&blank)?;
            rig.frame(rival)?;
            if rig.sink.read_back()? != rig.source {
                let text = format!("{}: the frame that arrived is not the one sent", rival.name());
                return Err(BenchError::Failed(text));
            }
        }
        Ok(rig)
    }
}

fn open_pool(
    backend: BackendChoice,
    lock: LockMode,
    bytes: usize,
    depth: usize,
) -> Result<Pool, BenchError> {
    Pool::builder()
        .env(false)
        .backend(backend)
        .device(0)
        .lock(lock)
        .class("frame", bytes, depth)
        .open()
        .map_err(|cause| BenchError::opening_pool(&cause))
}

fn unlocked_note(bytes: usize, depth: usize) -> String {
    // The pool, the ring and the live frames of `pinned-per-frame`.
    let needed = text::bytes(3 * bytes as u64 * depth as u64);
    format!(
        "the system refused to lock memory (RLIMIT_MEMLOCK is {}, this run locks {needed}), so no \
         source locked any; raise the limit with `ulimit -l` to compare locked memory",
        machine::memlock().summary(),
    )
}

/// A frame without long runs of one value, the same in every run.
fn pattern(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(bytes).collect()
}
