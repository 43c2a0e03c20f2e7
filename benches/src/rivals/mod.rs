//! Where a frame's buffer may come from: the pool, and what people write without it.
//!
//! Every source is driven by the same [`Lane`], so that the work around the buffer is the same
//! code for all of them.

pub mod lease;
pub mod malloc;
pub mod pinned_cuda;
pub mod pinned_host;
pub mod ring;

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use crate::BenchError;
use crate::sink::Sink;

/// The four rivals of the scenario `frames`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rival {
    /// Leases from the pool.
    Lease,
    /// Pinned memory allocated and freed for each frame.
    PinnedPerFrame,
    /// Memory from the allocator for each frame.
    MallocPerFrame,
    /// A hand-written ring of buffers pinned once.
    FixedRing,
}

impl Rival {
    /// All of them, in the order of the report.
    pub const ALL: [Self; 4] =
        [Self::Lease, Self::PinnedPerFrame, Self::MallocPerFrame, Self::FixedRing];

    /// The name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::PinnedPerFrame => "pinned-per-frame",
            Self::MallocPerFrame => "malloc-per-frame",
            Self::FixedRing => "fixed-ring",
        }
    }
}

/// A buffer that can hold one frame.
pub trait FrameBuffer {
    /// Overwrites the whole buffer with `frame`, which is exactly as long.
    fn fill(&mut self, frame: &[u8]);

    /// The bytes that [`fill`](Self::fill) wrote.
    fn bytes(&self) -> &[u8];
}

/// Hands out buffers of one size and takes them back.
pub trait BufferSource {
    /// What it hands out.
    type Buffer: FrameBuffer;

    /// A buffer for the next frame.
    ///
    /// # Errors
    /// The source is empty, or the system refused.
    fn acquire(&mut self) -> Result<Self::Buffer, BenchError>;

    /// Takes a buffer back.
    ///
    /// # Errors
    /// The system refused to take it back.
    fn release(&mut self, buffer: Self::Buffer) -> Result<(), BenchError>;
}

/// A source behind a queue of live frames, of whatever type its buffers are.
pub trait Churn {
    /// Moves one frame and returns the time that took: give back the oldest frame if the queue is
    /// full, acquire, fill, copy to the sink.
    ///
    /// # Errors
    /// The source's or the sink's.
    fn frame(&mut self, frame: &[u8], sink: &mut Sink) -> Result<Duration, BenchError>;
}

/// A queue of live frames over one source, as a capture queue keeps them.
#[derive(Debug)]
pub struct Lane<S: BufferSource> {
    source: S,
    live: VecDeque<S::Buffer>,
    depth: usize,
}

impl<S: BufferSource> Lane<S> {
    /// A lane that keeps up to `depth` frames of `source` live.
    pub fn new(source: S, depth: usize) -> Self {
        Self { source, live: VecDeque::with_capacity(depth), depth }
    }
}

impl<S: BufferSource> Churn for Lane<S> {
    fn frame(&mut self, frame: &[u8], sink: &mut Sink) -> Result<Duration, BenchError> {
        let started = Instant::now();
        if self.live.len() >= self.depth
            && let Some(oldest) = self.live.pop_front()
        {
            self.source.release(oldest)?;
        }
        let mut buffer = self.source.acquire()?;
        buffer.fill(frame);
        sink.copy(buffer.bytes())?;
        self.live.push_back(buffer);
        Ok(started.elapsed())
    }
}

impl fmt::Debug for dyn Churn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Churn")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    /// Counts what is out, and numbers the buffers.
    #[derive(Default)]
    struct Counting {
        out: usize,
        out_max: usize,
        acquired: usize,
        released: Vec<usize>,
    }

    struct Numbered(usize, Vec<u8>);

    impl FrameBuffer for Numbered {
        fn fill(&mut self, frame: &[u8]) {
            self.1 = frame.to_vec();
        }

        fn bytes(&self) -> &[u8] {
            &self.1
        }
    }

    impl BufferSource for Counting {
        type Buffer = Numbered;

        fn acquire(&mut self) -> Result<Numbered, BenchError> {
            self.out += 1;
            self.out_max = self.out_max.max(self.out);
            self.acquired += 1;
            Ok(Numbered(self.acquired, Vec::new()))
        }

        fn release(&mut self, buffer: Numbered) -> Result<(), BenchError> {
            self.out -= 1;
            self.released.push(buffer.0);
            Ok(())
        }
    }

    #[test]
    fn a_lane_keeps_depth_frames_live_and_gives_the_oldest_back() {
        let mut lane = Lane::new(Counting::default(), 3);
        let mut sink = Sink::host(4);
        for n in 0..5u8 {
            lane.frame(&[n; 4], &mut sink).unwrap();
            assert_eq!(sink.read_back().unwrap(), [n; 4]);
        }
        assert_eq!((lane.source.out, lane.source.out_max, lane.source.acquired), (3, 3, 5));
        assert_eq!(lane.source.released, [1, 2]);
    }
}
