//! Scenario `overlap`: chunks to the device, a kernel over each, and back, in one stream or several: how
//! much of it goes on at once from pinned memory, and how much from pageable memory.

mod host;
mod lanes;
mod marks;
pub mod report;
mod text;

use crate::BenchError;
use crate::cuda_rig::CudaRig;
use crate::header::Header;
use crate::kernels::Kernels;
use crate::timing::{self, Progress};
pub use host::{Host, Memory};
pub use lanes::{Course, Lanes};
use report::{OVERLAP, OverlapReport};

/// What to measure.
#[derive(Debug, Clone, Default)]
pub struct OverlapOptions {
    /// Chunks are made smaller where all of them together would pin more bytes; `None` is no such limit.
    pub max_pinned: Option<u64>,
    /// Runs with small chunks and few streams: enough to see that it works, too little for figures.
    pub quick: bool,
}

impl OverlapOptions {
    /// Looks whether there is anything to do.
    ///
    /// # Errors
    /// [`BenchError::Input`] where so little may be pinned that chunks would be tiny.
    pub fn check(&self) -> Result<(), BenchError> {
        self.chunk_bytes().map(drop)
    }

    fn scale(&self) -> Scale {
        if self.quick { Scale::QUICK } else { Scale::FULL }
    }

    /// Bytes of a chunk: each has a lease for its source and one for its target.
    fn chunk_bytes(&self) -> Result<usize, BenchError> {
        let scale = self.scale();
        let leases = 2 * scale.chunks as u64;
        let most = self.max_pinned.map_or(u64::MAX, |bytes| bytes / leases);
        let most = usize::try_from(most).unwrap_or(usize::MAX) / CHUNK_STEP * CHUNK_STEP;
        let bytes = scale.chunk_bytes.min(most);
        if bytes >= CHUNK_MIN {
            return Ok(bytes);
        }
        Err(BenchError::Input(format!(
            "--max-pinned {}: at least {} bytes are needed",
            self.max_pinned.unwrap_or(0),
            leases * CHUNK_MIN as u64
        )))
    }
}

