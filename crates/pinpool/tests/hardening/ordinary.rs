//! What a hardened pool leaves as it is: capacities, alignment, threads, fences, growth, ends.

use pinpool::{ClassConfig, Heap, Lease, LeaseError, ManualFence, OnEmpty, Pool, Scrub};
use pinpool_testkit::soon::HANG;
use pinpool_testkit::stamp;

use super::{SIZE, all_home, frames, open, stats};

/// Capacity, address alignment and length of a lease do not depend on the checks; slots lie apart.
#[test]
fn slots_are_as_large_and_as_aligned_as_without() {
    for size in [1, 63, 64, 100, 4095, 4096, 5000, 65_536, 3_110_400] {
        let pools = [true, false].map(|checks| {
            let builder = Pool::builder().env(false).debug_checks(checks).class("frame", size, 5);
            builder.memory(Heap::claiming_locked()).open().unwrap()
        });
        let leases = pools.each_ref().map(|pool| {
            let mut leases: Vec<_> = (0..5).map(|_| pool.try_lease(size).unwrap()).collect();
            leases.sort_by_key(Lease::as_ptr);
            leases
        });
        let [hard, plain] = &leases;
        let capacity = plain[0].capacity();
        let natural = (1 << capacity.trailing_zeros()).min(4096);
        for (hard, plain) in hard.iter().zip(plain) {
            assert_eq!((hard.capacity(), hard.len()), (capacity, plain.len()), "{size}");
            assert_eq!(
                (hard.as_ptr() as usize % natural, plain.as_ptr() as usize % natural),
                (0, 0)
            );
        }
        for pair in hard.windows(2) {
            let apart = pair[1].as_ptr() as usize - pair[0].as_ptr() as usize;
            assert_eq!(apart, pools[0].plan().classes[0].stride_bytes, "{size}");
            assert!(apart > capacity, "{size}: a canary lies between");
        }
    }
}

/// Typed and shared leases, views and lengths, up to the last byte of the capacity, damage nothing.
#[test]
fn every_byte_of_the_capacity_is_the_holders() {
    let (pool, ledger) = open(frames(2));
    for _ in 0..100 {
        let mut lease = pool.lease_timeout_of::<u64>(10, HANG).unwrap();
        lease.set_len(lease.capacity()).unwrap();
        lease.as_mut_slice().fill(u64::MAX);
        assert!(matches!(lease.set_len(SIZE / 8 + 1), Err(LeaseError::OutOfRange { .. })));
        let shared = lease.share();
        assert_eq!(shared.view(SIZE / 8 - 1..).unwrap().as_slice(), [u64::MAX]);
    }
    all_home(&pool);
    assert_eq!((stats(&pool).overruns_total, stats(&pool).late_writes_total), (0, 0));
    assert!(pool.close(HANG).is_complete());
    ledger.assert_clean();
}

/// Threads that stamp whole slots, retire them, wait and hand them over, on grown slabs and pageable
/// buffers too: no check ever fires, no stamp is damaged, and all ends well.
#[test]
fn threads_that_keep_the_rules_are_left_alone() {
    let classes: [ClassConfig; 4] = [
        frames(2),
        frames(2).scrub(Scrub::Zero),
        frames(1).on_empty(OnEmpty::Grow).grow_max(2),
        frames(1).on_empty(OnEmpty::Pageable).pageable_max(2).scrub(Scrub::Poison),
    ];
    for class in classes {
        let (pool, ledger) = open(class);
        std::thread::scope(|scope| {
            for owner in 0..4u64 {
                let pool = &pool;
                scope.spawn(move || {
                    for round in 0..1500u64 {
                        let mut lease = pool.lease_timeout(SIZE, HANG).unwrap();
                        stamp::write_slot(&mut lease, owner << 32 | round);
                        stamp::verify(lease.as_slice(), owner << 32 | round);
                        let work = ManualFence::new();
                        match round % 3 {
                            0 => drop(lease),
                            1 => lease.retire_after(work.clone()),
                            _ => {
                                let flight = lease.in_flight_until(work.clone());
                                work.complete();
                                let lease = flight.wait().unwrap();
                                stamp::verify(lease.as_slice(), owner << 32 | round);
                            }
                        }
                        work.complete();
                    }
                });
            }
        });
        all_home(&pool);
        let class = stats(&pool);
        assert_eq!((class.overruns_total, class.late_writes_total, class.quarantined), (0, 0, 0));
        assert!(pool.close(HANG).is_complete());
        ledger.assert_clean();
    }
}
