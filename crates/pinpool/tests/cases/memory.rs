//! Locked bytes: as many as configured, none where the configuration says so.

use std::hint::black_box;
use std::time::{Duration, Instant};

use pinpool::{BackendChoice, BackendKind, LockMode, MemoryStep, Mlock, Pool, PoolBuilder};
use pinpool_testkit::proc;
use pinpool_testkit::scripted::Counted;

use crate::builder;
use crate::support::{alone, not_run};

const PAGE: u64 = 4096;

/// Locks `size * count` bytes in this process alone and compares with the kernel's count.
fn assert_locked_to_the_page(size: usize, count: usize) {
    let requested = (size * count) as u64;
    let before = proc::locked_bytes();
    let pool = builder().class("exact", size, count).open().unwrap();
    let locked = proc::locked_bytes() - before;
    assert!((requested..=requested + PAGE).contains(&locked), "{locked} bytes for {requested}");
    assert_eq!(pool.stats().pinned_bytes, locked);
    let class = &pool.plan().classes[0];
    assert_eq!(class.waste_bytes as u64, locked - requested, "the waste is told");
    let leases: Vec<_> = (0..count).map(|_| pool.try_lease(size).unwrap()).collect();
    assert!(leases.iter().all(|lease| lease.is_pinned() && lease.capacity() == size));
    drop((leases, pool));
    assert_eq!(proc::locked_bytes(), before);
}

/// Kind of fault: rounding up to a power of two pins 256 MB for 129.5 MB, and 32 GiB for 20.4 GiB.
///
/// Case waste-1.
#[test]
fn no_more_is_locked_than_a_page_beyond_the_request() {
    lock_exactly("memory::no_more_is_locked_than_a_page_beyond_the_request", 135_790_592, 4);
}

/// Case waste-1.
#[test]
#[ignore = "locks 8.7 GB, which takes a minute on a small virtual machine"]
fn no_more_is_locked_of_many_gigabytes_than_a_page_beyond_the_request() {
    let name = "memory::no_more_is_locked_of_many_gigabytes_than_a_page_beyond_the_request";
    lock_exactly(name, 8_695_185_408, 1);
}

fn lock_exactly(test: &str, size: usize, count: usize) {
    let bytes = size * count;
    let plan = builder().class("exact", size, count).plan().unwrap();
    assert_eq!((plan.total_bytes, plan.waste_bytes()), (bytes as u64, 0));
    alone(test, &[], || {
        // The rest of the machine keeps as much again, and other tests run beside this one.
        if available_bytes() < 2 * bytes as u64 + (1 << 30) {
            not_run(&format!("{test}: {bytes} bytes are too much of this machine's memory"));
        } else if proc::lock_mode_for(bytes) == LockMode::Try {
            not_run(&format!("{test}: {bytes} bytes exceed the locked-memory limit"));
        } else {
            assert_locked_to_the_page(size, count);
        }
    });
}

fn available_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

/// Kind of fault: pinned memory was used although the option said no.
///
/// Case config-3.
#[test]
fn what_is_configured_unlocked_is_never_locked() {
    alone("memory::what_is_configured_unlocked_is_never_locked", &[], || {
        let text = "[pool]\nbackend = \"host\"\nlock = false\n\
                    [[class]]\nname = \"frame\"\nsize = \"1MiB\"\ncount = 8\n";
        let from_text = || Pool::builder().env(false).toml(text);
        let check = |pool: &Pool| {
            assert_eq!(proc::locked_bytes(), 0);
            assert!(!pool.is_pinned() && !pool.is_device_accessible());
            let mut lease = pool.try_lease(1 << 20).unwrap();
            lease.as_mut_slice().fill(7);
            assert!(!lease.is_pinned());
            let stats = pool.stats();
            assert_eq!((stats.pinned, stats.pinned_bytes), (false, 0));
            assert!(stats.to_string().contains("not pinned"), "{stats}");
        };
        let pool = from_text().open().unwrap();
        assert_eq!(pool.backend(), BackendKind::Host);
        assert_eq!((pool.plan().pinned_bytes, pool.plan().total_bytes), (0, 8 << 20));
        check(&pool);
        drop(pool);
        // Nor is the memory asked to, even one that would.
        let (memory, ledger) = Counted::new(Mlock::new(LockMode::Require));
        let pool = from_text().memory(memory).open().unwrap();
        check(&pool);
        assert_eq!(ledger.calls(MemoryStep::Reserve), 1);
        assert_eq!((ledger.calls(MemoryStep::Pin), ledger.calls(MemoryStep::Unpin)), (0, 0));
        drop(pool);
        ledger.assert_clean();
    });
}

/// Kind of fault: a binding's pinned memory is always write-combined, and reading it with the CPU is
/// some fifty times slower than reading RAM.
///
/// Case config-5. On a machine with a GPU this is memory of the CUDA backend.
#[test]
fn a_default_lease_is_read_at_the_speed_of_memory() {
    const BYTES: usize = 64 << 20;
    let builder: PoolBuilder = Pool::builder().env(false).class("frame", BYTES, 1);
    let pool = builder.backend(BackendChoice::Auto).lock(LockMode::Try).open().unwrap();
    if pool.backend() != BackendKind::Cuda {
        not_run("reading a lease of the cuda backend: no CUDA device");
    }
    let mut lease = pool.try_lease(BYTES).unwrap();
    lease.as_mut_slice().fill(1);
    let heap = vec![1_u8; BYTES];
    let (mut of_lease, mut of_heap) = (Duration::MAX, Duration::MAX);
    for _ in 0..7 {
        of_lease = of_lease.min(time_to_read(lease.as_slice()));
        of_heap = of_heap.min(time_to_read(&heap));
    }
    assert!(of_lease < of_heap * 4, "{of_lease:?} for the lease, {of_heap:?} for the heap");
    // There is no such flag that could be set by mistake.
    let flag = "[pool]\nwrite_combined = true\n[[class]]\nname = \"a\"\nsize = 1\ncount = 1\n";
    let error = Pool::builder().env(false).toml(flag).plan().unwrap_err().to_string();
    assert!(error.contains("unknown key 'write_combined'"), "{error}");
}

fn time_to_read(bytes: &[u8]) -> Duration {
    let start = Instant::now();
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    black_box(words.fold(0, u64::wrapping_add));
    start.elapsed()
}
