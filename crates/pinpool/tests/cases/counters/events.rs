//! The events: how each happens, and what it moves.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pinpool::{ClassConfig, Lease, LeaseError, LeaseFuture, ManualFence, MemoryStep, OnEmpty};
use pinpool_testkit::scripted::Fault;
use pinpool_testkit::soon::until;

use super::{BYTES, Event};

pub(super) fn plain() -> ClassConfig {
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

pub(super) const LEASES: &[Event] = &[
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

pub(super) const WAITS: &[Event] = &[
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

pub(super) const WORK: &[Event] = &[
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

pub(super) const ADDED: &[Event] = &[
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

fn poll(task: &mut LeaseFuture) -> Poll<Result<Lease, LeaseError>> {
    Pin::new(task).poll(&mut Context::from_waker(Waker::noop()))
}

/// Long enough to be a wait.
const MOMENT: Duration = Duration::from_millis(2);
