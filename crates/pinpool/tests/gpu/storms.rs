//! Long runs: everything comes home, nothing grows, and one bad fence holds up nobody.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pinpool::{BackendChoice, LeaseError, ManualFence, Pool};
use pinpool_testkit::{proc, stamp};

use crate::support::*;
use crate::{Check, check};

pub(crate) const ALL: &[Check] = &[
    check("a_thousand_dropped_copies_are_not_overwritten", a_thousand_dropped_copies),
    check("stamped_copies_over_eight_streams_arrive_whole", stamped_copies_over_eight_streams),
    check("fences_completed_by_host_functions_leak_nothing", fences_completed_by_host_functions),
    check("rounds_without_end_leave_no_events_behind", rounds_without_end),
    check("a_fence_that_never_completes_costs_one_slot", a_fence_that_never_completes),
    check("host_functions_and_other_pools_do_not_deadlock", host_functions_and_other_pools),
];

/// Resident memory may grow by so much over a long run: allocators keep some.
const DRIFT_MAX: u64 = 5 << 20;

/// Runs `rounds` after a tenth as many to warm up, and checks that memory did not grow meanwhile.
fn without_drift(rounds: usize, mut run: impl FnMut(usize)) {
    run(rounds / 10);
    let before = proc::resident_bytes();
    run(rounds);
    let more = proc::resident_bytes().saturating_sub(before);
    println!("resident memory grew by {} KiB in {rounds} rounds", more >> 10);
    assert!(more < DRIFT_MAX, "resident memory grew by {more} bytes in {rounds} rounds");
}

fn a_thousand_dropped_copies() {
    let pool = pool(4096, 2);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 4096);
    for round in 0..1000 {
        let gate = Gate::close_now(&stream);
        let mut lease = pool.try_lease(4096).unwrap_or_else(|error| panic!("{round}: {error}"));
        let address = lease.as_ptr();
        stamp::write(lease.as_mut_slice(), round);
        drop(lease.upload(&stream, &mut device).expect("queued"));
        let mut other = pool.try_lease(4096).expect("the other slot");
        assert_ne!(other.as_ptr(), address, "round {round}: the slot is in flight");
        other.as_mut_slice().fill(0x55);
        gate.open();
        stream.synchronize().expect("idle");
        let mut again = pool.try_lease(4096).expect("the copy is over");
        assert_eq!(again.as_ptr(), address, "round {round}: there is no third slot");
        again.as_mut_slice().fill(0x66);
        stamp::verify(&on_device(&stream, &device), round);
    }
    no_harm_done();
}

/// A small generator: the sizes need to be mixed, not random.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    *state >> 33
}

/// From 4 KiB to 6 MiB, the small ones more often.
fn some_size(state: &mut u64) -> usize {
    let dice = next(state) % 20;
    let (least, most) = match dice {
        0..10 => (4 << 10, 16 << 10),
        10..16 => (16 << 10, 64 << 10),
        16..19 => (64 << 10, 1 << 20),
        _ => (1 << 20, LARGEST),
    };
    least + next(state) as usize % (most - least + 1)
}

const LARGEST: usize = 6 << 20;

