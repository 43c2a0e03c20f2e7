//! Sizes at and beyond the edges: zero, exact, one more, and numbers that wrap when rounded up.

use std::time::Duration;

use pinpool::{
    Error, Heap, KeepFree, Lease, LeaseError, LockMode, MemoryStep, PIN_CHUNK_DEFAULT, Pool,
};
use pinpool_testkit::scripted::{Counted, Limited};
use pinpool_testkit::stamp;

use crate::builder;

const SOON: Duration = Duration::from_millis(1);

/// Kind of fault: a request of zero bytes took a block, or went to the system and failed later.
///
/// Case size-1.
#[test]
fn a_lease_of_zero_bytes_is_refused_and_takes_nothing() {
    let (memory, ledger) = Counted::new(Heap::claiming_locked());
    let pool = builder().class("a", 4096, 8).memory(memory).open().unwrap();
    let calls = ledger.calls_total();
    let held: Vec<Lease> = (0..8).map(|_| pool.try_lease(4096).unwrap()).collect();
    for _ in 0..1000 {
        let zero = LeaseError::ZeroLen;
        assert_eq!(pool.try_lease(0).unwrap_err(), zero);
        assert_eq!(pool.lease(0).unwrap_err(), zero, "and does not wait for a slot");
        assert_eq!(pool.lease_timeout(0, Duration::from_secs(60)).unwrap_err(), zero);
        assert_eq!(pool.try_lease_of::<u64>(0).unwrap_err(), zero);
        assert_eq!(pool.lease_of::<f32>(0).unwrap_err(), zero);
        assert_eq!(pool.lease_timeout_of::<u16>(0, SOON).unwrap_err(), zero);
        assert_eq!(pool.try_lease_of::<[u8; 0]>(5).unwrap_err(), zero, "elements of zero size");
    }
    let class = &pool.stats().classes[0];
    assert_eq!((class.leased, class.free), (8, 0));
    assert_eq!((class.leases_total, class.misses_total, class.waits_total), (8, 0, 0));
    drop(held);
    assert!(pool.try_lease(0).is_err(), "with free slots as well");
    assert_eq!(pool.stats().classes[0].free, 8);
    assert_eq!(ledger.calls_total(), calls, "the memory was asked for nothing");
    drop(pool);
    // It also notes every call with a length of zero.
    ledger.assert_clean();
}

/// Case size-1: a total of zero is refused when the pool opens.
#[test]
fn a_pool_of_zero_bytes_is_refused_before_any_call() {
    for (size, count) in [(0, 1), (1, 0), (0, 0)] {
        let (memory, ledger) = Counted::new(Heap::new());
        let error = builder().class("a", size, count).memory(memory).open().unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error}");
        assert_eq!(ledger.calls_total(), 0);
    }
}

/// Three classes whose slots all have an owner's stamp: overlapping slots cannot keep theirs.
fn assert_slots_are_apart(pool: &Pool) {
    let mut leases = Vec::new();
    for class in &pool.stats().classes {
        while let Ok(lease) = pool.try_lease(class.slot_bytes) {
            if lease.class() == class.id {
                leases.push(lease);
            } else {
                break;
            }
        }
    }
    let slots: u32 = pool.stats().classes.iter().map(|class| class.slots).sum();
    assert_eq!(leases.len(), slots as usize, "every slot can be had");
    for (owner, lease) in leases.iter_mut().enumerate() {
        stamp::write_slot(lease, owner as u64);
    }
    for (owner, lease) in leases.iter().enumerate() {
        stamp::verify(lease.as_slice(), owner as u64);
    }
}

