//! Pools that open smaller than configured, where `min_bytes` allows it.

use pinpool::{Error, Heap, LeaseError, MemoryStep, Mlock, Pool, PoolBuilder};
use pinpool_testkit::scripted::{Counted, Fault, Faulty, Ledger, Limited};

use super::PAGE;

const CHUNK: usize = 64 * PAGE;

/// Eight chunks of slots of four pages, and one of small ones.
fn builder() -> PoolBuilder {
    let builder = Pool::builder().env(false).pin_chunk(CHUNK as u64);
    builder.class("frame", 4 * PAGE, 128).class("small", PAGE, 64)
}

/// Memory that lets so many bytes be pinned in total, as some systems do.
fn limited(bytes: usize) -> (Counted<Limited<Heap>>, Ledger) {
    Counted::new(Limited::new(Heap::claiming_locked(), bytes))
}

/// Without `min_bytes` it is all or nothing, and the error says how far it came and where it failed.
///
/// Case limits-3.
#[test]
fn a_pool_is_whole_or_not_there_unless_min_bytes_says_otherwise() {
    let (memory, ledger) = limited(3 * CHUNK);
    let error = builder().memory(memory).open().unwrap_err();
    let Error::Memory { class, pinned, total, offset, source } = &error else { panic!("{error}") };
    assert_eq!((class.as_str(), *pinned), ("frame", 3 * CHUNK as u64));
    assert_eq!((*offset, *total), (3 * CHUNK as u64, 9 * CHUNK as u64));
    assert_eq!((source.step, source.bytes), (MemoryStep::Pin, CHUNK));
    ledger.assert_clean();
}

/// Case limits-3.
#[test]
fn a_class_keeps_the_slots_that_there_is_memory_for() {
    // The second class is small enough for what is left.
    let (memory, ledger) = limited(3 * CHUNK);
    let smaller = builder().class("small", PAGE, 1).class("frame", 4 * PAGE, 128);
    drop(smaller);
    let reordered = Pool::builder().env(false).pin_chunk(CHUNK as u64);
    let reordered = reordered.class("small", PAGE, 64).class("frame", 4 * PAGE, 128);
    let pool = reordered.memory(memory).min_bytes(3 * CHUNK as u64).open().unwrap();
    let cut = &pool.startup().cut;
    assert_eq!(cut.len(), 1, "{cut:?}");
    assert_eq!(
        (cut[0].class.to_string().as_str(), cut[0].slots, cut[0].wanted),
        ("frame", 32, 128)
    );
    assert!(cut[0].reason.contains("pin 262144 bytes"), "{}", cut[0].reason);
    // One failing call and no more.
    assert_eq!(ledger.failures(MemoryStep::Pin), 1);
    let stats = pool.stats();
    let frame = stats.classes.iter().find(|class| class.name == "frame").unwrap();
    assert_eq!((frame.slots, frame.free), (32, 32));
    assert_eq!(stats.pinned_bytes, 3 * CHUNK as u64);
    assert!(pool.is_pinned());
    // Each of them is whole, and there is none beyond.
    let mut leases: Vec<_> = (0..32).map(|_| pool.try_lease(4 * PAGE).unwrap()).collect();
    for (lease, value) in leases.iter_mut().zip(0u8..) {
        lease.as_mut_slice().fill(value);
    }
    for (lease, value) in leases.iter().zip(0u8..) {
        assert!(lease.as_slice().iter().all(|byte| *byte == value));
    }
    assert!(matches!(pool.try_lease(4 * PAGE), Err(LeaseError::Exhausted(_))));
    drop(leases);
    drop(pool);
    ledger.assert_clean();
}

/// Less than `min_bytes`, or a class without any slot, is no pool; the first reason is told, once.
#[test]
fn what_is_too_small_is_rolled_back() {
    let all = 9 * CHUNK as u64;
    for (limit, least) in [(3 * CHUNK, 4 * CHUNK as u64), (3 * CHUNK, 1), (0, 1)] {
        let (memory, ledger) = limited(limit);
        let error = builder().memory(memory).min_bytes(least).open().unwrap_err();
        let Error::Memory { class, total, offset, .. } = &error else { panic!("{error}") };
        assert_eq!((class.as_str(), *total, *offset), ("frame", all, limit as u64), "{error}");
        assert!(ledger.failures(MemoryStep::Pin) <= 2, "a try for each class at most");
        ledger.assert_clean();
    }
}

#[test]
fn more_than_there_is_to_be_is_refused() {
    let error = builder().min_bytes(9 * CHUNK as u64 + 1).plan().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("min_bytes") && text.contains(&(9 * CHUNK).to_string()), "{text}");
}

/// Memory that cannot be backed ends a class as memory that cannot be pinned does, and what lies beyond
/// is given back to the system.
#[test]
fn a_class_ends_where_memory_does() {
    // Pieces of 4 MiB are backed at a time.
    const PIECE: usize = 4 << 20;
    let fault = Fault::nth(3).of(MemoryStep::Populate).os(libc::ENOMEM).persistent();
    let (memory, _log) = Faulty::new(Mlock::new(pinpool::LockMode::Off), fault);
    let builder = Pool::builder().env(false).class("frame", 1 << 20, 64).prefault_threads(1);
    let pool = builder.lock(pinpool::LockMode::Off).min_bytes(1).memory(memory).open().unwrap();
    let slots = 8;
    assert_eq!(slots as usize, (2 * PIECE) >> 20);
    assert_eq!(pool.stats().classes[0].slots, slots);
    assert!(pool.startup().cut[0].reason.contains("back with memory"));
    let leases: Vec<_> = (0..slots).map(|_| pool.try_lease(1 << 20).unwrap()).collect();
    assert!(pool.try_lease(1).is_err());
    assert!(leases.iter().all(|lease| lease.as_slice().iter().all(|byte| *byte == 0)));
}
