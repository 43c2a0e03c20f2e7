//! Part `reclaim`: how soon after the GPU is done a slot can be leased, and a waiting thread has it.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use pinpool::{Lease, Pool};

use super::report::{ReclaimRow, ReclaimTimes};
use super::{PATIENCE, Scale, close_pool, gate, open_pool};
use crate::BenchError;
use crate::cuda_rig::{CudaRig, DeviceMemory};
use crate::timing::{Times, rounded};

/// Measures each size with and without a delay before the copy.
pub(super) fn measure(rig: &CudaRig, scale: &Scale) -> Result<Vec<ReclaimRow>, BenchError> {
    let mut rows = Vec::new();
    for bytes in SIZES {
        for delay in DELAYS {
            let pool = open_pool("reclaim", bytes, 1)?;
            rig.bind()?;
            let device = rig.device_memory(bytes)?;
            let mut bench = Bench { rig, pool: &pool, device, bytes, delay };
            let (leasable, leased) = bench.measure(scale.reclaim_rounds)?;
            close_pool(&pool)?;
            rows.push(ReclaimRow {
                bytes: bytes as u64,
                delay_us: u64::try_from(delay.as_micros()).unwrap_or(u64::MAX),
                rounds: leased.count(),
                leasable: summary(&leasable),
                leased: summary(&leased),
            });
        }
    }
    Ok(rows)
}

struct Bench<'a> {
    rig: &'a CudaRig,
    pool: &'a Pool,
    device: DeviceMemory,
    bytes: usize,
    delay: Duration,
}

/// The waiting thread's side: told to wait, it says that it is about to, and then since when it
/// has had the slot.
struct Waiter {
    go: Sender<()>,
    about_to_wait: Receiver<()>,
    leased_at: Receiver<Result<Instant, BenchError>>,
}

impl Bench<'_> {
    /// Times until the slot is home, and until the waiter has it.
    fn measure(&mut self, rounds: usize) -> Result<(Times, Times), BenchError> {
        thread::scope(|scope| {
            let (go, told) = mpsc::channel();
            let (says, about_to_wait) = mpsc::channel();
            let (leased, leased_at) = mpsc::channel();
            let (pool, bytes) = (self.pool, self.bytes);
            scope.spawn(move || {
                // Until the measuring thread is done, or gone.
                while told.recv().is_ok() && says.send(()).is_ok() {
                    let lease = pool.lease_timeout(bytes, PATIENCE);
                    let now = Instant::now();
                    let lease = lease.map_err(|cause| BenchError::failed("waiting", cause));
                    // The slot is free again before the next round is told of.
                    if leased.send(lease.map(|lease| drop_at(lease, now))).is_err() {
                        return;
                    }
                }
            });
            let waiter = Waiter { go, about_to_wait, leased_at };
            let (mut leasable, mut leased) = (Times::new()?, Times::new()?);
            for round in 0..WARM_UP + rounds {
                let (home, taken) = self.round(&waiter)?;
                if round >= WARM_UP {
                    leasable.record(home);
                    leased.record(taken);
                }
            }
            Ok((leasable, leased))
        })
    }

    fn round(&mut self, waiter: &Waiter) -> Result<(Duration, Duration), BenchError> {
        let stream = &self.rig.stream;
        let home_before = self.come_home();
        let lease = self.pool.lease_timeout(self.bytes, PATIENCE);
        let lease = lease.map_err(|cause| BenchError::failed("leasing", cause))?;
        if waiter.go.send(()).is_err() || waiter.about_to_wait.recv().is_err() {
            return Err(waiter_gone());
        }
        // Time to really wait.
        thread::sleep(FALLS_ASLEEP);
        if !self.delay.is_zero() {
            gate::delay(stream, self.delay)?;
        }
        let copy = lease.upload(stream, &mut self.device.slice);
        let recorded = stream.record_event(None);
        drop(copy.map_err(|cause| BenchError::failed("uploading", cause))?);
        let event = recorded.map_err(|cause| BenchError::failed("recording an event", cause))?;
        let complete_at = loop {
            let complete = event.try_is_complete();
            if complete.map_err(|cause| BenchError::failed("cuEventQuery", cause))? {
                break Instant::now();
            }
            std::hint::spin_loop();
        };
        while self.come_home() == home_before {
            std::hint::spin_loop();
        }
        let home_at = Instant::now();
        let leased_at = waiter.leased_at.recv().map_err(|_| waiter_gone())??;
        // The waiter may have had it before this thread had counted it.
        let leasable = home_at.min(leased_at).saturating_duration_since(complete_at);
        Ok((leasable, leased_at.saturating_duration_since(complete_at)))
    }

    /// Slots that came home from flight so far. Asking reclaims nothing.
    fn come_home(&self) -> u64 {
        self.pool.stats().classes.iter().map(|class| class.landed_total).sum()
    }
}

fn summary(times: &Times) -> ReclaimTimes {
    ReclaimTimes {
        p50_us: rounded(times.quantile_us(0.5)),
        p99_us: rounded(times.quantile_us(0.99)),
        max_us: rounded(times.max_us()),
    }
}

/// Gives the slot back and says when it was had.
fn drop_at(lease: Lease, leased_at: Instant) -> Instant {
    drop(lease);
    leased_at
}

fn waiter_gone() -> BenchError {
    BenchError::Failed("the waiting thread is gone".to_owned())
}

/// A small copy, and a frame of 1080p RGB.
const SIZES: [usize; 2] = [64 << 10, 1920 * 1080 * 3];
const DELAYS: [Duration; 2] = [Duration::ZERO, Duration::from_millis(2)];
const FALLS_ASLEEP: Duration = Duration::from_micros(150);
const WARM_UP: usize = 10;
