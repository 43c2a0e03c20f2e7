//! One buffer of each of the sources that leases are compared with, and the copies from and to it.

use std::time::{Duration, Instant};

use pinpool::{BackendChoice, Lease, LockMode, Pool};

use super::Direction;
use crate::BenchError;
use crate::cuda_rig::{CudaRig, DeviceMemory};
use crate::rivals::pinned_cuda::DriverPages;

/// The kinds of host memory, and for leases the ways to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A lease, through its own `upload` and `download`.
    Lease,
    /// A lease's memory, through the raw copy call.
    LeaseMemory,
    /// `cuMemHostAlloc` memory, through the raw copy call.
    Raw,
    /// A touched `Vec`, through the raw copy call.
    Pageable,
}

impl Source {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Lease, Self::LeaseMemory, Self::Raw, Self::Pageable];

    /// As results name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::LeaseMemory => "lease-memory",
            Self::Raw => "cuMemHostAlloc",
            Self::Pageable => "pageable",
        }
    }
}

/// One buffer of each kind and the device memory they copy to and from.
#[derive(Debug)]
pub struct Buffers {
    /// Always there between copies: a copy consumes the lease, and its end gives it back.
    lease: Option<Lease>,
    pub(super) raw: DriverPages,
    pageable: Vec<u8>,
    pub(super) device: DeviceMemory,
    rig: CudaRig,
    pub(super) bytes: usize,
}

impl Buffers {
    /// Opens one buffer of each, and sends a block through each and back.
    ///
    /// # Errors
    /// A pool or memory that cannot be had; a block that came back changed.
    pub fn open(rig: &CudaRig, bytes: usize) -> Result<Self, BenchError> {
        let pool = Pool::builder()
            .env(false)
            .backend(BackendChoice::Cuda)
            .device(0)
            .lock(LockMode::Require)
            .class("copy", bytes, 1)
            .open()
            .map_err(|cause| BenchError::opening_pool(&cause))?;
        let lease =
            pool.try_lease(bytes).map_err(|cause| BenchError::failed("leasing a buffer", cause))?;
        // Opening the pool may have made another context current on this thread.
        rig.bind()?;
        let mut buffers = Self {
            lease: Some(lease),
            raw: DriverPages::new(&rig.context, bytes)?,
            pageable: vec![0; bytes],
            device: rig.device_memory(bytes)?,
            rig: rig.clone(),
            bytes,
        };
        for (source, fill) in Source::ALL.into_iter().zip(1..) {
            buffers.check(source, fill)?;
        }
        Ok(buffers)
    }

    /// Sends a block of `fill` to the device and back, and compares.
    fn check(&mut self, source: Source, fill: u8) -> Result<(), BenchError> {
        let sent = vec![fill; self.bytes];
        self.host_mut(source)?.copy_from_slice(&sent);
        self.copy(source, Direction::HostToDevice)?;
        self.host_mut(source)?.fill(0);
        self.copy(source, Direction::DeviceToHost)?;
        if *self.host_mut(source)? == *sent {
            return Ok(());
        }
        let text = format!("{}: what came back is not what was sent", source.name());
        Err(BenchError::Failed(text))
    }

    pub(super) fn host_mut(&mut self, source: Source) -> Result<&mut [u8], BenchError> {
        match source {
            Source::Lease | Source::LeaseMemory => match &mut self.lease {
                Some(lease) => Ok(lease.as_mut_slice()),
                None => Err(lost_lease()),
            },
            Source::Raw => Ok(self.raw.bytes_mut()),
            Source::Pageable => Ok(&mut self.pageable),
        }
    }

    /// One copy and its wait.
    ///
    /// # Errors
    /// The call that failed.
    pub fn copy(&mut self, source: Source, direction: Direction) -> Result<Duration, BenchError> {
        let started = Instant::now();
        match (source, direction) {
            (Source::Lease, _) => self.copy_lease(direction)?,
            (Source::LeaseMemory, _) => {
                let lease = self.lease.as_mut().ok_or_else(lost_lease)?;
                raw_copy(&mut self.device, lease.as_mut_slice(), direction)?;
            }
            (Source::Raw, _) => raw_copy(&mut self.device, self.raw.bytes_mut(), direction)?,
            (Source::Pageable, _) => raw_copy(&mut self.device, &mut self.pageable, direction)?,
        }
        Ok(started.elapsed())
    }

    fn copy_lease(&mut self, direction: Direction) -> Result<(), BenchError> {
        let lease = self.lease.take().ok_or_else(lost_lease)?;
        let started = match direction {
            Direction::HostToDevice => lease.upload(&self.rig.stream, &mut self.device.slice),
            Direction::DeviceToHost => lease.download(&self.device.slice, &self.rig.stream),
        };
        let in_flight = started.map_err(|cause| BenchError::failed("copying a lease", cause))?;
        let lease = in_flight.wait();
        self.lease = Some(lease.map_err(|cause| BenchError::failed("waiting for a lease", cause))?);
        Ok(())
    }
}

fn lost_lease() -> BenchError {
    BenchError::Failed("a failed copy kept the lease".to_owned())
}

/// The raw copy call and its wait.
pub(super) fn raw_copy(
    device: &mut DeviceMemory,
    host: &mut [u8],
    direction: Direction,
) -> Result<(), BenchError> {
    match direction {
        Direction::HostToDevice => device.copy_in(host),
        Direction::DeviceToHost => device.copy_out(host),
    }
}
