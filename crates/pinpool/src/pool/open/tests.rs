//! Pools on systems that are laid out in folders: what does not fit is refused before anything is mapped,
//! and pressure takes grown slabs back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::sync::Mutex;
use std::time::Instant;

use pinpool_testkit::child;

use super::*;
use crate::config::{ClassConfig, OnEmpty, OnPressure, PoolConfig, Threads};
use crate::memory::limits::tests::{System, meminfo_text, pressure_text, v2};
use crate::memory::limits::{Headroom, LimitKind};
use crate::memory::{KeepFree, LockMode, Mlock, PageTier, Pinned, Region};

const MIB: u64 = 1 << 20;
const SLAB: usize = 40 << 12;

fn plan(config: PoolConfig) -> Plan {
    Plan::new(PoolConfig { lock: LockMode::Off, ..config }).unwrap()
}

fn open(plan: &Plan) -> Result<Pool, Error> {
    Pool::open_plan(plan.clone(), Some(Arc::new(Mlock::new(LockMode::Off))))
}

/// A pool of `SLAB` bytes in total.
fn small(keep_free: KeepFree) -> Plan {
    let classes = vec![ClassConfig::new("a", 4096, 30), ClassConfig::new("b", 8192, 5)];
    plan(PoolConfig { keep_free, classes, ..PoolConfig::default() })
}

fn refusal(opened: Result<Pool, Error>) -> (u64, u64, Headroom) {
    match opened {
        Err(Error::NoRoom { needed, taken, headroom }) => (needed, taken, *headroom),
        other => panic!("no refusal: {other:?}"),
    }
}

/// Mappings of this process. Other tests map meanwhile: only for a process of its own.
fn maps() -> usize {
    pinpool_testkit::proc::maps()
}

/// RELIABILITY R25 a: 20 limits, each in both files that can set it, and the machine's own memory. It
/// opens if there is room to the byte, and else is refused before anything is mapped.
#[test]
fn a_plan_over_the_limit_of_its_group_is_refused_before_anything_is_mapped() {
    const NAME: &str = "pool::open::tests::a_plan_over_the_limit_of_its_group_is_refused_before_anything_is_mapped";
    if !child::in_child() {
        child::run(NAME, &[]);
        return;
    }
    let plan = small(KeepFree::Bytes(1000));
    assert_eq!(plan.total_bytes, SLAB as u64);
    // 1000 bytes are used and 350 of them can be reclaimed; 1000 stay free.
    let exact = SLAB as u64 + 650 + 1000;
    let below =
        (1..=10).map(|step| exact - (1u64 << (step * 3 / 2)).min(exact)).chain([0, 1, 2000]);
    let limits: Vec<_> = below.chain([exact - 1, exact, exact + 1, exact * 2]).collect();
    let limits = limits.into_iter().chain([exact + 4096, exact + MIB, exact << 20]);
    let mut count = 0;
    for limit in limits {
        count += 1;
        for file in ["memory.max", "memory.high"] {
            let system = v2("max", "max");
            let file = format!("/sys/fs/cgroup/app.slice/pool.service/{file}");
            system.write(&file, &limit.to_string());
            system.around(|| {
                let before = maps();
                let opened = open(&plan);
                if limit >= exact {
                    assert_eq!(opened.unwrap().stats().mapped_bytes, SLAB as u64, "{limit}");
                    return;
                }
                let (needed, taken, headroom) = refusal(opened);
                assert_eq!(maps(), before, "{limit}: something was mapped");
                assert_eq!((needed, taken), (SLAB as u64, 0));
                let path = system.root().join(&file[1..]);
                let figures = (headroom.bytes, headroom.used, headroom.kept_free);
                assert_eq!(figures, (limit, 650, 1000));
                assert_eq!(headroom.limit, LimitKind::Cgroup(path));
            });
        }
    }
    assert_eq!(count, 20);
}

