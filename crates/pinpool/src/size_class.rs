//! From a request in bytes to the smallest class whose slots hold it, and back; pure arithmetic.

use std::fmt;

/// A size class: its place in [`Plan::classes`](crate::Plan::classes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub(crate) u8);

impl ClassId {
    /// The class's place in [`Plan::classes`](crate::Plan::classes) and
    /// [`PoolStats::classes`](crate::PoolStats::classes).
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ClassId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "class {}", self.0)
    }
}

/// The slot sizes of a pool, or of what one of its devices uses of it, rising, and where in them to look for a
/// size. The class it answers with is a place among them.
///
/// Sizes fall into buckets, four to each doubling, and each bucket knows the smallest class that can hold anything of
/// it. Where no more than one slot size lies within a bucket, one comparison settles the rest. The fields lie
/// in the order in which they are read.
#[derive(Debug, Clone)]
#[repr(C)]
pub(crate) struct SizeTable {
    smallest: usize,
    largest: usize,
    /// How many slot sizes lie in smaller buckets.
    firsts: [u8; BUCKETS],
    /// A class number is always within: what lies behind the last slot size is larger than any request.
    slot_bytes: [usize; BUCKETS],
}

impl SizeTable {
    /// A table of distinct, rising slot sizes, 1 to [`CLASSES_MAX`] of them (the plan's duty).
    pub(crate) fn new(sizes: &[usize]) -> Self {
        debug_assert!(sizes.is_sorted_by(|a, b| a < b), "slot sizes rise");
        debug_assert!((1..=CLASSES_MAX).contains(&sizes.len()), "a class number is one byte");
        let mut slot_bytes = [usize::MAX; BUCKETS];
        slot_bytes[..sizes.len()].copy_from_slice(sizes);
        let mut firsts = [0; BUCKETS];
        for (number, first) in (0..=u8::MAX).zip(&mut firsts) {
            *first = rank(sizes.partition_point(|slot| bucket(*slot) < number));
        }
        let [smallest, largest] = [sizes.first(), sizes.last()].map(|size| *size.unwrap_or(&0));
        Self { smallest, largest, firsts, slot_bytes }
    }

    /// The smallest class that holds `bytes`.
    #[inline]
    pub(crate) fn class_for(&self, bytes: usize) -> Option<ClassId> {
        // All there is to do in a pool of one class.
        if bytes <= self.smallest {
            return Some(ClassId(0));
        }
        if bytes > self.largest {
            return None;
        }
        let first = self.firsts[usize::from(bucket(bytes))];
        let rank = first + u8::from(self.slot_bytes[usize::from(first)] < bytes);
        if self.slot_bytes[usize::from(rank)] < bytes {
            return Some(self.search_from(rank, bytes));
        }
        Some(ClassId(rank))
    }

    /// Several slot sizes lie in one bucket.
    #[cold]
    #[inline(never)]
    fn search_from(&self, from: u8, bytes: usize) -> ClassId {
        let further = &self.slot_bytes[usize::from(from)..];
        ClassId(from + rank(further.partition_point(|slot| *slot < bytes)))
    }

    /// The largest slot.
    pub(crate) fn largest(&self) -> usize {
        self.largest
    }
}

/// The bucket of a size: its highest bit and the two below. It never falls as the size rises.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "61 * 4 + 7 is the most")]
fn bucket(bytes: usize) -> u8 {
    let shift = (bytes | 0b100).ilog2() - 2;
    (shift * 4) as u8 + (bytes >> shift) as u8
}

#[allow(clippy::cast_possible_truncation, reason = "a table has at most CLASSES_MAX sizes")]
fn rank(place: usize) -> u8 {
    place as u8
}

/// The most classes one pool may have.
pub(crate) const CLASSES_MAX: usize = 255;

/// As many as one byte can tell apart, so that no index needs to be checked.
const BUCKETS: usize = 256;