fn stamped_copies_over_eight_streams() {
    const STREAMS: u64 = 8;
    let pool = Pool::builder()
        .env(false)
        .backend(BackendChoice::Cuda)
        .class("16k", 16 << 10, 12)
        .class("64k", 64 << 10, 10)
        .class("1m", 1 << 20, 9)
        .class("6m", LARGEST, 9)
        .class("back", LARGEST + 4096, 8)
        .open()
        .expect("a cuda pool opens");
    let copies = rounds(200_000, 2000);
    let (done, start) = (AtomicUsize::new(0), Instant::now());
    std::thread::scope(|scope| {
        for thread in 0..STREAMS {
            let (pool, done) = (&pool, &done);
            scope.spawn(move || {
                let stream = stream(pool);
                let mut dice = thread;
                let mut ring: Vec<_> = (0..4).map(|_| device_memory(&stream, LARGEST)).collect();
                // The slowest machine copies for a quarter of a minute.
                while done.load(Ordering::Relaxed) < copies
                    && start.elapsed() < Duration::from_secs(15)
                {
                    let sent: Vec<_> = ring
                        .iter_mut()
                        .map(|target| {
                            let owner = thread << 32 | next(&mut dice);
                            let bytes = some_size(&mut dice);
                            let mut lease = pool.lease_timeout(bytes, HANG).expect("a slot");
                            stamp::write(lease.as_mut_slice(), owner);
                            drop(lease.upload(&stream, target).expect("queued"));
                            (owner, bytes)
                        })
                        .collect();
                    for (target, (owner, bytes)) in ring.iter().zip(sent) {
                        let lease = pool.lease_timeout(LARGEST + 1, HANG).expect("a slot");
                        let flight = lease.download(&target.slice(..bytes), &stream);
                        let lease = flight.expect("queued").wait().expect("copied");
                        stamp::verify(lease.as_slice(), owner);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    println!("{} copies verified in {:?}", done.load(Ordering::Relaxed), start.elapsed());
    all_home(&pool);
    no_harm_done();
}

fn fences_completed_by_host_functions() {
    let pool = pool(4096, 16);
    let stream = stream(&pool);
    let mut device = unwatched_memory(&stream, 4096);
    without_drift(rounds(20_000, 20_000), |rounds| {
        for round in 0..rounds {
            let lease = filled(&pool, 4096, round as u8);
            match round % 3 {
                0 => drop(lease.upload(&stream, &mut device).expect("queued")),
                1 => lease.retire_after(complete_behind(&stream)),
                _ => {
                    stream.memcpy_htod(&lease, &mut device).expect("queued");
                    lease.retire_after(complete_behind(&stream));
                }
            }
        }
        stream.synchronize().expect("idle");
    });
    all_home(&pool);
    assert_eq!(class(&pool).leases_total, 22_000);
    no_harm_done();
}

/// At most sixteen copies are under way, so that a few events do for all.
fn rounds_without_end() {
    let pool = pool(4096, 16);
    let stream = stream(&pool);
    let mut device = unwatched_memory(&stream, 64);
    let before = software().map(|driver| driver.live_events());
    without_drift(rounds(1_000_000, 300_000), |rounds| {
        for _ in 0..rounds {
            let lease = pool.lease_timeout(64, HANG).expect("a slot in time");
            drop(lease.upload(&stream, &mut device).expect("queued"));
        }
    });
    all_home(&pool);
    if let (Some(driver), Some(before)) = (software(), before) {
        let more = driver.live_events() - before;
        println!("{more} events for sixteen copies at a time");
        assert!(more <= 32, "{more} events are left");
        drop(pool);
        until("the events go with the pool", || driver.live_events() <= before);
    }
    no_harm_done();
}

fn a_fence_that_never_completes() {
    let pool = pool(4096, 64);
    let stream = stream(&pool);
    let mut device = unwatched_memory(&stream, 4096);
    let never = ManualFence::new();
    filled(&pool, 4096, 0).retire_after(never.clone());
    let mut oldest = Duration::ZERO;
    for round in 0..10_000_u32 {
        drop(
            filled(&pool, 4096, (round % 256) as u8).upload(&stream, &mut device).expect("queued"),
        );
        if round % 1000 == 999 {
            let class = class(&pool);
            let age = class.oldest_in_flight.expect("one is in flight");
            assert!(class.in_flight >= 1 && age > oldest, "round {round}: {class:?}");
            oldest = age;
        }
    }
    stream.synchronize().expect("idle");
    let held: Vec<_> = (0..63)
        .map(|at| pool.try_lease(4096).unwrap_or_else(|error| panic!("slot {at}: {error}")))
        .collect();
    match pool.try_lease(4096).expect_err("the last one is in flight") {
        LeaseError::Exhausted(exhausted) => assert_eq!(exhausted.in_flight, 1),
        other => panic!("not exhausted: {other}"),
    }
    drop(held);
    assert_eq!(counts(&pool), (63, 0, 1, 0));
    never.complete();
    all_home(&pool);
    assert_eq!(class(&pool).oldest_in_flight, None);
}

/// A driver that runs a host function may hold locks of its own: a pool that waited in there for a
/// lock under which it calls the driver would never come out.
fn host_functions_and_other_pools() {
    let pool = pool(4096, 6);
    let (copies, pools) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let start = Instant::now();
    let over = || start.elapsed() > Duration::from_millis(2500);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over() {
                let other = crate::support::pool(256 << 10, 4);
                drop(other.try_lease(1));
                assert!(other.close(HANG).is_complete());
                pools.fetch_add(1, Ordering::Relaxed);
            }
        });
        for thread in 0..4_u8 {
            let (pool, over, copies) = (&pool, &over, &copies);
            scope.spawn(move || {
                let stream = stream(pool);
                let mut device = device_memory(&stream, 4096);
                let mut round = 0_u8;
                while !over() {
                    round = round.wrapping_add(1);
                    let value = round.wrapping_mul(4).wrapping_add(thread);
                    let lease = filled(pool, 4096, value);
                    if round.is_multiple_of(2) {
                        stream.memcpy_htod(&lease, &mut device).expect("queued");
                        lease.retire_after(complete_behind(&stream));
                    } else {
                        drop(lease.upload(&stream, &mut device).expect("queued"));
                    }
                    if round.is_multiple_of(16) {
                        assert_filled(&stream, &device, value);
                    }
                    copies.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (copies, pools) = (copies.into_inner(), pools.into_inner());
    println!("{copies} copies beside {pools} other pools");
    assert!(copies > 0 && pools > 0);
    all_home(&pool);
    no_harm_done();
}