#[test]
fn the_refusal_says_what_binds_and_what_raises_it() {
    let system = v2("100000", "max");
    let error = system.around(|| open(&small(KeepFree::Bytes(1000)))).unwrap_err();
    assert!(error.is_bad_input());
    let text = error.to_string();
    for word in [
        "needs 163840 bytes of host memory",
        "0 of them were taken",
        "the control group's ",
        "pool.service/memory.max leaves 98350 bytes",
        "of 100000 650 are in use and 1000 stay free",
        "all processes of the group share it",
        "`--memory`",
        "MemoryMax=",
        "`keep_free` in [pool]",
    ] {
        assert!(text.contains(word), "`{word}` is missing: {text}");
    }
    let system = System::new(&[("/proc/meminfo", &meminfo_text(MIB, 100 << 10))]);
    let text = system.around(|| open(&small(KeepFree::Bytes(0)))).unwrap_err().to_string();
    for word in
        ["MemAvailable", "leaves 102400 bytes", "not GPU memory", "of 1048576 946176 are in use"]
    {
        assert!(text.contains(word), "`{word}` is missing: {text}");
    }
}

#[test]
fn the_machines_memory_binds_to_the_byte_and_keeps_its_share_free() {
    let exact = SLAB as u64;
    let opens = |total: u64, available: u64, keep| {
        let system = System::new(&[("/proc/meminfo", &meminfo_text(total, available))]);
        system.around(|| open(&small(keep))).is_ok()
    };
    assert!(opens(64 * MIB, exact, KeepFree::Bytes(0)));
    assert!(!opens(64 * MIB, exact - 1024, KeepFree::Bytes(0)));
    // A thirty-second of 64 MiB.
    assert!(opens(64 * MIB, exact + 2 * MIB, KeepFree::Auto));
    assert!(!opens(64 * MIB, exact + 2 * MIB - 1024, KeepFree::Auto));
    // At most 1 GiB, however large the machine.
    assert!(opens(MIB << 20, exact + (MIB << 10), KeepFree::Auto));
    assert!(!opens(MIB << 20, exact + (MIB << 10) - 1024, KeepFree::Auto));
    assert!(opens(64 * MIB, 0, KeepFree::Off), "nothing is looked at");
}

/// Memory that was set aside before: it is not counted as available, and need not be.
#[test]
fn reserved_huge_pages_take_no_room() {
    const PAGE: u64 = 2 * MIB;
    let text = |free| {
        let machine = meminfo_text(64 * MIB, 0);
        format!("{machine}HugePages_Total: 9\nHugePages_Free: {free}\nHugepagesize: 2048 kB\n")
    };
    let classes = vec![ClassConfig::new("a", 1 << 20, 8)];
    let plan = plan(PoolConfig { keep_free: KeepFree::Bytes(0), classes, ..PoolConfig::default() });
    let shared =
        |memory: Arc<dyn PageLock>| Shared::new(memory, terms(&plan), Home::here().unwrap());
    for (free, fits) in [(4, 4 * PAGE), (9, 9 * PAGE), (0, 0)] {
        let system = System::new(&[("/proc/meminfo", &text(free))]);
        system.around(|| {
            let huge = shared(Arc::new(OnHuge(Mlock::new(LockMode::Off))));
            assert!(huge.enter(fits, false).is_ok(), "{free}");
            assert!(huge.enter(fits + 1, false).is_err(), "{free}");
            let base = shared(Arc::new(Mlock::new(LockMode::Off)));
            assert_eq!(base.enter(fits, false).is_ok(), fits == 0, "{free}");
        });
    }
}

/// Memory that would lie on reserved huge pages.
#[derive(Debug)]
struct OnHuge(Mlock);

// SAFETY: every duty is the inner memory's.
unsafe impl PageLock for OnHuge {
    fn kind(&self) -> BackendKind {
        self.0.kind()
    }