/// Kind of fault: a size near the largest number wraps to a tiny one when it is rounded up, and the
/// tiny chunk that is handed out aliases a free one.
///
/// Case size-2.
#[test]
fn a_size_near_the_largest_number_is_too_large() {
    let pool = builder().lock(LockMode::Off).class("a", 64, 5).class("b", 1000, 3).open().unwrap();
    let largest = 1024;
    let half = usize::MAX / 2;
    for requested in [
        usize::MAX,
        usize::MAX - 1,
        usize::MAX - 63,
        usize::MAX - 510,
        half + 1,
        half,
        1 << 40,
        1025,
    ] {
        let too_large = LeaseError::TooLarge { requested, largest };
        assert_eq!(pool.try_lease(requested).unwrap_err(), too_large);
        assert_eq!(pool.lease(requested).unwrap_err(), too_large);
        assert_eq!(pool.lease_timeout(requested, SOON).unwrap_err(), too_large);
        let text = too_large.to_string();
        for word in [requested.to_string(), "largest slot is 1024 bytes".into(), "[[class]]".into()]
        {
            assert!(text.contains(&word), "`{word}` is missing: {text}");
        }
    }
    // Counts of elements whose bytes do not fit a number at all.
    let wrapped = LeaseError::TooLarge { requested: usize::MAX, largest };
    for count in [usize::MAX, usize::MAX / 2, usize::MAX / 4, usize::MAX / 8 + 1] {
        assert_eq!(pool.try_lease_of::<u64>(count).unwrap_err(), wrapped);
        assert_eq!(pool.lease_of::<u64>(count).unwrap_err(), wrapped);
        assert_eq!(pool.lease_timeout_of::<[u64; 2]>(count, SOON).unwrap_err(), wrapped);
    }
    let fits = usize::MAX / 8 * 8;
    let too_large = LeaseError::TooLarge { requested: fits, largest };
    assert_eq!(pool.try_lease_of::<u64>(usize::MAX / 8).unwrap_err(), too_large);
    assert!(pool.stats().classes.iter().all(|class| class.leases_total == 0));
    assert_slots_are_apart(&pool);
}

/// Case size-2: the product of a configuration is checked arithmetic as well.
#[test]
fn a_configuration_past_the_address_space_is_refused() {
    for (size, count, word) in [
        (1 << 40, 1 << 30, "count is 1073741824"),
        (1 << 44, 1 << 21, "exceed the address space"),
        (usize::MAX, 1, "exceed the address space"),
        (usize::MAX - 62, 1, "exceed the address space"),
        (isize::MAX as usize, 2, "exceed the address space"),
        (isize::MAX as usize, 1, "exceed the address space"),
    ] {
        let error = builder().lock(LockMode::Off).class("huge", size, count).open().unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains("'huge'") && text.contains(word), "`{word}` is missing: {text}");
    }
    // What the numbers allow and no machine has is refused before it is tried.
    let (size, count) = (1 << 40, 4_194_302);
    let huge = || builder().lock(LockMode::Off).class("huge", size, count);
    let error = huge().open().unwrap_err();
    let Error::NoRoom { needed, taken: 0, headroom } = &error else { panic!("{error}") };
    assert_eq!(*needed, (size * count) as u64);
    assert!(headroom.room() < *needed && error.is_bad_input(), "{error}");
    // Where nobody looks: a failed step, in words, and nothing left.
    let error = huge().keep_free(KeepFree::Off).open().unwrap_err();
    let Error::Memory { class, pinned: 0, total, source, .. } = &error else { panic!("{error}") };
    assert_eq!((class.as_str(), *total), ("huge", (size * count) as u64));
    assert_eq!((source.step, source.bytes), (MemoryStep::Reserve, size * count));
}

