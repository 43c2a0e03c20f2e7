//! Every number of the statistics: what moves it, by how much, and that nothing else does.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pinpool::{
    ClassConfig, ClassStats, Fence, FenceError, FenceStatus, Heap, Lease, LeaseError, LeaseFuture,
    ManualFence, MemoryStep, OnEmpty, Pool, PoolBuilder, PoolStats,
};
use pinpool_testkit::sampler::Sampler;
use pinpool_testkit::scripted::{Fault, FaultLog, Faulty};
use pinpool_testkit::soon::{HANG, until};

use crate::{assert_all_home, builder, counted, stats};

const BYTES: usize = 4096;

/// All numbers of a pool by their names. Times are 1 once they are not zero.
fn numbers(stats: &PoolStats) -> BTreeMap<String, u64> {
    let PoolStats { pinned_bytes, mapped_bytes, stuck_bytes, pageable_bytes, .. } = stats;
    let pool = [
        ("pinned_bytes", *pinned_bytes),
        ("mapped_bytes", *mapped_bytes),
        ("stuck_bytes", *stuck_bytes),
        ("pageable_bytes", *pageable_bytes),
        ("driver_failures", stats.driver_failures as u64),
        ("cap_bytes", stats.cap_bytes),
    ];
    let classes = stats.classes.iter().flat_map(|class| {
        let named = of_class(class).into_iter();
        named.map(|(name, number)| (format!("{}.{name}", class.name), number))
    });
    pool.into_iter().map(|(name, number)| (name.to_owned(), number)).chain(classes).collect()
}