const _: () = assert!(CLASSES_MAX < BUCKETS, "something lies behind the last slot size");

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Every size up to 16 MiB against a table with dense, sparse and odd sizes: it fits, no
    /// smaller class would do, and the answer never falls as the size rises.
    #[test]
    fn every_size_up_to_16_mib_gets_the_smallest_class_that_fits() {
        let sizes = [64, 128, 4096, 43_392, 65_536, 3_110_400, 6_220_800, 12_441_600, 16 << 20];
        let table = SizeTable::new(&sizes);
        let mut last = ClassId(0);
        for bytes in 1..=16usize << 20 {
            let class = table.class_for(bytes);
            let Some(class) = class else { panic!("{bytes} bytes fit the largest class") };
            assert!(sizes[class.index()] >= bytes, "{bytes} bytes do not fit {class}");
            assert!(class.index() == 0 || sizes[class.index() - 1] < bytes, "{bytes}: too large");
            assert!(class >= last, "{bytes}: the class fell");
            last = class;
        }
        assert_eq!(table.class_for((16 << 20) + 1), None);
    }

    #[test]
    fn both_sides_of_every_edge_and_the_largest_number() {
        let sizes: Vec<usize> = (0..CLASSES_MAX).map(|rank| (rank + 1) * 64).collect();
        let table = SizeTable::new(&sizes);
        for (rank, &edge) in sizes.iter().enumerate() {
            assert_eq!(table.class_for(edge - 1).map(ClassId::index), Some(rank));
            assert_eq!(table.class_for(edge).map(ClassId::index), Some(rank));
            let above = (rank + 1 < sizes.len()).then_some(rank + 1);
            assert_eq!(table.class_for(edge + 1).map(ClassId::index), above);
        }
        assert_eq!(table.class_for(usize::MAX), None);
        assert_eq!(table.largest(), CLASSES_MAX * 64);
    }

    /// 10,000 random tables, each asked around its edges and at random, against a linear search.
    #[test]
    fn random_tables_agree_with_a_linear_search() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            usize::try_from(seed >> 24).unwrap_or(usize::MAX)
        };
        for _ in 0..10_000 {
            let mut sizes: Vec<usize> = (0..=random() % 12).map(|_| 1 + random()).collect();
            sizes.sort_unstable();
            sizes.dedup();
            let table = SizeTable::new(&sizes);
            assert_linear(&table, &sizes, [random()]);
        }
    }

    /// Tables whose sizes crowd into one bucket, or on both sides of where two meet, or at the ends of all
    /// numbers: as many classes as a pool can have, and next to each other.
    #[test]
    fn crowded_tables_agree_with_a_linear_search() {
        let meetings = [1 << 12, 5 << 10, 6 << 18, 7 << 28, 1 << 40, 1 << 63];
        let around = meetings.map(|meeting| meeting - CLASSES_MAX / 2);
        let mut crowded = 0;
        for start in
            [1, 2, 1 << 10, 1 << 32, usize::MAX - CLASSES_MAX + 1].into_iter().chain(around)
        {
            for step in [1, 2, 3, 64] {
                let sizes: Vec<usize> =
                    (0..CLASSES_MAX).map_while(|rank| start.checked_add(rank * step)).collect();
                let table = SizeTable::new(&sizes);
                let buckets = sizes.iter().map(|size| bucket(*size));
                let distinct = buckets.collect::<std::collections::BTreeSet<_>>().len();
                crowded += usize::from(distinct <= 2 && sizes.len() == CLASSES_MAX);
                assert_linear(
                    &table,
                    &sizes,
                    (0..=BUCKETS).map(|offset| start.wrapping_add(offset)),
                );
            }
        }
        assert!(crowded >= 20, "{crowded} tables are crowded");
    }

    /// Asks for each edge and its neighbours, the ends of all numbers, and `more`.
    fn assert_linear(table: &SizeTable, sizes: &[usize], more: impl IntoIterator<Item = usize>) {
        let edges = sizes.iter().flat_map(|size| [size - 1, *size, size.saturating_add(1)]);
        for bytes in edges.chain([0, 1, usize::MAX]).chain(more) {
            let linear = sizes.iter().position(|size| *size >= bytes);
            assert_eq!(table.class_for(bytes).map(ClassId::index), linear, "{bytes} in {sizes:?}");
        }
    }

    /// What the table is built on: a bucket never falls as the size rises, and fits its byte.
    #[test]
    fn buckets_rise_with_the_size() {
        let starts = (10..usize::BITS - 2).flat_map(|bit| (4..8).map(move |top| top << bit));
        let mut last = 0;
        for size in (0..4096).chain(starts.flat_map(|start| [start - 1, start])).chain([usize::MAX])
        {
            assert!(bucket(size) >= last, "{size}: the bucket fell");
            last = bucket(size);
        }
        assert_eq!((bucket(0), bucket(7), bucket(8), last), (0, 7, 8, 251));
    }
}
