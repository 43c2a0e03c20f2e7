//! The line of waiters: who came first is served first, whatever it is, and nobody passes it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pinpool::{ClassConfig, Heap, Lease, LeaseError, ManualFence, Pool};
use pinpool_testkit::soon::{HANG, until};
use pinpool_testkit::stamp;

use crate::tasks::block_on;
use crate::{assert_all_home, builder, counted, stats, until_in_line};

const SIZE: usize = 512;

fn frames(count: usize) -> ClassConfig {
    ClassConfig::new("frame", SIZE, count)
}

/// Every way to wait for one slot.
type Way = fn(&Pool, usize) -> Result<Lease, LeaseError>;
const WAYS: [Way; 6] = [
    |pool, size| pool.lease(size),
    |pool, size| pool.lease_timeout(size, HANG),
    |pool, size| pool.lease_deadline(size, Instant::now() + HANG),
    |pool, size| block_on(pool.lease_async(size)),
    |pool, size| pool.lease_many(&[size]).map(|mut leases| leases.remove(0)),
    |pool, size| pool.lease_of::<u32>(size / 4).map(|lease| lease.cast().unwrap()),
];

/// Kind of fault: an unfair hand-over, by which some waited a thousand times as long as others.
///
/// Each class has one slot; its waiters come one by one, each in another way, while thieves ask for the
/// slot without waiting. The slot goes through the line in the order of arrival, and a thief gets it
/// only behind the last.
///
/// Case wake-3.
#[test]
fn waiters_are_served_in_the_order_in_which_they_came() {
    const EACH: usize = 24;
    let sizes = [64, 512, 4096];
    let (pool, ledger) = counted(sizes.map(|size| ClassConfig::new(format!("c{size}"), size, 1)));
    let served: Vec<Mutex<Vec<usize>>> = sizes.iter().map(|_| Mutex::default()).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let held = sizes.map(|size| pool.try_lease(size).unwrap());
        for place in 0..EACH {
            for (size, served) in sizes.iter().zip(&served) {
                let pool = &pool;
                scope.spawn(move || {
                    let lease = WAYS[place % WAYS.len()](pool, *size).unwrap();
                    served.lock().unwrap().push(place);
                    drop(lease);
                });
                until_in_line(pool, &format!("c{size}"), place + 1);
            }
        }
        let thief = scope.spawn(|| {
            let mut stolen = [None; 3];
            while !over.load(Ordering::Acquire) {
                for ((size, served), stolen) in sizes.iter().zip(&served).zip(&mut stolen) {
                    if let Ok(_lease) = pool.try_lease(*size) {
                        stolen.get_or_insert(served.lock().unwrap().len());
                    }
                }
            }
            stolen
        });
        drop(held);
        for served in &served {
            until("all are served", || served.lock().unwrap().len() == EACH);
        }
        over.store(true, Ordering::Release);
        for stolen in thief.join().unwrap() {
            assert!(stolen.is_none_or(|behind| behind == EACH), "a thief passed {stolen:?}");
        }
    });
    for served in &served {
        assert_eq!(*served.lock().unwrap(), (0..EACH).collect::<Vec<_>>());
    }
    for size in sizes {
        let class = stats(&pool, &format!("c{size}"));
        assert_eq!((class.waits_total, class.timeouts_total), (EACH as u64, 0));
    }
    assert_all_home(pool, &ledger);
}

/// Nothing is free and one who waits is in line: whoever looks finds nothing, before the slot comes,
/// when it does, and while the waiter has it; of a slot in flight, too.
#[test]
fn a_look_never_overtakes_a_waiter() {
    let (pool, ledger) = counted([frames(1)]);
    for round in 0..200 {
        let held = pool.try_lease(SIZE).unwrap();
        let served = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let lease = WAYS[round % WAYS.len()](&pool, SIZE).unwrap();
                served.store(true, Ordering::Release);
                drop(lease);
            });
            until_in_line(&pool, "frame", 1);
            let fence = ManualFence::new();
            if round % 2 == 0 {
                drop(held);
            } else {
                held.retire_after(fence.clone());
                assert!(pool.try_lease(SIZE).is_err());
                fence.complete();
            }
            while !served.load(Ordering::Acquire) {
                let stolen = pool.try_lease(SIZE).or_else(|_| pool.try_lease_priority(SIZE));
                assert!(stolen.is_err() || served.load(Ordering::Acquire), "round {round}");
            }
        });
    }
    assert_all_home(pool, &ledger);
}

