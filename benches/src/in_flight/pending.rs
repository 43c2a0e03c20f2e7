//! Part `pending`: whether a round stays as cheap when many other fences are pending.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use pinpool::cudarc::driver::{CudaContext, CudaEvent, CudaStream};
use pinpool::{ManualFence, Pool};

use super::gate::Gate;
use super::report::{BARE, InFlightRatios, MANUAL, PendingRow, STREAM};
use super::{BYTES, DEPTH, PATIENCE, Scale, close_pool, lease, open_pool};
use crate::BenchError;
use crate::cuda_rig::CudaRig;
use crate::timing::{self, Times, rounded};

/// The rows and what they come to.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) rows: Vec<PendingRow>,
    pub(super) ratios: InFlightRatios,
}

/// Measures every kind of fence with one thread and with all.
pub(super) fn measure(rig: &CudaRig, scale: &Scale) -> Result<Pending, BenchError> {
    let bench = Bench::open(rig)?;
    let mut pending = Pending { rows: Vec::new(), ratios: InFlightRatios::default() };
    let ratios = &mut pending.ratios;
    let mut of_driver = [None; 2];
    let [driver_one_thread, driver] = &mut of_driver;
    for (kind, threads, ratio) in [
        (Kind::Stream, 1, &mut ratios.p99_512_over_8_one_thread),
        (Kind::Stream, THREADS, &mut ratios.p99_512_over_8),
        (Kind::Manual, 1, &mut ratios.p99_512_over_8_manual_one_thread),
        (Kind::Manual, THREADS, &mut ratios.p99_512_over_8_manual),
        (Kind::Bare, 1, driver_one_thread),
        (Kind::Bare, THREADS, driver),
    ] {
        let mut merged = [Times::new()?, Times::new()?];
        let mut p99s: [Vec<f64>; 2] = Default::default();
        for repeat in 0..scale.pending_repeats {
            for level in timing::order(repeat, LEVELS.len()) {
                let times = bench.level(kind, threads, LEVELS[level], scale.pending_rounds)?;
                p99s[level].push(times.quantile_us(0.99));
                merged[level].merge(&times)?;
            }
        }
        *ratio = Some(rounded(timing::median_ratio(&p99s[1], &p99s[0])));
        let rows =
            LEVELS.iter().zip(&merged).map(|(&level, times)| row(kind, threads, level, times));
        pending.rows.extend(rows);
    }
    close_pool(&bench.pool)?;
    Ok(pending)
}

fn row(kind: Kind, threads: usize, pending: usize, times: &Times) -> PendingRow {
    PendingRow {
        fence: kind.name().to_owned(),
        threads: threads as u64,
        pending: pending as u64,
        rounds: times.count(),
        p50_ns: rounded(times.quantile_us(0.5) * 1e3),
        p99_ns: rounded(times.quantile_us(0.99) * 1e3),
        max_ns: rounded(times.max_us() * 1e3),
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Stream,
    Manual,
    Bare,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Stream => STREAM,
            Self::Manual => MANUAL,
            Self::Bare => BARE,
        }
    }
}

/// What keeps the fences of one level pending.
enum Holder {
    Stream(Gate),
    Manual(Vec<ManualFence>),
}

struct Bench {
    pool: Pool,
    /// The stream that is blocked.
    blocked: Arc<CudaStream>,
    /// The streams of the threads, which go on beside it.
    streams: Vec<Arc<CudaStream>>,
}

impl Bench {
    fn open(rig: &CudaRig) -> Result<Self, BenchError> {
        let pool = open_pool("pending", BYTES, SLOTS)?;
        rig.bind()?;
        let blocked = Arc::clone(&rig.stream);
        let gate = Gate::close(&blocked)?;
        let streams = independent_streams(&rig.context, THREADS)?;
        gate.open()?;
        Ok(Self { pool, blocked, streams })
    }

    /// The times of all rounds of `threads` threads with `pending` fences pending beside them.
    fn level(
        &self,
        kind: Kind,
        threads: usize,
        pending: usize,
        rounds: usize,
    ) -> Result<Times, BenchError> {
        // Leased and kept, so that the threads have as many free slots at every level.
        let kept =
            (pending..LEVELS[1]).map(|_| lease(&self.pool)).collect::<Result<Vec<_>, _>>()?;
        let holder = self.hold(kind, pending)?;
        self.wait_for(pending, kept.len())?;
        let streams = self.streams[..threads].iter();
        let events: Result<Vec<_>, _> = streams.map(|stream| stream.record_event(None)).collect();
        let events = events.map_err(|cause| BenchError::failed("recording an event", cause))?;
        let barrier = Barrier::new(threads);
        let all = thread::scope(|scope| {
            let started: Vec<_> = self.streams[..threads]
                .iter()
                .zip(events)
                .map(|(stream, event)| {
                    let worker = Worker { pool: &self.pool, stream, event, kind };
                    let barrier = &barrier;
                    scope.spawn(move || worker.run(rounds, barrier))
                })
                .collect();
            started.into_iter().map(join).collect::<Result<Vec<_>, _>>()
        });
        match holder {
            Holder::Stream(gate) => gate.open()?,
            Holder::Manual(fences) => fences.iter().for_each(ManualFence::complete),
        }
        let synchronized = self.blocked.synchronize();
        synchronized
            .map_err(|cause| BenchError::failed("waiting for the blocked stream", cause))?;
        drop(kept);
        self.wait_for(0, 0)?;
        let mut merged = Times::new()?;
        for times in &all? {
            merged.merge(times)?;
        }
        Ok(merged)
    }

