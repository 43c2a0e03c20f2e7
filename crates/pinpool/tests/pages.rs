//! On which pages a pool's memory really lies: reserved and transparent huge pages, NUMA nodes, and every
//! system call on the way that may be refused.
//!
//! Reserved pages and filters belong to the machine or to a process: each test runs in a child, and those
//! that reserve pages run one after another.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed unwrap is a failed test"
)]

#[path = "pages/ladder.rs"]
mod ladder;
#[path = "pages/refused.rs"]
mod refused;
mod support;

use std::sync::{Mutex, MutexGuard, PoisonError};

use pinpool::{BackendChoice, HugePages, LockMode, Pool, PoolBuilder, SlabReport};
use pinpool_testkit::proc;

use support::reserved::{Reserved, huge_page, meminfo, own_huge_pages};

/// Of 53.75 huge pages of 2 MiB.
const ODD: usize = 112_721_920;
const MIB: usize = 1 << 20;

/// Runs `body` in a child of its own, one at a time; `test` is the caller's name, with its module.
fn alone(test: &str, body: impl FnOnce()) {
    let _turn = turn();
    support::alone(test, &[], body);
}

/// Holds off the other tests.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pool on host memory that reads nothing from outside, with one class of one slot of so many bytes.
fn builder(bytes: usize) -> PoolBuilder {
    Pool::builder()
        .env(false)
        .backend(BackendChoice::Host)
        .lock(proc::lock_mode_for(bytes + 4 * MIB))
        .prefault_threads(2)
        .class("c", bytes, 1)
}

fn slab(pool: &Pool) -> SlabReport {
    let [slab] = &pool.startup().slabs[..] else { panic!("one class, one slab") };
    slab.clone()
}

/// Opens a pool of `bytes`, writes every byte of it, closes it, and says what it was on. Nothing is left.
fn used(builder: PoolBuilder, bytes: usize) -> SlabReport {
    let before = readings();
    let pool = builder.open().unwrap();
    let slab = slab(&pool);
    assert_eq!(pool.stats().mapped_bytes, slab.bytes);
    assert!(slab.bytes >= bytes as u64 && slab.huge_bytes <= slab.bytes, "{slab:?}");
    let mut lease = pool.try_lease(bytes).unwrap();
    assert!(lease.as_slice().iter().all(|byte| *byte == 0), "fresh memory is zero");
    lease.as_mut_slice().fill(7);
    assert!(lease.as_slice().iter().all(|byte| *byte == 7));
    drop(lease);
    drop(pool);
    assert_eq!(readings(), before, "something is left of the pool");
    slab
}

/// What must be as before after a pool has failed or gone.
fn readings() -> (u64, usize, u64) {
    (proc::locked_bytes(), proc::maps(), own_huge_pages())
}

/// Whether this machine gives transparent huge pages of 2 MiB to those who ask.
fn transparent() -> bool {
    let read = |name: &str| {
        std::fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{name}"))
            .unwrap_or_default()
    };
    !read("enabled").is_empty()
        && !read("enabled").contains("[never]")
        && read("hpage_pmd_size").trim() == "2097152"
}

/// From now on this process gets no transparent huge pages.
fn give_up_transparent() {
    // SAFETY: changes a setting of this child only.
    let result = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    assert_eq!(result, 0, "a process may do without");
}

/// Writes to every page after the open without one page fault, whatever the pages are.
///
/// Case start-2.
#[test]
fn the_first_write_to_every_page_faults_nowhere() {
    alone("the_first_write_to_every_page_faults_nowhere", || {
        for huge in [HugePages::Off, HugePages::Try] {
            for lock in [proc::lock_mode_for(ODD), LockMode::Off] {
                let pool = builder(ODD).huge_pages(huge).lock(lock).open().unwrap();
                let lease = pool.try_lease(ODD).unwrap();
                let first = lease.as_ptr().cast_mut();
                let before = faults();
                for offset in (0..ODD).step_by(4096) {
                    let page = first.wrapping_add(offset);
                    // SAFETY: the lease is ours alone, and longer than the offset.
                    unsafe { page.write_volatile(1) };
                }
                assert_eq!(faults() - before, 0, "huge_pages {huge}, lock {lock}");
            }
        }
    });
}

/// Page faults of the calling thread, of both kinds.
fn faults() -> i64 {
    // SAFETY: a usage of zeroes is one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: writes one usage.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert_eq!(result, 0);
    usage.ru_minflt + usage.ru_majflt
}
