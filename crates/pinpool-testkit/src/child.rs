//! Runs one test of the present test program again, alone in a process of its own: for limits, users
//! and counters that belong to a whole process.
//!
//! ```no_run
//! use pinpool_testkit::child;
//!
//! # // Under `#[test]`:
//! fn locked_bytes_are_exact() {
//!     if child::in_child() {
//!         // The real test.
//!         return;
//!     }
//!     child::run("locked_bytes_are_exact", &[("LIMIT", "4096")]);
//! }
//! ```

use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// True in the process that [`run`] or [`command`] started.
pub fn in_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs `test` in a child with these variables and returns what it printed. Panics with its output
/// if the test failed there, did not exist or hung.
pub fn run(test: &str, variables: &[(&str, &str)]) -> Output {
    let output = finish(command(test, variables), TIME_LIMIT);
    assert!(output.status.success(), "the child failed: {}", describe(&output));
    output
}

/// The command that [`run`] runs, for a test that changes user, limits or groups first. Run it with
/// [`finish`].
pub fn command(test: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test program has a path"));
    command.args([test, "--exact", "--nocapture", "--test-threads=1", "--include-ignored"]);
    command.env(CHILD, test).envs(variables.iter().copied());
    command
}

/// Runs a command of [`command`] to its end, whatever that is, and returns its output. Panics if
/// the named test did not exist, or still runs after `limit`; it is killed then.
pub fn finish(mut command: Command, limit: Duration) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the test program starts");
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let status = wait(&mut child, limit);
    let output = |status| Output {
        status,
        stdout: stdout.join().unwrap_or_default(),
        stderr: stderr.join().unwrap_or_default(),
    };
    let Some(status) = status else {
        let threads = threads(child.id());
        let _ = child.kill();
        let killed = child.wait().expect("a killed child ends");
        panic!("the child still ran after {limit:?}: {}{threads}", describe(&output(killed)));
    };
    let output = output(status);
    // A misspelt name would run nothing and succeed.
    let named = String::from_utf8_lossy(&output.stdout).contains("running 1 test\n");
    assert!(named || !output.status.success(), "no such test: {}", describe(&output));
    output
}

/// Runs `test` in one child for each value of `variable`, and holds it against the signal that must end
/// it; with none it succeeds. Panics otherwise.
pub fn assert_ends(test: &str, variable: &str, ends: &[(&str, Option<i32>)]) {
    for (value, signal) in ends {
        let output = finish(command(test, &[(variable, value)]), Duration::from_secs(60));
        let said = describe(&output);
        assert_eq!(output.status.signal(), *signal, "{value}: {said}");
        assert_eq!(output.status.success(), signal.is_none(), "{value}: {said}");
    }
}

/// A child's end and everything it printed, for messages.
pub fn describe(output: &Output) -> String {
    format!(
        "{}\n--- stdout\n{}\n--- stderr\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// What each thread of a process is at, as far as the kernel tells: a hang or only a slow machine?
fn threads(process: u32) -> String {
    let told = |thread: fs::DirEntry| {
        let read = |name| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        let (name, status, call) = (read("comm"), read("status"), read("syscall"));
        let state = status.lines().find_map(|line| line.strip_prefix("State:")).unwrap_or("");
        format!("\n{}: {} {}", name.trim_end(), state.trim(), call.trim_end())
    };
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let head = "\n--- threads: state, system call and its arguments".to_owned();
    std::iter::once(head).chain(threads.map(told)).collect()
}

fn wait(child: &mut Child, limit: Duration) -> Option<std::process::ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    None
}

/// Reads a pipe to its end beside the child, which would block on a full one.
fn drain(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// The variable that marks a child.
const CHILD: &str = "PINPOOL_TEST_CHILD";
/// A child that runs longer hangs.
const TIME_LIMIT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_child_that_hangs_is_killed_and_what_it_did_is_told() {
        let mut sleeper = Command::new("sleep");
        sleeper.arg("600");
        let killed = catch_unwind(AssertUnwindSafe(|| finish(sleeper, Duration::from_millis(200))));
        let said = killed.expect_err("it sleeps longer");
        let said = said.downcast_ref::<String>().expect("a message");
        assert!(said.starts_with("the child still ran after 200ms"), "{said}");
        assert!(said.contains("\nsleep: S (sleeping)"), "{said}");
    }
}