/// Kind of fault: a wake-up lost between the look and the sleep, once in hours.
///
/// Two who have one slot between them: each return finds the other in line, or just about to be.
///
/// Case wake-5.
#[test]
fn two_that_share_one_slot_never_stall() {
    const ROUNDS: u64 = 20_000;
    for pair in [[0, 0], [3, 3], [1, 3]] {
        let (pool, ledger) = counted([frames(1)]);
        let slowest = Mutex::new(Duration::ZERO);
        std::thread::scope(|scope| {
            for (me, way) in pair.into_iter().enumerate() {
                let (pool, slowest) = (&pool, &slowest);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let start = Instant::now();
                        let mut lease = WAYS[way](pool, SIZE).unwrap();
                        let waited = start.elapsed();
                        stamp::write_slot(&mut lease, (me as u64) << 32 | round);
                        stamp::verify(lease.as_slice(), (me as u64) << 32 | round);
                        drop(lease);
                        let mut slowest = slowest.lock().unwrap();
                        *slowest = waited.max(*slowest);
                    }
                });
            }
        });
        let slowest = slowest.into_inner().unwrap();
        assert!(slowest < HANG / 2, "{pair:?}: a stall of {slowest:?}");
        let class = stats(&pool, "frame");
        assert_eq!((class.leases_total, class.timeouts_total), (2 * ROUNDS, 0));
        assert_all_home(pool, &ledger);
    }
}

/// Kind of fault: one object with two owners, by a stale head of a lock-free stack; here with every way
/// to take, to wait, to give up and to return at once.
///
/// Case wake-4.
#[test]
fn eight_owners_of_three_slots_never_share_one() {
    const ROUNDS: u64 = 4_000;
    let (pool, ledger) = counted([frames(3)]);
    let [leases, misses] = [(); 2].map(|()| AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (pool, leases, misses) = (&pool, &leases, &misses);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let owner = thread << 32 | round;
                    let taken = match (owner.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) % 8 {
                        0 | 1 => pool.try_lease(SIZE).map(|lease| vec![lease]),
                        2 => pool.lease_timeout(SIZE, Duration::from_micros(50)).map(|l| vec![l]),
                        3 => pool.lease_many_timeout(&[SIZE; 2], Duration::from_millis(1)),
                        way => WAYS[way as usize - 2](pool, SIZE).map(|lease| vec![lease]),
                    };
                    let Ok(mut taken) = taken else {
                        misses.fetch_add(1, Ordering::Relaxed);
                        continue;
                    };
                    taken.iter_mut().for_each(|lease| stamp::write_slot(lease, owner));
                    if round % 4 == 0 {
                        std::thread::yield_now();
                    }
                    taken.iter().for_each(|lease| stamp::verify(lease.as_slice(), owner));
                    leases.fetch_add(1, Ordering::Relaxed);
                    for lease in taken {
                        let fence = ManualFence::new();
                        fence.complete();
                        if round % 3 == 0 { lease.retire_after(fence) } else { drop(lease) }
                    }
                }
            });
        }
    });
    assert_eq!(leases.into_inner() + misses.into_inner(), 8 * ROUNDS);
    assert_all_home(pool, &ledger);
}

/// Kind of fault: waiters with different needs share one condition, and the wrong one is woken.
///
/// Two classes of one slot with four waiters each, threads and tasks. A slot comes home by a drop, by
/// a fence that is over, or by one that ends later; each return serves one waiter of its class.
///
/// Case wake-2.
#[test]
fn every_kind_of_return_reaches_a_waiter_of_its_class() {
    const RETURNS: usize = 10_000;
    let classes = [ClassConfig::new("a", 64, 1), ClassConfig::new("b", 128, 1)];
    let (pool, ledger) = counted(classes);
    std::thread::scope(|scope| {
        let (send, fences) = std::sync::mpsc::channel::<ManualFence>();
        scope.spawn(move || fences.iter().for_each(|fence| fence.complete()));
        for waiter in 0..8 {
            let (pool, send) = (&pool, send.clone());
            scope.spawn(move || {
                let size = if waiter % 2 == 0 { 64 } else { 128 };
                for round in 0..RETURNS / 8 {
                    let start = Instant::now();
                    let lease = WAYS[(waiter + round) % WAYS.len()](pool, size).unwrap();
                    assert!(start.elapsed() < HANG / 2, "a waiter slept beside a free slot");
                    let fence = ManualFence::new();
                    match round % 3 {
                        0 => drop(lease),
                        1 => {
                            fence.complete();
                            lease.retire_after(fence);
                        }
                        _ => {
                            lease.retire_after(fence.clone());
                            send.send(fence).unwrap();
                        }
                    }
                }
            });
        }
        drop(send);
    });
    let numbers = pool.stats();
    assert!(numbers.classes.iter().all(|class| class.timeouts_total == 0), "{numbers}");
    assert_all_home(pool, &ledger);
}

