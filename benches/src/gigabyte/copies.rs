//! Copies to and from the device, each from memory that no copy used before.

use std::time::{Duration, Instant};

use super::host::FILL;
use crate::copy::Direction;
use crate::cuda_rig::{CudaRig, DeviceMemory};
use crate::rivals::pinned_cuda::DriverPages;
use crate::timing::{self, Progress};
use crate::{BenchError, clock};

/// Where the bytes are on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// A `Vec`.
    Pageable,
    /// `cuMemHostAlloc`.
    Pinned,
}

impl Memory {
    pub(super) const ALL: [Self; 2] = [Self::Pageable, Self::Pinned];

    /// As results name it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pageable => PAGEABLE,
            Self::Pinned => PINNED,
        }
    }
}

/// What a round took, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Took {
    get: f64,
    write: f64,
    first: f64,
    later: f64,
}

impl Took {
    /// Getting the memory.
    pub(super) fn get(&self) -> f64 {
        self.get
    }

    /// Writing all of it for the first time; nothing where it was copied to.
    pub(super) fn write(&self) -> f64 {
        self.write
    }

    /// The first copy.
    pub(super) fn first(&self) -> f64 {
        self.first
    }

    /// The median of those after it.
    pub(super) fn later(&self) -> f64 {
        self.later
    }

    /// Everything that one copy needs.
    pub(super) fn all(&self) -> f64 {
        self.get + self.write + self.first
    }
}

/// The device's end, and what was sent to it.
#[derive(Debug)]
pub(super) struct Ends {
    rig: CudaRig,
    device: DeviceMemory,
    bytes: usize,
    clock: Duration,
}

/// The host's end.
enum Host {
    Pageable(Vec<u8>),
    Pinned(DriverPages),
}

impl Host {
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pageable(memory) => memory,
            Self::Pinned(pages) => pages.bytes_mut(),
        }
    }
}

/// What rounds took, by memory and direction.
pub(super) type Times = [[Vec<Took>; 2]; 2];

/// Measures all rounds, after one that does not count.
pub(super) fn measure(
    rig: &CudaRig,
    bytes: usize,
    rounds: usize,
    progress: &mut Progress<'_>,
) -> Result<Times, BenchError> {
    let device = rig.device_memory(bytes)?;
    let mut ends = Ends { rig: rig.clone(), device, bytes, clock: clock::cost() };
    let mut times = Times::default();
    for round in 0..=rounds {
        for place in timing::order(round, Memory::ALL.len()) {
            // Uploads first: downloads find on the device what they sent.
            for direction in Direction::ALL {
                let took = ends.round(Memory::ALL[place], direction)?;
                if round > 0 {
                    times[place][direction as usize].push(took);
                }
            }
        }
        if round > 0 {
            progress.step();
        }
    }
    Ok(times)
}

impl Ends {
    fn round(&mut self, memory: Memory, direction: Direction) -> Result<Took, BenchError> {
        let started = Instant::now();
        let mut host = match memory {
            // The allocator maps it, and nothing touches its pages.
            Memory::Pageable => Host::Pageable(vec![0; self.bytes]),
            Memory::Pinned => Host::Pinned(DriverPages::new(&self.rig.context, self.bytes)?),
        };
        let get = self.since(started);
        let mut write = 0.0;
        if direction == Direction::HostToDevice {
            let started = Instant::now();
            host.bytes_mut().fill(FILL);
            write = self.since(started);
        }
        let first = self.copy(&mut host, direction)?;
        let mut later = [0.0; LATER];
        for ms in &mut later {
            *ms = self.copy(&mut host, direction)?;
        }
        if direction == Direction::DeviceToHost && host.bytes_mut().iter().any(|byte| *byte != FILL)
        {
            let text = format!("{}: what came back is not what was sent", memory.name());
            return Err(BenchError::Failed(text));
        }
        Ok(Took { get, write, first, later: timing::median(&later) })
    }

    fn copy(&mut self, host: &mut Host, direction: Direction) -> Result<f64, BenchError> {
        let started = Instant::now();
        match direction {
            Direction::HostToDevice => self.device.copy_in(host.bytes_mut())?,
            Direction::DeviceToHost => self.device.copy_out(host.bytes_mut())?,
        }
        Ok(self.since(started))
    }

    /// Milliseconds.
    fn since(&self, started: Instant) -> f64 {
        started.elapsed().saturating_sub(self.clock).as_secs_f64() * 1e3
    }
}

/// Names of [`Memory`].
pub(super) const PAGEABLE: &str = "pageable";
pub(super) const PINNED: &str = "pinned";
const LATER: usize = 3;
