//! Openings and other processes: a neighbour's calls go on while a pool opens, and what a killed process
//! had pinned is there for the next one at once.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use pinpool::cudarc::driver::{CudaContext, result};
use pinpool::{BackendChoice, PIN_CHUNK_DEFAULT, Pool};

use crate::support::*;
use crate::{Check, check};

pub(crate) const ALL: &[Check] =
    &[check(NEIGHBOUR, a_neighbour_is_not_held_up), check(KILLED, a_killed_process_leaves_room)];

const NEIGHBOUR: &str = "a_neighbours_calls_go_on_while_a_pool_opens";
const KILLED: &str = "a_killed_process_leaves_its_memory_to_the_next";
/// Set in the other process of a check: what it is to do.
const ROLE: &str = "GPU_TESTS_ROLE";
/// What a process writes before a line that is for the other one.
const TOLD: &str = "told: ";

const GIB: u64 = 1 << 30;

/// Kind of fault: one long pinning call held the driver's locks, and the calls of all neighbours froze.
///
/// Another process asks the driver for its free memory every 10 ms. How long its longest call took is
/// shown; the bound is what tells a freeze from a busy machine.
///
/// Case start-1.
fn a_neighbour_is_not_held_up() {
    const FREEZE: Duration = Duration::from_secs(10);
    if std::env::var_os(ROLE).is_some() {
        return ask_until_stdin_ends();
    }
    let bytes = large(8 * GIB, 256 << 20);
    // The device and its context are there before: they have their own price.
    let warm = pool(4096, 1);
    let mut neighbour = Other::start(NEIGHBOUR, "");
    assert_eq!(neighbour.hears(), "it asks");
    let calls = software().map(|driver| driver.calls("cuMemHostRegister_v2"));
    let began = Instant::now();
    let opened = open(bytes);
    let took = began.elapsed();
    drop(neighbour.input.take());
    let (longest, asked) = (neighbour.hears(), neighbour.hears());
    println!(
        "{bytes} bytes opened in {took:?}; of {asked} calls beside it the longest took {longest} us"
    );
    let longest = Duration::from_micros(longest.parse().expect("a number"));
    assert!(longest < FREEZE, "a call beside the opening took {longest:?}");
    assert!(asked.parse::<u64>().expect("a number") > 0);
    let chunk = opened.plan().classes[0].chunk_bytes as u64;
    assert!(chunk <= PIN_CHUNK_DEFAULT && bytes / chunk >= 4, "{bytes} bytes by {chunk}");
    if let (Some(driver), Some(before)) = (software(), calls) {
        assert_eq!(driver.calls("cuMemHostRegister_v2") - before, bytes.div_ceil(chunk));
    }
    drop((opened, warm));
    no_harm_done();
}

fn ask_until_stdin_ends() {
    let context = CudaContext::new(0).expect("a device");
    context.bind_to_thread().expect("binds");
    let over = input_ends();
    tell("it asks");
    let (mut longest, mut asked) = (Duration::ZERO, 0u64);
    while over.try_recv() == Err(TryRecvError::Empty) {
        let began = Instant::now();
        result::mem_get_info().expect("the driver answers");
        longest = longest.max(began.elapsed());
        asked += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    tell(&longest.as_micros().to_string());
    tell(&asked.to_string());
}

/// Kind of fault: memory that was pinned by a process that died was not there for its successor.
///
/// Twenty processes are killed, each with its pool open; the next one opens as much at once, and its only
/// try must succeed. The first are as large as the machine allows, the rest take less time.
fn a_killed_process_leaves_room() {
    const KILLS: usize = 20;
    /// From then on processes pin less, so that there is an end.
    const PATIENCE: Duration = Duration::from_secs(15);
    if let Ok(bytes) = std::env::var(ROLE) {
        let over = input_ends();
        let began = Instant::now();
        let pool = open(bytes.parse().expect("a number"));
        tell(&began.elapsed().as_millis().to_string());
        let mut lease = pool.try_lease(SLOT).expect("a slot");
        lease.as_mut_slice().fill(1);
        // It is killed here; an orphan ends by itself.
        let _ = over.recv_timeout(HANG);
        return;
    }
    let began = Instant::now();
    let (most, less) = (large(16 * GIB, 64 << 20), large(4 * GIB, 64 << 20));
    let (mut whole, mut slowest) = (0, 0);
    for kill in 0..KILLS {
        let bytes = if began.elapsed() < PATIENCE { most } else { less };
        let mut victim = Other::start(KILLED, &bytes.to_string());
        let millis: u64 = victim.hears().parse().expect("a number: it opened");
        if bytes == most {
            (whole, slowest) = (whole + 1, slowest.max(millis));
        }
        victim.child.kill().expect("it lives");
        let status = victim.child.wait().expect("it is ours");
        assert!(status.code().is_none(), "kill {kill}: it ended by itself, {status}");
    }
    println!(
        "{KILLS} kills in {:?}: {whole} with {most} bytes, opened in {slowest} ms at most, the rest with {less}",
        began.elapsed()
    );
    drop(open(less));
    no_harm_done();
}

const SLOT: usize = 4 << 20;

fn open(bytes: u64) -> Pool {
    let builder = Pool::builder().env(false).backend(BackendChoice::Cuda);
    let slots = usize::try_from(bytes).expect("a size") / SLOT;
    builder.class("frame", SLOT, slots).open().expect("there is room")
}

/// `wanted` bytes, a quarter of them where RAM is scarce, or `small` on the software driver and on small
/// machines.
fn large(wanted: u64, small: u64) -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let free = kib.unwrap_or(0) * 1024;
    let sizes = [wanted, wanted / 4].into_iter().filter(|_| software().is_none());
    sizes.into_iter().find(|bytes| 3 * bytes <= free).unwrap_or(small)
}

/// This test program again, in another role of the same check.
struct Other {
    child: Child,
    input: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
}

impl Other {
    fn start(check: &str, role: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("a path"));
        command.args(["--exact", check, "--nocapture"]).env(ROLE, role);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Self { input: child.stdin.take(), child, lines }
    }

    /// The next line that is meant for us.
    fn hears(&mut self) -> String {
        let mut said = String::new();
        loop {
            let from = said.len();
            let read = self.lines.read_line(&mut said).expect("its output");
            assert!(read > 0, "the other process ended: {said}");
            // The test harness may have begun the line.
            if let Some((_, told)) = said[from..].split_once(TOLD) {
                return told.trim_end().to_owned();
            }
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tell(line: &str) {
    let mut output = std::io::stdout().lock();
    let told = writeln!(output, "{TOLD}{line}").and_then(|()| output.flush());
    told.expect("the other process listens");
}

/// Tells when the other process closes its end, or is gone.
fn input_ends() -> Receiver<()> {
    let (ended, told) = channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = ended.send(());
    });
    told
}