    fn tiers(&self, _: usize) -> Vec<PageTier> {
        vec![PageTier::Huge, PageTier::Base]
    }

    fn reserve(&self, bytes: usize) -> Result<std::ptr::NonNull<u8>, MemoryError> {
        self.0.reserve(bytes)
    }

    unsafe fn populate(&self, part: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.0.populate(part) }
    }

    unsafe fn pin(&self, chunk: Region) -> Result<Pinned, MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.0.pin(chunk) }
    }

    unsafe fn unpin(&self, chunk: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.0.unpin(chunk) }
    }

    unsafe fn release(&self, region: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.0.release(region) }
    }
}

/// Where transparent huge pages are tried first, too: what a limit cut is kept, another kind of page is not
/// asked for in vain, and the rest is left to the next class and to other processes.
///
/// Case limits-3.
#[test]
fn a_limit_that_cuts_a_class_leaves_the_rest_to_the_next() {
    const GROUP: &str = "/sys/fs/cgroup/app.slice/pool.service";
    let slots =
        |large| vec![ClassConfig::new("large", 4 << 20, large), ClassConfig::new("b", 1 << 20, 1)];
    let config = |large| PoolConfig {
        keep_free: KeepFree::Bytes(0),
        min_bytes: Some(1),
        prefault_threads: Threads::Count(1),
        classes: slots(large),
        ..PoolConfig::default()
    };
    // Of the group 650 bytes are in use for good: there is room for three large slots and the small one.
    let system = v2(&(13 * MIB + 650).to_string(), "max");
    let pool = system.around(|| {
        let usage = system.root().join(&format!("{GROUP}/memory.current")[1..]);
        let memory = Filling { inner: Mlock::new(LockMode::Off), usage, taken: Mutex::new(0) };
        Pool::open_plan(plan(config(8)), Some(Arc::new(memory))).unwrap()
    });
    let cut: Vec<_> = pool.startup().cut.iter().map(|cut| (cut.slots, cut.wanted)).collect();
    assert_eq!(cut, [(3, 8)]);
    let reason = &pool.startup().cut[0].reason;
    assert!(reason.contains("memory.max leaves 1048576 bytes"), "{reason}");
    let _all: Vec<_> = (0..3).map(|_| pool.try_lease(4 << 20).unwrap()).collect();
    let _small = pool.try_lease(1 << 20).unwrap();
    let group = std::fs::File::open(system.root().join(&GROUP[1..])).unwrap();
    let turn = rustix::fs::flock(&group, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    turn.expect("nobody else is held up");
}

/// Memory whose group's usage grows with each piece, and which can lie on two kinds of pages.
#[derive(Debug)]
struct Filling {
    inner: Mlock,
    usage: std::path::PathBuf,
    taken: Mutex<u64>,
}

// SAFETY: every duty is the inner memory's.
unsafe impl PageLock for Filling {
    fn kind(&self) -> BackendKind {
        self.inner.kind()
    }

    fn tiers(&self, _: usize) -> Vec<PageTier> {
        vec![PageTier::Transparent, PageTier::Base]
    }

    fn reserve(&self, bytes: usize) -> Result<std::ptr::NonNull<u8>, MemoryError> {
        self.inner.reserve(bytes)
    }

    unsafe fn populate(&self, part: Region) -> Result<(), MemoryError> {
        let mut taken = self.taken.lock().unwrap();
        *taken += part.bytes as u64;
        std::fs::write(&self.usage, (1000 + *taken).to_string()).unwrap();
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.populate(part) }
    }

    unsafe fn pin(&self, chunk: Region) -> Result<Pinned, MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.pin(chunk) }
    }

    unsafe fn unpin(&self, chunk: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.unpin(chunk) }
    }

    unsafe fn release(&self, region: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.release(region) }
    }
}

#[test]
fn a_system_that_tells_nothing_refuses_nothing() {
    let system = System::new(&[]);
    assert!(system.around(|| open(&small(KeepFree::Auto))).is_ok());
}

