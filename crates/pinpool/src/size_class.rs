//! From a request in bytes to the smallest class whose slots hold it, and back; pure arithmetic.

use std::fmt;

/// A size class: its rank by slot size, smallest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub(crate) u8);

impl ClassId {
    /// The class's place in [`PoolStats::classes`](crate::PoolStats::classes) and
    /// [`Plan::classes`](crate::Plan::classes).
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ClassId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "class {}", self.0)
    }
}

/// The slot sizes of a pool, rising.
#[derive(Debug, Clone)]
pub(crate) struct SizeTable {
    slot_bytes: Box<[usize]>,
}

impl SizeTable {
    /// A table of distinct, rising slot sizes, at most [`CLASSES_MAX`] of them (the plan's duty).
    pub(crate) fn new(slot_bytes: Box<[usize]>) -> Self {
        debug_assert!(slot_bytes.is_sorted_by(|a, b| a < b), "slot sizes rise");
        debug_assert!(slot_bytes.len() <= CLASSES_MAX, "a class number is one byte");
        Self { slot_bytes }
    }

    /// The smallest class that holds `bytes`.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "a table has at most CLASSES_MAX entries")]
    pub(crate) fn class_for(&self, bytes: usize) -> Option<ClassId> {
        let rank = self.slot_bytes.partition_point(|slot| *slot < bytes);
        (rank < self.slot_bytes.len()).then_some(ClassId(rank as u8))
    }

    /// The largest slot.
    pub(crate) fn largest(&self) -> usize {
        self.slot_bytes.last().copied().unwrap_or(0)
    }
}

/// The most classes one pool may have.
pub(crate) const CLASSES_MAX: usize = 255;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn table(sizes: &[usize]) -> SizeTable {
        SizeTable::new(sizes.into())
    }

    /// Every size up to 16 MiB against a table with dense, sparse and odd sizes: it fits, no
    /// smaller class would do, and the answer never falls as the size rises.
    #[test]
    fn every_size_up_to_16_mib_gets_the_smallest_class_that_fits() {
        let sizes = [64, 128, 4096, 43_392, 65_536, 3_110_400, 6_220_800, 12_441_600, 16 << 20];
        let table = table(&sizes);
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
        let table = table(&sizes);
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
            let table = table(&sizes);
            let edges =
                sizes.iter().flat_map(|size| [size - 1, *size, size + 1]).collect::<Vec<_>>();
            for bytes in edges.into_iter().chain([1, random(), usize::MAX]) {
                let linear = sizes.iter().position(|size| *size >= bytes);
                assert_eq!(
                    table.class_for(bytes).map(ClassId::index),
                    linear,
                    "{bytes} in {sizes:?}"
                );
            }
        }
    }
}
