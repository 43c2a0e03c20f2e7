//! Types: leases of elements, parts, reinterpretation, and the errors of all three.

use pinpool::LeaseError;

use super::{Check, Subject, assert_balanced};

pub(super) const CHECKS: &[Check] = &[
    ("leases of elements", leases_of_elements),
    ("parts by range", parts_by_range),
    ("parts to write", parts_to_write),
    ("reinterpretation", reinterpretation),
];

fn leases_of_elements(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 2);
    let mut floats = pool.try_lease_of::<f32>(1023).unwrap();
    assert_eq!((floats.len(), floats.capacity()), (1023, 1024));
    assert!(floats.as_slice().iter().all(|value| value.to_bits() == 0));
    floats.as_mut_slice()[1022] = 1.5;
    floats.set_len(1024).unwrap();
    let refused = LeaseError::OutOfRange { start: 0, end: 1025, len: 1024 };
    assert_eq!(floats.set_len(1025), Err(refused));
    assert_eq!(floats.as_slice()[1022].to_bits(), 1.5f32.to_bits());
    assert_eq!(floats.view(1022..1023).unwrap().as_slice()[0].to_bits(), 1.5f32.to_bits());
    // Three bytes to an element leave the capacity at whole ones.
    let pixels = pool.try_lease_of::<[u8; 3]>(1300).unwrap();
    assert_eq!((pixels.len(), pixels.capacity()), (1300, 4096 / 3));
    assert_eq!(pool.try_lease_of::<()>(3).unwrap_err(), LeaseError::ZeroLen);
    assert_balanced(&pool);
}

fn parts_by_range(subject: &Subject<'_>) {
    let pool = subject.pool(100, 1);
    let mut lease = pool.try_lease(100).unwrap();
    for (at, byte) in (0u8..).zip(lease.as_mut_slice()) {
        *byte = at;
    }
    assert_eq!(lease.view(..).unwrap().as_slice(), lease.as_slice());
    assert_eq!(lease.view(10..13).unwrap().as_slice(), [10, 11, 12]);
    assert_eq!(lease.view(98..).unwrap().as_slice(), [98, 99]);
    assert_eq!(lease.view(..=1).unwrap().as_slice(), [0, 1]);
    assert!(lease.view(100..).unwrap().is_empty());
    let part = lease.view(10..20).unwrap();
    assert_eq!(part.view(2..4).unwrap().as_slice(), [12, 13]);
    assert_eq!(part.len(), 10);
    let beyond = LeaseError::OutOfRange { start: 5, end: 11, len: 10 };
    assert_eq!(part.view(5..11).unwrap_err(), beyond);
    // The slot has 128 bytes, but 100 are in use.
    let beyond = LeaseError::OutOfRange { start: 0, end: 101, len: 100 };
    assert_eq!(lease.view(..101).unwrap_err(), beyond);
    assert!(beyond.to_string().contains("0..101") && beyond.to_string().contains("100"));
    #[allow(clippy::reversed_empty_ranges, reason = "that is the mistake under test")]
    let backwards = lease.view(7..3);
    assert!(matches!(backwards, Err(LeaseError::OutOfRange { start: 7, end: 3, .. })));
    assert!(lease.view(..=usize::MAX).is_err());
    assert!(lease.view(usize::MAX..).is_err());
}

fn parts_to_write(subject: &Subject<'_>) {
    let pool = subject.pool(64, 1);
    let mut lease = pool.try_lease(64).unwrap();
    lease.view_mut(60..).unwrap().as_mut_slice().fill(9);
    let (mut left, mut right) = lease.view_mut(..).unwrap().split_at(62).unwrap();
    left.as_mut_slice()[0] = 1;
    right.as_mut_slice()[1] = 2;
    assert_eq!((left.len(), right.len(), right.is_empty()), (62, 2, false));
    assert_eq!(right.as_slice(), [9, 2]);
    assert_eq!((lease.as_slice()[0], lease.as_slice()[60], lease.as_slice()[63]), (1, 9, 2));
    let beyond = LeaseError::OutOfRange { start: 0, end: 65, len: 64 };
    assert_eq!(lease.view_mut(..).unwrap().split_at(65).unwrap_err(), beyond);
    assert!(lease.view_mut(..65).is_err());
}

fn reinterpretation(subject: &Subject<'_>) {
    let pool = subject.pool(64, 1);
    let mut lease = pool.try_lease(10).unwrap();
    let leftover = LeaseError::Misaligned { align: 4, leftover: 2 };
    assert_eq!(lease.typed::<u32>().unwrap_err(), leftover);
    assert_eq!(lease.typed_mut::<u32>().unwrap_err(), leftover);
    assert!(leftover.to_string().contains("2 are left over"));
    assert_eq!(lease.typed::<()>().unwrap_err(), LeaseError::ZeroLen);
    let (lease, error) = lease.cast::<u64>().unwrap_err();
    assert_eq!(error, LeaseError::Misaligned { align: 8, leftover: 2 });
    assert_eq!(lease.len(), 10, "a refused cast gives the lease back unchanged");

    let (mut lease, slot) = (lease, 0);
    lease.set_len(16).unwrap();
    lease.typed_mut::<u64>().unwrap()[1] = u64::from_le_bytes([7; 8]);
    assert_eq!(lease.as_slice()[8..], [7; 8]);
    let mut words = lease.cast::<u64>().unwrap();
    assert_eq!((words.len(), words.capacity(), words.slot()), (2, 8, slot));
    words.as_mut_slice()[0] = 1;
    let bytes = words.cast::<u8>().unwrap();
    assert_eq!(bytes.as_slice()[..9], [1, 0, 0, 0, 0, 0, 0, 0, 7]);
    drop(bytes);
    assert!(pool.try_lease(64).is_ok(), "one slot came home, once");
    assert_balanced(&pool);
}
