//! One operation of a stream, and what happens when it runs.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::abi::without_driver_calls;
use crate::codes::{self, CuResult};
use crate::device_memory::DeviceBuffer;
use crate::host_memory::{is_mapped, overlap};

/// A point in a stream; done once the stream has come to it.
#[derive(Default)]
pub(crate) struct Mark(OnceLock<Instant>);

impl Mark {
    pub(crate) fn is_done(&self) -> bool {
        self.0.get().is_some()
    }

    pub(crate) fn time(&self) -> Option<Instant> {
        self.0.get().copied()
    }

    /// Called once, under the driver lock, by the thread of the stream.
    pub(crate) fn finish(&self) {
        let _ = self.0.set(Instant::now());
    }
}

/// One end of a copy.
#[derive(Clone)]
pub(crate) enum Side {
    /// Host memory, read or written when the copy runs.
    Host(usize),
    /// A private copy of pageable host memory, taken when the copy was asked for.
    Staged(Arc<[u8]>),
    Device(Arc<DeviceBuffer>, usize),
}

impl Side {
    fn host_range(&self, len: usize) -> Option<Range<usize>> {
        match self {
            Self::Host(address) => Some(*address..address + len),
            Self::Staged(_) | Self::Device(..) => None,
        }
    }

    fn is_in(&self, wanted: &Arc<DeviceBuffer>) -> bool {
        matches!(self, Self::Device(buffer, _) if Arc::ptr_eq(buffer, wanted))
    }
}

/// A copy of `len` bytes.
#[derive(Clone)]
pub(crate) struct Copy {
    pub(crate) to: Side,
    pub(crate) from: Side,
    pub(crate) len: usize,
    /// [`fingerprint`] of the host source when the copy was asked for; a difference when it runs
    /// means that someone wrote into a buffer in flight.
    pub(crate) fingerprint: Option<u64>,
}

/// A caller's host function with its argument.
#[derive(Clone)]
pub(crate) struct HostFunction {
    pub(crate) function: extern "C" fn(*mut c_void),
    pub(crate) argument: usize,
}

/// What a stream does in order.
#[derive(Clone)]
pub(crate) enum Op {
    Copy(Copy),
    /// Repeats `pattern` over `len` bytes.
    Fill {
        to: Side,
        pattern: [u8; 4],
        len: usize,
    },
    Record(Arc<Mark>),
    Wait(Arc<Mark>),
    Call(HostFunction),
    /// The stream-ordered end of a device allocation.
    Free {
        buffer: Arc<DeviceBuffer>,
        device: i32,
        len: usize,
    },
}

/// What running an operation brought to light.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) violation: Option<String>,
    pub(crate) overwritten: bool,
    pub(crate) error: Option<CuResult>,
}

impl Op {
    /// Whether the operation still needs any host byte of `range`.
    pub(crate) fn touches_host(&self, range: &Range<usize>) -> bool {
        match self {
            Self::Copy(copy) => [&copy.from, &copy.to]
                .into_iter()
                .filter_map(|side| side.host_range(copy.len))
                .any(|used| overlap(&used, range)),
            Self::Fill { to, len, .. } => {
                to.host_range(*len).is_some_and(|used| overlap(&used, range))
            }
            Self::Record(_) | Self::Wait(_) | Self::Call(_) | Self::Free { .. } => false,
        }
    }

    /// Whether the operation will write any host byte of `range`.
    pub(crate) fn writes_host(&self, range: &Range<usize>) -> bool {
        let (to, len) = match self {
            Self::Copy(copy) => (&copy.to, copy.len),
            Self::Fill { to, len, .. } => (to, *len),
            // A host function may write anything.
            Self::Call(_) => return true,
            Self::Record(_) | Self::Wait(_) | Self::Free { .. } => return false,
        };
        to.host_range(len).is_some_and(|used| overlap(&used, range))
    }

    /// Whether the operation reads or writes the device buffer.
    pub(crate) fn uses_buffer(&self, wanted: &Arc<DeviceBuffer>) -> bool {
        match self {
            Self::Copy(copy) => copy.from.is_in(wanted) || copy.to.is_in(wanted),
            Self::Fill { to, .. } => to.is_in(wanted),
            Self::Record(_) | Self::Wait(_) | Self::Call(_) | Self::Free { .. } => false,
        }
    }

