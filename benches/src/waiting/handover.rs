//! Part `hand-over`: from the drop of the last buffer to the waiter that runs with it.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use async_executor::Executor;
use async_io::block_on;

use super::Scale;
use super::pools::{Guarded, Leases, Permits, TaskPool, ThreadPool};
use super::report::{ASLEEP_TASK, CONDVAR, HandoverRow, LEASE, NEIGHBOUR_TASK, SEMAPHORE, THREAD};
use crate::BenchError;
use crate::timing::{Progress, Times, order, rounded};

/// Measures all cases, a few hand-overs of each in turn.
pub(super) fn measure(
    scale: &Scale,
    progress: &mut Progress<'_>,
) -> Result<Vec<HandoverRow>, BenchError> {
    let (leases, guarded, permits) = (Leases::open(1)?, Guarded::new(1), Permits::new(1));
    let cases = [
        (THREAD, LEASE),
        (THREAD, CONDVAR),
        (ASLEEP_TASK, LEASE),
        (ASLEEP_TASK, SEMAPHORE),
        (NEIGHBOUR_TASK, LEASE),
        (NEIGHBOUR_TASK, SEMAPHORE),
    ];
    let mut times = cases.iter().map(|_| Times::new()).collect::<Result<Vec<_>, _>>()?;
    for round in 0..scale.handover_rounds {
        for at in order(round, cases.len()) {
            let times = &mut times[at];
            match cases[at] {
                (THREAD, LEASE) => between_threads(&leases, times)?,
                (THREAD, _) => between_threads(&guarded, times)?,
                (ASLEEP_TASK, LEASE) => to_sleeping_executor(&leases, times)?,
                (ASLEEP_TASK, _) => to_sleeping_executor(&permits, times)?,
                (_, LEASE) => to_neighbour(&leases, times)?,
                _ => to_neighbour(&permits, times)?,
            }
        }
        progress.step();
    }
    let row = |((waiter, pool), times): ((&str, &str), Times)| HandoverRow {
        waiter: waiter.to_owned(),
        pool: pool.to_owned(),
        count: times.count(),
        p50_us: rounded(times.quantile_us(0.5)),
        p99_us: rounded(times.quantile_us(0.99)),
        max_us: rounded(times.max_us()),
    };
    Ok(cases.into_iter().zip(times).map(row).collect())
}

fn between_threads<P: ThreadPool>(pool: &P, times: &mut Times) -> Result<(), BenchError> {
    let (go, told) = mpsc::channel::<()>();
    let (says, about_to_wait) = mpsc::channel();
    let (had, had_at) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            // Until the measuring thread is done, or gone.
            while told.recv().is_ok() && says.send(()).is_ok() {
                let held = pool.take();
                let now = Instant::now();
                // It is free again before the next round is told of.
                if had
                    .send(held.map(|held| {
                        drop(held);
                        now
                    }))
                    .is_err()
                {
                    return;
                }
            }
        });
        for hand_over in 0..WARM_UP + IN_A_ROW {
            let held = pool.take()?;
            if go.send(()).is_err() || about_to_wait.recv().is_err() {
                return Err(gone());
            }
            thread::sleep(FALLS_ASLEEP);
            let dropped = Instant::now();
            drop(held);
            record(times, hand_over, dropped, had_at.recv().map_err(|_| gone())??);
        }
        // The waiter ends where nobody can tell it any more.
        drop(go);
        Ok(())
    })
}

/// The waiter is a task, and the thread that runs it has nothing else to do.
fn to_sleeping_executor<P: TaskPool>(pool: &P, times: &mut Times) -> Result<(), BenchError> {
    let waiter = Waiter::new();
    thread::scope(|scope| {
        let told = waiter.ends.clone();
        scope.spawn(move || {
            let executor = Executor::new();
            let task = executor.spawn(told.run(pool));
            block_on(executor.run(task));
        });
        let measured = (0..WARM_UP + IN_A_ROW).try_for_each(|hand_over| {
            let held = block_on(pool.take())?;
            block_on(waiter.wait())?;
            thread::sleep(FALLS_ASLEEP);
            let dropped = Instant::now();
            drop(held);
            record(times, hand_over, dropped, block_on(waiter.had_at())?);
            Ok(())
        });
        waiter.go.close();
        measured
    })
}

/// The waiter is a task on the thread that drops.
fn to_neighbour<P: TaskPool>(pool: &P, times: &mut Times) -> Result<(), BenchError> {
    let waiter = Waiter::new();
    let executor = Executor::new();
    let task = executor.spawn(waiter.ends.clone().run(pool));
    let measured = block_on(executor.run(async {
        for hand_over in 0..WARM_UP + IN_A_ROW {
            let held = pool.take().await?;
            // It gets in line in the step in which it says so.
            waiter.wait().await?;
            let dropped = Instant::now();
            drop(held);
            record(times, hand_over, dropped, waiter.had_at().await?);
        }
        Ok(())
    }));
    waiter.go.close();
    block_on(executor.run(task));
    measured
}

fn record(times: &mut Times, hand_over: usize, dropped: Instant, had: Instant) {
    if hand_over >= WARM_UP {
        times.record(had.saturating_duration_since(dropped));
    }
}

/// The measuring side of a task that waits when it is told.
struct Waiter {
    go: async_channel::Sender<()>,
    about_to_wait: async_channel::Receiver<()>,
    had: async_channel::Receiver<Result<Instant, BenchError>>,
    ends: Ends,
}

/// The task's side.
#[derive(Clone)]
struct Ends {
    told: async_channel::Receiver<()>,
    says: async_channel::Sender<()>,
    had: async_channel::Sender<Result<Instant, BenchError>>,
}

impl Waiter {
    fn new() -> Self {
        let (go, told) = async_channel::bounded(1);
        let (says, about_to_wait) = async_channel::bounded(1);
        let (had_by, had) = async_channel::bounded(1);
        Self { go, about_to_wait, had, ends: Ends { told, says, had: had_by } }
    }

    /// Makes it wait.
    async fn wait(&self) -> Result<(), BenchError> {
        self.go.send(()).await.map_err(|_| gone())?;
        self.about_to_wait.recv().await.map_err(|_| gone())
    }

    async fn had_at(&self) -> Result<Instant, BenchError> {
        self.had.recv().await.map_err(|_| gone())?
    }
}

impl Ends {
    async fn run<P: TaskPool>(self, pool: &P) {
        while self.told.recv().await.is_ok() && self.says.send(()).await.is_ok() {
            let held = pool.take().await;
            let now = Instant::now();
            let had = held.map(|held| {
                drop(held);
                now
            });
            if self.had.send(had).await.is_err() {
                return;
            }
        }
    }
}

fn gone() -> BenchError {
    BenchError::Failed("the waiter is gone".to_owned())
}

/// Hand-overs between two changes of case.
const IN_A_ROW: usize = 50;
const WARM_UP: usize = 2;
const FALLS_ASLEEP: Duration = Duration::from_micros(150);
