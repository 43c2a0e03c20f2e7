//! Slots come back, all of them, and one class's demand never costs another class.

use std::time::{Duration, Instant};

use pinpool::{Error, Heap, Lease, LeaseError, LockMode, Pool, PoolBuilder};
use pinpool_testkit::proc;

use crate::builder;

const MIB: usize = 1 << 20;

/// Large classes whose memory is never touched.
fn untouched() -> PoolBuilder {
    builder().memory(Heap::new())
}

fn exhausted(result: Result<Lease, LeaseError>) -> (String, u32, String) {
    let error = result.expect_err("the class is empty");
    let LeaseError::Exhausted(exhausted) = error else { panic!("another error: {error}") };
    (exhausted.name.to_string(), exhausted.slots, error.to_string())
}

/// Kind of fault: a return without contention never put the slot back.
///
/// Case leak-3.
#[test]
fn a_million_uncontended_returns_lose_no_slot() {
    let pool = builder().lock(LockMode::Off).class("a", 4096, 8).open().unwrap();
    let all = |pool: &Pool| {
        let leases: Vec<Lease> = (0..8).map(|_| pool.try_lease(4096).unwrap()).collect();
        assert!(pool.try_lease(4096).is_err());
        let mut addresses: Vec<usize> = leases.iter().map(|l| l.as_ptr().addr()).collect();
        addresses.sort_unstable();
        addresses
    };
    let addresses = all(&pool);
    for cycle in 0..1_000_000 {
        match pool.try_lease(4096) {
            Ok(lease) => assert!(addresses.contains(&lease.as_ptr().addr()), "cycle {cycle}"),
            Err(error) => panic!("cycle {cycle}: {error}"),
        }
    }
    assert_eq!(all(&pool), addresses, "the same eight addresses throughout");
    let class = &pool.stats().classes[0];
    assert_eq!((class.free, class.leases_total), (8, 1_000_016));
    assert_eq!((class.misses_total, class.stale_returns_total), (2, 0));
}

/// Kind of fault: a pool that cannot hand out its own maximum, because it grew in pieces.
///
/// Case waste-2.
#[test]
fn a_pool_hands_out_all_that_it_was_given() {
    let whole: [&[(usize, usize)]; 5] = [
        &[(8 * MIB, 8)],
        &[(1_000_192, 1), (8 * MIB, 7)],
        &[(256, 1), (1024, 1)],
        &[(100_000_001, 1)],
        &[(12_500_000, 8)],
    ];
    for classes in whole {
        let pool = classes.iter().fold(untouched(), |builder, (size, count)| {
            builder.class(&format!("c{size}"), *size, *count)
        });
        let total = pool.plan().unwrap().pinned_bytes;
        let pool = pool.max_pinned(total).open().unwrap();
        let mut held = Vec::new();
        for (size, count) in classes {
            held.extend((0..*count).map(|_| pool.try_lease(*size).unwrap()));
        }
        assert!(pool.stats().classes.iter().all(|class| class.free == 0), "{classes:?}");
    }
    // What does not fit its cap is refused when it is loaded, with the reason.
    let too_much: [(u64, &[(usize, usize)]); 4] = [
        (64 << 20, &[(1_000_192, 1), (8 * MIB, 8)]),
        (1024, &[(256, 1), (1024, 1)]),
        (100_000_001, &[(8 * MIB, 12)]),
        (100_000_001, &[(100_000_001, 1)]),
    ];
    for (cap, classes) in too_much {
        let pool = classes.iter().fold(untouched().max_pinned(cap), |builder, (size, count)| {
            builder.class(&format!("c{size}"), *size, *count)
        });
        let error = pool.open().unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error}");
        assert!(error.to_string().contains(&format!("max_pinned is {cap}")), "{error}");
    }
}

