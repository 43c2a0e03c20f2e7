//! The floor: a fixed ring of buffers pinned once, as one writes by hand for one size and depth.

use std::collections::VecDeque;

use super::{BufferSource, FrameBuffer};
use crate::BenchError;

/// A ring of buffers that are made once.
#[derive(Debug)]
pub struct FixedRing<B> {
    idle: VecDeque<B>,
}

impl<B: FrameBuffer> FixedRing<B> {
    /// A ring of `depth` buffers, each from `make`.
    ///
    /// # Errors
    /// The first error of `make`.
    pub fn new(depth: usize, make: impl Fn() -> Result<B, BenchError>) -> Result<Self, BenchError> {
        let idle = (0..depth).map(|_| make()).collect::<Result<_, _>>()?;
        Ok(Self { idle })
    }
}

impl<B: FrameBuffer> BufferSource for FixedRing<B> {
    type Buffer = B;

    fn acquire(&mut self) -> Result<B, BenchError> {
        self.idle
            .pop_front()
            .ok_or_else(|| BenchError::Failed("the fixed ring is empty".to_owned()))
    }

    fn release(&mut self, buffer: B) -> Result<(), BenchError> {
        self.idle.push_back(buffer);
        Ok(())
    }
}
