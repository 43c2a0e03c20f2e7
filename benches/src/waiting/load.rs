//! One run of many tasks or threads that take a buffer, hold it and give it back: what each of
//! them waited, and how many were served.

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use async_executor::Executor;
use async_io::{Timer, block_on};
use futures_lite::future;

use super::pools::{Census, TaskPool, ThreadPool};
use crate::BenchError;
use crate::timing::Times;

/// What to run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// Tasks or threads.
    pub(super) waiters: usize,
    /// Whether half of the waits, chosen at random, are given up.
    pub(super) cancels: bool,
    /// How long it runs before anything counts, and how long it counts.
    pub(super) warm_up: Duration,
    pub(super) counted: Duration,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Those who really ran.
    pub(super) waiters: usize,
    /// Each wait that began in the counted time, however late it ended.
    pub(super) waits: Times,
    /// Of the counted time.
    pub(super) leases_per_s: f64,
    /// Leases and waits given up, from start to end.
    pub(super) leases: u64,
    pub(super) cancelled: u64,
    /// How many got in line from start to end, where the pool counts them.
    pub(super) in_line: Option<u64>,
    /// Buffers that did not come back.
    pub(super) lost: u64,
}

/// Runs tasks on as many executor threads as there are cores.
pub(super) fn tasks<P: TaskPool + Census>(pool: &P, load: &Load) -> Result<Outcome, BenchError> {
    let waits_before = pool.waits();
    let clock = Clock::start(load);
    let executor = Executor::new();
    let tasks: Vec<_> = (1..=load.waiters as u64)
        .map(|seed| executor.spawn(task(pool, clock, Coin::new(seed, load.cancels))))
        .collect();
    let (running, stopped) = async_channel::bounded::<()>(1);
    let tallies: Result<Vec<_>, BenchError> = thread::scope(|scope| {
        // Dropped in any case, so that the other threads end.
        let running = running;
        for _ in 1..workers() {
            scope.spawn(|| block_on(executor.run(stopped.recv())));
        }
        let tallies = block_on(executor.run(async {
            let mut tallies = Vec::new();
            for task in tasks {
                tallies.push(task.await?);
            }
            Ok(tallies)
        }));
        drop(running);
        tallies
    });
    outcome(&tallies?, load, pool, waits_before)
}

/// Runs threads, fewer where the system starts no more.
pub(super) fn threads<P: ThreadPool + Census>(
    pool: &P,
    load: &Load,
) -> Result<Outcome, BenchError> {
    let waits_before = pool.waits();
    // Everybody begins once all are there.
    let clock = OnceLock::new();
    let tallies: Result<Vec<_>, BenchError> = thread::scope(|scope| {
        let mut started = Vec::new();
        let mut refused = None;
        for _ in 0..load.waiters {
            let builder = thread::Builder::new().stack_size(STACK_BYTES);
            match builder.spawn_scoped(scope, || thread(pool, *clock.wait())) {
                Ok(thread) => started.push(thread),
                Err(cause) => {
                    refused = Some(cause);
                    break;
                }
            }
        }
        let _ = clock.set(Clock::start(load));
        let tallies = started.into_iter().map(|thread| {
            let panicked = |_| Err(BenchError::Failed("a waiting thread panicked".to_owned()));
            thread.join().unwrap_or_else(panicked)
        });
        let tallies = tallies.collect::<Result<Vec<_>, _>>()?;
        match refused {
            Some(cause) if tallies.len() < THREADS_MIN => {
                Err(BenchError::failed("starting threads", cause))
            }
            _ => Ok(tallies),
        }
    });
    outcome(&tallies?, load, pool, waits_before)
}

/// The threads that run tasks.
pub(super) fn workers() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// What counts in a run.
#[derive(Debug, Clone, Copy)]
struct Clock {
    from: Instant,
    until: Instant,
}

impl Clock {
    fn start(load: &Load) -> Self {
        let from = Instant::now() + load.warm_up;
        Self { from, until: from + load.counted }
    }

    fn counts(&self, at: Instant) -> bool {
        (self.from..self.until).contains(&at)
    }
}

/// What one of them did.
#[derive(Debug, Default)]
struct Tally {
    waits: Vec<Duration>,
    counted: u64,
    leases: u64,
    cancelled: u64,
}

impl Tally {
    fn note(&mut self, began: Instant, clock: Clock) {
        let got = Instant::now();
        self.leases += 1;
        self.counted += u64::from(clock.counts(got));
        if clock.counts(began) {
            self.waits.push(got.duration_since(began));
        }
    }
}

async fn task<P: TaskPool>(pool: &P, clock: Clock, mut coin: Coin) -> Result<Tally, BenchError> {
    let mut tally = Tally::default();
    loop {
        let began = Instant::now();
        if began >= clock.until {
            return Ok(tally);
        }
        let held = match coin.gives_up_after() {
            None => Some(pool.take().await?),
            Some(patience) => {
                let take = async { pool.take().await.map(Some) };
                let give_up = async {
                    Timer::after(patience).await;
                    Ok(None)
                };
                future::or(take, give_up).await?
            }
        };
        if held.is_some() {
            tally.note(began, clock);
            Timer::after(HOLD).await;
        } else {
            tally.cancelled += 1;
        }
    }
}

fn thread<P: ThreadPool>(pool: &P, clock: Clock) -> Result<Tally, BenchError> {
    let mut tally = Tally::default();
    loop {
        let began = Instant::now();
        if began >= clock.until {
            return Ok(tally);
        }
        let _held = pool.take()?;
        tally.note(began, clock);
        thread::sleep(HOLD);
    }
}

fn outcome(
    tallies: &[Tally],
    load: &Load,
    pool: &impl Census,
    waits_before: Option<u64>,
) -> Result<Outcome, BenchError> {
    let mut waits = Times::new()?;
    tallies.iter().flat_map(|tally| &tally.waits).for_each(|&wait| waits.record(wait));
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    Ok(Outcome {
        waiters: tallies.len(),
        waits,
        leases_per_s: sum(|tally| tally.counted) as f64 / load.counted.as_secs_f64(),
        leases: sum(|tally| tally.leases),
        cancelled: sum(|tally| tally.cancelled),
        in_line: pool.waits().zip(waits_before).map(|(after, before)| after - before),
        lost: pool.lost(),
    })
}

/// Whether and when somebody gives up, the same in every run.
#[derive(Debug)]
struct Coin {
    /// xorshift; never zero.
    state: u64,
    tossed: bool,
}

impl Coin {
    fn new(seed: u64, tossed: bool) -> Self {
        Self { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, tossed }
    }

    fn gives_up_after(&mut self) -> Option<Duration> {
        if !self.tossed {
            return None;
        }
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let heads = self.state >> 63 == 1;
        let share = self.state % 1024;
        heads.then(|| PATIENCE_MAX.mul_f64(share as f64 / 1024.0))
    }
}

/// How long a buffer is held.
pub(super) const HOLD: Duration = Duration::from_millis(1);
/// Much less than a wait in a line of a thousand takes: hardly anybody is served before.
const PATIENCE_MAX: Duration = Duration::from_millis(5);
const STACK_BYTES: usize = 128 << 10;
/// With fewer there is no line.
const THREADS_MIN: usize = 100;
