//! Many threads on few slots: ownership, hand-over, waiting and thread ends under load.
//!
//! A test here waits long before it calls something lost; none asserts that something is fast.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test reports by panicking, and its figures by printing"
)]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use pinpool::{Lease, LeaseError, ManualFence, Pool};
use pinpool_testkit::proc;
use pinpool_testkit::scripted::{assert_all_home, counted_pool as pool};
use pinpool_testkit::stamp;

/// Waits for a slot that is sure to be returned soon. A waiter that nobody wakes finds the slot by its
/// last look, at the end of its time: that is too late.
fn lease_soon(pool: &Pool, size: usize) -> Lease {
    let start = Instant::now();
    let lease = pool.lease_timeout(size, HANG).expect("a slot comes home in time");
    assert!(start.elapsed() < HANG / 2, "a waiter slept beside a free slot");
    lease
}

/// Eight threads fight for five slots. Each stamps its whole slot, lets others run, and finds its
/// stamp whole; a sampler finds the counts balanced all the while; nobody calls the memory.
#[test]
fn no_two_owners_of_one_slot() {
    let (pool, ledger) = pool(&[("small", 256, 3), ("large", 4096, 2)]);
    let calls = ledger.calls_total();
    let (leases, misses) = (AtomicU64::new(0), AtomicU64::new(0));
    let done = AtomicBool::new(false);
    let mut samples = 0u64;
    std::thread::scope(|scope| {
        let owners: Vec<_> = (0..8u64)
            .map(|thread| {
                let (pool, leases, misses) = (&pool, &leases, &misses);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let size = if (round + thread) % 3 == 0 { 4096 } else { 256 };
                        match pool.try_lease(size) {
                            Ok(lease) => {
                                hold(lease, thread << 32 | round);
                                leases.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(LeaseError::Exhausted(_)) => {
                                misses.fetch_add(1, Ordering::Relaxed);
                                std::thread::yield_now();
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        let watcher = scope.spawn(|| sample(&pool, &done));
        for owner in owners {
            owner.join().unwrap();
        }
        done.store(true, Ordering::Release);
        samples = watcher.join().unwrap();
    });
    let (leases, misses) = (leases.into_inner(), misses.into_inner());
    println!("{leases} leases, {misses} misses, {samples} samples");
    let stats = pool.stats();
    assert_eq!(stats.classes.iter().map(|class| class.leases_total).sum::<u64>(), leases);
    assert_eq!(stats.classes.iter().map(|class| class.misses_total).sum::<u64>(), misses);
    assert_eq!(leases + misses, 8 * ROUNDS);
    assert!(leases > ROUNDS && misses > 0 && samples > 0, "there was a fight");
    assert_eq!(ledger.calls_total(), calls, "no call into the memory while leasing");
    assert_all_home(pool, &ledger);
}

fn hold(mut lease: Lease, owner: u64) {
    stamp::write_slot(&mut lease, owner);
    if owner.is_multiple_of(4) {
        std::thread::yield_now();
    }
    stamp::verify(lease.as_slice(), owner);
}

/// Reads the counts until told to stop: balanced at each reading, and cumulative ones never fall.
fn sample(pool: &Pool, done: &AtomicBool) -> u64 {
    let mut samples = 0;
    let mut last = [0; 2];
    while !done.load(Ordering::Acquire) {
        for (class, last) in pool.stats().classes.iter().zip(&mut last) {
            let sum = class.free + class.leased + class.in_flight + class.quarantined;
            assert_eq!(sum, class.slots, "{class:?}");
            assert!(class.leases_total >= *last, "{class:?}");
            *last = class.leases_total;
        }
        samples += 1;
        // The owners need the processors more.
        std::thread::sleep(Duration::from_micros(50));
    }
    samples
}

/// Producers lease and fill, consumers check and drop in other threads; the slots always suffice,
/// because who has none waits.
#[test]
fn leases_are_handed_from_thread_to_thread() {
    let (pool, ledger) = pool(&[("frame", 1024, 6)]);
    let (send, receive) = mpsc::sync_channel::<(u64, Lease)>(4);
    let receive = std::sync::Mutex::new(receive);
    let received = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for producer in 0..3u64 {
            let (pool, send) = (&pool, send.clone());
            scope.spawn(move || {
                for round in 0..ROUNDS / 4 {
                    let mut lease = lease_soon(pool, 1000);
                    let owner = producer << 32 | round;
                    stamp::write_slot(&mut lease, owner);
                    send.send((owner, lease)).unwrap();
                }
            });
        }
        drop(send);
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let next = receive.lock().unwrap().recv();
                    let Ok((owner, lease)) = next else { break };
                    stamp::verify(lease.as_slice(), owner);
                    drop(lease);
                    received.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(received.into_inner(), 3 * (ROUNDS / 4));
    assert_all_home(pool, &ledger);
}

/// Two classes of one slot and four waiters each. Slots are returned one at a time, each return gives
/// one waiter its slot, and nobody but this thread ever returns one: a lost wake-up is not made good
/// by the next return, it leaves a waiter asleep beside a free slot.
#[test]
fn each_return_reaches_a_waiter_of_its_class() {
    let (pool, ledger) = pool(&[("a", 64, 1), ("b", 128, 1)]);
    let mut returns = 0;
    let mut workers = Vec::new();
    let classes: Vec<_> = [64usize, 128]
        .into_iter()
        .map(|size| {
            let (answer, answers) = mpsc::channel();
            let asks: Vec<_> = (0..4)
                .map(|_| {
                    let (ask, asked) = mpsc::channel::<()>();
                    let (pool, answer) = (pool.clone(), answer.clone());
                    workers.push(std::thread::spawn(move || {
                        while asked.recv().is_ok() {
                            answer.send(lease_soon(&pool, size)).unwrap();
                        }
                    }));
                    ask
                })
                .collect();
            (size, asks, answers)
        })
        .collect();
    for round in 0..1250u32 {
        for (size, asks, answers) in &classes {
            let mut lease = pool.try_lease(*size).unwrap();
            for ask in asks {
                ask.send(()).unwrap();
            }
            // Now and then all are surely asleep; mostly they are just about to be.
            if round.is_multiple_of(64) {
                std::thread::sleep(Duration::from_millis(1));
            }
            for _ in asks {
                drop(lease);
                returns += 1;
                lease = answers.recv_timeout(HANG).expect("a free slot reaches a waiter");
            }
        }
    }
    println!("{returns} returns, each to a waiter");
    assert!(returns >= 10_000);
    drop(classes);
    for worker in workers {
        worker.join().unwrap();
    }
    let stats = pool.stats();
    assert!(stats.classes.iter().all(|class| class.timeouts_total == 0), "{stats}");
    assert!(stats.classes.iter().all(|class| class.waits_total > 1000), "they did wait: {stats}");
    assert_all_home(pool, &ledger);
}

/// Sixteen threads that wait for four slots all get on.
#[test]
fn more_waiters_than_slots_make_progress() {
    let (pool, ledger) = pool(&[("frame", 512, 4)]);
    std::thread::scope(|scope| {
        for thread in 0..16u64 {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..1000 {
                    let lease = lease_soon(pool, 512);
                    hold(lease, thread << 32 | round);
                }
            });
        }
    });
    assert_eq!(pool.stats().classes[0].leases_total, 16 * 1000);
    assert_all_home(pool, &ledger);
}

/// The plainest leak: a million lease and drop on eight slots never run out and never leave the same
/// eight addresses.
#[test]
fn a_million_rounds_stay_on_eight_addresses() {
    let (pool, ledger) = pool(&[("frame", 4096, 8)]);
    let mut addresses = BTreeSet::new();
    let mut held = std::collections::VecDeque::new();
    for round in 0..1_000_000usize {
        if held.len() == round / 1000 % 8 + 1 {
            held.pop_front();
        }
        while held.len() > round / 1000 % 8 {
            held.pop_front();
        }
        let lease = pool.try_lease(4096).expect("never exhausted");
        addresses.insert(lease.as_ptr() as usize);
        held.push_back(lease);
    }
    assert_eq!(addresses.len(), 8);
    drop(held);
    assert_eq!(pool.stats().classes[0].leases_total, 1_000_000);
    assert_all_home(pool, &ledger);
}

/// What threads had close at hand when they ceased to lease is anybody's (I13): one sleeps, one is gone.
#[test]
fn what_idle_and_ended_threads_left_is_found() {
    let (pool, ledger) = pool(&[("frame", 256, 64)]);
    let lease_often = || {
        for _ in 0..1000 {
            drop([(); 24].map(|()| pool.try_lease(256).unwrap()));
        }
    };
    // Before the others: else this thread would sit down where the one that is gone sat.
    drop(pool.try_lease(256).unwrap());
    std::thread::scope(|scope| {
        let (idle, is_idle) = mpsc::channel();
        let (wake, woken) = mpsc::channel::<()>();
        scope.spawn(move || {
            lease_often();
            idle.send(()).unwrap();
            // Until the other end is gone.
            woken.recv().unwrap_err();
        });
        is_idle.recv().unwrap();
        scope.spawn(lease_often).join().unwrap();
        let held: Vec<_> = (0..64).map_while(|_| pool.try_lease(256).ok()).collect();
        assert_eq!(held.len(), 64, "slots are stranded");
        drop((held, wake));
    });
    assert_all_home(pool, &ledger);
}

/// A holder that panics gives its slot to whoever waits for it. Nobody's lock is poisoned.
#[test]
fn a_panicking_holder_feeds_a_waiter() {
    let (pool, ledger) = pool(&[("frame", 512, 1)]);
    for _ in 0..200 {
        let held = pool.try_lease(512).unwrap();
        let waiter = {
            let pool = pool.clone();
            std::thread::spawn(move || drop(lease_soon(&pool, 512)))
        };
        let holder = std::thread::spawn(move || {
            let _held = held;
            std::panic::resume_unwind(Box::new("planted"));
        });
        assert!(holder.join().is_err());
        waiter.join().expect("the waiter has had the slot");
    }
    assert_all_home(pool, &ledger);
}

/// A waiting lease costs no processor time.
#[test]
fn a_waiter_sleeps() {
    let (pool, ledger) = pool(&[("frame", 512, 1)]);
    let held = pool.try_lease(512).unwrap();
    let waiter = {
        let pool = pool.clone();
        std::thread::spawn(move || {
            let before = proc::thread_cpu_time();
            let result = pool.lease_timeout(512, Duration::from_millis(400));
            (proc::thread_cpu_time().saturating_sub(before), result.is_err())
        })
    };
    let (busy, timed_out) = waiter.join().unwrap();
    println!("a wait of 400 ms took {busy:?} of processor time");
    assert!(timed_out);
    assert!(busy < Duration::from_millis(20), "{busy:?}: it spins");
    drop(held);
    assert_all_home(pool, &ledger);
}

/// Owners leave their slots to a "device", a thread that reads them until it completes their fences,
/// out of order. It always finds the stamp whole, and nobody waits in vain.
#[test]
fn slots_in_flight_have_no_other_owner() {
    let (pool, ledger) = pool(&[("small", 256, 3), ("large", 4096, 4)]);
    let (send, receive) = mpsc::channel::<(usize, usize, u64, ManualFence)>();
    let done = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let device = scope.spawn(move || {
            let mut reads = 0;
            while let Ok(copy) = receive.recv() {
                // Owners leave it a few at a time, and wait for what it still reads.
                let reading: Vec<_> = std::iter::once(copy).chain(receive.try_iter()).collect();
                for (start, bytes, owner, fence) in reading.into_iter().rev() {
                    // SAFETY: I3, a slot in flight stays mapped and unwritten until its fence is
                    // complete, which is below.
                    let slot = unsafe { std::slice::from_raw_parts(start as *const u8, bytes) };
                    std::thread::yield_now();
                    stamp::verify(slot, owner);
                    fence.complete();
                    reads += 1;
                }
            }
            reads
        });
        let owners: Vec<_> = (0..6u64)
            .map(|thread| {
                let (pool, send) = (&pool, send.clone());
                scope.spawn(move || {
                    for round in 0..ROUNDS / 10 {
                        let owner = thread << 32 | round;
                        let mut lease = lease_soon(pool, if round % 3 == 0 { 4096 } else { 256 });
                        stamp::write_slot(&mut lease, owner);
                        let fence = ManualFence::new();
                        let copy = (lease.as_ptr() as usize, lease.len(), owner, fence.clone());
                        let flight = lease.in_flight_until(fence);
                        send.send(copy).unwrap();
                        match round % 4 {
                            0 => stamp::verify(flight.wait().unwrap().as_slice(), owner),
                            _ => drop(flight),
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| sample(&pool, &done));
        for owner in owners {
            owner.join().unwrap();
        }
        drop(send);
        let rounds = device.join().unwrap();
        done.store(true, Ordering::Release);
        rounds
    });
    assert_eq!(rounds, 6 * (ROUNDS / 10));
    drop([256, 256, 256, 4096, 4096, 4096, 4096].map(|size| lease_soon(&pool, size)));
    assert_eq!(pool.stats().classes.iter().map(|class| class.landed_total).sum::<u64>(), rounds);
    assert_all_home(pool, &ledger);
}

/// What takes longer is lost.
const HANG: Duration = Duration::from_secs(20);
/// Attempts of each fighting thread.
const ROUNDS: u64 = 100_000;
