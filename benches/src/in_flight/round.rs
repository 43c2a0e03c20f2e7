//! Part `round`: what lease, upload and drop add to the copy call between them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pinpool::Pool;
use pinpool::cudarc::driver::{CudaStream, result};

use super::report::{RoundRow, Spread};
use super::{BYTES, DEPTH, Scale, close_pool, lease, open_pool};
use crate::BenchError;
use crate::cuda_rig::{CudaRig, DeviceMemory};
use crate::rivals::FrameBuffer as _;
use crate::rivals::pinned_cuda::DriverPages;
use crate::timing;

/// Measures with cudarc's event tracking on or off.
pub(super) fn measure(event_tracking: bool, scale: &Scale) -> Result<RoundRow, BenchError> {
    let mut bench = Bench::open(event_tracking)?;
    let mut rounds = Vec::with_capacity(scale.batches);
    let mut copies = Vec::with_capacity(scale.batches);
    for batch in 0..WARM_UP + scale.batches {
        let mut times = [Duration::ZERO; 2];
        for side in timing::order(batch, 2) {
            times[side] = match side {
                0 => bench.rounds()?,
                _ => bench.copies()?,
            };
        }
        if batch >= WARM_UP {
            let each = times.map(|time| time.as_secs_f64() * 1e9 / DEPTH as f64);
            rounds.push(each[0]);
            copies.push(each[1]);
        }
    }
    close_pool(&bench.pool)?;
    let added: Vec<f64> = rounds.iter().zip(&copies).map(|(round, copy)| round - copy).collect();
    Ok(RoundRow {
        event_tracking,
        batches: scale.batches as u64,
        rounds_per_batch: DEPTH as u64,
        round_ns: Spread::of(&rounds),
        copy_call_ns: Spread::of(&copies),
        added_ns: Spread::of(&added),
    })
}

/// A pool and fixed pinned memory that send to the same place.
struct Bench {
    pool: Pool,
    fixed: DriverPages,
    device: DeviceMemory,
    stream: Arc<CudaStream>,
}

impl Bench {
    fn open(event_tracking: bool) -> Result<Self, BenchError> {
        let rig = if event_tracking { CudaRig::open()? } else { CudaRig::open_untracked()? };
        let pool = open_pool("round", BYTES, SLOTS)?;
        // Opening the pool may have made another context current on this thread.
        rig.bind()?;
        let fixed = DriverPages::new(&rig.context, BYTES)?;
        let device = rig.device_memory(BYTES)?;
        Ok(Self { pool, fixed, device, stream: rig.stream })
    }

    fn rounds(&mut self) -> Result<Duration, BenchError> {
        let started = Instant::now();
        for _ in 0..DEPTH {
            let copy = lease(&self.pool)?.upload(&self.stream, &mut self.device.slice);
            drop(copy.map_err(|cause| BenchError::failed("uploading", cause))?);
        }
        let took = started.elapsed();
        self.finish()?;
        Ok(took)
    }

    fn copies(&mut self) -> Result<Duration, BenchError> {
        let address = self.device.address();
        let source = self.fixed.bytes();
        let started = Instant::now();
        let mut queued = Ok(());
        for _ in 0..DEPTH {
            // SAFETY: the block is as long as `source`, and both live until the stream has run
            // dry below.
            queued = queued.and(unsafe {
                result::memcpy_htod_async(address, source, self.stream.cu_stream())
            });
        }
        let took = started.elapsed();
        self.finish()?;
        queued.map_err(|cause| BenchError::failed("cuMemcpyHtoDAsync", cause))?;
        Ok(took)
    }

    fn finish(&self) -> Result<(), BenchError> {
        self.stream.synchronize().map_err(|cause| BenchError::failed("cuStreamSynchronize", cause))
    }
}

const SLOTS: usize = 64;
/// Uncounted batches, in which every slot is used.
const WARM_UP: usize = 64;
