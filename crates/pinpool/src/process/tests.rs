//! Forks of every kind. A child only asks and ends: its answer is its exit status.

use pinpool_testkit::child;

use super::Home;

/// Runs `check` in a forked child of the calling thread.
fn in_fork(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child asks and `_exit`s, and returns to nothing of the harness.
    answer(unsafe { libc::fork() }, check)
}

/// The same by the system call, which no handler of the C library hears of.
fn in_raw_clone(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: without CLONE_VM this is a fork, the child of which does as above.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    answer(libc::pid_t::try_from(pid).unwrap(), check)
}

fn answer(pid: libc::pid_t, check: impl FnOnce() -> bool) -> bool {
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        let status = if check() { 0 } else { 1 };
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(status) };
    }
    let mut status = -1;
    // SAFETY: the child is ours, and the status is written to.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert!(libc::WIFEXITED(status), "the child ended with wait status {status}");
    libc::WEXITSTATUS(status) == 0
}

/// All that a child and a grandchild must find, whoever forks them.
fn forks_as_it_should(fork: fn(&mut dyn FnMut() -> bool) -> bool) {
    let ours = Home::here().unwrap();
    assert!(ours.is_here() && Home::here().unwrap().is_here());
    // Asked again and again, a child does not become its parent.
    assert!(fork(&mut || (0..3).all(|_| !ours.is_here())));
    assert!(fork(&mut || {
        let childs = Home::here().unwrap();
        let own = childs.is_here() && childs.epoch != ours.epoch && !ours.is_here();
        own && Home::here().unwrap().epoch == childs.epoch
            && fork(&mut || {
                let grandchilds = Home::here().unwrap();
                grandchilds.is_here() && !childs.is_here() && !ours.is_here()
            })
    }));
    // A child that does not ask has a child that is a stranger to both.
    assert!(fork(&mut || fork(&mut || !ours.is_here() && Home::here().unwrap().is_here())));
    assert!(ours.is_here(), "a child changes nothing of its parent's");
}

#[test]
fn a_forked_child_is_not_here() {
    forks_as_it_should(|check| in_fork(check));
}

#[test]
fn a_child_of_the_bare_system_call_is_not_here() {
    forks_as_it_should(|check| in_raw_clone(check));
}

#[test]
fn all_threads_are_of_one_process() {
    let ours = Home::here().unwrap();
    let epochs: Vec<_> = std::thread::scope(|scope| {
        let ask = || Home::here().unwrap();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(epochs.iter().all(|home| home.is_here() && home.epoch == ours.epoch));
}

/// Also a child that was forked before anybody asked.
#[test]
fn a_kernel_that_does_not_wipe_is_helped_by_the_c_library() {
    const NAME: &str = "process::tests::a_kernel_that_does_not_wipe_is_helped_by_the_c_library";
    if !child::in_child() {
        child::run(NAME, &[]);
        return;
    }
    refuse_to_wipe();
    assert!(in_fork(|| Home::here().unwrap().is_here()));
    forks_as_it_should(|check| in_fork(check));
    let ours = Home::here().unwrap();
    assert!(in_raw_clone(|| ours.is_here()), "the kernel wiped the page: it was not refused");
}

/// From now on the kernel answers the calling thread as one before 4.14 would.
fn refuse_to_wipe() {
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule,
    };
    let wipe = u64::try_from(libc::MADV_WIPEONFORK).unwrap();
    let (length, equal) = (SeccompCmpArgLen::Dword, SeccompCmpOp::Eq);
    let condition = SeccompCondition::new(2, length, equal, wipe).unwrap();
    let rule = SeccompRule::new(vec![condition]).unwrap();
    let rules = [(libc::SYS_madvise, vec![rule])].into_iter().collect();
    let invalid = SeccompAction::Errno(u32::try_from(libc::EINVAL).unwrap());
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, invalid, arch).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}
