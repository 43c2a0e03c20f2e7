//! Scenario `copy`: is memory from a lease as fast to copy as raw pinned memory, and what do the
//! pool's own copy calls add?

use std::time::{Duration, Instant};

use pinpool::{BackendChoice, Lease, LockMode, Pool};

use crate::BenchError;
use crate::cuda_rig::{CudaRig, DeviceMemory};
use crate::machine::{self, Machine};
use crate::report::{COPY, CopyRatio, CopyReport, CopyRow, DIRECTIONS};
use crate::rivals::pinned_cuda::DriverPages;
use crate::timing::{self, rounded};

/// What to copy.
#[derive(Debug, Clone, Default)]
pub struct CopyOptions {
    /// The sizes in bytes; none means the usual ones.
    pub sizes: Vec<usize>,
    /// Adds the largest of the usual sizes, 256 MiB.
    pub full: bool,
}

impl CopyOptions {
    /// The sizes to copy, in bytes.
    ///
    /// # Errors
    /// [`BenchError::Input`] for a size of nothing or of more than [`SIZE_MAX`].
    pub fn check(&self) -> Result<Vec<usize>, BenchError> {
        if let Some(wrong) = self.sizes.iter().find(|size| !(1..=SIZE_MAX).contains(*size)) {
            return Err(BenchError::Input(format!("--size {wrong}: from 1 to {SIZE_MAX} bytes")));
        }
        let mut sizes = self.sizes.clone();
        if sizes.is_empty() {
            sizes = vec![4 << 10, 64 << 10, 1 << 20, FRAME_1080P_RGB, 64 << 20];
            if self.full {
                sizes.push(256 << 20);
            }
        }
        sizes.sort_unstable();
        sizes.dedup();
        Ok(sizes)
    }
}

/// Runs the scenario, or reports why it cannot run here.
///
/// # Errors
/// As [`CopyOptions::check`]; any call that failed. A machine without a CUDA device is no error:
/// the report says so.
pub fn run(
    options: &CopyOptions,
    command: String,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<CopyReport, BenchError> {
    let sizes = options.check()?;
    let mut report = CopyReport {
        scenario: COPY.to_owned(),
        not_run: None,
        machine: Machine::describe(),
        command,
        commit: machine::commit(),
        method: METHOD.to_owned(),
        sizes: sizes.iter().map(|&size| size as u64).collect(),
        rows: Vec::new(),
        ratios: Vec::new(),
    };
    let Some(rig) = CudaRig::open_if_any(&mut report.not_run)? else { return Ok(report) };
    for (done, &bytes) in sizes.iter().enumerate() {
        progress(done as u64, sizes.len() as u64);
        let mut buffers = Buffers::open(&rig, bytes)?;
        for direction in Direction::ALL {
            let times = measure(&mut buffers, direction)?;
            report.rows.extend(rows(&times, direction, bytes));
            report.ratios.push(ratios(&times, direction, bytes));
        }
    }
    progress(sizes.len() as u64, sizes.len() as u64);
    Ok(report)
}

/// The kinds of host memory, and for leases the ways to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
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
    const ALL: [Self; 4] = [Self::Lease, Self::LeaseMemory, Self::Raw, Self::Pageable];

    fn name(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::LeaseMemory => "lease-memory",
            Self::Raw => "cuMemHostAlloc",
            Self::Pageable => "pageable",
        }
    }
}

/// Which way a copy goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// An upload.
    HostToDevice,
    /// A download.
    DeviceToHost,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::HostToDevice, Self::DeviceToHost];

    /// As results name it.
    pub fn name(self) -> &'static str {
        DIRECTIONS[self as usize]
    }
}

/// One buffer of each kind and the device memory they copy to and from.
struct Buffers {
    /// Always there between copies: a copy consumes the lease, and its end gives it back.
    lease: Option<Lease>,
    raw: DriverPages,
    pageable: Vec<u8>,
    device: DeviceMemory,
    rig: CudaRig,
    bytes: usize,
}

