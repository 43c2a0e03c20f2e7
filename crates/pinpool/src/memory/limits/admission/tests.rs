//! Who may take memory when, of threads and processes that want the same room.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::*;
use crate::memory::limits::tests::{System, v2};
use crate::memory::{Heap, LockMode, Mlock};

/// Of a group with this limit, 650 bytes are in use for good.
const USED: u64 = 650;

fn group(limit: u64) -> (System, Admission) {
    let system = v2(&limit.to_string(), "max");
    let admission =
        system.around(|| Admission::new(&Mlock::new(LockMode::Off), KeepFree::Bytes(0)));
    admission.enter(&Mlock::new(LockMode::Off), 1, false).unwrap();
    (system, admission)
}

/// Another process that wants its turn in the group.
fn other(system: &System) -> File {
    File::open(system.root().join("sys/fs/cgroup/app.slice/pool.service")).unwrap()
}

fn is_free(file: &File) -> bool {
    let locked = flock(file, FlockOperation::NonBlockingLockExclusive).is_ok();
    if locked {
        flock(file, FlockOperation::Unlock).unwrap();
    }
    locked
}

#[test]
fn near_the_limit_one_takes_at_a_time_and_far_from_it_all_do() {
    let (system, admission) = group(USED + NEAR + 200);
    let other = other(&system);
    let far = admission.admit(1).unwrap();
    assert!(is_free(&other), "there is room for many");
    drop(far);
    // 350 of the bytes that are used can be reclaimed, which a quick look does not count on.
    let near = admission.admit(201).unwrap();
    assert!(!is_free(&other), "it is this one's turn");
    drop(near);
    assert!(is_free(&other), "the turn ends with the taking");
}

/// Far from the group's limit nothing is held against it, but what is taken without a look is.
#[test]
fn credit_is_a_part_of_what_the_group_leaves() {
    let spare = 64 * SHARERS;
    let (_system, admission) = group(1000 + NEAR + 100 + spare);
    drop(admission.admit(100).unwrap());
    assert!(admission.takes_on_credit(64));
    assert!(!admission.takes_on_credit(1), "the machine has more, the group has not");
}

/// Whoever holds the turn may have been refused, and be giving back.
#[test]
fn nobody_is_refused_out_of_turn() {
    let (system, admission) = group(USED + 1000);
    let current = "/sys/fs/cgroup/app.slice/pool.service/memory.current";
    let other = other(&system);
    flock(&other, FlockOperation::LockExclusive).unwrap();
    system.write(current, "2000");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| admission.admit(1000).map(drop));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!waits.is_finished());
        system.write(current, "1000");
        flock(&other, FlockOperation::Unlock).unwrap();
        waits.join().unwrap().unwrap();
    });
}

/// A forked child has the parent's files, and may live for long.
#[test]
fn a_child_does_not_keep_its_parent_s_turn() {
    let (system, admission) = group(USED + 1000);
    let other = other(&system);
    let turn = admission.line_up(&system.root().join("sys/fs/cgroup/app.slice/pool.service"));
    let inherited = turn.as_ref().unwrap().0.try_clone().unwrap();
    assert!(!is_free(&other));
    drop(turn);
    assert!(is_free(&other), "the turn ends, whoever has the file");
    drop(inherited);
}

#[test]
fn who_is_refused_keeps_the_turn_until_all_is_given_back() {
    let (system, admission) = group(USED + 1000);
    let other = other(&system);
    drop(admission.admit(1000).unwrap());
    system.write("/sys/fs/cgroup/app.slice/pool.service/memory.current", "1500");
    // 1150 are held now, 500 more than before.
    let error = admission.admit(501).unwrap_err();
    assert_eq!((error.step, error.bytes), (MemoryStep::Populate, 501));
    assert!(matches!(&error.cause, MemoryCause::NoRoom(headroom) if headroom.room() == 500));
    assert_eq!(admission.admit(1).unwrap_err(), error, "no more is admitted");
    admission.leave_line();
    assert!(is_free(&other));
    drop(admission.admit(500).unwrap());
}

#[test]
fn a_refusal_in_its_turn_holds_others_up_until_the_pool_has_left() {
    let (system, admission) = group(USED + 1000);
    let other = other(&system);
    // There is room when it lines up, and none when its turn comes.
    flock(&other, FlockOperation::LockExclusive).unwrap();
    std::thread::scope(|scope| {
        let refused = scope.spawn(|| admission.admit(1000).map(drop));
        while is_waited_out(&refused) {
            system.write("/sys/fs/cgroup/app.slice/pool.service/memory.current", "1001");
            std::thread::sleep(Duration::from_millis(50));
            flock(&other, FlockOperation::Unlock).unwrap();
        }
        refused.join().unwrap().unwrap_err();
    });
    assert!(!is_free(&other), "its memory is not given back yet");
    admission.leave_line();
    assert!(is_free(&other));
}

/// Gives the thread time to line up; false once it has ended.
fn is_waited_out<T>(thread: &std::thread::ScopedJoinHandle<'_, T>) -> bool {
    std::thread::sleep(Duration::from_millis(50));
    !thread.is_finished()
}

/// A process that stopped in its turn holds nobody up for ever.
#[test]
fn a_turn_that_does_not_end_is_waited_for_once() {
    let (system, admission) = group(USED + 1000);
    let other = other(&system);
    flock(&other, FlockOperation::LockExclusive).unwrap();
    let start = Instant::now();
    drop(admission.admit(10).unwrap());
    assert!(start.elapsed() >= PATIENCE);
    let start = Instant::now();
    drop(admission.admit(10).unwrap());
    assert!(start.elapsed() < PATIENCE, "the second does not wait");
}

/// What another thread takes may be counted twice for a moment: that is no reason to refuse.
#[test]
fn room_that_another_thread_takes_is_waited_for_and_not_refused() {
    let system = System::new(&[("/proc/meminfo", "MemTotal: 100 kB\nMemAvailable: 15 kB\n")]);
    let admission =
        system.around(|| Admission::new(&Mlock::new(LockMode::Off), KeepFree::Bytes(0)));
    let first = admission.admit(10 << 10).unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| admission.admit(10 << 10).map(drop));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!second.is_finished(), "it waits");
        drop(first);
        second.join().unwrap().unwrap();
    });
    admission.admit(16 << 10).unwrap_err();
}

#[test]
fn memory_that_is_not_the_systems_is_not_looked_at() {
    let system = v2("0", "0");
    for (memory, keep) in [
        (&Heap::new() as &dyn PageLock, KeepFree::Auto),
        (&Mlock::new(LockMode::Off), KeepFree::Off),
    ] {
        let admission = system.around(|| Admission::new(memory, keep));
        admission.enter(memory, 1 << 40, false).unwrap();
        drop(admission.admit(1 << 40).unwrap());
    }
}
