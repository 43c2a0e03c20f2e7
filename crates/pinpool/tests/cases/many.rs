//! Several leases with one call: all or none, in the order asked for, and no two callers block each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pinpool::{ClassConfig, Lease, LeaseError, ManualFence, OnEmpty, Pool};
use pinpool_testkit::scripted::Ledger;
use pinpool_testkit::soon::HANG;
use pinpool_testkit::stamp;

use crate::{assert_all_home, counted, stats, until_in_line};

const SMALL: usize = 64;
const LARGE: usize = 4096;

fn pool() -> (Pool, Ledger) {
    counted([ClassConfig::new("small", SMALL, 4), ClassConfig::new("large", LARGE, 2)])
}

/// Every way to take several.
type Way = fn(&Pool, &[usize]) -> Result<Vec<Lease>, LeaseError>;
const WAYS: [Way; 3] = [
    |pool, sizes| pool.try_lease_many(sizes),
    |pool, sizes| pool.lease_many(sizes),
    |pool, sizes| pool.lease_many_timeout(sizes, Duration::from_millis(5)),
];

fn free(pool: &Pool) -> [u32; 2] {
    ["small", "large"].map(|class| stats(pool, class).free)
}

#[test]
fn leases_come_in_the_order_asked_for() {
    let (pool, ledger) = pool();
    let sizes = [4000, 1, 65, 64, 63];
    for way in WAYS {
        let leases = way(&pool, &sizes).unwrap();
        assert_eq!(leases.iter().map(Lease::len).collect::<Vec<_>>(), sizes);
        let classes: Vec<_> = leases.iter().map(|lease| lease.class_name().to_string()).collect();
        assert_eq!(classes, ["large", "small", "large", "small", "small"]);
        assert_eq!(free(&pool), [1, 0]);
        drop(leases);
        assert_eq!(free(&pool), [4, 2]);
    }
    assert_all_home(pool, &ledger);
}