/// Kind of fault: a taker that sleeps while it holds what returners need.
///
/// Case empty-2.
#[test]
fn sixteen_waiters_of_four_slots_all_get_on() {
    const ALL: u64 = 4_000;
    let (pool, ledger) = counted([frames(4)]);
    let counts: [AtomicU64; 16] = Default::default();
    std::thread::scope(|scope| {
        for (waiter, own) in counts.iter().enumerate() {
            let (pool, counts) = (&pool, &counts);
            scope.spawn(move || {
                while counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>() < ALL {
                    let lease = WAYS[waiter % WAYS.len()](pool, SIZE).unwrap();
                    std::thread::sleep(Duration::from_micros(100));
                    drop(lease);
                    own.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let counts = counts.map(AtomicU64::into_inner);
    // First come, first served: nobody is passed by the same other twice.
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(*least * 4 > *most, "some starve: {counts:?}");
    assert_all_home(pool, &ledger);
}

/// Kind of fault: nobody sees that work is over while the pool is empty and idle.
///
/// All slots are in flight and everybody who touches the pool waits: threads, tasks, and those who want
/// several. The ends of the work are seen, and each gets its slots.
///
/// Case empty-1.
#[test]
fn everybody_waits_and_all_get_the_slots_whose_work_ends() {
    const MIB: usize = 1 << 20;
    let pool = builder().memory(Heap::new()).class("frame", MIB, 8).open().unwrap();
    for pause in [0, 1, 50] {
        let fences: [ManualFence; 8] = Default::default();
        for fence in &fences {
            pool.lease(MIB).unwrap().retire_after(fence.clone());
        }
        std::thread::scope(|scope| {
            let pool = &pool;
            let waiters: Vec<_> = (0..WAYS.len())
                .map(|way| scope.spawn(move || WAYS[way](pool, MIB).map(drop)))
                .collect();
            let several = scope.spawn(|| pool.lease_many(&[MIB; 8]).map(|leases| leases.len()));
            until_in_line(pool, "frame", WAYS.len() + 1);
            std::thread::sleep(Duration::from_millis(pause));
            fences.iter().for_each(ManualFence::complete);
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), Ok(()));
            }
            assert_eq!(several.join().unwrap(), Ok(8));
        });
    }
    assert_eq!((stats(&pool, "frame").free, stats(&pool, "frame").timeouts_total), (8, 0));
}

/// Who may not wait looks once: at a free slot, and at one whose work is over.
#[test]
fn no_time_to_wait_is_one_look() {
    let (pool, ledger) = counted([frames(1)]);
    let past = Instant::now();
    std::thread::sleep(Duration::from_millis(2));
    let looks: [Way; 3] = [
        |pool, size| pool.lease_timeout(size, Duration::ZERO),
        |pool, size| pool.lease_priority_timeout(size, Duration::ZERO),
        |pool, size| pool.lease_many_timeout(&[size], Duration::ZERO).map(|mut l| l.remove(0)),
    ];
    let deadline = |pool: &Pool| pool.lease_deadline(SIZE, past);
    for (number, look) in looks.iter().enumerate() {
        let held = look(&pool, SIZE).unwrap();
        let waited = look(&pool, SIZE).unwrap_err();
        assert!(matches!(waited, LeaseError::Timeout { .. }), "look {number}: {waited}");
        assert!(matches!(deadline(&pool), Err(LeaseError::Timeout { .. })));
        let fence = ManualFence::new();
        held.retire_after(fence.clone());
        assert!(look(&pool, SIZE).is_err(), "look {number}: the work is not over");
        fence.complete();
        drop(look(&pool, SIZE).expect("the work is over"));
        drop(deadline(&pool).expect("it is free"));
    }
    let class = stats(&pool, "frame");
    assert_eq!((class.waiting, class.timeouts_total), (0, 9));
    assert_all_home(pool, &ledger);
}

/// A close ends every wait, whatever kind it is, with an error that says so.
#[test]
fn a_close_ends_every_wait() {
    let (pool, ledger) = counted([frames(2).reserve(1), ClassConfig::new("b", 4096, 1)]);
    let held = [
        pool.try_lease_priority(SIZE).unwrap(),
        pool.try_lease_priority(SIZE).unwrap(),
        pool.try_lease(4096).unwrap(),
    ];
    let others: [Way; 4] = [
        |pool, size| pool.lease_priority(size),
        |pool, size| pool.lease_priority_timeout(size, HANG),
        |pool, size| block_on(pool.lease_priority_async(size)),
        |pool, size| pool.lease_many(&[4096, size]).map(|mut leases| leases.remove(0)),
    ];
    std::thread::scope(|scope| {
        let ways = WAYS.into_iter().chain(others);
        let pool = &pool;
        let waiters: Vec<_> =
            ways.map(|way| scope.spawn(move || way(pool, SIZE).map(drop))).collect();
        until_in_line(pool, "frame", WAYS.len() + 4);
        let report = pool.close(Duration::ZERO);
        assert_eq!(report.still_out.iter().map(|(_, slots)| slots).sum::<usize>(), 3, "{report}");
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Err(LeaseError::Closed));
        }
    });
    for way in WAYS {
        assert_eq!(way(&pool, SIZE).map(drop), Err(LeaseError::Closed));
    }
    drop(held);
    assert_all_home(pool, &ledger);
}