/// Kind of fault: one registration of the whole slab is more than the driver takes, and always fails.
///
/// A system that takes less than 64 MiB in one call, and 200 MiB of slots that do not divide it. Whatever
/// chunks are asked for below the limit, every slot lies whole inside one of them.
///
/// Case size-3.
#[test]
fn every_slot_lies_inside_one_registration() {
    const MIB: usize = 1 << 20;
    const SLOT: usize = 3 * MIB;
    const LIMIT: usize = 64 * MIB;
    let slots = 200 * MIB / SLOT;
    for chunk in [PIN_CHUNK_DEFAULT, LIMIT as u64 - 1, 10 * MIB as u64, 1] {
        let limited = Limited::per_call(Heap::claiming_locked(), LIMIT - 1);
        let (memory, ledger) = Counted::new(limited);
        let builder = builder().pin_chunk(chunk).keep_free(KeepFree::Off);
        let pool = builder.class("frame", SLOT, slots).memory(memory).open().unwrap();
        let chunks = ledger.pinned_chunks();
        assert!(chunks.iter().all(|(_, bytes)| *bytes < LIMIT), "{chunks:?}");
        assert_eq!(chunks.iter().map(|(_, bytes)| bytes).sum::<usize>(), slots * SLOT);
        let leases: Vec<Lease> = (0..slots).map(|_| pool.try_lease(SLOT).unwrap()).collect();
        for lease in &leases {
            let (from, to) = (lease.as_ptr().addr(), lease.as_ptr().addr() + lease.capacity());
            let whole = |(start, bytes): &(usize, usize)| *start <= from && to <= start + bytes;
            assert!(chunks.iter().any(whole), "slot {} straddles: {chunks:?}", lease.slot());
        }
        drop(leases);
        assert_slots_are_apart(&pool);
        drop(pool);
        ledger.assert_clean();
    }
    // Above it the first call is refused, with its size, and nothing stays.
    let limited = Limited::per_call(Heap::claiming_locked(), LIMIT - 1);
    let (memory, ledger) = Counted::new(limited);
    let builder = builder().pin_chunk(128 << 20).class("frame", SLOT, slots);
    let error = builder.memory(memory).open().unwrap_err();
    let Error::Memory { offset: 0, pinned: 0, source, .. } = &error else { panic!("{error}") };
    assert!(source.step == MemoryStep::Pin && source.bytes >= LIMIT, "{error}");
    ledger.assert_clean();
}

/// Kind of fault: a hidden header makes a payload of exactly the slot's size too large for it.
///
/// Case waste-6.
#[test]
fn a_slot_holds_its_whole_size_and_not_a_byte_more() {
    let pool = builder().lock(LockMode::Off).class("only", 65_536, 4).open().unwrap();
    let slots: Vec<Lease> = (0..4).map(|_| pool.try_lease(65_536).unwrap()).collect();
    let mut addresses: Vec<usize> = slots.iter().map(|slot| slot.as_ptr().addr()).collect();
    addresses.sort_unstable();
    for pair in addresses.windows(2) {
        assert_eq!(pair[1] - pair[0], 65_536, "nothing lies between two slots");
    }
    for slot in &slots {
        assert_eq!((slot.len(), slot.capacity()), (65_536, 65_536));
    }
    drop(slots);
    assert_eq!(pool.plan().classes[0].waste_bytes, 0);
    assert_slots_are_apart(&pool);
    let error = pool.try_lease(65_537).unwrap_err();
    assert_eq!(error, LeaseError::TooLarge { requested: 65_537, largest: 65_536 });

    let pool = builder().lock(LockMode::Off).class("only", 65_536, 4).class("next", 65_600, 1);
    let pool = pool.open().unwrap();
    let next = pool.try_lease(65_537).unwrap();
    assert_eq!((next.len(), next.capacity()), (65_537, 65_600));
    assert_eq!(pool.stats().classes[next.class().index()].name.as_str(), "next");
    assert_eq!(pool.try_lease(65_536).unwrap().class().index(), 0);
}

/// Every size from 1 byte to past the largest class: the smallest slot that fits, or too large.
#[test]
fn every_size_gets_the_smallest_slot_that_fits() {
    let sizes = [64, 128, 1000, 4096, 43_336, 65_536];
    let pool = sizes.iter().fold(builder().lock(LockMode::Off), |builder, size| {
        builder.class(&format!("c{size}"), *size, 1)
    });
    let pool = pool.open().unwrap();
    let slots: Vec<usize> = pool.plan().classes.iter().map(|class| class.slot_bytes).collect();
    assert_eq!(slots, [64, 128, 1024, 4096, 43_392, 65_536]);
    for bytes in 1..=65_536 {
        let lease = pool.try_lease(bytes).unwrap();
        let smallest = slots.iter().position(|slot| *slot >= bytes).unwrap();
        assert_eq!((lease.len(), lease.class().index()), (bytes, smallest));
        assert_eq!(lease.capacity(), slots[smallest]);
        assert!(lease.as_ptr().addr().is_multiple_of(64), "{bytes}");
    }
    assert!(matches!(pool.try_lease(65_537), Err(LeaseError::TooLarge { .. })));
}
