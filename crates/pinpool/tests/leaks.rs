//! Nothing is left behind: memory maps, locked bytes, huge pages, threads and files after many lives of a pool,
//! in every order of dropping. Each test runs alone in a child, where nothing else changes them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed unwrap is a failed test"
)]

#[path = "leaks/openings.rs"]
mod openings;
mod support;

use std::time::{Duration, Instant};

use pinpool::{BackendChoice, Error, Lease, LockMode, MemoryStep, Mlock, Pool, PoolBuilder};
use pinpool_testkit::scripted::{Counted, Fault, Faulty, STEPS};
use pinpool_testkit::{proc, stamp};

/// Lives of a pool per test.
const CYCLES: u64 = 1000;
/// Bytes of [`builder`]'s slabs.
const BYTES: usize = 4 * 64 + 3840 + 3 * 8192;

fn alone(test: &str, body: impl FnOnce()) {
    // The C library keeps stacks of ended threads and makes an arena for each new one: those maps
    // come and go by themselves.
    const STEADY: [(&str, &str); 2] =
        [("MALLOC_ARENA_MAX", "1"), ("GLIBC_TUNABLES", "glibc.pthread.stack_cache_size=0")];
    support::alone(test, &STEADY, body);
}

/// Two classes on host memory, several chunks, a prefault thread besides the caller.
fn builder() -> PoolBuilder {
    Pool::builder()
        .env(false)
        .backend(BackendChoice::Host)
        .lock(proc::lock_mode_for(BYTES))
        .prefault_threads(2)
        .pin_chunk(4096)
        .class("small", 64, 4)
        .class("large", 8192, 3)
}

/// Everything of this process that a pool could leave behind.
#[derive(Debug, PartialEq, Eq)]
struct Readings {
    locked_bytes: u64,
    maps: usize,
    threads: u64,
    open_files: usize,
    huge_pages: u64,
}

impl Readings {
    fn now() -> Self {
        Self {
            locked_bytes: proc::locked_bytes(),
            maps: proc::maps(),
            threads: proc::threads(),
            open_files: proc::open_files(),
            huge_pages: support::reserved::own_huge_pages(),
        }
    }
}

/// Opens, uses every slot from two threads, closes.
fn live(cycle: u64) {
    let pool = builder().open().unwrap();
    assert_eq!(pool.stats().mapped_bytes, BYTES as u64);
    let users: Vec<_> = (0..2)
        .map(|thread| {
            let pool = pool.clone();
            std::thread::spawn(move || {
                for round in 0..4 {
                    let bytes = if round % 2 == 0 { 64 } else { 8192 };
                    let mut lease = pool.lease_timeout(bytes, Duration::from_secs(5)).unwrap();
                    let owner = cycle << 8 | thread << 4 | round;
                    stamp::write_slot(&mut lease, owner);
                    stamp::verify(lease.as_slice(), owner);
                }
            })
        })
        .collect();
    for user in users {
        user.join().unwrap();
    }
    if cycle.is_multiple_of(2) {
        assert!(pool.close(Duration::ZERO).is_complete());
    }
}

#[test]
fn a_thousand_lives_leave_nothing_behind() {
    alone("a_thousand_lives_leave_nothing_behind", || {
        // What the first life sets up once for the process does not count.
        live(0);
        let before = Readings::now();
        let resident = proc::resident_bytes();
        for cycle in 1..=CYCLES {
            live(cycle);
            if cycle.is_multiple_of(100) {
                assert_eq!(Readings::now(), before, "after {cycle} lives");
            }
        }
        let grown = proc::resident_bytes().saturating_sub(resident);
        assert!(grown < 2 << 20, "{grown} bytes more in RAM after {CYCLES} lives");
    });
}

