//! The pool: a lease for each frame, given back by dropping it.

use pinpool::{Lease, Pool};

use super::{BufferSource, FrameBuffer};
use crate::BenchError;

/// Leases of one length from a pool.
#[derive(Debug)]
pub struct Leases {
    pool: Pool,
    bytes: usize,
}

impl Leases {
    /// Leases of `bytes` from `pool`.
    pub fn new(pool: Pool, bytes: usize) -> Self {
        Self { pool, bytes }
    }
}

impl BufferSource for Leases {
    type Buffer = Lease;

    fn acquire(&mut self) -> Result<Lease, BenchError> {
        self.pool
            .try_lease(self.bytes)
            .map_err(|cause| BenchError::failed("leasing a frame", cause))
    }

    fn release(&mut self, buffer: Lease) -> Result<(), BenchError> {
        drop(buffer);
        Ok(())
    }
}

impl FrameBuffer for Lease {
    fn fill(&mut self, frame: &[u8]) {
        self.as_mut_slice().copy_from_slice(frame);
    }

    fn bytes(&self) -> &[u8] {
        self.as_slice()
    }
}
