//! Part `keeper`: what the pool's background thread costs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pinpool::Pool;
use pinpool::cudarc::driver::CudaSlice;

use super::report::{FRAMES, FRAMES_AND_WAITER, IDLE, KeeperRow};
use super::{PATIENCE, Scale, close_pool, open_pool};
use crate::BenchError;
use crate::cuda_rig::CudaRig;
use crate::procfs::Task;
use crate::timing::rounded;

/// Watches the keeper in every case.
pub(super) fn measure(rig: &CudaRig, scale: &Scale) -> Result<Vec<KeeperRow>, BenchError> {
    let mut rows = Vec::new();
    // With slots to spare: one after the other, nobody waits.
    let pool = open_pool("keeper", BYTES, SPARE)?;
    rig.bind()?;
    // Used once, so that the keeper is there and has had something to do.
    paced(rig, &pool, 1, Duration::from_millis(50))?;
    thread::sleep(SETTLES);
    rows.push(watch(IDLE, || {
        thread::sleep(scale.watch);
        Ok(0)
    })?);
    rows.push(watch(FRAMES, || paced(rig, &pool, 1, scale.watch))?);
    close_pool(&pool)?;
    // With a single slot for two threads: one holds it until its frame is due, the other waits.
    let pool = open_pool("keeper", BYTES, 1)?;
    rig.bind()?;
    paced(rig, &pool, 2, Duration::from_millis(50))?;
    rows.push(watch(FRAMES_AND_WAITER, || paced(rig, &pool, 2, scale.watch))?);
    close_pool(&pool)?;
    Ok(rows)
}

/// What the keeper uses up while `run` goes on, which says how many frames it moved.
fn watch(
    case: &str,
    run: impl FnOnce() -> Result<u64, BenchError>,
) -> Result<KeeperRow, BenchError> {
    let keeper = Task::named(KEEPER)?;
    let before = keeper.usage()?;
    let started = Instant::now();
    let frames = run()?;
    let seconds = started.elapsed().as_secs_f64();
    let after = keeper.usage()?;
    let used = after.cpu_ns.saturating_sub(before.cpu_ns) as f64 / 1e9;
    let sleeps = after.sleeps.saturating_sub(before.sleeps) as f64;
    Ok(KeeperRow {
        case: case.to_owned(),
        seconds: rounded(seconds),
        frames,
        cpu_percent: rounded(100.0 * used / seconds),
        wakes_per_s: rounded(sleeps / seconds),
    })
}

/// Moves a frame whenever one is due for `time`, by turns of `threads` threads. Returns how many.
fn paced(rig: &CudaRig, pool: &Pool, threads: usize, time: Duration) -> Result<u64, BenchError> {
    let next = AtomicU64::new(0);
    let started = Instant::now();
    thread::scope(|scope| {
        let mover = || {
            rig.bind()?;
            let allocated = rig.stream.alloc_zeros::<u8>(BYTES);
            let mut device =
                allocated.map_err(|cause| BenchError::failed("allocating on the device", cause))?;
            while started.elapsed() < time {
                frame(rig, pool, &mut device, || {
                    let due =
                        EVERY * u32::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap_or(0);
                    thread::sleep(due.saturating_sub(started.elapsed()));
                })?;
            }
            Ok(())
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(mover)).collect();
        for thread in running {
            let joined = thread.join();
            joined.unwrap_or_else(|_| Err(BenchError::Failed("a thread panicked".to_owned())))?;
        }
        Ok(())
    })?;
    Ok(next.into_inner())
}

/// One frame: whoever has the slot holds it until the frame is due, and sends it off.
fn frame(
    rig: &CudaRig,
    pool: &Pool,
    device: &mut CudaSlice<u8>,
    wait_until_due: impl FnOnce(),
) -> Result<(), BenchError> {
    let lease = pool.lease_timeout(BYTES, PATIENCE);
    let lease = lease.map_err(|cause| BenchError::failed("leasing", cause))?;
    wait_until_due();
    let copy = lease.upload(&rig.stream, device);
    drop(copy.map_err(|cause| BenchError::failed("uploading", cause))?);
    Ok(())
}

const KEEPER: &str = "pinpool-keeper";
const BYTES: usize = 1 << 20;
const SPARE: usize = 8;
/// A thousand frames a second.
const EVERY: Duration = Duration::from_millis(1);
/// After the last frame, before the keeper counts as idle.
const SETTLES: Duration = Duration::from_millis(100);