/// A failure at any step of opening, in turn, a thousand times over.
#[test]
fn a_thousand_failed_lives_leave_nothing_behind() {
    alone("a_thousand_failed_lives_leave_nothing_behind", || {
        let mode = proc::lock_mode_for(BYTES);
        let failing = |nth: u64, step: MemoryStep| {
            let (counted, ledger) = Counted::new(Mlock::new(mode));
            let (faulty, log) = Faulty::new(counted, Fault::nth(nth).of(step).os(libc::ENOMEM));
            let result = builder().memory(faulty).open();
            (result, ledger, log)
        };
        // How often each step is called in a life without a fault.
        let calls: Vec<u64> = STEPS[..3]
            .iter()
            .map(|step| {
                let (pool, ledger, _) = failing(u64::MAX, *step);
                assert!(pool.is_ok());
                ledger.calls(*step)
            })
            .collect();
        assert!(calls.iter().all(|calls| *calls >= 2), "both slabs take each step: {calls:?}");
        let before = Readings::now();
        let resident = proc::resident_bytes();
        let mut failures = 0;
        for cycle in 0..CYCLES {
            let at = usize::try_from(cycle).unwrap() % 3;
            let nth = 1 + cycle / 3 % calls[at];
            let (result, ledger, log) = failing(nth, STEPS[at]);
            let error = result.expect_err("a step failed");
            assert!(matches!(error, Error::Memory { .. } | Error::MemlockLimit { .. }), "{error}");
            assert_eq!(log.injected().len(), 1);
            ledger.assert_clean();
            failures += 1;
        }
        // And those that fail before any memory is touched.
        for _ in 0..CYCLES {
            assert!(builder().max_pinned(1).open().is_err());
            assert!(builder().toml("[pool]\nlokc = \"off\"\n").open().is_err());
        }
        assert_eq!(failures, CYCLES);
        assert_eq!(Readings::now(), before);
        let grown = proc::resident_bytes().saturating_sub(resident);
        assert!(grown < 2 << 20, "{grown} bytes more in RAM after {CYCLES} failures");
    });
}

/// The four things that are dropped: two handles on the pool, two leases of two classes.
struct Parts {
    handles: [Option<Pool>; 2],
    leases: [Option<Lease>; 2],
    /// What the leases must still hold.
    owners: [u64; 2],
}

impl Parts {
    fn new(seed: u64) -> Self {
        let pool = builder().open().unwrap();
        let owners = [seed << 8 | 1, seed << 8 | 2];
        let lease = |bytes: usize, owner| {
            let mut lease = pool.try_lease(bytes).unwrap();
            stamp::write_slot(&mut lease, owner);
            lease
        };
        let leases = [Some(lease(64, owners[0])), Some(lease(8192, owners[1]))];
        Self { handles: [Some(pool.clone()), Some(pool)], leases, owners }
    }

    fn drop_part(&mut self, part: usize) {
        if part < 2 {
            self.handles[part] = None;
        } else {
            self.leases[part - 2] = None;
        }
    }

    /// True when nothing needs the memory: no lease lives, and the pool is closed or gone.
    fn is_over(&self, closed: bool) -> bool {
        let open = !closed && self.handles.iter().any(Option::is_some);
        !open && self.leases.iter().all(Option::is_none)
    }

    /// The bytes of the leases that live are theirs, whatever has gone before them.
    fn verify(&self) {
        for (lease, owner) in self.leases.iter().zip(self.owners) {
            if let Some(lease) = lease {
                stamp::verify(lease.as_slice(), owner);
            }
        }
    }
}

fn orders() -> Vec<[usize; 4]> {
    let mut orders = Vec::new();
    for code in 0..256 {
        let order = [code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6 & 3];
        if (0..4).all(|part| order.contains(&part)) {
            orders.push(order);
        }
    }
    orders
}

/// When the pool is closed explicitly, if at all.
#[derive(Debug, Clone, Copy)]
enum Close {
    Never,
    /// Before anything is dropped.
    First,
    /// After so many of the four are dropped, while a handle lives.
    After(usize),
}

fn drop_in_order(order: [usize; 4], close: Close, seed: u64) {
    let before = Readings::now();
    let mut parts = Parts::new(seed);
    let mut closed = false;
    for (dropped, part) in order.into_iter().enumerate() {
        let now = match close {
            Close::Never => false,
            Close::First => dropped == 0,
            Close::After(count) => dropped == count,
        };
        let handle = parts.handles.iter().flatten().next();
        if let Some(pool) = handle.filter(|_| now) {
            let report = pool.close(Duration::ZERO);
            let out: usize = report.still_out.iter().map(|(_, slots)| slots).sum();
            assert_eq!(out, parts.leases.iter().flatten().count(), "{order:?}, {close:?}");
            assert!(pool.try_lease(64).is_err(), "a closed pool leases nothing");
            closed = true;
        }
        parts.verify();
        if parts.is_over(closed) {
            assert_settles(&before);
        } else {
            assert_ne!(Readings::now(), before, "{order:?}, {close:?}: after {dropped} drops");
        }
        parts.drop_part(part);
    }
    assert!(parts.is_over(closed));
    assert_settles(&before);
}

