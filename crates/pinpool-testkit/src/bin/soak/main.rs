//! `soak`: threads lease, stamp, check and drop for as many leases as told while the pool's numbers
//! are watched; one table at the end, and status 1 if anything was wrong.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program reports by printing")]

mod device;
mod load;
mod verdict;
mod watch;

use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Instant;

use pinpool::{Heap, Pool};
use pinpool_testkit::stamp;

use load::{Tally, Worker};
use verdict::{Verdict, report};
use watch::Watch;

const USAGE: &str = "\
Usage: soak [--leases N] [--threads T] [--rss-drift-mib-max M]

  --leases N             leases in all (default 10000000)
  --threads T            threads that lease, 1 to 256 (default 4)
  --rss-drift-mib-max M  the most that resident memory may grow after the warm-up (default 5)
";

/// What the command line says.
#[derive(Debug, Clone, Copy)]
struct Arguments {
    leases: u64,
    threads: u64,
    rss_drift_mib_max: u64,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprint!("error: {message}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The arguments, or `None` where help was asked for.
fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
    let mut arguments = Arguments { leases: 10_000_000, threads: 4, rss_drift_mib_max: 5 };
    while let Some(word) = words.next() {
        let value = match word.as_str() {
            "--leases" => &mut arguments.leases,
            "--threads" => &mut arguments.threads,
            "--rss-drift-mib-max" => &mut arguments.rss_drift_mib_max,
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("unknown argument {other}")),
        };
        let number = words.next().and_then(|text| text.parse().ok());
        *value = number.ok_or_else(|| format!("{word} needs a number"))?;
    }
    if !(1..=256).contains(&arguments.threads) {
        return Err(format!("{} threads: 1 to 256 are possible", arguments.threads));
    }
    Ok(Some(arguments))
}

/// The pool's classes are as tight as they can be without a deadlock; `load.rs` says for what.
fn open(threads: u64) -> Result<Pool, String> {
    let threads = usize::try_from(threads).map_err(|error| error.to_string())?;
    Pool::builder()
        .env(false)
        .memory(Heap::claiming_locked())
        .class("own", load::OWN, threads)
        .class("scarce", load::SCARCE, threads.div_ceil(4))
        .class("handed", load::HANDED, threads * (1 + load::INBOX) + 1)
        .class("retired", load::RETIRED, threads + 2)
        .open()
        .map_err(|error| error.to_string())
}

/// Runs the load to its end and prints the table. True if nothing was wrong.
fn run(arguments: Arguments) -> Result<bool, String> {
    let pool = open(arguments.threads)?;
    let verdict = Verdict::default();
    let start = Instant::now();
    let mut tally = Tally::new()?;
    let (mut looks, mut reads) = (None, 0);
    std::thread::scope(|scope| {
        let (copies, queue) = mpsc::sync_channel(64);
        let wrong = &verdict;
        let device = scope.spawn(move || device::run(&queue, wrong));
        let watch = Watch::new(&pool, &verdict, arguments.leases);
        let over = watch.over();
        let watcher = scope.spawn(move || watch.run());
        let (sends, receives): (Vec<_>, Vec<_>) =
            (0..arguments.threads).map(|_| mpsc::sync_channel(load::INBOX)).unzip();
        let mut sends = sends.into_iter().cycle();
        // Each hands to its right neighbour.
        sends.next();
        let workers: Vec<_> = (0..arguments.threads)
            .zip(receives)
            .zip(sends.by_ref())
            .map(|((id, inbox), next)| {
                let leases = arguments.leases / arguments.threads
                    + u64::from(id < arguments.leases % arguments.threads);
                let (pool, copies, verdict) = (&pool, copies.clone(), &verdict);
                scope
                    .spawn(move || Worker::new(pool, verdict, id, inbox, next, copies)?.run(leases))
            })
            .collect();
        drop((sends, copies));
        for worker in workers {
            match worker.join() {
                Ok(Ok(one)) => tally.add(&one, &verdict),
                Ok(Err(message)) => verdict.wrong(message),
                Err(_) => verdict.wrong("a thread panicked".into()),
            }
        }
        over.store(true, std::sync::atomic::Ordering::Release);
        looks = watcher.join().ok();
        reads = device.join().unwrap_or(0);
    });
    let Some(looks) = looks else { return Err("the watcher panicked".into()) };
    let took = start.elapsed();
    verdict.settle(&pool, &tally, arguments, &looks);
    report(&pool, &tally, arguments, &looks, reads, took);
    let close = pool.close(pinpool_testkit::soon::HANG);
    if !close.is_complete() {
        verdict.wrong(close.to_string());
    }
    outlive(&verdict)?;
    Ok(verdict.print())
}

/// A lease outlives its pool and takes the memory along (I1).
fn outlive(verdict: &Verdict) -> Result<(), String> {
    let pool = open(1)?;
    let mut lease = pool.try_lease(load::RETIRED).map_err(|error| error.to_string())?;
    drop(pool);
    stamp::write_slot(&mut lease, 1);
    verdict.check(&lease, 1);
    Ok(())
}
