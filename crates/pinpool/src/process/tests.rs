//! Forks of every kind. A child only asks and ends: its answer is its exit status.

#![allow(clippy::unwrap_used, reason = "tests")]

use pinpool_testkit::child;
use pinpool_testkit::fork::{in_fork, in_raw_clone};

use super::Home;

/// All that a child and a grandchild must find, whoever forks them.
fn forks_as_it_should(fork: fn(&mut dyn FnMut() -> bool) -> Result<bool, i32>) {
    let fork = |check: &mut dyn FnMut() -> bool| fork(check) == Ok(true);
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
    assert_eq!(in_fork(|| Home::here().unwrap().is_here()), Ok(true));
    forks_as_it_should(|check| in_fork(check));
    let ours = Home::here().unwrap();
    let blind = in_raw_clone(|| ours.is_here());
    assert_eq!(blind, Ok(true), "the kernel wiped the page: it was not refused");
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
