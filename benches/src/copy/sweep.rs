//! Every kind of host memory over many sizes: what a copy of it takes, each way.

use std::time::{Duration, Instant};

use super::buffers::{Buffers, Source, raw_copy};
use super::managed::Managed;
use super::reader::{GROUP_BYTES, Reader, sum_of};
use super::report::{KindRow, Kinds, Link, StagingRow};
use super::{CopyOptions, Direction};
use crate::cuda_rig::CudaRig;
use crate::pin_room::{self, PinRoom};
use crate::rivals::pinned_cuda::DriverPages;
use crate::startup::Ground;
use crate::timing::{self, Progress, Range, rounded};
use crate::{BenchError, clock, link};

/// A kind of host memory, and the way it goes to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A touched `Vec`.
    Pageable,
    /// `cuMemHostAlloc`.
    Pinned,
    /// A lease's upload and download.
    Lease,
    /// `cuMemHostAlloc`, write-combined.
    WriteCombined,
    /// `cuMemHostAlloc`, read by a kernel where it is.
    Mapped,
    /// Managed memory, prefetched.
    Managed,
}

impl Kind {
    /// As results name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pageable => PAGEABLE,
            Self::Pinned => PINNED,
            Self::Lease => "lease",
            Self::WriteCombined => "write-combined",
            Self::Mapped => "mapped, read by a kernel",
            Self::Managed => "managed, prefetched",
        }
    }

    fn goes(self, direction: Direction) -> bool {
        self != Self::Mapped || direction == Direction::HostToDevice
    }
}

/// Measures all sizes. `progress` takes a step for each.
pub(super) fn measure(
    rig: &CudaRig,
    options: &CopyOptions,
    progress: &mut Progress<'_>,
) -> Result<Kinds, BenchError> {
    let mut kinds =
        Kinds { clock_ns: rounded(clock::cost().as_secs_f64() * 1e9), ..Kinds::default() };
    let room = PinRoom::find(&Ground::Cuda(rig.clone()), options.max_pinned)?;
    let sizes = room.fit(options.sweep_sizes(), BUFFERS_PINNED, &mut kinds.notes);
    let mut best = [0.0_f64; 2];
    for bytes in sizes {
        let mut bench = Bench::open(rig, bytes, &mut kinds.notes)?;
        for direction in Direction::ALL {
            let repeats = if options.quick { REPEATS_QUICK } else { repeats(bytes) };
            let times = bench.measure(direction, repeats)?;
            let rows: Vec<KindRow> =
                times.iter().map(|(kind, times)| row(*kind, direction, bytes, times)).collect();
            let pinned = rows.iter().find(|row| row.kind == PINNED);
            best[direction as usize] =
                pinned.map_or(0.0, |row| row.gb_per_s).max(best[direction as usize]);
            kinds.staging.extend(staging(&times, direction, bytes));
            kinds.rows.extend(rows);
        }
        progress.step();
    }
    // Copies ran just before: an idle device slows its link down.
    kinds.link = Some(Link::new(link::of_device(&rig.context), best));
    pin_room::each_once(&mut kinds.notes);
    Ok(kinds)
}

/// One buffer of each kind.
struct Bench {
    buffers: Buffers,
    combined: DriverPages,
    reader: Option<Reader>,
    managed: Option<Managed>,
    clock: Duration,
}

/// What the copies of a kind took, in seconds.
type Times = Vec<(Kind, Vec<f64>)>;

