//! Every number of the statistics: what moves it, by how much, and that nothing else does.

mod events;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use pinpool::{
    ClassConfig, ClassStats, Fence, FenceError, FenceStatus, Heap, Lease, ManualFence, OnEmpty,
    Pool, PoolBuilder, PoolStats,
};
use pinpool_testkit::sampler::{Sampler, fault};
use pinpool_testkit::scripted::{Fault, FaultLog, Faulty};
use pinpool_testkit::soon::{HANG, until};

use crate::{assert_all_home, builder, counted, stats};
use events::{ADDED, LEASES, WAITS, WORK, plain};

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
                    if round % 16 == 0 {
                        let found = pool.stats().classes.iter().find_map(|now| fault(now, now));
                        assert_eq!(found, None);
                    }
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
    sampler.stop();
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