    /// Does the part that needs no driver lock. `delay` is how long a copy takes.
    pub(crate) fn run(&self, delay: Duration) -> Outcome {
        match self {
            Self::Copy(copy) => {
                if !delay.is_zero() {
                    std::thread::sleep(delay);
                }
                copy.run()
            }
            Self::Fill { to, pattern, len } => fill(to, *pattern, *len),
            Self::Call(call) => {
                let argument = std::ptr::with_exposed_provenance_mut(call.argument);
                without_driver_calls(|| (call.function)(argument));
                Outcome::default()
            }
            Self::Record(_) | Self::Wait(_) | Self::Free { .. } => Outcome::default(),
        }
    }
}

impl Copy {
    fn run(&self) -> Outcome {
        for side in [&self.from, &self.to] {
            if let Some(outcome) = unmapped(side, self.len) {
                return outcome;
            }
        }
        let mut outcome = Outcome::default();
        if let (Some(before), Side::Host(address)) = (self.fingerprint, &self.from) {
            outcome.overwritten = fingerprint(*address, self.len) != before;
        }
        let done = match &self.from {
            Side::Staged(bytes) => write(&self.to, bytes),
            Side::Host(address) => {
                let bytes = read_host(*address, self.len);
                write(&self.to, &bytes)
            }
            // Through a copy, because both ends may lie in the same buffer.
            Side::Device(buffer, offset) => buffer
                .with(*offset, self.len, |bytes| bytes.to_vec())
                .and_then(|bytes| write(&self.to, &bytes)),
        };
        if done.is_none() {
            outcome.error = Some(codes::ILLEGAL_ADDRESS);
        }
        outcome
    }
}

fn fill(to: &Side, pattern: [u8; 4], len: usize) -> Outcome {
    if let Some(outcome) = unmapped(to, len) {
        return outcome;
    }
    let bytes: Vec<u8> = pattern.iter().copied().cycle().take(len).collect();
    match write(to, &bytes) {
        Some(()) => Outcome::default(),
        None => Outcome { error: Some(codes::ILLEGAL_ADDRESS), ..Outcome::default() },
    }
}

/// The outcome of an operation whose host memory is gone.
fn unmapped(side: &Side, len: usize) -> Option<Outcome> {
    let range = side.host_range(len)?;
    if is_mapped(range.start, len) {
        return None;
    }
    Some(Outcome {
        violation: Some(format!("host memory {range:#x?} was unmapped under a queued copy")),
        overwritten: false,
        error: Some(codes::ILLEGAL_ADDRESS),
    })
}

fn write(to: &Side, bytes: &[u8]) -> Option<()> {
    match to {
        Side::Host(address) => {
            let target = std::ptr::with_exposed_provenance_mut::<u8>(*address);
            // SAFETY: the range was pinned when the copy was asked for and is mapped now. That the
            // host leaves it alone meanwhile is what this library is there to find out, so a race
            // is possible here exactly where the hardware would have one.
            unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            Some(())
        }
        Side::Device(buffer, offset) => {
            buffer.with(*offset, bytes.len(), |target| target.copy_from_slice(bytes))
        }
        Side::Staged(_) => None,
    }
}

/// Copies `len` mapped host bytes out.
pub(crate) fn read_host(address: usize, len: usize) -> Vec<u8> {
    let source = std::ptr::with_exposed_provenance::<u8>(address);
    let mut bytes = Vec::with_capacity(len);
    // SAFETY: the caller checked that the pages are mapped; `bytes` has room for `len`.
    unsafe { source.copy_to_nonoverlapping(bytes.as_mut_ptr(), len) };
    // SAFETY: the line above wrote all `len` bytes.
    unsafe { bytes.set_len(len) };
    bytes
}

/// A number that changes when any of the bytes does (a mixing hash, not a secure one).
pub(crate) fn fingerprint(address: usize, len: usize) -> u64 {
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let bytes = read_host(address, len);
    let (words, rest) = bytes.as_chunks::<8>();
    let mut hash = len as u64;
    for word in words {
        hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(MIX).rotate_left(23);
    }
    for byte in rest {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(MIX).rotate_left(23);
    }
    hash
}