/// Grown slabs are admitted as the first ones are; a refusal is a failure to grow, and no more.
#[test]
fn growth_that_has_no_room_is_a_failure_to_grow() {
    let system = v2("max", "max");
    let pool = system.around(|| open(&growing(OnPressure::Trim))).unwrap();
    let file = "/sys/fs/cgroup/app.slice/pool.service/memory.max";
    system.write(file, "1000");
    let held = pool.lease(4096).unwrap();
    until(|| grown(&pool).1 > 0, "it tries to grow");
    assert_eq!(grown(&pool), (0, grown(&pool).1));
    system.write(file, "max");
    until(|| grown(&pool).0 > 0, "it grows once there is room");
    drop(held);
}

/// Slabs added so far, and attempts that failed.
fn grown(pool: &Pool) -> (u64, u64) {
    let stats = pool.stats();
    (stats.classes[0].grown_total, stats.classes[0].grow_failures_total)
}

/// One slot at first, and up to four more, a slab each, that stay for an hour.
fn growing(on_pressure: OnPressure) -> Plan {
    let mut class = ClassConfig::new("a", 4096, 1);
    class.on_empty = OnEmpty::Grow;
    (class.grow_max, class.grow_by, class.grow_at) = (Some(4), Some(1), Some(0));
    class.idle_after = Some(Duration::from_secs(3600));
    plan(PoolConfig { on_pressure, classes: vec![class], ..PoolConfig::default() })
}

fn until(done: impl Fn() -> bool, what: &str) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}: it did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const PRESSURE: &str = "/sys/fs/cgroup/app.slice/pool.service/memory.pressure";

#[test]
fn under_pressure_unused_grown_slabs_go_and_nothing_grows() {
    let system = v2("max", "max");
    system.write(PRESSURE, &pressure_text(0.0, 0));
    let pool = system.around(|| open(&growing(OnPressure::Trim))).unwrap();
    let all: Vec<_> =
        (0..3).map(|_| pool.lease_timeout(4096, Duration::from_secs(30)).unwrap()).collect();
    let kept = all.into_iter().last();
    assert_eq!(pool.stats().classes[0].trimmed_total, 0);
    system.write(PRESSURE, &pressure_text(30.0, 0));
    until(|| pool.stats().under_pressure, "the pressure is seen");
    until(|| pool.stats().classes[0].grown == 1, "all slabs go but the one that is used");
    // The slab that the pool opened with stays, and so does the one with a lease.
    assert_eq!(pool.stats().classes[0].slots, 2);
    let base = pool.try_lease(4096).unwrap();
    let exhausted = pool.lease_timeout(4096, Duration::from_millis(200)).unwrap_err();
    let text = exhausted.to_string();
    assert!(text.contains("short of memory") && text.contains("`on_pressure`"), "{text}");
    assert_eq!((pool.stats().pressure_total, pool.stats().classes[0].slots), (1, 2));
    drop(kept);
    until(|| pool.stats().classes[0].grown == 0, "its slab goes with the last lease");
    assert!(pool.stats().to_string().contains("memory pressure began 1 times and lasts"));
    system.write(PRESSURE, &pressure_text(0.0, 0));
    until(|| !pool.stats().under_pressure, "it ends");
    let _grown = pool.lease_timeout(4096, Duration::from_secs(30)).expect("it grows again");
    drop(base);
}

#[test]
fn pressure_may_be_ignored() {
    let system = v2("max", "max");
    system.write(PRESSURE, &pressure_text(90.0, 0));
    let pool = system.around(|| open(&growing(OnPressure::Ignore))).unwrap();
    let _held = pool.try_lease(4096).unwrap();
    let _grown = pool.lease_timeout(4096, Duration::from_secs(30)).expect("it grows");
    let stats = pool.stats();
    assert_eq!((stats.under_pressure, stats.pressure_total), (false, 0));
}
