//! What would make a lease slow now and then is not done while leasing.
//!
//! Case latency-2 is measured by `pinpool bench in-flight`; case latency-3, a search of the whole list, is counted by
//! `scripts/instructions`.

use pinpool::ClassConfig;

use crate::{assert_all_home, counted};

/// Kind of fault: memory is pinned and unpinned on the way of a lease, which stalls everybody.
///
/// A million leases on eight threads, each time of another class, with several held at a time: the memory is not
/// called once.
///
/// Case latency-1.
#[test]
fn a_million_leases_make_no_call_into_the_memory() {
    const THREADS: usize = 8;
    const LEASES: usize = 1_000_000;
    const HELD: usize = 4;
    const SIZES: [usize; 3] = [64, 4096, 100_000];
    let classes = SIZES.map(|size| ClassConfig::new(format!("of-{size}"), size, THREADS * HELD));
    let (pool, ledger) = counted(classes);
    let calls = ledger.calls_total();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let pool = &pool;
            scope.spawn(move || {
                let mut held = [const { None }; HELD];
                for round in 0..LEASES / THREADS {
                    let size = SIZES[(round / 7 + thread) % SIZES.len()];
                    held[round % HELD] = None;
                    held[round % HELD] = Some(pool.try_lease(size).expect("enough for all"));
                }
            });
        }
    });
    assert_eq!(ledger.calls_total(), calls, "calls into the memory while leasing");
    let classes = pool.stats().classes;
    assert_eq!(classes.iter().map(|class| class.leases_total).sum::<u64>(), LEASES as u64);
    assert!(classes.iter().all(|class| class.leases_total > LEASES as u64 / 4), "{classes:?}");
    assert_all_home(pool, &ledger);
}
