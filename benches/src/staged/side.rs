//! The ways to copy between ordinary memory and the device, and the way that needs none of it.

use std::time::{Duration, Instant};

use pinpool::StagedCopy;
use pinpool::cudarc::driver::{CudaSlice, result, sys};

use super::pattern;
use super::stagers::{Crew, Stagers};
use crate::BenchError;
use crate::copy::Direction;
use crate::cuda_rig::CudaRig;

/// A way to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The driver's own call on a `Vec`, as cudarc makes it.
    Pageable,
    /// The `Vec` is registered, copied and unregistered.
    Register,
    /// Through a stager of this crew.
    Staged(Crew),
    /// The same call as [`Self::Pageable`] on the memory of a lease: the most that any way can give.
    Pinned,
}

impl Side {
    /// As results name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pageable => "pageable",
            Self::Register => "register in place",
            Self::Staged(_) => STAGED,
            Self::Pinned => PINNED,
        }
    }

    /// Of a stager.
    pub(super) fn crew(self) -> Option<Crew> {
        match self {
            Self::Staged(crew) => Some(crew),
            Self::Pageable | Self::Register | Self::Pinned => None,
        }
    }
}

/// What is copied, and where to: a `Vec` in use, and as much device memory.
#[derive(Debug)]
pub struct Ends {
    pub(super) pageable: Vec<u8>,
    pub(super) device: CudaSlice<u8>,
}

impl Ends {
    /// Of `bytes`; all of the `Vec` has been written.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn new(rig: &CudaRig, bytes: usize) -> Result<Self, BenchError> {
        let device = rig.device_memory(bytes)?.slice;
        let mut pageable = vec![0; bytes];
        pattern::fill(&mut pageable);
        Ok(Self { pageable, device })
    }

    /// Bytes of one copy.
    pub fn bytes(&self) -> usize {
        self.pageable.len()
    }
}

/// Copies by any side.
#[derive(Debug)]
pub struct Copier {
    pub(super) rig: CudaRig,
    pub(super) stagers: Stagers,
}

impl Copier {
    /// With these stagers, on the rig's stream.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn new(rig: &CudaRig, stagers: Stagers) -> Result<Self, BenchError> {
        // Opening a pool may have made another context current on this thread.
        rig.bind()?;
        Ok(Self { rig: rig.clone(), stagers })
    }

    /// The time of one copy, from the call until the host sees its end.
    ///
    /// # Errors
    /// Any call that failed.
    pub fn copy(
        &mut self,
        side: Side,
        direction: Direction,
        ends: &mut Ends,
    ) -> Result<Duration, BenchError> {
        let started = Instant::now();
        match side {
            Side::Pageable => plain(&self.rig, direction, &mut ends.pageable, &mut ends.device)?,
            Side::Register => registered(&self.rig, direction, ends)?,
            Side::Staged(crew) => self.staged(crew, direction, ends)?,
            Side::Pinned => {
                let pinned = &mut self.stagers.pinned()[..ends.pageable.len()];
                plain(&self.rig, direction, pinned, &mut ends.device)?;
            }
        }
        Ok(started.elapsed())
    }

    fn staged(&self, crew: Crew, direction: Direction, ends: &mut Ends) -> Result<(), BenchError> {
        let (stager, stream) = (self.stagers.of(crew)?, &self.rig.stream);
        let copied = match direction {
            Direction::HostToDevice => {
                stager.upload(&ends.pageable, stream, &mut ends.device).and_then(StagedCopy::wait)
            }
            Direction::DeviceToHost => {
                stager.download(&ends.device, stream, ends.pageable.as_mut_slice())
            }
        };
        copied.map_err(|cause| BenchError::failed("a staged copy", cause))
    }

    /// Copies once and looks at every byte that arrived. Afterwards both ends hold the pattern again.
    ///
    /// # Errors
    /// Any call that failed, or bytes that are not those that were sent.
    pub fn verify(
        &mut self,
        side: Side,
        direction: Direction,
        ends: &mut Ends,
    ) -> Result<(), BenchError> {
        let bytes = ends.bytes();
        let wrong = match direction {
            Direction::HostToDevice => {
                if side == Side::Pinned {
                    pattern::fill(&mut self.stagers.pinned()[..bytes]);
                }
                self.wipe(ends)?;
                self.copy(side, direction, ends)?;
                self.first_wrong_on_device(ends)?
            }
            Direction::DeviceToHost => {
                let target = match side {
                    Side::Pinned => &mut self.stagers.pinned()[..bytes],
                    _ => &mut ends.pageable,
                };
                pattern::wipe(target);
                self.copy(side, direction, ends)?;
                match side {
                    Side::Pinned => pattern::first_wrong(&self.stagers.pinned()[..bytes]),
                    _ => pattern::first_wrong(&ends.pageable),
                }
            }
        };
        arrived(side.name(), wrong)
    }

    /// Leaves nothing of what the device held.
    pub(super) fn wipe(&self, ends: &mut Ends) -> Result<(), BenchError> {
        let stream = &self.rig.stream;
        let wiped = stream.memset_zeros(&mut ends.device).and_then(|()| stream.synchronize());
        wiped.map_err(|cause| BenchError::failed("clearing device memory", cause))
    }

    /// Looks at the device's end by way of the lease.
    pub(super) fn first_wrong_on_device(
        &mut self,
        ends: &mut Ends,
    ) -> Result<Option<usize>, BenchError> {
        let bytes = ends.bytes();
        pattern::wipe(&mut self.stagers.pinned()[..bytes]);
        self.copy(Side::Pinned, Direction::DeviceToHost, ends)?;
        Ok(pattern::first_wrong(&self.stagers.pinned()[..bytes]))
    }
}

/// An error where a byte is wrong.
pub(super) fn arrived(name: &str, wrong: Option<usize>) -> Result<(), BenchError> {
    wrong.map_or(Ok(()), |place| {
        let text = format!("{name}: what arrived is not what was sent, from byte {place} on");
        Err(BenchError::Failed(text))
    })
}

/// As people copy with cudarc: its own call, and a wait for the stream.
pub(super) fn plain(
    rig: &CudaRig,
    direction: Direction,
    host: &mut [u8],
    device: &mut CudaSlice<u8>,
) -> Result<(), BenchError> {
    let copied = match direction {
        Direction::HostToDevice => rig.stream.memcpy_htod(host, device),
        Direction::DeviceToHost => rig.stream.memcpy_dtoh(device, host),
    };
    // Waited for whether or not the copy was accepted: the caller's borrow ends here.
    // SAFETY: the stream lives, because the rig holds it.
    let waited = unsafe { result::stream::synchronize(rig.stream.cu_stream()) };
    copied.and(waited).map_err(|cause| BenchError::failed("copying a buffer", cause))
}

fn registered(rig: &CudaRig, direction: Direction, ends: &mut Ends) -> Result<(), BenchError> {
    let start = ends.pageable.as_mut_ptr().cast();
    let failed = |cause| BenchError::failed("registering memory", cause);
    // SAFETY: the memory is the vector's, which stays as it is until it is unregistered below.
    unsafe { sys::cuMemHostRegister_v2(start, ends.pageable.len(), 0) }.result().map_err(failed)?;
    let copied = plain(rig, direction, &mut ends.pageable, &mut ends.device);
    // SAFETY: registered above with this start, and the copy was waited for.
    let undone = unsafe { sys::cuMemHostUnregister(start) }.result();
    copied.and(undone.map_err(failed))
}

/// [`Side::name`] of a stager.
pub(crate) const STAGED: &str = "staged";
/// [`Side::name`] of a lease.
pub(crate) const PINNED: &str = "pinned";
