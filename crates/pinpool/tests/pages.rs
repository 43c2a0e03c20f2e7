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

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pinpool::{BackendChoice, HugePages, LockMode, Pool, PoolBuilder, SlabReport};
use pinpool_testkit::proc;

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

/// A number of `/proc/meminfo`, in its unit.
fn meminfo(name: &str) -> u64 {
    field("/proc/meminfo", name)
}

/// Reserved huge pages that this process has, whatever others do meanwhile.
fn own_huge_pages() -> u64 {
    field("/proc/self/smaps_rollup", "Private_Hugetlb") * 1024 / huge_page() as u64
}

fn field(path: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Bytes of a reserved huge page.
fn huge_page() -> usize {
    usize::try_from(meminfo("Hugepagesize")).unwrap() * 1024
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

/// So many free reserved huge pages, as long as this lives.
struct Reserved {
    before: String,
    /// Locked: others of these tests may run at the same time, of another build perhaps.
    _turn: File,
}

const RESERVED: &str = "/proc/sys/vm/nr_hugepages";

impl Reserved {
    /// Says that `test` was not run where they cannot be had.
    fn pages(count: u64, test: &str) -> Option<Self> {
        let turn = File::create(std::env::temp_dir().join("pinpool-reserved-pages.lock")).unwrap();
        // SAFETY: waits for a lock on an open file, which goes when the file is closed.
        let locked = unsafe { libc::flock(turn.as_raw_fd(), libc::LOCK_EX) };
        assert_eq!(locked, 0);
        let before = std::fs::read_to_string(RESERVED).unwrap_or_default();
        let reserved = Self { before, _turn: turn };
        let used = meminfo("HugePages_Total") - meminfo("HugePages_Free");
        let asked = std::fs::write(RESERVED, (used + count).to_string());
        let free = meminfo("HugePages_Free") - meminfo("HugePages_Rsvd");
        if asked.is_err() || free != count || huge_page() != 2 * MIB {
            support::not_run(&format!(
                "{test}: {count} huge pages of 2 MiB cannot be reserved here ({free} are free: {asked:?})"
            ));
            return None;
        }
        Some(reserved)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let _ = std::fs::write(RESERVED, &self.before);
    }
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
