//! A process beside this one that asks the driver for the free device memory all the time, as monitors
//! and other users of a GPU do.
//!
//! It is this same program. It reads `begin` and `end`, one a line, and answers `begun` and the times of
//! all its calls in between, in milliseconds.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use pinpool::cudarc::driver::result;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use super::opens::milliseconds;
use crate::BenchError;
use crate::cuda_rig::CudaRig;

/// How to start it.
#[derive(Debug, Clone)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
    /// What makes it call [`serve`].
    pub arguments: Vec<String>,
}

/// Has a command's process killed where the thread that starts it ends before it does, however that
/// ends: nobody would wait for it, and it may hold most of the memory.
pub fn end_with_this_thread(command: &mut Command) {
    let this_process = getpid();
    let tie = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have ended before the kernel was asked.
        if getppid() == Some(this_process) { Ok(()) } else { Err(rustix::io::Errno::SRCH.into()) }
    };
    // SAFETY: between fork and exec it makes two system calls and neither allocates nor locks.
    unsafe { command.pre_exec(tie) };
}

/// What the other process runs: calls until `input` ends.
///
/// # Errors
/// No device, a call of the driver that failed, or nobody who reads `output`.
pub fn serve(
    input: impl BufRead + Send + 'static,
    output: &mut dyn Write,
) -> Result<(), BenchError> {
    let rig = CudaRig::open()?;
    rig.bind()?;
    let (sender, orders) = mpsc::channel();
    thread::spawn(move || {
        for line in input.lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut say = |line: &str| {
        writeln!(output, "{line}")
            .and_then(|()| output.flush())
            .map_err(|cause| BenchError::failed("answering", cause))
    };
    say(READY)?;
    let mut times: Vec<f64> = Vec::new();
    loop {
        // A call that has begun is counted before `end` is looked at, however long it takes.
        let started = Instant::now();
        result::mem_get_info().map_err(|cause| BenchError::failed("cuMemGetInfo", cause))?;
        times.push(milliseconds(started.elapsed()));
        match orders.recv_timeout(PERIOD).as_deref() {
            Ok(BEGIN) => {
                times.clear();
                say(BEGUN)?;
            }
            Ok(END) => {
                let words: Vec<String> = times.iter().map(|time| format!("{time:.4}")).collect();
                say(&words.join(" "))?;
            }
            Ok(other) => return Err(BenchError::Input(format!("no order: {other}"))),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// The other process; it ends with this value.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// Closed first, which ends the process; `None` only while it is dropped.
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Process {
    /// Starts it, and waits until it makes calls; it does not outlive this thread.
    pub(crate) fn start(program: &Program) -> Result<Self, BenchError> {
        let failed = |cause| BenchError::failed("starting the process beside this one", cause);
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        end_with_this_thread(&mut command);
        let mut child = command.spawn().map_err(failed)?;
        let (orders, output) = (child.stdin.take(), child.stdout.take());
        let (sender, answers) = mpsc::channel();
        if let Some(output) = output {
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        let process = Self { child, orders, answers };
        process.expect(READY)?;
        Ok(process)
    }

    /// Its calls count from here.
    pub(super) fn begin(&mut self) -> Result<(), BenchError> {
        self.order(BEGIN)?;
        self.expect(BEGUN)
    }

    /// Milliseconds of each call since then, the one that was not over yet included.
    pub(super) fn end(&mut self) -> Result<Vec<f64>, BenchError> {
        self.ask(END, PATIENCE)
    }

    /// Gives an order that is answered by numbers, and waits so long for them.
    pub(crate) fn ask(&mut self, order: &str, patience: Duration) -> Result<Vec<f64>, BenchError> {
        self.order(order)?;
        let line = self.answer(patience)?;
        let numbers: Result<Vec<f64>, _> = line.split_whitespace().map(str::parse).collect();
        numbers.map_err(|_| unexpected(&line))
    }

    fn order(&mut self, order: &str) -> Result<(), BenchError> {
        let written = self.orders.as_mut().map(|orders| writeln!(orders, "{order}"));
        written.unwrap_or(Ok(())).map_err(|cause| BenchError::failed(BESIDE, cause))
    }

    fn expect(&self, answer: &str) -> Result<(), BenchError> {
        let line = self.answer(PATIENCE)?;
        if line == answer { Ok(()) } else { Err(unexpected(&line)) }
    }

    fn answer(&self, patience: Duration) -> Result<String, BenchError> {
        self.answers.recv_timeout(patience).map_err(|cause| BenchError::failed(BESIDE, cause))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.orders.take());
        // It ends at the latest after the call that it is in.
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(1)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn unexpected(line: &str) -> BenchError {
    BenchError::Failed(format!("{BESIDE} says {line:?}"))
}

const BESIDE: &str = "the process beside this one";
/// What it says first.
pub(crate) const READY: &str = "ready";
const BEGIN: &str = "begin";
const BEGUN: &str = "begun";
const END: &str = "end";
/// Between two calls.
const PERIOD: Duration = Duration::from_millis(10);
/// A process that does not answer for so long hangs.
const PATIENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn shell(script: &str) -> Program {
        Program { path: "/bin/sh".into(), arguments: vec!["-c".into(), script.into()] }
    }

    #[test]
    fn times_are_those_that_the_process_says() {
        let script = "echo ready; read o; echo begun; read o; echo 0.5 12.25; read o";
        let mut process = Process::start(&shell(script)).unwrap();
        process.begin().unwrap();
        assert_eq!(process.end().unwrap(), [0.5, 12.25]);
    }

    #[test]
    fn it_ends_with_the_thread_that_started_it() {
        let start = || {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "read o"]).stdin(Stdio::piped());
            end_with_this_thread(&mut command);
            command.spawn().unwrap()
        };
        // Its standard input stays open: only the end of the thread can end it.
        let mut child = thread::spawn(start).join().unwrap();
        let started = Instant::now();
        while child.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < Duration::from_secs(30), "it lives on");
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn a_process_that_ends_or_says_something_else_is_an_error() {
        let error = |script| Process::start(&shell(script)).map(drop).unwrap_err().to_string();
        assert!(error("exit 1").contains(BESIDE));
        assert!(error("echo 'no device'; read o").contains("no device"));
        let mut process = Process::start(&shell("echo ready; read o; echo never")).unwrap();
        assert!(process.begin().unwrap_err().to_string().contains("never"));
    }
}
