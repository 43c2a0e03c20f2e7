//! The steady state costs nothing but instructions: a leasing thread makes no system call,
//! allocates nothing, faults on no page and never sleeps. A seccomp filter, which kills at any
//! call, proves the first; a counting allocator and the kernel's counts the rest. Each test runs
//! alone in a child.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test reports by panicking, and its figures by printing"
)]

#[path = "steady/copies.rs"]
mod copies;
#[path = "steady/counting.rs"]
mod counting;
#[path = "steady/gate.rs"]
mod gate;
#[path = "steady/pairs.rs"]
mod pairs;
#[path = "steady/states.rs"]
mod states;
mod support;

use std::future::Future;
use std::os::unix::process::ExitStatusExt;
use std::task::{Context, Waker};
use std::time::Duration;

use pinpool::{BackendChoice, Lease, ManualFence, Pool, PoolBuilder};
use pinpool_testkit::{child, proc};

use counting::{Thread, allocations};

/// Leases and drops per class and state.
const CYCLES: usize = 1_000_000;
/// Before anything is counted: each slot once, each thread-local once, each vector to its size, and whatever
/// a thread earns by leasing often.
const WARM: usize = 10_000;
/// Slots of each class.
const SLOTS: usize = 4;
/// Bytes leased: one class each.
const SIZES: [usize; 2] = [64, 8192];
/// Set in a child in whose cycles a system call is planted, to where.
const PLANTED: &str = "STEADY_PLANTED_CALL";

fn builder() -> PoolBuilder {
    builder_of(&SIZES, SLOTS)
}

/// One class of each size.
fn builder_of(sizes: &[usize], slots: usize) -> PoolBuilder {
    let lock = proc::lock_mode_for(sizes.iter().sum::<usize>() * slots);
    let builder = Pool::builder().env(false).backend(BackendChoice::Host).lock(lock);
    sizes.iter().fold(builder, |builder, size| builder.class(&format!("of-{size}"), *size, slots))
}

#[allow(clippy::cast_possible_truncation, reason = "any byte will do")]
fn low_byte(round: usize) -> u8 {
    round as u8
}

#[test]
fn plain_cycles_make_no_system_call() {
    support::alone("plain_cycles_make_no_system_call", &[], || {
        let readied: Vec<_> = states::all().collect();
        let planted = std::env::var_os(PLANTED).is_some();
        gate::run(&[], || {
            for ready in &readied {
                // The last one that is named is the one that was killed.
                gate::say(&ready.name);
                ready.run(CYCLES)?;
            }
            if planted {
                // SAFETY: asks for a number.
                unsafe { libc::getppid() };
            }
            Ok(())
        });
    });
}

/// The gate can fail: the same cycles with one system call among them end in SIGSYS.
#[test]
fn a_planted_system_call_is_killed() {
    assert_killed("plain_cycles_make_no_system_call", "1");
}

/// The test ends in SIGSYS in a child where a call is planted.
fn assert_killed(test: &str, planted: &str) {
    let command = child::command(test, &[(PLANTED, planted)]);
    let output = child::finish(command, Duration::from_secs(300));
    assert_eq!(output.status.signal(), Some(libc::SIGSYS), "{}", child::describe(&output));
}

#[test]
fn plain_cycles_allocate_nothing_fault_on_nothing_and_never_sleep() {
    support::alone("plain_cycles_allocate_nothing_fault_on_nothing_and_never_sleep", &[], || {
        for ready in states::all() {
            // The kernel may take a page away for a moment on its own account, to move it or to
            // see who uses it: what the cycles cost, they cost every time.
            let quiet = (0..3).any(|_| {
                let (before, allocated) = (Thread::now(), allocations());
                ready.run(CYCLES).unwrap();
                assert_eq!(allocations() - allocated, 0, "{}", ready.name);
                Thread::now() == before
            });
            assert!(quiet, "it faults or sleeps: {}", ready.name);
        }
    });
}

