//! Forked children that check something and end: by the C library, and by the bare system call, which
//! no handler of the library hears of. One that does not end within [`LIMIT`] is killed.

use std::time::{Duration, Instant};

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this code.
    Code(i32),
    /// Killed by a signal with this number.
    Signal(i32),
    /// It still ran after [`LIMIT`].
    Hung,
}

/// Runs `check` in a forked child of the calling thread and gives its answer.
///
/// The child has none of the other threads, and any lock may be held for ever: a check must take none
/// that another thread can hold, allocate little and not panic.
///
/// # Errors
///
/// The number of the signal that killed the child: `SIGKILL` when it hung.
pub fn in_fork(check: impl FnOnce() -> bool) -> Result<bool, i32> {
    answer(fork_to(|| i32::from(!check())))
}

/// The same by the bare system call.
///
/// # Errors
///
/// As [`in_fork`].
pub fn in_raw_clone(check: impl FnOnce() -> bool) -> Result<bool, i32> {
    // SAFETY: without CLONE_VM this is a fork, the child of which does as in `fork_to`.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    let pid = libc::pid_t::try_from(pid).expect("a process number");
    answer(ended(pid, || i32::from(!check())))
}

/// As [`in_fork`], of a check that answers with an exit code, and may end the process itself.
pub fn fork_to(check: impl FnOnce() -> i32) -> Ended {
    // SAFETY: the child checks and `_exit`s, and returns to nothing of the harness.
    ended(unsafe { libc::fork() }, check)
}

fn answer(ended: Ended) -> Result<bool, i32> {
    match ended {
        Ended::Code(code) => Ok(code == 0),
        Ended::Signal(signal) => Err(signal),
        Ended::Hung => Err(libc::SIGKILL),
    }
}

fn ended(pid: libc::pid_t, check: impl FnOnce() -> i32) -> Ended {
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        let code = check();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(code) };
    }
    let start = Instant::now();
    let mut status = -1;
    loop {
        // SAFETY: the child is ours, and the status is written to.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) };
        assert!(waited == 0 || waited == pid, "{}", std::io::Error::last_os_error());
        if waited == pid {
            break;
        }
        if start.elapsed() > LIMIT {
            // SAFETY: the child is ours and was not waited for.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            // SAFETY: as above.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            return Ended::Hung;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    if libc::WIFSIGNALED(status) {
        return Ended::Signal(libc::WTERMSIG(status));
    }
    Ended::Code(libc::WEXITSTATUS(status))
}

/// What runs longer hangs.
pub const LIMIT: Duration = Duration::from_secs(5);
