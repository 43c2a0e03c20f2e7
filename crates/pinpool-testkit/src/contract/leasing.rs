//! Leasing: refusals with their numbers and texts, ownership across threads, clones and panics.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pinpool::{Lease, LeaseError, Pool};

use super::{Check, Subject, assert_balanced, main_stats};
use crate::stamp;

pub(super) const CHECKS: &[Check] = &[
    ("an empty class says so", exhaustion),
    ("impossible sizes are refused", impossible_sizes),
    ("a lease outlives its pool", outlives_the_pool),
    ("a lease is dropped in another thread", dropped_elsewhere),
    ("clones are one pool", clones_are_one_pool),
    ("a panicking holder gives its slot back", panicking_holder),
    ("a forgotten lease costs its slot only", forgotten_lease),
    ("pools and leases move between threads", moves_between_threads),
];

fn exhaustion(subject: &Subject<'_>) {
    let pool = subject.pool(1000, 3);
    let held: Vec<_> = (0..3).map(|_| pool.try_lease(1000).unwrap()).collect();
    let error = pool.try_lease(1000).unwrap_err();
    let LeaseError::Exhausted(exhausted) = error else { panic!("not exhausted: {error:?}") };
    assert_eq!(exhausted.class, held[0].class());
    assert_eq!(exhausted.name.as_str(), "main");
    assert_eq!((exhausted.slot_bytes, exhausted.slots), (1024, 3));
    assert_eq!((exhausted.in_flight, exhausted.quarantined), (0, 0));
    let text = error.to_string();
    for part in ["'main'", "3 slots", "1024 bytes", "3 are leased", "0 in flight", "`count`"] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    assert_eq!(main_stats(&pool).misses_total, 1);
    drop(held);
    assert!(pool.try_lease(1000).is_ok(), "a returned slot can be leased");
}

fn impossible_sizes(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 2);
    let largest = pool.plan().classes.last().unwrap().slot_bytes;
    let held: Vec<_> = (0..2).map(|_| pool.try_lease(4096).unwrap()).collect();
    for _ in 0..100 {
        assert_eq!(pool.try_lease(0).unwrap_err(), LeaseError::ZeroLen);
        assert_eq!(pool.lease(0).unwrap_err(), LeaseError::ZeroLen);
        assert_eq!(pool.try_lease_of::<u64>(0).unwrap_err(), LeaseError::ZeroLen);
    }
    for requested in [largest + 1, usize::MAX / 2 + 1, usize::MAX - 510, usize::MAX] {
        let refused = LeaseError::TooLarge { requested, largest };
        assert_eq!(pool.try_lease(requested).unwrap_err(), refused);
        assert_eq!(pool.lease(requested).unwrap_err(), refused, "waiting would be for ever");
        let text = refused.to_string();
        assert!(text.contains(&requested.to_string()) && text.contains(&largest.to_string()));
    }
    // Sixteen bytes times this wraps to sixteen.
    for count in [usize::MAX / 16 + 2, usize::MAX] {
        let refused = LeaseError::TooLarge { requested: usize::MAX, largest };
        assert_eq!(pool.try_lease_of::<u128>(count).unwrap_err(), refused);
    }
    drop(held);
    assert_eq!(main_stats(&pool).misses_total, 0, "an impossible request is no miss");
    assert_balanced(&pool);
}

fn outlives_the_pool(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 2);
    let mut first = pool.try_lease(4096).unwrap();
    let mut second = pool.try_lease(4096).unwrap();
    stamp::write(first.as_mut_slice(), 1);
    drop(pool);
    stamp::write(second.as_mut_slice(), 2);
    stamp::verify(first.as_slice(), 1);
    assert!(!format!("{first:?} {:?}", first.tag()).is_empty());
    drop(first);
    stamp::verify(second.as_slice(), 2);
}

fn dropped_elsewhere(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 3);
    let held: Vec<_> = (0..3).map(|_| pool.try_lease(4096).unwrap()).collect();
    std::thread::spawn(move || drop(held)).join().unwrap();
    let held: Vec<_> = (0..3).map(|_| pool.try_lease(4096).unwrap()).collect();
    // The thread that held them is dead, and so is the one that returned them (I13).
    assert_eq!(held.len(), 3);
    assert_balanced(&pool);
}

fn clones_are_one_pool(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 1);
    let clone = pool.clone();
    let held = clone.try_lease(4096).unwrap();
    assert!(matches!(pool.try_lease(4096), Err(LeaseError::Exhausted(_))));
    drop(clone);
    drop(held);
    assert!(pool.try_lease(4096).is_ok(), "dropping a clone closes nothing");
}

fn panicking_holder(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 1);
    for _ in 0..20 {
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _held = pool.try_lease(4096).unwrap();
            // Unwinds without the hook that prints.
            std::panic::resume_unwind(Box::new("planted"));
        }));
        assert!(unwound.is_err());
    }
    assert!(pool.try_lease(4096).is_ok(), "the slot came home while unwinding");
    assert_balanced(&pool);
}

fn forgotten_lease(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 3);
    std::mem::forget(pool.try_lease(4096).unwrap());
    let held: Vec<_> = (0..2).map(|_| pool.try_lease(4096).unwrap()).collect();
    assert!(pool.try_lease(4096).is_err(), "the forgotten slot is never given out again");
    drop(held);
    assert_eq!(main_stats(&pool).leased, 1, "and stays visible");
    let report = pool.close(std::time::Duration::ZERO);
    assert!(!report.is_complete());
    let out: Vec<_> = report.still_out.iter().map(|(name, out)| (name.as_str(), *out)).collect();
    assert_eq!(out, [("main", 1)]);
}

fn moves_between_threads(_: &Subject<'_>) {
    fn check<T: Send + Sync>() {}
    check::<Pool>();
    check::<Lease>();
    check::<Lease<f32>>();
    assert_eq!(size_of::<Lease>(), 4 * size_of::<usize>(), "a lease is four words");
}