/// The memory is gone at once; the pool's thread ends a moment after the last lease, which waits for
/// nothing.
fn assert_settles(before: &Readings) {
    let limit = Instant::now() + Duration::from_secs(10);
    while Readings::now() != *before && Instant::now() < limit {
        std::thread::yield_now();
    }
    assert_eq!(Readings::now(), *before);
}

#[test]
fn every_order_of_dropping_keeps_memory_until_the_last_lease_and_none_after() {
    alone("every_order_of_dropping_keeps_memory_until_the_last_lease_and_none_after", || {
        assert_eq!(orders().len(), 24);
        // The C library keeps the stack of the first thread that ends.
        drop(builder().open().unwrap());
        let closes =
            [Close::Never, Close::First, Close::After(1), Close::After(2), Close::After(3)];
        let mut seed = 0;
        for round in 0..8 {
            for order in orders() {
                for close in closes {
                    seed += 1;
                    drop_in_order(order, close, seed);
                }
            }
            assert_eq!(seed, (round + 1) * 24 * closes.len() as u64);
        }
    });
}

/// The last lease comes home on another thread than the one that opened the pool.
#[test]
fn the_last_lease_can_come_home_on_any_thread() {
    alone("the_last_lease_can_come_home_on_any_thread", || {
        let send = |parts: Vec<Lease>| {
            let thread = std::thread::spawn(move || {
                for lease in &parts {
                    stamp::verify(lease.as_slice(), 9);
                }
                drop(parts);
            });
            thread.join().unwrap();
        };
        let life = || {
            let pool = builder().open().unwrap();
            let leases = [64, 64, 8192, 64, 8192, 8192].map(|bytes| {
                let mut lease = pool.try_lease(bytes).unwrap();
                stamp::write_slot(&mut lease, 9);
                lease
            });
            drop(pool);
            send(leases.into());
        };
        let settled = |threads| {
            let limit = Instant::now() + Duration::from_secs(10);
            while proc::threads() != threads && Instant::now() < limit {
                std::thread::yield_now();
            }
            Readings::now()
        };
        let threads = proc::threads();
        (0..10).for_each(|_| life());
        let before = settled(threads);
        (0..100).for_each(|_| life());
        let after = settled(threads);
        // The C library keeps the stacks of a few threads that ended, more or fewer of them.
        assert!(after.maps <= before.maps + 4, "{before:?}, then {after:?}");
        assert_eq!(Readings { maps: before.maps, ..after }, before);
    });
}

/// A forgotten lease keeps its class's memory and the pool's thread, which sleeps; nothing else.
#[test]
fn a_forgotten_lease_costs_its_class_and_is_reported() {
    alone("a_forgotten_lease_costs_its_class_and_is_reported", || {
        drop(builder().open().unwrap());
        let before = Readings::now();
        let pool = builder().open().unwrap();
        std::mem::forget(pool.try_lease(8192).unwrap());
        let report = pool.close(Duration::from_millis(1));
        assert!(!report.is_complete());
        let [(name, 1)] = report.still_out[..] else { panic!("one slot is out: {report:?}") };
        assert_eq!(name.as_str(), "large");
        assert_eq!(pool.stats().mapped_bytes, 3 * 8192);
        let locked = pool.stats().pinned_bytes;
        drop(pool);
        assert_eq!(proc::locked_bytes() - before.locked_bytes, locked);
        assert_eq!(proc::threads(), before.threads + 1);
        if proc::lock_mode_for(BYTES) == LockMode::Try {
            support::not_run("locked bytes of a forgotten lease: the limit is too small");
        } else {
            assert_eq!(locked, 3 * 8192);
        }
    });
}
