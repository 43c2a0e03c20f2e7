//! Leases with several readers: one slot, which goes home after the last of them.

use std::sync::atomic::{AtomicU64, Ordering};

use pinpool::{ManualFence, SharedLease};
use pinpool_testkit::stamp;

use super::{SIZE, counts, exhausted, frames, until};

fn shared(pool: &pinpool::Pool, owner: u64) -> SharedLease {
    let mut lease = pool.lease(SIZE).unwrap();
    stamp::write_slot(&mut lease, owner);
    lease.share()
}

/// Clones read in many threads; the last one to go, whichever that is, brings the slot home.
#[test]
fn the_last_of_many_readers_brings_the_slot_home() {
    let (pool, ledger) = frames(2);
    for round in 0..500u64 {
        let first = shared(&pool, round);
        let reads = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (reader, reads) = (first.clone(), &reads);
                scope.spawn(move || {
                    let again = reader.clone();
                    drop(reader);
                    stamp::verify(again.as_slice(), round);
                    assert_eq!(again.as_ref().len(), again.len());
                    reads.fetch_add(1, Ordering::Relaxed);
                });
            }
            assert_eq!(counts(&pool)[1], 1, "one slot, however many hold it");
            drop(first);
        });
        assert_eq!(reads.into_inner(), 4);
        assert_eq!(counts(&pool), [2, 0, 0, 0], "home with the last");
    }
    assert_eq!(pool.stats().classes[0].leases_total, 500);
    assert!(pool.close(super::HANG).is_complete());
    ledger.assert_clean();
}

/// A shared lease is a lease again for the last holder, and for nobody else.
#[test]
fn only_the_last_holder_may_write_again() {
    let (pool, _ledger) = frames(1);
    for round in 0..100u64 {
        let first = shared(&pool, round);
        let (slot, address) = (first.slot(), first.as_ptr());
        let second = first.clone();
        let third = second.clone();
        let first = first.into_lease().expect_err("three hold it");
        drop(second);
        let third = third.into_lease().expect_err("two hold it");
        stamp::verify(third.as_slice(), round);
        drop(first);
        let mut lease = third.into_lease().expect("one holds it");
        assert_eq!((lease.slot(), lease.as_ptr()), (slot, address));
        stamp::verify(lease.as_slice(), round);
        stamp::write_slot(&mut lease, round + 1);
        assert_eq!(exhausted(pool.try_lease(SIZE)).in_flight, 0);
        // It shares, and goes into flight, like any other.
        let again = lease.share();
        stamp::verify(again.as_slice(), round + 1);
        let fence = ManualFence::new();
        let flight = again.into_lease().unwrap().in_flight_until(fence.clone());
        assert_eq!(counts(&pool), [0, 0, 1, 0]);
        fence.complete();
        drop(flight.wait().unwrap());
    }
    assert_eq!(counts(&pool), [1, 0, 0, 0]);
}

/// Of holders who all let go at once, at most one gets the lease, and the slot is free afterwards.
#[test]
fn holders_who_let_go_at_once_never_both_get_the_lease() {
    let (pool, _ledger) = frames(1);
    let mut got = 0;
    for round in 0..5_000u64 {
        let first = shared(&pool, round);
        let second = first.clone();
        let lets_go = |shared: SharedLease| match shared.into_lease() {
            Ok(mut lease) => {
                stamp::write_slot(&mut lease, round ^ u64::MAX);
                stamp::verify(lease.as_slice(), round ^ u64::MAX);
                1
            }
            Err(shared) => {
                stamp::verify(shared.as_slice(), round);
                0
            }
        };
        let won = std::thread::scope(|scope| {
            let other = scope.spawn(|| lets_go(second));
            lets_go(first) + other.join().unwrap()
        });
        assert!(won <= 1, "two owners of one slot");
        got += won;
        assert_eq!(counts(&pool), [1, 0, 0, 0]);
    }
    assert!(got > 0, "sometimes the last one is alone before it asks");
}

/// Readers that outlive their pool keep its memory.
#[test]
fn readers_keep_the_memory_after_their_pool() {
    let (pool, ledger) = frames(2);
    let first = shared(&pool, 9);
    let second = first.clone();
    drop((pool, first));
    stamp::verify(second.as_slice(), 9);
    assert_eq!(ledger.regions(), 1);
    let fence = ManualFence::new();
    second.into_lease().expect("the last").retire_after(fence.clone());
    assert_eq!(ledger.regions(), 1, "the work still uses it");
    fence.complete();
    until("the memory is given back", || ledger.regions() == 0);
    ledger.assert_clean();
}