    fn hold(&self, kind: Kind, pending: usize) -> Result<Holder, BenchError> {
        match kind {
            Kind::Stream | Kind::Bare => {
                let gate = Gate::close(&self.blocked)?;
                for _ in 0..pending {
                    retire_on_stream(&self.pool, &self.blocked)?;
                }
                Ok(Holder::Stream(gate))
            }
            Kind::Manual => {
                let fences: Vec<ManualFence> = (0..pending).map(|_| ManualFence::new()).collect();
                for fence in &fences {
                    lease(&self.pool)?.retire_after(fence.clone());
                }
                Ok(Holder::Manual(fences))
            }
        }
    }

    /// Waits until exactly so many slots are in flight and leased.
    fn wait_for(&self, in_flight: usize, leased: usize) -> Result<(), BenchError> {
        let started = Instant::now();
        loop {
            let stats = self.pool.stats();
            let Some(class) = stats.class("pending") else {
                return Err(BenchError::Failed("the pool lost its class".to_owned()));
            };
            if (class.in_flight as usize, class.leased as usize) == (in_flight, leased) {
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                return Err(BenchError::Failed(format!(
                    "{} slots in flight and {} leased, {in_flight} and {leased} expected",
                    class.in_flight, class.leased,
                )));
            }
            thread::sleep(Duration::from_micros(100));
        }
    }
}

struct Worker<'a> {
    pool: &'a Pool,
    stream: &'a Arc<CudaStream>,
    event: CudaEvent,
    kind: Kind,
}

impl Worker<'_> {
    fn run(&self, rounds: usize, barrier: &Barrier) -> Result<Times, BenchError> {
        let mut times = Times::new()?;
        let warm = self.stream.context().bind_to_thread();
        let warm = warm
            .map_err(|cause| BenchError::failed("binding the context", cause))
            .and_then(|()| (0..WARM_UP).try_for_each(|_| self.batch(&mut |_| ())));
        // Everybody gets here, or the others would wait for ever.
        barrier.wait();
        warm?;
        for _ in 0..rounds / DEPTH {
            self.batch(&mut |took| times.record(took))?;
        }
        Ok(times)
    }

    /// As many rounds as may be in flight at once, then their end.
    fn batch(&self, record: &mut dyn FnMut(Duration)) -> Result<(), BenchError> {
        match self.kind {
            Kind::Stream => {
                for _ in 0..DEPTH {
                    let started = Instant::now();
                    retire_on_stream(self.pool, self.stream)?;
                    record(started.elapsed());
                }
                let waited = self.stream.synchronize();
                waited.map_err(|cause| BenchError::failed("cuStreamSynchronize", cause))
            }
            Kind::Bare => {
                let failed = |cause| BenchError::failed("recording an event", cause);
                for _ in 0..DEPTH {
                    let started = Instant::now();
                    self.event.record(self.stream).map_err(failed)?;
                    record(started.elapsed());
                }
                self.stream.synchronize().map_err(failed)
            }
            Kind::Manual => {
                let fence = ManualFence::new();
                for _ in 0..DEPTH {
                    let started = Instant::now();
                    lease(self.pool)?.retire_after(fence.clone());
                    record(started.elapsed());
                }
                fence.complete();
                Ok(())
            }
        }
    }
}

/// Leases a slot and drops it, with `stream` using it so far.
fn retire_on_stream(pool: &Pool, stream: &CudaStream) -> Result<(), BenchError> {
    let lease = lease(pool)?;
    let recorded = lease.record_use(stream);
    drop(lease);
    recorded.map_err(|cause| BenchError::failed("recording a use", cause))
}

/// Streams that go on while another one is blocked. A device has fewer hardware queues than it
/// has streams, and a stream that shares the queue of the blocked one stands still with it.
fn independent_streams(
    context: &Arc<CudaContext>,
    count: usize,
) -> Result<Vec<Arc<CudaStream>>, BenchError> {
    let failed = |cause| BenchError::failed("creating a stream beside a blocked one", cause);
    let mut streams = Vec::with_capacity(count);
    // Kept until all are found, so that none is made twice.
    let mut blocked = Vec::new();
    while streams.len() < count {
        if blocked.len() > STREAMS_TRIED {
            let text = "a blocked stream blocks all others; set CUDA_DEVICE_MAX_CONNECTIONS=32";
            return Err(BenchError::Failed(text.to_owned()));
        }
        let stream = context.new_stream().map_err(failed)?;
        // Real work, because an event on a stream without any may be complete at once.
        let _work = stream.alloc_zeros::<u8>(BYTES).map_err(failed)?;
        let event = stream.record_event(None).map_err(failed)?;
        let started = Instant::now();
        let mut goes_on = event.try_is_complete().map_err(failed)?;
        while !goes_on && started.elapsed() < STANDS_STILL {
            thread::sleep(Duration::from_micros(100));
            goes_on = event.try_is_complete().map_err(failed)?;
        }
        let list = if goes_on { &mut streams } else { &mut blocked };
        list.push(stream);
    }
    Ok(streams)
}

/// A thread's result; a panic ends the process before this could see it.
fn join<T>(thread: thread::ScopedJoinHandle<'_, Result<T, BenchError>>) -> Result<T, BenchError> {
    thread.join().unwrap_or_else(|_| Err(BenchError::Failed("a thread panicked".to_owned())))
}

const THREADS: usize = 8;
const LEVELS: [usize; 2] = [8, 512];
/// As many for the threads as are pending at most.
const SLOTS: usize = 1024;
/// Uncounted batches of each thread.
const WARM_UP: usize = 25;
const STREAMS_TRIED: usize = 64;
/// A stream that does nothing for so long is blocked.
const STANDS_STILL: Duration = Duration::from_millis(200);
