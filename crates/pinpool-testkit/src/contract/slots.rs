//! Slots: fresh contents, size, alignment, distinct addresses, reuse.

use std::collections::BTreeSet;

use pinpool::{Lease, LeaseError};

use super::{Check, Subject, assert_balanced};
use crate::stamp;

pub(super) const CHECKS: &[Check] = &[
    ("a fresh slab is zero", fresh_slab_is_zero),
    ("length and capacity", length_and_capacity),
    ("alignment", alignment),
    ("slots are distinct", slots_are_distinct),
    ("the last slot home is the next out", last_in_first_out),
    ("recycled contents are the previous owner's", recycled_contents),
    ("the smallest class that fits", smallest_class_that_fits),
];

fn fresh_slab_is_zero(subject: &Subject<'_>) {
    for size in [64, 4096, 100_000] {
        let pool = subject.pool(size, 3);
        let leases: Vec<_> = (0..3).map(|_| whole(pool.try_lease(size))).collect();
        for lease in &leases {
            assert!(lease.as_slice().iter().all(|byte| *byte == 0), "{size}: not zero");
        }
    }
}

fn length_and_capacity(subject: &Subject<'_>) {
    for size in [1, 63, 64, 65, 1000, 4096, 5000] {
        let pool = subject.pool(size, 1);
        let slot_bytes = size.next_multiple_of(64);
        let mut lease = pool.try_lease(size).unwrap();
        assert_eq!((lease.len(), lease.capacity()), (size, slot_bytes));
        assert_eq!((lease.as_slice().len(), lease.as_mut_slice().len()), (size, size));
        assert!(!lease.is_empty());
        assert_eq!(lease.set_len(slot_bytes), Ok(()));
        assert_eq!(lease.as_slice().len(), slot_bytes);
        for len in [slot_bytes + 1, usize::MAX] {
            let refused = LeaseError::OutOfRange { start: 0, end: len, len: slot_bytes };
            assert_eq!(lease.set_len(len), Err(refused));
            assert_eq!(lease.len(), slot_bytes, "a refused length changes nothing");
        }
        assert_eq!(lease.set_len(0), Ok(()));
        assert!(lease.is_empty() && lease.as_slice().is_empty());
        drop(lease);
        assert_eq!(pool.try_lease(size).unwrap().len(), size, "the next lease has its own length");
    }
}

fn alignment(subject: &Subject<'_>) {
    let page = rustix::param::page_size();
    for size in [1, 100, 192, page, 3 * page, page + 64] {
        let pool = subject.pool(size, 4);
        let align = if size % page == 0 { page } else { 64 };
        for lease in (0..4).map(|_| pool.try_lease(size).unwrap()).collect::<Vec<_>>() {
            assert_eq!(lease.as_ptr() as usize % align, 0, "{size} in slot {}", lease.slot());
        }
    }
}

fn slots_are_distinct(subject: &Subject<'_>) {
    for (size, count) in [(64, 40), (4160, 9)] {
        let pool = subject.pool(size, count);
        let mut leases: Vec<_> = (0..count).map(|_| whole(pool.try_lease(size))).collect();
        for (owner, lease) in leases.iter_mut().enumerate() {
            stamp::write_slot(lease, owner as u64);
        }
        for (owner, lease) in leases.iter().enumerate() {
            stamp::verify(lease.as_slice(), owner as u64);
        }
        let slots: BTreeSet<u32> = leases.iter().map(Lease::slot).collect();
        assert_eq!(slots.len(), count, "slot numbers are distinct");
        let mut starts: Vec<_> = leases.iter().map(|lease| lease.as_ptr() as usize).collect();
        starts.sort_unstable();
        let apart = starts.windows(2).all(|pair| pair[1] - pair[0] >= size);
        assert!(apart, "slots of {size} bytes overlap: {starts:x?}");
    }
}

fn last_in_first_out(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 4);
    let leases: Vec<_> = (0..4).map(|_| pool.try_lease(4096).unwrap()).collect();
    let order: Vec<_> = leases.iter().map(Lease::slot).collect();
    leases.into_iter().for_each(drop);
    let again: Vec<_> = (0..4).map(|_| pool.try_lease(4096).unwrap()).collect();
    let warm: Vec<_> = again.iter().map(Lease::slot).collect();
    assert_eq!(warm, order.into_iter().rev().collect::<Vec<_>>(), "the warmest slot comes first");
}

fn recycled_contents(subject: &Subject<'_>) {
    let pool = subject.pool(1000, 1);
    stamp::write_slot(&mut pool.try_lease(1000).unwrap(), 5);
    stamp::verify(whole(pool.try_lease(1000)).as_slice(), 5);
    assert_balanced(&pool);
}

fn smallest_class_that_fits(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 2);
    let slot_bytes: Vec<_> = pool.plan().classes.iter().map(|class| class.slot_bytes).collect();
    for (rank, &edge) in slot_bytes.iter().enumerate() {
        for bytes in [edge - 1, edge, edge + 1] {
            let wanted = slot_bytes.iter().position(|slot| *slot >= bytes);
            match pool.try_lease(bytes) {
                Ok(lease) => {
                    assert_eq!(Some(lease.class().index()), wanted, "{bytes} near class {rank}");
                    assert_eq!(lease.capacity(), slot_bytes[lease.class().index()]);
                }
                Err(error) => assert_eq!(wanted, None, "{bytes}: {error}"),
            }
        }
    }
}

/// The lease, stretched over its slot.
fn whole(lease: Result<Lease, LeaseError>) -> Lease {
    let mut lease = lease.unwrap();
    lease.set_len(lease.capacity()).unwrap();
    lease
}