/// No sizes are no leases, of an empty class and of a closed pool too; a size that nobody can give fails
/// the whole call.
#[test]
fn no_sizes_are_no_leases_and_one_wrong_size_is_none_either() {
    let (pool, ledger) = pool();
    for way in WAYS {
        assert!(way(&pool, &[]).unwrap().is_empty());
        assert_eq!(way(&pool, &[SMALL, 0, SMALL]).unwrap_err(), LeaseError::ZeroLen);
        let error = way(&pool, &[SMALL, LARGE + 1]).unwrap_err();
        assert_eq!(error, LeaseError::TooLarge { requested: LARGE + 1, largest: LARGE });
        let error = way(&pool, &[LARGE; 3]).unwrap_err();
        assert!(matches!(error, LeaseError::TooMany { wanted: 3, most: 2, .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("'large'") && text.contains('3') && text.contains("`count`"),
            "{text}"
        );
    }
    let taken = pool.stats().classes.iter().map(|class| class.leases_total).sum::<u64>();
    assert_eq!((free(&pool), taken), ([4, 2], 0), "nothing was taken to find that out");
    pool.close(Duration::ZERO);
    for way in WAYS {
        assert_eq!(way(&pool, &[SMALL]).unwrap_err(), LeaseError::Closed);
    }
    assert_all_home(pool, &ledger);
}

/// What kinds of slots count towards the most that a call can get: grown and pageable ones, but not
/// the reserve.
#[test]
fn too_many_counts_what_there_can_ever_be() {
    let class = |policy| ClassConfig::new("small", SMALL, 4).on_empty(policy);
    for (class, most) in [
        (class(OnEmpty::Wait).reserve(3), 1),
        (class(OnEmpty::Grow).grow_max(6).grow_by(3).reserve(1), 9),
        (class(OnEmpty::Pageable).pageable_max(5), 9),
    ] {
        let (pool, ledger) = counted([class]);
        let error = pool.try_lease_many(&vec![SMALL; most + 1]).unwrap_err();
        assert!(matches!(error, LeaseError::TooMany { most: told, .. } if told == most), "{error}");
        let leases = pool.lease_many_timeout(&vec![SMALL; most], HANG).unwrap();
        assert_eq!(leases.len(), most);
        drop(leases);
        pool.trim();
        assert_all_home(pool, &ledger);
    }
}

/// A call that fails at its last class gives back what it took of the others, before it returns.
#[test]
fn all_or_none() {
    let (pool, ledger) = pool();
    let held = pool.try_lease(LARGE).unwrap();
    let sizes = [SMALL, LARGE, SMALL, LARGE, SMALL];
    let error = pool.try_lease_many(&sizes).unwrap_err();
    assert!(matches!(error, LeaseError::Exhausted(exhausted) if exhausted.name == "large"));
    assert_eq!(free(&pool), [4, 1]);
    let error = pool.lease_many_timeout(&sizes, Duration::from_millis(5)).unwrap_err();
    assert!(matches!(error, LeaseError::Timeout { exhausted, .. } if exhausted.name == "large"));
    assert_eq!(free(&pool), [4, 1]);
    assert_eq!(stats(&pool, "large").waiting, 0);
    // What it had gathered goes to those behind it.
    std::thread::scope(|scope| {
        let many = scope
            .spawn(|| pool.lease_many_timeout(&[LARGE; 2], Duration::from_millis(50)).map(|_| ()));
        until_in_line(&pool, "large", 1);
        let one = scope.spawn(|| pool.lease_timeout(LARGE, HANG).map(drop));
        assert!(matches!(many.join().unwrap(), Err(LeaseError::Timeout { .. })));
        assert_eq!(one.join().unwrap(), Ok(()));
    });
    drop(held);
    assert_all_home(pool, &ledger);
}

/// With `on_empty = "fail"` a call for several does not wait either.
#[test]
fn several_of_a_class_that_fails_are_not_waited_for() {
    let class = ClassConfig::new("small", SMALL, 2).on_empty(OnEmpty::Fail);
    let (pool, ledger) = counted([class]);
    let held = pool.lease(SMALL).unwrap();
    for way in WAYS {
        let error = way(&pool, &[SMALL; 2]).unwrap_err();
        assert!(matches!(error, LeaseError::Exhausted(_)), "{error}");
    }
    assert_eq!(stats(&pool, "small").waits_total, 0);
    drop(held);
    assert_all_home(pool, &ledger);
}

/// Kind of fault: two that each hold a part of what both need wait for each other for ever.
#[test]
fn callers_that_want_everything_never_block_each_other() {
    let (pool, ledger) = pool();
    let sizes = [LARGE, SMALL, LARGE, SMALL, SMALL, SMALL];
    std::thread::scope(|scope| {
        for owner in 0..3u64 {
            let (pool, mut sizes) = (&pool, sizes);
            // Each asks in another order.
            sizes.rotate_left(usize::try_from(owner).unwrap());
            scope.spawn(move || {
                for round in 0..2_000 {
                    let mut leases = match round % 8 {
                        0 => match pool.lease_many_timeout(&sizes, Duration::from_micros(20)) {
                            Ok(leases) => leases,
                            Err(LeaseError::Timeout { .. }) => continue,
                            Err(error) => panic!("{error}"),
                        },
                        _ => pool.lease_many_timeout(&sizes, HANG).expect("nobody blocks it"),
                    };
                    leases.iter_mut().for_each(|lease| stamp::write_slot(lease, owner));
                    leases.iter().for_each(|lease| stamp::verify(lease.as_slice(), owner));
                    if round % 3 == 0 {
                        for lease in leases {
                            let fence = ManualFence::new();
                            fence.complete();
                            lease.retire_after(fence);
                        }
                    }
                }
            });
        }
    });
    assert_all_home(pool, &ledger);
}

/// Who gathers is not starved by those who want one: it is the first in line until it has all.
#[test]
fn single_leases_do_not_starve_one_who_gathers() {
    let (pool, ledger) = pool();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    let lease = pool.lease_timeout(SMALL, HANG).unwrap();
                    std::thread::sleep(Duration::from_micros(50));
                    drop(lease);
                }
            });
        }
        for _ in 0..200 {
            let all = pool.lease_many_timeout(&[SMALL; 4], HANG).expect("it comes to its turn");
            assert_eq!(all.len(), 4);
        }
        over.store(true, Ordering::Release);
    });
    assert_all_home(pool, &ledger);
}
