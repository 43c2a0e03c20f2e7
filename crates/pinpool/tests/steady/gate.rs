//! A seccomp filter around the calling thread: any system call but the allowed ones kills.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Runs `cycles` behind the gate and ends the process, well only if they did. Other threads, such
/// as the pool's keeper, are not behind it.
pub(crate) fn run(allowed: &[i64], cycles: impl FnOnce() -> Result<(), &'static str>) -> ! {
    shut(allowed);
    match cycles() {
        // SAFETY: ends the process, without the destructors, which make system calls.
        Ok(()) => unsafe { libc::_exit(0) },
        Err(text) => fail(text),
    }
}

/// Ends the process, badly, and says why.
pub(crate) fn fail(text: &str) -> ! {
    say(text);
    // SAFETY: ends the process, without the destructors.
    unsafe { libc::_exit(1) }
}

/// Prints, with the one call that the gate lets pass for it.
pub(crate) fn say(text: &str) {
    // SAFETY: the text is as long as it says.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

/// Shuts the gate behind the calling thread, which cannot even end any more.
pub(crate) fn shut(allowed: &[i64]) {
    let report = [libc::SYS_exit_group, libc::SYS_write];
    let always = report.iter().chain(allowed).map(|call| (*call, Vec::new()));
    let word = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, PASSWORD);
    let rule = SeccompRule::new(vec![word.expect("a condition")]).expect("a rule");
    let rules = always.chain([(libc::SYS_sched_yield, vec![rule])]).collect();
    let arch = std::env::consts::ARCH.try_into().expect("an architecture with filters");
    let (kill, allow) = (SeccompAction::KillProcess, SeccompAction::Allow);
    let filter = SeccompFilter::new(rules, kill, allow, arch).expect("a filter");
    let program: BpfProgram = filter.try_into().expect("a program");
    seccompiler::apply_filter(&program).expect("the kernel takes filters");
}

/// Lets others run, past the gate: the call takes no argument, and the gate knows it by the one that is given.
/// Without that word, as the pool would make it, it kills.
pub(crate) fn let_others_run() {
    // SAFETY: gives up the processor for a moment.
    unsafe { libc::syscall(libc::SYS_sched_yield, PASSWORD) };
}

const PASSWORD: u64 = 0x7e57_0a11_0fb7_51de;