/// A failing lease costs a value: nothing is allocated for it, and no text is made until somebody wants
/// to read it. With holders kept track of, and with a task in line, too.
#[test]
fn a_miss_allocates_nothing_until_it_is_displayed() {
    support::alone("a_miss_allocates_nothing_until_it_is_displayed", &[], || {
        for tracked in [false, true] {
            let pool = builder().track_holders(tracked).open().unwrap();
            let held: Vec<Lease> = (0..SLOTS).map(|_| pool.try_lease(SIZES[0]).unwrap()).collect();
            for in_line in [false, true] {
                let mut task = Box::pin(pool.lease_async(SIZES[0]));
                if in_line {
                    let mut context = Context::from_waker(Waker::noop());
                    assert!(task.as_mut().poll(&mut context).is_pending());
                }
                assert!((0..WARM).all(|_| pool.try_lease(SIZES[0]).is_err()));
                let (before, mut last) = (allocations(), None);
                for _ in 0..WARM {
                    last = pool.try_lease(SIZES[0]).err();
                    let others = [pool.try_lease(0), pool.try_lease(usize::MAX)];
                    assert!(others.iter().all(Result::is_err));
                    assert!(pool.try_lease_priority(SIZES[0]).is_err());
                }
                assert_eq!(allocations() - before, 0, "tracked {tracked}, in line {in_line}");
                let error = last.unwrap();
                let before = allocations();
                let copy = error;
                assert_eq!((allocations() - before, copy), (0, error), "an error is a plain value");
                let text = copy.to_string();
                assert!(allocations() > before, "it is made here: {text}");
                assert_eq!(text.contains("oldest holder"), tracked, "{text}");
                assert_eq!(text.contains("1 wait for one"), in_line, "{text}");
            }
            drop(held);
        }
    });
}

/// Leases that retire behind a fence which is complete: a miss, or the keeper, brings them home.
fn retired(pool: &Pool, done: &ManualFence, cycles: usize) -> Result<(), &'static str> {
    for round in 0..cycles {
        for bytes in SIZES {
            let mut lease = pool.try_lease(bytes).map_err(|_| "a complete slot is not found")?;
            lease.as_mut_slice()[0] = low_byte(round);
            lease.retire_after(done.clone());
        }
    }
    Ok(())
}

/// What a retirement allocates is the box that its fence is kept in, once.
#[test]
fn a_retired_lease_allocates_its_fence_and_no_more() {
    support::alone("a_retired_lease_allocates_its_fence_and_no_more", &[], || {
        let pool = builder().open().unwrap();
        let done = ManualFence::new();
        done.complete();
        retired(&pool, &done, WARM).unwrap();
        let (before, allocated) = (Thread::now(), allocations());
        retired(&pool, &done, CYCLES).unwrap();
        let allocated = allocations() - allocated;
        let leases = (CYCLES * SIZES.len()) as u64;
        println!("{leases} leases, {allocated} allocations, {:?} since {before:?}", Thread::now());
        assert_eq!(allocated, leases);
    });
}

/// The system calls that remain are those of locks: a miss looks through the retired slots and may
/// meet the keeper there, as may the allocator.
#[test]
fn retired_leases_make_no_system_call_but_for_locks() {
    // The C library's heap is made large at once and stays so: else it would grow now and then.
    let heap = [("MALLOC_TOP_PAD_", "67108864"), ("MALLOC_TRIM_THRESHOLD_", "1073741824")];
    support::alone("retired_leases_make_no_system_call_but_for_locks", &heap, || {
        let pool = builder().open().unwrap();
        let done = ManualFence::new();
        done.complete();
        retired(&pool, &done, WARM).unwrap();
        // The clock is read without a call where the kernel trusts its counter; not on every
        // virtual machine.
        let allowed = [libc::SYS_futex, libc::SYS_sched_yield, libc::SYS_clock_gettime];
        gate::run(&allowed, || retired(&pool, &done, CYCLES));
    });
}
