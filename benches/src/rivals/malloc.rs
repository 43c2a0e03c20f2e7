//! The allocator: memory for each frame, first touched by the fill, freed after.
//!
//! The allocator may hand out the same pages again, and its threshold for mapping memory directly
//! is left as it is: this is what users get.

use super::{BufferSource, FrameBuffer};
use crate::BenchError;

/// Buffers of one size from the global allocator.
#[derive(Debug)]
pub struct Malloc {
    bytes: usize,
}

impl Malloc {
    /// Buffers of `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self { bytes }
    }
}

/// One allocation, empty until it is filled: nothing touches its pages before.
#[derive(Debug)]
pub struct MallocBuffer(Vec<u8>);

impl BufferSource for Malloc {
    type Buffer = MallocBuffer;

    fn acquire(&mut self) -> Result<MallocBuffer, BenchError> {
        let mut buffer = Vec::new();
        buffer
            .try_reserve_exact(self.bytes)
            .map_err(|cause| BenchError::failed("allocating a frame", cause))?;
        Ok(MallocBuffer(buffer))
    }

    fn release(&mut self, buffer: MallocBuffer) -> Result<(), BenchError> {
        drop(buffer);
        Ok(())
    }
}

impl FrameBuffer for MallocBuffer {
    fn fill(&mut self, frame: &[u8]) {
        // Copies into the reserved bytes without writing them before.
        self.0.clear();
        self.0.extend_from_slice(frame);
    }

    fn bytes(&self) -> &[u8] {
        &self.0
    }
}