fn of_class(class: &ClassStats) -> [(&'static str, u64); 29] {
    let moved = |time: Duration| u64::from(!time.is_zero());
    [
        ("slots", class.slots.into()),
        ("grown", class.grown.into()),
        ("pageable", class.pageable.into()),
        ("free", class.free.into()),
        ("reserved", class.reserved.into()),
        ("leased", class.leased.into()),
        ("in_flight", class.in_flight.into()),
        ("quarantined", class.quarantined.into()),
        ("waiting", class.waiting as u64),
        ("oldest_in_flight", class.oldest_in_flight.is_some().into()),
        ("high_water", class.high_water.into()),
        ("leases_total", class.leases_total),
        ("landed_total", class.landed_total),
        ("misses_total", class.misses_total),
        ("waits_total", class.waits_total),
        ("timeouts_total", class.timeouts_total),
        ("cancelled_total", class.cancelled_total),
        ("waited_total", moved(class.waited_total)),
        ("longest_wait", moved(class.longest_wait)),
        ("spilled_total", class.spilled_total),
        ("pageable_total", class.pageable_total),
        ("grown_total", class.grown_total),
        ("grow_failures_total", class.grow_failures_total),
        ("trimmed_total", class.trimmed_total),
        ("leaks_total", class.leaks_total),
        ("overruns_total", class.overruns_total),
        ("late_writes_total", class.late_writes_total),
        ("stale_returns_total", class.stale_returns_total),
        ("slot_bytes", class.slot_bytes as u64),
    ]
}

/// A pool of its own for one event, and the numbers before and after it.
struct World {
    pool: Pool,
    faults: FaultLog,
    seen: RefCell<Vec<BTreeMap<String, u64>>>,
}

impl World {
    fn open(class: ClassConfig, leak_after: Option<Duration>) -> Self {
        let (memory, faults) = Faulty::new(Heap::claiming_locked(), Fault::nth(u64::MAX));
        let pool = builder().memory(memory).max_pinned(1 << 30).class_config(class);
        let pool = leak_after.into_iter().fold(pool, PoolBuilder::leak_after);
        let pool = pool.class("b", 2 * BYTES, 1).open().unwrap();
        Self { pool, faults, seen: RefCell::default() }
    }

    /// What happens here is what the numbers are about.
    fn event<T>(&self, happens: impl FnOnce() -> T) -> T {
        let look = || self.seen.borrow_mut().push(numbers(&self.pool.stats()));
        look();
        let result = happens();
        look();
        result
    }

    /// What moved, and by how much.
    fn moved(&self) -> BTreeMap<String, i64> {
        let seen = self.seen.borrow();
        let [before, after] = &seen[..] else { panic!("one event at a time") };
        let by = |name: &String| after[name].cast_signed() - before[name].cast_signed();
        let moved = before.keys().map(|name| (name.clone(), by(name)));
        moved.filter(|(_, by)| *by != 0).collect()
    }

    fn held(&self, count: usize) -> Vec<Lease> {
        (0..count).map(|_| self.pool.try_lease(BYTES).unwrap()).collect()
    }

    fn a(&self) -> ClassStats {
        stats(&self.pool, "a")
    }
}

/// Its name, the class that it happens to, how it happens, and what moves by how much.
type Event = (&'static str, fn() -> ClassConfig, fn(&World), &'static [(&'static str, i64)]);

fn plain() -> ClassConfig {
    ClassConfig::new("a", BYTES, 2)
}

fn reserved() -> ClassConfig {
    plain().reserve(1)
}

fn spilling() -> ClassConfig {
    plain().max_spill(2)
}

fn growing() -> ClassConfig {
    let idle = Duration::from_secs(3600);
    plain().on_empty(OnEmpty::Grow).grow_at(0).grow_by(1).grow_max(1).idle_after(idle)
}

fn pageable() -> ClassConfig {
    plain().on_empty(OnEmpty::Pageable).pageable_max(1).idle_after(Duration::from_secs(3600))
}

const LEASES: &[Event] = &[
    (
        "a hit",
        plain,
        |world| drop(world.event(|| world.held(1))),
        &[("a.free", -1), ("a.leased", 1), ("a.leases_total", 1), ("a.high_water", 1)],
    ),
    (
        "a hit of another class",
        plain,
        |world| drop(world.event(|| world.pool.try_lease(BYTES + 1))),
        &[("b.free", -1), ("b.leased", 1), ("b.leases_total", 1), ("b.high_water", 1)],
    ),
    (
        "a return",
        plain,
        |world| {
            let held = world.held(1);
            world.event(|| drop(held));
        },
        &[("a.free", 1), ("a.leased", -1)],
    ),
    (
        "several at once",
        plain,
        |world| drop(world.event(|| world.pool.lease_many(&[BYTES; 2]).unwrap())),
        &[("a.free", -2), ("a.leased", 2), ("a.leases_total", 2), ("a.high_water", 2)],
    ),
    (
        "a miss",
        plain,
        |world| {
            let _held = world.held(2);
            world.event(|| assert!(world.pool.try_lease(BYTES).is_err()));
        },
        &[("a.misses_total", 1)],
    ),
    (
        "several that are not all there: one was out for a moment, but not leased",
        plain,
        |world| {
            let _held = world.held(1);
            world.event(|| assert!(world.pool.try_lease_many(&[BYTES; 2]).is_err()));
        },
        &[("a.misses_total", 1), ("a.high_water", 1)],
    ),
    (
        "what no class can give",
        plain,
        |world| {
            world.event(|| {
                let refused = [&[0][..], &[BYTES, 3 * BYTES], &[BYTES; 3]];
                assert!(refused.iter().all(|sizes| world.pool.lease_many(sizes).is_err()));
                assert!(world.pool.try_lease(0).is_err() && world.pool.lease(3 * BYTES).is_err());
            });
        },
        &[],
    ),
    (
        "a lease of the reserve",
        reserved,
        |world| {
            let _held = world.held(1);
            drop(world.event(|| world.pool.try_lease_priority(BYTES).unwrap()));
        },
        &[
            ("a.free", -1),
            ("a.reserved", -1),
            ("a.leased", 1),
            ("a.leases_total", 1),
            ("a.high_water", 1),
        ],
    ),
    (
        "a spill",
        spilling,
        |world| {
            let _held = world.held(2);
            drop(world.event(|| world.pool.try_lease(BYTES).unwrap()));
        },
        &[
            ("a.spilled_total", 1),
            ("b.free", -1),
            ("b.leased", 1),
            ("b.leases_total", 1),
            ("b.high_water", 1),
        ],
    ),
];

const WAITS: &[Event] = &[
    (
        "a task gets in line",
        plain,
        |world| {
            let _held = world.held(2);
            let mut task = world.pool.lease_async(BYTES);
            world.event(|| assert!(poll(&mut task).is_pending()));
        },
        &[("a.waiting", 1), ("a.waits_total", 1), ("a.misses_total", 1)],
    ),
    (
        "a wait that ends with a slot",
        plain,
        |world| {
            let mut held = world.held(2);
            let mut task = world.pool.lease_async(BYTES);
            drop(world.event(|| {
                assert!(poll(&mut task).is_pending());
                std::thread::sleep(Duration::from_millis(1));
                held.pop();
                poll(&mut task)
            }));
        },
        &[
            ("a.waits_total", 1),
            ("a.misses_total", 1),
            ("a.leases_total", 1),
            ("a.waited_total", 1),
            ("a.longest_wait", 1),
        ],
    ),
    (
        "a timeout",
        plain,
        |world| {
            let _held = world.held(2);
            world.event(|| assert!(world.pool.lease_timeout(BYTES, MOMENT).is_err()));
        },
        &[
            ("a.waits_total", 1),
            ("a.timeouts_total", 1),
            ("a.misses_total", 1),
            ("a.waited_total", 1),
            ("a.longest_wait", 1),
        ],
    ),
    (
        "a task that gives up",
        plain,
        |world| {
            let _held = world.held(2);
            let mut task = world.pool.lease_async(BYTES);
            assert!(poll(&mut task).is_pending());
            world.event(|| drop(task));
        },
        &[("a.waiting", -1), ("a.cancelled_total", 1)],
    ),
];

const WORK: &[Event] = &[
    (
        "a lease is retired",
        plain,
        |world| {
            let mut held = world.held(1);
            let fence = ManualFence::new();
            world.event(|| held.remove(0).retire_after(fence.clone()));
        },
        &[("a.leased", -1), ("a.in_flight", 1), ("a.oldest_in_flight", 1)],
    ),
    (
        "retired work ends",
        plain,
        |world| {
            let fence = ManualFence::new();
            world.held(1).remove(0).retire_after(fence.clone());
            world.event(|| {
                fence.complete();
                until("it lands", || world.a().free == 2);
            });
        },
        &[("a.free", 1), ("a.in_flight", -1), ("a.oldest_in_flight", -1), ("a.landed_total", 1)],
    ),
    (
        "held work ends",
        plain,
        |world| {
            let fence = ManualFence::new();
            let flight = world.held(1).remove(0).in_flight_until(fence.clone());
            fence.complete();
            drop(world.event(|| flight.wait().unwrap()));
        },
        &[("a.leased", 1), ("a.in_flight", -1), ("a.oldest_in_flight", -1), ("a.landed_total", 1)],
    ),
    (
        "work fails",
        plain,
        |world| {
            let fence = ManualFence::new();
            world.held(1).remove(0).retire_after(fence.clone());
            world.event(|| {
                fence.fail("planted");
                until("it is lost", || world.a().quarantined == 1);
            });
        },
        &[
            ("a.quarantined", 1),
            ("a.in_flight", -1),
            ("a.oldest_in_flight", -1),
            ("a.landed_total", 1),
        ],
    ),
];

const ADDED: &[Event] = &[
    (
        "a pageable buffer",
        pageable,
        |world| {
            let _held = world.held(2);
            drop(world.event(|| world.held(1)));
        },
        &[
            ("pageable_bytes", 4096),
            ("a.slots", 1),
            ("a.pageable", 1),
            ("a.pageable_total", 1),
            ("a.leased", 1),
            ("a.leases_total", 1),
            ("a.high_water", 1),
        ],
    ),
    (
        "pageable buffers are trimmed",
        pageable,
        |world| {
            drop(world.held(3));
            world.event(|| assert_eq!(world.pool.trim(), 4096));
        },
        &[("pageable_bytes", -4096)],
    ),
    (
        "growth ahead of need",
        growing,
        |world| {
            drop(world.event(|| {
                let held = world.held(2);
                until("it grows", || world.a().grown_total == 1);
                held
            }));
        },
        &[
            ("pinned_bytes", 4096),
            ("mapped_bytes", 4096),
            ("a.slots", 1),
            ("a.grown", 1),
            ("a.grown_total", 1),
            ("a.free", -1),
            ("a.leased", 2),
            ("a.leases_total", 2),
            ("a.high_water", 2),
        ],
    ),
    (
        "a grown slab is trimmed",
        growing,
        |world| {
            let held = world.held(2);
            until("it grows", || world.a().grown_total == 1);
            drop(held);
            world.event(|| assert_eq!(world.pool.trim(), 4096));
        },
        &[
            ("pinned_bytes", -4096),
            ("mapped_bytes", -4096),
            ("a.slots", -1),
            ("a.grown", -1),
            ("a.trimmed_total", 1),
            ("a.free", -1),
        ],
    ),
    (
        "growth fails",
        growing,
        |world| {
            world.faults.arm(Some(Fault::nth(1).of(MemoryStep::Pin).persistent()));
            drop(world.event(|| {
                let held = world.held(2);
                until("it fails", || world.a().grow_failures_total == 1);
                held
            }));
        },
        &[
            ("a.grow_failures_total", 1),
            ("a.free", -2),
            ("a.leased", 2),
            ("a.leases_total", 2),
            ("a.high_water", 2),
        ],
    ),
    (
        "an unpin fails: its bytes stay, and count as pinned",
        growing,
        |world| {
            let held = world.held(2);
            until("it grows", || world.a().grown_total == 1);
            drop(held);
            world.faults.arm(Some(Fault::nth(1).of(MemoryStep::Unpin)));
            world.event(|| world.pool.trim());
        },
        &[
            ("stuck_bytes", 4096),
            ("a.slots", -1),
            ("a.grown", -1),
            ("a.trimmed_total", 1),
            ("a.free", -1),
        ],
    ),
];

/// Kind of fault: a count that was never wired shows nothing for ever.
///
/// Each event happens once in a pool of its own; every number of the pool and of both its classes is
/// looked at, so that what must not move is checked with what must.
///
/// Case stats-2.
#[test]
fn each_event_moves_its_own_numbers_and_no_others() {
    for (name, class, run, moves) in [LEASES, WAITS, WORK, ADDED].concat() {
        let world = World::open(class(), None);
        run(&world);
        let wanted: BTreeMap<_, _> = moves.iter().map(|(n, by)| ((*n).to_owned(), *by)).collect();
        assert_eq!(world.moved(), wanted, "{name}");
    }
}

/// A lease that is held for too long is counted once, as a leak of its class.
///
/// Case stats-2.
#[test]
fn a_leak_is_counted_once() {
    let world = World::open(plain(), Some(Duration::from_millis(60)));
    let held = world.held(1);
    world.event(|| {
        until("it is reported", || world.a().leaks_total == 1);
        std::thread::sleep(Duration::from_millis(150));
    });
    assert_eq!(world.moved(), BTreeMap::from([("a.leaks_total".to_owned(), 1)]));
    drop(held);
}

/// What a hardened pool finds is counted: a write past the end, and one into a slot that was returned.
///
/// Case stats-2.
#[cfg(feature = "debug-checks")]
#[test]
fn each_finding_of_a_hardened_pool_is_counted_once() {
    for late in [false, true] {
        let pool = builder().memory(Heap::new()).debug_checks(true).class("a", BYTES, 1);
        let pool = pool.open().unwrap();
        let mut lease = pool.try_lease(BYTES).unwrap();
        let start = lease.as_mut_ptr();
        if !late {
            let past = start.wrapping_add(BYTES);
            // SAFETY: the byte is within the slab, in the canary that this pool keeps.
            unsafe { past.write(1) };
        }
        drop(lease);
        until("it is washed", || stats(&pool, "a").free == 1);
        if late {
            // SAFETY: the byte is in the slab, which is mapped; nobody else uses it at this moment.
            unsafe { start.write(1) };
        }
        assert_eq!(pool.try_lease(BYTES).is_err(), late, "what was written late is out of use");
        let class = stats(&pool, "a");
        let found = (class.overruns_total, class.late_writes_total, class.quarantined);
        assert_eq!(found, if late { (0, 1, 1) } else { (1, 0, 0) });
    }
}

/// Kind of fault: a count of what is in use that never fell on one of two paths.
///
/// With and without work in flight, awaited, retired, failed or shared, on classes of every policy, a
/// sampler finds the numbers balanced at every look, and at the end nothing is leased.
///
/// Case stats-1.
#[test]
fn the_numbers_balance_all_the_time() {
    const ROUNDS: usize = 1_000;
    let idle = Duration::from_millis(1);
    let (pool, ledger) = counted([
        ClassConfig::new("plain", 64, 3),
        ClassConfig::new("reserve", 128, 3).reserve(1).max_spill(4),
        ClassConfig::new("grow", 256, 2).on_empty(OnEmpty::Grow).grow_max(4).idle_after(idle),
        ClassConfig::new("pageable", 512, 2).on_empty(OnEmpty::Pageable).idle_after(idle),
    ]);
    let sampler = Sampler::start(&pool);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let size = 64 << ((round + thread) % 4);
                    let lease = pool.lease_timeout(size, HANG).unwrap();
                    let fence = ManualFence::new();
                    match round % 6 {
                        0 | 1 => drop(lease),
                        2 => {
                            lease.retire_after(fence.clone());
                            fence.complete();
                        }
                        3 => {
                            let flight = lease.in_flight_until(fence.clone());
                            fence.complete();
                            drop(flight.wait().unwrap());
                        }
                        4 => {
                            let shared = lease.share();
                            shared.clone().retire_after(fence.clone());
                            fence.complete();
                            drop(shared);
                        }
                        _ => drop(lease.in_flight_until(Over)),
                    }
                }
            });
        }
    });
    until("all is home", || pool.stats().classes.iter().all(|class| class.free == class.slots));
    assert!(sampler.stop() > 10);
    let classes = pool.stats().classes;
    assert!(classes.iter().all(|class| (class.leased, class.in_flight) == (0, 0)));
    let leases: u64 = classes.iter().map(|class| class.leases_total).sum();
    assert_eq!(leases, 3 * ROUNDS as u64);
    assert_all_home(pool, &ledger);
}

/// Work that is over as soon as anybody asks.
#[derive(Debug)]
struct Over;

impl Fence for Over {
    fn poll(&self) -> Result<FenceStatus, FenceError> {
        Ok(FenceStatus::Complete)
    }
}

fn poll(task: &mut LeaseFuture) -> Poll<Result<Lease, LeaseError>> {
    Pin::new(task).poll(&mut Context::from_waker(Waker::noop()))
}

/// Long enough to be a wait.
const MOMENT: Duration = Duration::from_millis(2);