impl Buffers {
    fn open(rig: &CudaRig, bytes: usize) -> Result<Self, BenchError> {
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

    fn host_mut(&mut self, source: Source) -> Result<&mut [u8], BenchError> {
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
    fn copy(&mut self, source: Source, direction: Direction) -> Result<Duration, BenchError> {
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

fn raw_copy(
    device: &mut DeviceMemory,
    host: &mut [u8],
    direction: Direction,
) -> Result<(), BenchError> {
    match direction {
        Direction::HostToDevice => device.copy_in(host),
        Direction::DeviceToHost => device.copy_out(host),
    }
}

/// The sources that are interleaved copy by copy.
const PINNED: [Source; 3] = [Source::Lease, Source::LeaseMemory, Source::Raw];

/// The times of all copies of one size and direction, by source.
type CopyTimes = [Vec<f64>; 4];

fn measure(buffers: &mut Buffers, direction: Direction) -> Result<CopyTimes, BenchError> {
    let repeats = (TRAFFIC / buffers.bytes).clamp(REPEATS_MIN, REPEATS_MAX);
    let warm_up = repeats / 10 + 2;
    let mut times: CopyTimes = Default::default();
    // Pageable copies apart: the driver moves those bytes with the processor, which evicts its
    // caches, and whichever source came next would pay for that.
    for sources in [&PINNED[..], &[Source::Pageable]] {
        for round in 0..warm_up + repeats {
            for source in timing::order(round, sources.len()) {
                let source = sources[source];
                let took = buffers.copy(source, direction)?;
                if round >= warm_up {
                    times[source as usize].push(took.as_secs_f64());
                }
            }
        }
    }
    Ok(times)
}

fn rows(times: &CopyTimes, direction: Direction, bytes: usize) -> Vec<CopyRow> {
    let row = |(source, times): (Source, &Vec<f64>)| {
        let median = timing::median(times);
        CopyRow {
            name: source.name().to_owned(),
            direction: direction.name().to_owned(),
            bytes: bytes as u64,
            gb_per_s: rounded(bytes as f64 / median / 1e9),
            p50_us: rounded(median * 1e6),
            repeats: times.len() as u64,
        }
    };
    Source::ALL.into_iter().zip(times).map(row).collect()
}

fn ratios(times: &CopyTimes, direction: Direction, bytes: usize) -> CopyRatio {
    // Bandwidth over bandwidth is time under time.
    let over_raw = |source: Source| {
        rounded(timing::median_ratio(&times[Source::Raw as usize], &times[source as usize]))
    };
    CopyRatio {
        direction: direction.name().to_owned(),
        bytes: bytes as u64,
        lease_over_raw: over_raw(Source::Lease),
        lease_memory_over_raw: over_raw(Source::LeaseMemory),
        pageable_over_raw: over_raw(Source::Pageable),
    }
}

/// The largest size: every source holds one buffer of it.
pub const SIZE_MAX: usize = 1 << 30;
const FRAME_1080P_RGB: usize = 1920 * 1080 * 3;
/// Bytes to copy for one size, source and direction: a second or so with the slowest source.
const TRAFFIC: usize = 4 << 30;
const REPEATS_MIN: usize = 31;
const REPEATS_MAX: usize = 501;
const METHOD: &str = "each copy is enqueued and waited for by itself; the three pinned sources \
                      interleaved copy by copy in changing order, pageable copies apart because \
                      they evict the processor's caches; GB/s (10^9 bytes) at the median time; \
                      ratios are medians of per-round ratios; lease is the pool's upload and \
                      download, lease-memory the raw copy call on a lease's memory";

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn the_report_holds_every_row_or_says_why_there_is_none() {
        let report = run(&CopyOptions::default(), "cmd".to_owned(), &mut |_, _| ()).unwrap();
        if pinpool::cuda::probe().is_ok() {
            assert_eq!((report.not_run.as_ref(), report.sizes.len()), (None, 5));
            assert_eq!((report.rows.len(), report.ratios.len()), (5 * 2 * 4, 5 * 2));
            assert!(report.rows.iter().all(|row| row.gb_per_s > 0.0 && row.p50_us > 0.0));
            return;
        }
        assert!(report.not_run.as_ref().is_some_and(|why| why.starts_with("no CUDA device: ")));
        assert!(report.rows.is_empty() && report.ratios.is_empty());
        let text = report.to_text();
        assert!(text.starts_with("not run: no CUDA device: "), "{text}");
        assert!(text.contains("4 KiB, 64 KiB, 1 MiB, 6.2 MB, 64 MiB from a lease"), "{text}");
    }

    #[test]
    fn sizes_are_sorted_and_absurd_ones_refused() {
        let check = |sizes: &[usize], full| CopyOptions { sizes: sizes.to_vec(), full }.check();
        assert_eq!(check(&[8, 4, 8], false).unwrap(), [4, 8]);
        assert_eq!(check(&[], false).unwrap().len(), 5);
        assert_eq!(check(&[], true).unwrap().last(), Some(&(256 << 20)));
        for wrong in [0, SIZE_MAX + 1, usize::MAX] {
            let error = check(&[4, wrong], false).unwrap_err();
            assert!(error.is_input() && error.to_string().contains("--size"), "{error}");
        }
    }

    #[test]
    fn bandwidth_ratios_compare_times_the_right_way_round() {
        // The lease is as fast as raw memory, pageable memory takes four times as long.
        let times: CopyTimes = [vec![1e-3; 3], vec![1e-3; 3], vec![1e-3; 3], vec![4e-3; 3]];
        let row = ratios(&times, Direction::HostToDevice, 1_000_000);
        assert!((row.lease_over_raw - 1.0).abs() < 1e-12 && row.direction == "h2d");
        assert!((row.pageable_over_raw - 0.25).abs() < 1e-12);
        let rows = rows(&times, Direction::DeviceToHost, 1_000_000);
        assert!((rows[0].gb_per_s - 1.0).abs() < 1e-9 && rows[0].direction == "d2h");
        assert!((rows[3].gb_per_s - 0.25).abs() < 1e-9 && rows[3].name == "pageable");
    }
}