/// Runs the scenario, or reports why it cannot run here. `progress` hears of rounds done.
///
/// # Errors
/// As [`OverlapOptions::check`]; any call that failed; a result that arrived wrong. A machine without a
/// CUDA device, and a driver that runs no kernels, are no errors: the report says so.
pub fn run(
    options: &OverlapOptions,
    command: String,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<OverlapReport, BenchError> {
    let (scale, chunk_bytes) = (options.scale(), options.chunk_bytes()?);
    let header = Header::here(OVERLAP, command, options.quick, METHOD);
    let mut report = OverlapReport::new(header, chunk_bytes, scale.chunks);
    let not_run = &mut report.header.not_run;
    let Some(rig) = CudaRig::open_if_any(not_run)? else { return Ok(report) };
    let Some(kernels) = Kernels::load_if_any(&rig, not_run)? else { return Ok(report) };
    if chunk_bytes < scale.chunk_bytes {
        report.notes.push(format!("chunks are of {chunk_bytes} bytes because of --max-pinned"));
    }
    let memories = Memory::ALL.map(|memory| Host::open(memory, scale.chunks, chunk_bytes));
    let [pageable, pinned] = memories;
    let mut hosts = [pageable?, pinned?];
    // Opening the pool may have made another context current on this thread.
    rig.bind()?;
    let most = scale.streams.iter().copied().fold(1, usize::max);
    let mut lanes = Lanes::open(&rig, kernels, most, chunk_bytes)?;
    report.alone = Some(lanes.tune(&mut hosts)?);
    report.steps = u64::from(lanes.steps());
    let courses = scale.courses();
    let mut progress = Progress::new((scale.rounds * courses.len()) as u64, progress);
    for host in &mut hosts {
        for course in &courses {
            lanes.verify(host, *course)?;
        }
    }
    let mut times = [vec![Vec::new(); courses.len()], vec![Vec::new(); courses.len()]];
    for round in 0..scale.rounds {
        for which in timing::order(round, courses.len()) {
            for (host, times) in hosts.iter_mut().zip(&mut times) {
                let took = lanes.run(host, courses[which])?;
                times[which].push(took.as_secs_f64() * 1e3);
            }
            progress.step();
        }
    }
    for host in &mut hosts {
        report.timelines.push(lanes.timeline(host, scale.shown_streams)?);
    }
    report.fill(&courses, &times);
    Ok(report)
}

/// How much to run.
#[derive(Debug, Clone, Copy)]
struct Scale {
    chunk_bytes: usize,
    chunks: usize,
    streams: &'static [usize],
    /// Those of the timelines.
    shown_streams: usize,
    rounds: usize,
}

impl Scale {
    const FULL: Self = Self {
        chunk_bytes: 16 << 20,
        chunks: 16,
        streams: &[1, 2, 3, 4],
        shown_streams: 3,
        rounds: 15,
    };
    const QUICK: Self =
        Self { chunk_bytes: 4 << 20, chunks: 8, streams: &[1, 2], shown_streams: 2, rounds: 3 };

    fn courses(&self) -> Vec<Course> {
        let streams = self.streams.iter().map(|streams| Course::Streams(*streams));
        std::iter::once(Course::Serial).chain(streams).collect()
    }
}

/// Chunks are so many pages.
const CHUNK_STEP: usize = 4096;
/// Copies of less take as long as the calls.
const CHUNK_MIN: usize = 64 << 10;
const METHOD: &str = "\
    each chunk goes to the device, a kernel runs over it, and it comes back into other host memory; the \
    chunks are dealt out to the streams in turn, each stream has one block of device memory, and \
    nothing is waited for before the last chunk is queued; serial: one stream, which is waited for after \
    every step. Times are from the first call until all streams are dry. Pageable: touched memory \
    of the allocator; pinned: a lease for each source and each target, leased before. The kernel makes \
    so many dependent steps for each number that it takes about as long as a pinned copy to the device. \
    All courses of both memories in each round, in changing order, after one run of each of which \
    every number that came back is checked; speed-ups are medians of those of the rounds. Steps alone: \
    by events around them on a stream that is dry, median of 9, less the time between two events with \
    nothing between them. Timelines: one more run of each memory with events around all steps; a step \
    begins where its stream is ready for it, so that it includes waiting for an engine that another \
    stream holds";

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn the_report_holds_every_course_or_says_why_there_is_none() {
        let options = OverlapOptions { quick: true, ..OverlapOptions::default() };
        let report = run(&options, "cmd".to_owned(), &mut |_, _| ()).unwrap();
        if let Some(why) = &report.header.not_run {
            println!("overlap not tested: {why}");
            assert!(why.starts_with("no CUDA device: ") || why == crate::kernels::NO_KERNELS);
            assert!(report.rows.is_empty() && report.timelines.is_empty());
            assert!(report.to_text().starts_with("not run: "), "{}", report.to_text());
            assert_eq!(report.section().not_run.as_ref(), Some(why));
            return;
        }
        assert_eq!((report.rows.len(), report.timelines.len()), (2 * 3, 2));
        assert!(report.rows.iter().all(|row| row.ms.median > 0.0), "{report:?}");
        assert!(report.ratios.pinned_over_pageable.is_some());
    }

    #[test]
    fn chunks_shrink_to_what_may_be_pinned() {
        let chunk_bytes = |max_pinned, quick| {
            OverlapOptions { max_pinned, quick }.chunk_bytes().map_err(|error| error.to_string())
        };
        assert_eq!(chunk_bytes(None, false), Ok(16 << 20));
        assert_eq!(chunk_bytes(Some(512 << 20), false), Ok(16 << 20));
        assert_eq!(chunk_bytes(Some(64 << 20), false), Ok(2 << 20));
        assert_eq!(chunk_bytes(Some((2 << 20) + 1), true), Ok(128 << 10));
        let error = chunk_bytes(Some(1 << 20), false).unwrap_err();
        assert!(error.starts_with("--max-pinned 1048576: at least 2097152 bytes"), "{error}");
    }
}
