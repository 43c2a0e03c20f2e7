//! Forked children that check something and end: by the C library, and by the bare system call, which
//! no handler of the library hears of.

/// Runs `check` in a forked child of the calling thread and gives its answer.
///
/// The child has none of the other threads, and any lock may be held for ever: a check must take none
/// that another thread can hold, allocate little and not panic.
///
/// # Errors
///
/// The number of the signal that killed the child.
pub fn in_fork(check: impl FnOnce() -> bool) -> Result<bool, i32> {
    // SAFETY: the child checks and `_exit`s, and returns to nothing of the harness.
    answer(unsafe { libc::fork() }, check)
}

/// The same by the bare system call.
///
/// # Errors
///
/// As [`in_fork`].
pub fn in_raw_clone(check: impl FnOnce() -> bool) -> Result<bool, i32> {
    // SAFETY: without CLONE_VM this is a fork, the child of which does as above.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    answer(libc::pid_t::try_from(pid).expect("a process number"), check)
}

fn answer(pid: libc::pid_t, check: impl FnOnce() -> bool) -> Result<bool, i32> {
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        let status = i32::from(!check());
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(status) };
    }
    let mut status = -1;
    // SAFETY: the child is ours, and the status is written to.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    if libc::WIFSIGNALED(status) {
        return Err(libc::WTERMSIG(status));
    }
    Ok(libc::WEXITSTATUS(status) == 0)
}
