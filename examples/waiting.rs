//! A pipeline of tasks that share too few buffers: cameras whose frames are worthless when they
//! come too late, an alarm that must not wait behind them, and a class that grows under load and
//! shrinks after it.
//!
//! `cargo run -p examples --example waiting`. Any executor will do; this one is `async-executor`.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use async_executor::Executor;
use async_io::{Timer, block_on};
use futures_lite::FutureExt;
use pinpool::{Lease, LeaseError, Pool};

/// Could as well be a file for `Pool::open`.
const CONFIG: &str = r#"
[pool]
backend = "host"
max_pinned = "4MiB" # what growth keeps to
lock = "try"

[[class]]
name = "frame"
frame = "320x240:rgb8"
count = 4
reserve = 1          # the last free slot is the alarm's
on_empty = "grow"    # two more slots when no other is free, up to eight in all
grow_at = 0
grow_by = 2
grow_max = 4
idle_after = "300ms" # and given back once they were not needed for so long
"#;

const CAMERAS: u8 = 24;
const FRAMES: usize = 40;
/// What the next stage takes for a frame.
const WORK: Duration = Duration::from_millis(2);
/// A frame that has no buffer by then is dropped.
const DEADLINE: Duration = Duration::from_millis(5);
const ALARMS: usize = 20;
/// The class is back to the slots it was opened with after a while.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Tally {
    processed: usize,
    late: usize,
    longest_wait: Duration,
}

fn main() -> ExitCode {
    match run(&mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "waiting: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let pool = Pool::builder().toml(CONFIG).open()?;
    let executor = Executor::new();
    let cameras: Vec<_> = (0..CAMERAS).map(|id| executor.spawn(camera(&pool, id))).collect();
    let alarm = executor.spawn(alarm(&pool));

    let (frames, alarms) = block_on(executor.run(async {
        let mut frames = Tally::default();
        for camera in cameras {
            let one = camera.await?;
            frames.processed += one.processed;
            frames.late += one.late;
            frames.longest_wait = frames.longest_wait.max(one.longest_wait);
        }
        Ok::<_, LeaseError>((frames, alarm.await?))
    }))?;

    let Tally { processed, late, longest_wait } = frames;
    writeln!(out, "{processed} frames processed, {late} dropped after {DEADLINE:?} in line")?;
    writeln!(out, "longest wait of a processed frame: {longest_wait:.1?}")?;
    let Tally { processed, longest_wait, .. } = alarms;
    writeln!(out, "longest wait of {processed} alarms, first in line: {longest_wait:.1?}")?;
    writeln!(out, "\n{}", pool.stats())?;
    shrinks(&pool, out)?;
    writeln!(out, "close: {}", pool.close(PATIENCE))?;
    Ok(())
}

/// Captures, and hands on what it found a buffer for in time.
async fn camera(pool: &Pool, id: u8) -> Result<Tally, LeaseError> {
    let bytes = pool.plan().classes[0].size;
    let mut tally = Tally::default();
    for _ in 0..FRAMES {
        let since = Instant::now();
        let Some(mut frame) = lease_within(pool, bytes, DEADLINE).await? else {
            tally.late += 1;
            continue;
        };
        tally.longest_wait = tally.longest_wait.max(since.elapsed());
        frame.as_mut_slice().fill(id);
        Timer::after(WORK).await;
        tally.processed += 1;
        drop(frame);
        // The next picture is due.
        Timer::after(WORK).await;
    }
    Ok(tally)
}

/// A lease, or `None` if there is none in time. The future that lost the race is dropped, which
/// takes it out of the line; a slot that was handed to it meanwhile goes to the next.
async fn lease_within(
    pool: &Pool,
    bytes: usize,
    deadline: Duration,
) -> Result<Option<Lease>, LeaseError> {
    let lease = async { pool.lease_async(bytes).await.map(Some) };
    let too_late = async {
        Timer::after(deadline).await;
        Ok(None)
    };
    lease.or(too_late).await
}

/// Leases with priority: it may have the reserve, and stands before all cameras.
async fn alarm(pool: &Pool) -> Result<Tally, LeaseError> {
    let bytes = pool.plan().classes[0].size;
    let mut tally = Tally::default();
    for _ in 0..ALARMS {
        let since = Instant::now();
        let mut frame = pool.lease_priority_async(bytes).await?;
        tally.longest_wait = tally.longest_wait.max(since.elapsed());
        frame.as_mut_slice().fill(u8::MAX);
        Timer::after(WORK).await;
        tally.processed += 1;
    }
    Ok(tally)
}

/// Waits until the grown slots were given back.
fn shrinks(pool: &Pool, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let since = Instant::now();
    let grown = || pool.stats().classes[0].grown;
    write!(out, "{} slots were added and are idle now; ", grown())?;
    while grown() > 0 {
        if since.elapsed() > PATIENCE {
            return Err("idle slots were not given back".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    writeln!(out, "given back after {:.1?}", since.elapsed())?;
    Ok(())
}
