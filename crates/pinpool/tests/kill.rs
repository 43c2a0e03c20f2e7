//! A process that is killed at any moment takes nothing with it: the system has its locked memory back.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test reports by panicking, and its figures by printing"
)]

mod support;

use std::io::Read;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use pinpool::{BackendChoice, LockMode, Pool};
use pinpool_testkit::soon::HANG;
use pinpool_testkit::{child, proc, stamp};

const TEST: &str = "a_killed_process_leaves_no_locked_memory";
/// How many processes are killed, where this variable says something else than [`KILLS`].
const KILLS_VARIABLE: &str = "PINPOOL_KILLS";
const KILLS: u32 = 200;
/// Bytes that each of them locks, at most one pool at a time.
const BYTES: u64 = 64 << 20;
/// What the counter of the system may be off: it is kept per processor, and others lock memory too.
const NOISE: u64 = 16 << 20;
/// The system has the memory back within this time.
const BACK: Duration = Duration::from_secs(1);

/// Children open, use and close pools of 64 MiB until they are killed, at moments spread over all
/// three. `PINPOOL_KILLS` is the number of kills, 200 by default.
#[test]
fn a_killed_process_leaves_no_locked_memory() {
    if child::in_child() {
        live_until_killed();
        return;
    }
    if proc::lock_mode_for(usize::try_from(BYTES).unwrap()) != LockMode::Require {
        support::not_run("kill -9: this process may not lock 64 MiB");
        return;
    }
    let kills = std::env::var(KILLS_VARIABLE).map_or(KILLS, |text| text.parse().unwrap());
    let start = Instant::now();
    live();
    // A second life begins before all are over, and the process itself takes a moment.
    let spread = 3 * start.elapsed() / 2 + Duration::from_millis(10);
    let mut phases = [0u32; PHASES.len()];
    let (mut locked, mut latest) = (0, Duration::ZERO);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for kill in 0..kills {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let moment = spread.mul_f64((random >> 11) as f64 / (1u64 << 53) as f64);
        let before = unclaimed_bytes();
        let victim = Victim::start();
        std::thread::sleep(moment);
        let (held, phase) = victim.kill();
        locked += u32::from(held > 0);
        if let Some(phase) = phase {
            phases[phase] += 1;
        }
        let start = Instant::now();
        while unclaimed_bytes() > before + NOISE {
            let after = unclaimed_bytes();
            assert!(start.elapsed() < BACK, "kill {kill}: {before} bytes before, {after} after it");
            std::thread::sleep(Duration::from_millis(1));
        }
        latest = latest.max(start.elapsed());
    }
    println!("{kills} kills, {locked} of processes with locked memory, back in {latest:?} at most");
    println!("{PHASES:?}: {phases:?}");
    assert!(locked >= kills / 4, "only {locked} of {kills} had locked anything");
    assert!(phases.iter().all(|&phase| phase > 0), "{PHASES:?}: {phases:?}");
}

/// What a child says it is about to do, by the first letter.
const PHASES: [&str; 3] = ["opening", "steady", "closing"];

/// Opens, uses and closes, until it is killed.
fn live_until_killed() {
    let start = Instant::now();
    // An orphan ends by itself.
    while start.elapsed() < HANG {
        live();
    }
}

fn live() {
    say(0);
    let pool = Pool::builder()
        .env(false)
        .backend(BackendChoice::Host)
        .lock(LockMode::Require)
        .prefault_threads(2)
        .pin_chunk(8 << 20)
        .class("frame", 1 << 20, 64)
        .open()
        .unwrap();
    say(1);
    let steady = Instant::now();
    while steady.elapsed() < Duration::from_millis(15) {
        let mut lease = pool.try_lease(1 << 20).unwrap();
        stamp::write(&mut lease.as_mut_slice()[..4096], 1);
    }
    say(2);
    assert!(pool.close(HANG).is_complete());
}

fn say(phase: usize) {
    if child::in_child() {
        eprint!("{}", &PHASES[phase][..1]);
    }
}

/// A child that is to be killed.
struct Victim(Child);

impl Victim {
    fn start() -> Self {
        let mut command = child::command(TEST, &[]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    /// Kills it; returns the bytes that it had locked shortly before, and what it was doing.
    fn kill(mut self) -> (u64, Option<usize>) {
        let locked = locked_by(self.0.id()).unwrap_or(0);
        self.0.kill().unwrap();
        let status = self.0.wait().unwrap();
        let mut said = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(status.code().is_none(), "it ended by itself, {status}: {said}");
        let last = said.chars().last();
        (locked, PHASES.iter().position(|phase| last == phase.chars().next()))
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Locked bytes of the system that no living process has: others may lock memory meanwhile.
fn unclaimed_bytes() -> u64 {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let claimed: u64 = ids.filter_map(locked_by).sum();
    proc::system_locked_bytes().saturating_sub(claimed)
}

/// Bytes that a process has locked, if it is there.
fn locked_by(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmLck:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}