impl Bench {
    fn open(rig: &CudaRig, bytes: usize, notes: &mut Vec<String>) -> Result<Self, BenchError> {
        let buffers = Buffers::open(rig, bytes)?;
        let combined = DriverPages::write_combined(&rig.context, bytes)?;
        let mut left_out = |kind: Kind, why: &dyn std::fmt::Display| {
            notes.push(format!("{} was left out: {why}", kind.name()));
        };
        let reader = if bytes.is_multiple_of(GROUP_BYTES) {
            Reader::load(rig).map_err(|why| left_out(Kind::Mapped, &why)).ok()
        } else {
            left_out(Kind::Mapped, &format!("{bytes} bytes are no multiple of {GROUP_BYTES}"));
            None
        };
        let managed = (bytes <= MANAGED_MAX).then(|| Managed::new(rig, bytes));
        let managed =
            managed.and_then(|managed| managed.map_err(|why| left_out(Kind::Managed, &why)).ok());
        let mut bench = Self { buffers, combined, reader, managed, clock: clock::cost() };
        let sent = pattern(bytes);
        bench.check_combined(&sent)?;
        bench.check_mapped(&sent)?;
        bench.check_managed(&sent)?;
        Ok(bench)
    }

    fn measure(&mut self, direction: Direction, repeats: usize) -> Result<Times, BenchError> {
        let mut pinned = vec![Kind::Pinned, Kind::Lease, Kind::WriteCombined];
        pinned.extend(self.reader.is_some().then_some(Kind::Mapped));
        let managed: Vec<Kind> =
            self.managed.is_some().then_some(Kind::Managed).into_iter().collect();
        let mut all = Times::new();
        // Pageable and managed copies apart: the processor moves their bytes or pages, and whichever
        // kind came next would pay for what that leaves in its caches.
        for mut kinds in [pinned, vec![Kind::Pageable], managed] {
            kinds.retain(|kind| kind.goes(direction));
            let mut times = vec![Vec::with_capacity(repeats); kinds.len()];
            for round in 0..WARM_UP + repeats {
                for place in timing::order(round, kinds.len()) {
                    let took = self.copy(kinds[place], direction)?;
                    if round >= WARM_UP {
                        times[place].push(took.saturating_sub(self.clock).as_secs_f64());
                    }
                }
            }
            all.extend(kinds.into_iter().zip(times));
        }
        Ok(all)
    }

    /// One copy and its wait.
    fn copy(&mut self, kind: Kind, direction: Direction) -> Result<Duration, BenchError> {
        match kind {
            Kind::Pageable => self.buffers.copy(Source::Pageable, direction),
            Kind::Pinned => self.buffers.copy(Source::Raw, direction),
            Kind::Lease => self.buffers.copy(Source::Lease, direction),
            Kind::WriteCombined => {
                let started = Instant::now();
                raw_copy(&mut self.buffers.device, self.combined.bytes_mut(), direction)?;
                Ok(started.elapsed())
            }
            Kind::Mapped => {
                let reader = self.reader.as_mut().ok_or_else(|| missing(kind))?;
                let address = self.buffers.raw.device_address()?;
                let started = Instant::now();
                // SAFETY: the address is that of pinned, mapped memory of so many bytes, which
                // nobody frees or writes before this returns.
                unsafe { reader.read(address, self.buffers.bytes) }?;
                Ok(started.elapsed())
            }
            Kind::Managed => {
                let managed = self.managed.as_mut().ok_or_else(|| missing(kind))?;
                // It lies at one end only: bring it to where this copy begins.
                managed.copy(direction.back())?;
                let started = Instant::now();
                managed.copy(direction)?;
                Ok(started.elapsed())
            }
        }
    }

    fn check_combined(&mut self, sent: &[u8]) -> Result<(), BenchError> {
        self.combined.bytes_mut().copy_from_slice(sent);
        self.copy(Kind::WriteCombined, Direction::HostToDevice)?;
        let mut arrived = vec![0; sent.len()];
        self.buffers.device.copy_out(&mut arrived)?;
        self.combined.bytes_mut().fill(0);
        self.copy(Kind::WriteCombined, Direction::DeviceToHost)?;
        // The host reads this memory at a crawl: a look at both ends must do.
        let (host, end) = (self.combined.bytes_mut(), sent.len().min(LOOK_BYTES));
        let ends = |bytes: &[u8]| (bytes[..end].to_vec(), bytes[bytes.len() - end..].to_vec());
        let same = arrived == sent && ends(host) == ends(sent);
        same.then_some(()).ok_or_else(|| wrong(Kind::WriteCombined))
    }

