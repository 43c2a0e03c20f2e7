//! Chance that can be repeated.

/// A stream of numbers that follows from its seed alone.
#[derive(Debug, Clone)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number (splitmix64).
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not zero.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A place in a list that is not empty.
    #[allow(clippy::cast_possible_truncation, reason = "less than a length")]
    pub(super) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True `of_1024` times out of 1024.
    pub(super) fn chance(&mut self, of_1024: u64) -> bool {
        self.next() & 1023 < of_1024
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }
}