/// Kind of fault: plenty is free in total, but scattered in pieces that are too small.
///
/// Case waste-3.
#[test]
fn holes_between_small_slots_never_cost_a_large_one() {
    let pool = untouched().class("small", 20 * MIB, 8).class("large", 36 * MIB, 2).open().unwrap();
    for _ in 0..3 {
        let mut small: Vec<_> = (0..8).map(|_| Some(pool.try_lease(20 * MIB).unwrap())).collect();
        small.iter_mut().step_by(2).for_each(|lease| *lease = None);
        let large = [pool.try_lease(36 * MIB).unwrap(), pool.try_lease(36 * MIB).unwrap()];
        assert!(large.iter().all(|lease| lease.capacity() == 36 * MIB));
        // Now the large class is empty while 80 MiB are free: the error is about that class.
        let (name, slots, text) = exhausted(pool.try_lease(36 * MIB));
        assert_eq!((name.as_str(), slots), ("large", 2));
        for word in ["class 'large' is empty", "2 slots of 37748736 bytes", "2 are leased"] {
            assert!(text.contains(word), "`{word}` is missing: {text}");
        }
        assert!(!text.contains("free") && !text.contains("GB"), "{text}");
        assert!(pool.try_lease(20 * MIB).is_ok());
    }
}

/// Kind of fault: a small request took the one large buffer for good.
///
/// Case waste-4.
#[test]
fn a_small_request_never_takes_a_large_slot() {
    let pool = untouched().class("small", MIB, 4).class("large", 256 * MIB, 1).open().unwrap();
    let small: Vec<Lease> = (0..4).map(|_| pool.try_lease(MIB).unwrap()).collect();
    for bytes in [1, MIB] {
        let (name, slots, text) = exhausted(pool.try_lease(bytes));
        assert_eq!((name.as_str(), slots), ("small", 4), "{text}");
        let waited = pool.lease_timeout(bytes, Duration::from_millis(5)).unwrap_err();
        assert!(matches!(waited, LeaseError::Timeout { .. }), "{waited}");
    }
    let large = pool.try_lease(256 * MIB).unwrap();
    assert_eq!(large.capacity(), 256 * MIB);
    let stats = pool.stats();
    assert_eq!((stats.classes[0].misses_total, stats.classes[1].misses_total), (4, 0));
    drop(small);
    // One byte more is the large class's to serve, or to refuse.
    assert_eq!(exhausted(pool.try_lease(MIB + 1)).0, "large");
}

/// Kind of fault: takers of an empty pool retried every 40 microseconds, for ever.
///
/// Case config-6.
#[test]
fn a_waiting_lease_sleeps() {
    const WAIT: Duration = Duration::from_millis(500);
    let pool = builder().lock(LockMode::Off).class("a", 64, 1).open().unwrap();
    let held = pool.try_lease(64).unwrap();
    std::thread::scope(|scope| {
        let waiters = [0, 1].map(|_| {
            scope.spawn(|| {
                let (start, before) = (Instant::now(), proc::thread_cpu_time());
                let result = pool.lease_timeout(64, WAIT);
                let busy = proc::thread_cpu_time().saturating_sub(before);
                (result.map(drop), start.elapsed(), busy)
            })
        });
        for waiter in waiters {
            let (result, waited, busy) = waiter.join().unwrap();
            assert!(matches!(result, Err(LeaseError::Timeout { .. })), "{result:?}");
            assert!(waited >= WAIT, "{waited:?}");
            assert!(busy < WAIT / 20, "it was busy for {busy:?} of {waited:?}");
        }
    });
    let class = &pool.stats().classes[0];
    assert_eq!((class.waits_total, class.timeouts_total), (2, 2));
    drop(held);
}

/// Case config-6: a class that can never serve is refused when it is loaded, beside good ones too.
#[test]
fn a_class_or_pool_without_room_is_refused_when_it_is_loaded() {
    for text in [
        "[[class]]\nname = \"a\"\nsize = 64\ncount = 0\n",
        "[[class]]\nname = \"b\"\nsize = 64\ncount = 4\n[[class]]\nname = \"a\"\nsize = 128\ncount = 0\n",
        "[pool]\nmax_pinned = 0\n[[class]]\nname = \"a\"\nsize = 64\ncount = 1\n",
        "[[class]]\nname = \"a\"\nsize = 0\ncount = 1\n",
    ] {
        let error = builder().toml(text).open().unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error}");
    }
    let error = builder().class("b", 64, 4).class("a", 128, 0).open().unwrap_err().to_string();
    assert!(error.contains("class 'a': count is 0"), "{error}");
}