    fn check_mapped(&mut self, sent: &[u8]) -> Result<(), BenchError> {
        if self.reader.is_none() {
            return Ok(());
        }
        self.buffers.host_mut(Source::Raw)?.copy_from_slice(sent);
        self.copy(Kind::Mapped, Direction::HostToDevice)?;
        let sum = self.reader.as_mut().map(Reader::take_sum).transpose()?;
        (sum == Some(sum_of(sent))).then_some(()).ok_or_else(|| wrong(Kind::Mapped))
    }

    fn check_managed(&mut self, sent: &[u8]) -> Result<(), BenchError> {
        let Some(managed) = &mut self.managed else { return Ok(()) };
        managed.bytes_mut()?.copy_from_slice(sent);
        managed.copy(Direction::HostToDevice)?;
        if let Some(reader) = &mut self.reader {
            // SAFETY: the address is that of managed memory of so many bytes, which the device holds.
            unsafe { reader.read(managed.address(), sent.len()) }?;
            if reader.take_sum()? != sum_of(sent) {
                return Err(wrong(Kind::Managed));
            }
        }
        managed.copy(Direction::DeviceToHost)?;
        (*managed.bytes_mut()? == *sent).then_some(()).ok_or_else(|| wrong(Kind::Managed))
    }
}

fn row(kind: Kind, direction: Direction, bytes: usize, times: &[f64]) -> KindRow {
    let us: Vec<f64> = times.iter().map(|seconds| seconds * 1e6).collect();
    KindRow {
        kind: kind.name().to_owned(),
        direction: direction.name().to_owned(),
        bytes: bytes as u64,
        gb_per_s: rounded(bytes as f64 / timing::median(times) / 1e9),
        us: Range::of(&us),
        repeats: times.len() as u64,
        unsteady: clock::is_unsteady(times),
    }
}

/// What a pageable copy takes more than a pinned one.
fn staging(times: &Times, direction: Direction, bytes: usize) -> Option<StagingRow> {
    let of = |wanted: Kind| {
        times.iter().find(|(kind, _)| *kind == wanted).map(|(_, times)| timing::median(times) * 1e6)
    };
    let (pageable, pinned) = (of(Kind::Pageable)?, of(Kind::Pinned)?);
    Some(StagingRow {
        direction: direction.name().to_owned(),
        bytes: bytes as u64,
        pageable_us: rounded(pageable),
        pinned_us: rounded(pinned),
        share_percent: rounded((pageable - pinned) / pageable * 100.0),
    })
}

fn repeats(bytes: usize) -> usize {
    (TRAFFIC / bytes).clamp(REPEATS_MIN, REPEATS_MAX)
}

/// Bytes without long runs of one value.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|place| (place ^ (place >> 8)).to_le_bytes()[0]).collect()
}

fn missing(kind: Kind) -> BenchError {
    BenchError::Failed(format!("{} is not there", kind.name()))
}

fn wrong(kind: Kind) -> BenchError {
    BenchError::Failed(format!("{}: what arrived is not what was sent", kind.name()))
}

/// Names of [`Kind`].
pub(super) const PAGEABLE: &str = "pageable";
pub(super) const PINNED: &str = "pinned";
/// From a kibibyte to a gibibyte.
pub(super) const SIZES: [usize; 11] = [
    1 << 10,
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
    64 << 20,
    256 << 20,
    1 << 30,
];
pub(super) const SIZES_QUICK: [usize; 4] = [1 << 10, 64 << 10, 1 << 20, 16 << 20];
/// The lease's slot, `cuMemHostAlloc` and write-combined memory.
const BUFFERS_PINNED: u64 = 3;
/// Managed memory is no way for streams of frames: a few sizes show that.
const MANAGED_MAX: usize = 64 << 20;
/// Bytes to copy for one size, kind and direction.
const TRAFFIC: usize = 1 << 30;
const REPEATS_MIN: usize = 5;
const REPEATS_MAX: usize = 101;
const REPEATS_QUICK: usize = 3;
const WARM_UP: usize = 2;
const LOOK_BYTES: usize = 4096;
