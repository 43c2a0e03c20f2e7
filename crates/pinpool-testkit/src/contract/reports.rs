//! Reports: counts that balance and are exact, tags, what the memory is, and printed forms.

use std::time::Duration;

use pinpool::Lease;

use super::{Check, Subject, assert_balanced, main_stats};

pub(super) const CHECKS: &[Check] = &[
    ("counts are exact", counts_are_exact),
    ("counts stay true after close", counts_after_close),
    ("tags name holders", tags_name_holders),
    ("the memory is what it says", memory_is_what_it_says),
    ("printed forms", printed_forms),
];

fn counts_are_exact(subject: &Subject<'_>) {
    let pool = subject.pool(1000, 5);
    let mut held: Vec<Lease> = Vec::new();
    let mut high_water = 0;
    for (step, out) in [1, 2, 3, 2, 1, 2, 3, 4, 5, 0, 3].into_iter().enumerate() {
        while held.len() < out {
            held.push(pool.try_lease(1000).unwrap());
        }
        held.truncate(out);
        let out = u32::try_from(out).unwrap();
        high_water = out.max(high_water);
        let stats = main_stats(&pool);
        assert_eq!((stats.leased, stats.free), (out, 5 - out), "step {step}");
        assert_eq!(stats.high_water, high_water, "step {step}");
        assert_balanced(&pool);
    }
    let stats = main_stats(&pool);
    assert_eq!((stats.size, stats.slot_bytes, stats.slots), (1000, 1024, 5));
    assert_eq!((stats.leases_total, stats.misses_total), (3 + 4 + 3, 0));
}

fn counts_after_close(subject: &Subject<'_>) {
    let pool = subject.pool(1000, 5);
    let held: Vec<_> = (0..2).map(|_| pool.try_lease(1000).unwrap()).collect();
    assert!(!pool.close(Duration::ZERO).is_complete());
    let stats = main_stats(&pool);
    assert_eq!(stats.leased, 2, "what is home is not leased");
    drop(held);
    assert!(pool.close(Duration::ZERO).is_complete());
    let stats = main_stats(&pool);
    assert_eq!((stats.leased, stats.high_water, stats.leases_total), (0, 2, 2));
    assert_balanced(&pool);
}

fn tags_name_holders(subject: &Subject<'_>) {
    let pool = subject.pool(64, 1);
    let (left, right) = (pool.tag("cam-left"), pool.tag("cam-right"));
    assert_eq!(pool.tag("cam-left"), left, "the same name is the same tag");
    assert_ne!(left, right);
    let mut lease = pool.try_lease(64).unwrap();
    assert_eq!(lease.tag(), None);
    lease.set_tag(left);
    assert_eq!(lease.tag().as_deref(), Some("cam-left"));
    lease.set_tag(right);
    let lease = lease.cast::<u32>().unwrap();
    assert_eq!(lease.tag().as_deref(), Some("cam-right"), "a cast keeps it");
    drop(lease);
    assert_eq!(pool.try_lease(64).unwrap().tag(), None, "it goes with the lease");
}

fn memory_is_what_it_says(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 3);
    let lease = pool.try_lease(4096).unwrap();
    let stats = pool.stats();
    assert_eq!((pool.backend(), lease.backend()), (subject.backend, subject.backend));
    assert_eq!((pool.startup().backend, stats.backend), (subject.backend, subject.backend));
    if let Some(locked) = subject.locked {
        assert_eq!(
            (pool.is_pinned(), pool.startup().pinned, stats.pinned),
            (locked, locked, locked)
        );
        assert_eq!(lease.is_pinned(), locked);
    }
    let pinned_bytes = if pool.is_pinned() { pool.plan().total_bytes } else { 0 };
    assert_eq!((stats.pinned_bytes, stats.mapped_bytes), (pinned_bytes, pool.plan().total_bytes));
    assert!(stats.pinned_bytes <= stats.cap_bytes && stats.stuck_bytes == 0);
    assert_eq!(stats.classes.len(), pool.plan().classes.len());
    assert_eq!(lease.device_ptr().is_some(), lease.is_device_accessible());
    assert_eq!(pool.is_device_accessible(), lease.is_device_accessible());
    drop(pool);
    assert_eq!(lease.backend(), subject.backend, "also without its pool");
}

fn printed_forms(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 3);
    let mut lease = pool.try_lease(4096).unwrap();
    lease.as_mut_slice().fill(0xAB);
    let text = format!("{lease:?}");
    assert!(text.contains("main") && text.contains("4096"), "{text}");
    assert!(!text.contains("171"), "never the contents: {text}");
    let table = pool.stats().to_string();
    assert!(table.contains("main") && table.contains("high-water"), "{table}");
    assert!(format!("{pool:?}").contains("Pool"));
}
