//! Scenario `frames`, the video pitfall: what does a frame cost that leases its buffer, against
//! pinning one per frame, against `malloc` per frame, against a ring written by hand?

mod rates;
pub mod report;
mod section;
mod text;

use std::thread;
use std::time::{Duration, Instant};

use pinpool::{BackendChoice, FrameSpec};

use crate::BenchError;
use crate::machine::{self, Machine};
use crate::pin_room;
use crate::rig::FrameRig;
use crate::rivals::Rival;
use crate::timing::{self, Times, rounded};
use rates::Camera;
use report::{FRAMES, FrameInfo, FramesRatios, FramesReport, FramesRow};

/// What to move, how often, how fast.
#[derive(Debug, Clone)]
pub struct FramesOptions {
    /// The memory to use; `Auto` is CUDA where there is a device.
    pub backend: BackendChoice,
    /// The frame.
    pub frame: FrameSpec,
    /// Frames to count for each rival.
    pub frames: u64,
    /// Frames that stay live.
    pub depth: usize,
    /// Frames per second to keep to; `None` is as fast as possible.
    pub rate: Option<f64>,
    /// The most to have pinned at a time; fewer frames stay live where that binds.
    pub max_pinned: Option<u64>,
}

impl FramesOptions {
    /// Checks that the run makes sense and fits this machine, and returns the bytes of a frame.
    ///
    /// # Errors
    /// [`BenchError::Input`] naming the option that is wrong and what it may be.
    pub fn check(&self) -> Result<usize, BenchError> {
        if !(1..=FRAMES_MAX).contains(&self.frames) {
            let text = format!("--frames {}: from 1 to {FRAMES_MAX} frames", self.frames);
            return Err(BenchError::Input(text));
        }
        if !(1..=DEPTH_MAX).contains(&self.depth) {
            let text = format!("--depth {}: from 1 to {DEPTH_MAX} live frames", self.depth);
            return Err(BenchError::Input(text));
        }
        if let Some(rate) = self.rate
            && !(RATE_MIN..=RATE_MAX).contains(&rate)
        {
            let text = format!("--rate {rate}: from {RATE_MIN} to {RATE_MAX} frames per second");
            return Err(BenchError::Input(text));
        }
        let bytes = self.frame.bytes().map_err(|cause| BenchError::input(cause.to_string()))?;
        pin_room::check(self.max_pinned)?;
        let depth = self.depth_within(bytes)?;
        // Four rivals with their live frames; the source, the sink and one blank frame.
        let needed = (depth as u64)
            .checked_mul(Rival::ALL.len() as u64)
            .and_then(|buffers| buffers.checked_add(3))
            .and_then(|buffers| buffers.checked_mul(bytes as u64))
            .unwrap_or(u64::MAX);
        match machine::available_bytes() {
            Some(available) if needed > available => Err(BenchError::Input(format!(
                "--frame {} --depth {}: this needs {} of memory for four sources, {} is \
                 available; choose a smaller frame or depth",
                self.frame,
                depth,
                crate::text::bytes(needed),
                crate::text::bytes(available),
            ))),
            _ => Ok(bytes),
        }
    }

    /// The frames that stay live: no more than may be pinned.
    fn depth_within(&self, bytes: usize) -> Result<usize, BenchError> {
        let Some(most) = self.max_pinned else {
            return Ok(self.depth);
        };
        let each = pin_room::in_pages(bytes as u64).saturating_mul(PINNED_SOURCES);
        match usize::try_from(most / each).unwrap_or(usize::MAX) {
            0 => Err(BenchError::Input(format!(
                "--max-pinned {most}: {PINNED_SOURCES} sources pin at least one frame of {} each, \
                 {each} bytes together",
                self.frame
            ))),
            fits => Ok(self.depth.min(fits)),
        }
    }

    /// What `max_pinned` changed, if anything.
    fn note(&self, depth: usize) -> Option<String> {
        let most = self.max_pinned.filter(|_| depth < self.depth)?;
        let (wanted, limit) = (self.depth, crate::text::bytes(most));
        Some(format!("{depth} frames deep instead of {wanted}: --max-pinned is {limit}"))
    }
}

/// Runs the scenario. `progress` hears of frames done and frames in all, between frames' rounds.
///
/// # Errors
/// As [`FramesOptions::check`]; [`BenchError::Input`] for a CUDA run without a device; any call
/// that failed.
pub fn run(
    options: &FramesOptions,
    command: String,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<FramesReport, BenchError> {
    let bytes = options.check()?;
    let depth = options.depth_within(bytes)?;
    let cut = options.note(depth);
    let options = &FramesOptions { depth, ..options.clone() };
    let mut rig = FrameRig::open(options.backend, bytes, depth)?;
    let rounds = timing::rounds_of(options.frames);
    let total = options.frames * Rival::ALL.len() as u64;
    let mut tallies = Vec::with_capacity(Rival::ALL.len());
    for _ in Rival::ALL {
        tallies.push(Tally::new()?);
    }
    let mut done = 0;
    for (setup, rounds) in rounds.chunks(rounds.len().div_ceil(SETUPS).max(1)).enumerate() {
        // Which physical pages a buffer gets makes it a few per cent faster or slower for as long
        // as it lives: fresh memory for all, several times, so that luck does not decide.
        if setup > 0 {
            drop(rig);
            rig = FrameRig::open(options.backend, bytes, depth)?;
        }
        // The first round runs twice: once uncounted, to bring every rival to its usual pace.
        for (number, &frames) in rounds.iter().take(1).chain(rounds).enumerate() {
            for rival in timing::order(number, Rival::ALL.len()) {
                let rate = options.rate.filter(|_| number > 0);
                let round = run_round(&mut rig, Rival::ALL[rival], frames, rate)?;
                if number > 0 {
                    tallies[rival].add(&round);
                    done += frames;
                    progress(done, total);
                }
            }
        }
    }
    let mut report = report(options, command, bytes as u64, rounds.len() as u64, &rig, &tallies);
    report.notes.extend(cut);
    Ok(report)
}

/// The sources that pin: leases, memory for each frame, the ring. `malloc` does not.
const PINNED_SOURCES: u64 = 3;
/// How often all sources get fresh memory during one run.
const SETUPS: usize = 5;

/// One rival's frames of one round.
struct Round {
    times: Vec<Duration>,
    missed: u64,
}

/// One rival's frames of all rounds.
struct Tally {
    times: Times,
    fps_of_rounds: Vec<f64>,
    missed: u64,
    cameras: [Camera; 3],
}

impl Tally {
    fn new() -> Result<Self, BenchError> {
        let (fps_of_rounds, cameras) = (Vec::new(), Camera::all());
        Ok(Self { times: Times::new()?, fps_of_rounds, missed: 0, cameras })
    }

    fn add(&mut self, round: &Round) {
        for &took in &round.times {
            self.times.record(took);
            for camera in &mut self.cameras {
                camera.frame(took);
            }
        }
        let busy = round.times.iter().sum();
        self.fps_of_rounds.push(timing::per_second(round.times.len() as u64, busy));
        self.missed += round.missed;
    }
}

fn run_round(
    rig: &mut FrameRig,
    rival: Rival,
    frames: u64,
    rate: Option<f64>,
) -> Result<Round, BenchError> {
    let mut round = Round { times: Vec::new(), missed: 0 };
    let period = rate.map(|rate| Duration::from_secs_f64(1.0 / rate));
    let mut due = Instant::now();
    for _ in 0..frames {
        if period.is_some() {
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        round.times.push(rig.frame(rival)?);
        if let Some(period) = period {
            // A frame has until the next one is due, however late it began.
            due += period;
            round.missed += u64::from(Instant::now() > due);
        }
    }
    Ok(round)
}

fn report(
    options: &FramesOptions,
    command: String,
    bytes: u64,
    rounds: u64,
    rig: &FrameRig,
    tallies: &[Tally],
) -> FramesReport {
    let rows = Rival::ALL.iter().zip(tallies).map(|(rival, tally)| FramesRow {
        name: rival.name().to_owned(),
        fps: rounded(tally.times.per_second()),
        p50_us: rounded(tally.times.quantile_us(0.50)),
        p99_us: rounded(tally.times.quantile_us(0.99)),
        max_us: rounded(tally.times.max_us()),
        missed: options.rate.map(|_| tally.missed),
    });
    let rates = Rival::ALL
        .iter()
        .zip(tallies)
        .flat_map(|(rival, tally)| tally.cameras.iter().map(|camera| camera.row(rival.name())));
    let lease_over = |rival: Rival| {
        let fps = |rival: Rival| tallies[rival as usize].fps_of_rounds.as_slice();
        rounded(timing::median_ratio(fps(Rival::Lease), fps(rival)))
    };
    FramesReport {
        scenario: FRAMES.to_owned(),
        backend: rig.backend.to_owned(),
        locked: rig.locked,
        machine: Machine::describe(),
        command,
        commit: machine::commit(),
        frame: FrameInfo {
            spec: options.frame.to_string(),
            width: options.frame.width as u64,
            height: options.frame.height as u64,
            format: options.frame.format.to_string(),
            bytes,
        },
        frames: options.frames,
        depth: options.depth as u64,
        rounds,
        rate_fps: options.rate,
        method: METHOD.to_owned(),
        notes: rig.notes.clone(),
        rows: rows.collect(),
        ratios: FramesRatios {
            lease_over_pinned_per_frame: lease_over(Rival::PinnedPerFrame),
            lease_over_malloc_per_frame: lease_over(Rival::MallocPerFrame),
            lease_over_fixed_ring: lease_over(Rival::FixedRing),
        },
        rates: rates.collect(),
    }
}

/// The frames of a quick run: of so few the figures mean little.
pub const FRAMES_QUICK: u64 = 30;
/// The most frames of one run.
pub const FRAMES_MAX: u64 = 1_000_000;
/// The most live frames.
pub const DEPTH_MAX: usize = 4096;
/// The slowest and the fastest pace.
pub const RATE_MIN: f64 = 0.1;
/// See [`RATE_MIN`].
pub const RATE_MAX: f64 = 100_000.0;
const METHOD: &str = "per frame: give back the oldest buffer once depth are live, acquire, fill by \
                      memcpy, copy to the sink and wait; rounds of the four sources interleaved in \
                      changing order; up to five set-ups with fresh memory, each after an uncounted \
                      round; fps is frames over busy time; ratios are medians of per-round ratios; rates: \
                      the times of these frames put behind a camera that waits for nobody, where a \
                      frame that comes while the last is in work is dropped, and one is in time if \
                      it is done before the next comes";

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    fn options() -> FramesOptions {
        FramesOptions {
            backend: BackendChoice::Host,
            frame: "64x32:rgb8".parse().unwrap(),
            frames: 30,
            depth: 3,
            rate: None,
            max_pinned: None,
        }
    }

    #[test]
    fn no_more_frames_stay_live_than_may_be_pinned() {
        let options = FramesOptions { max_pinned: Some(2 * 24_576), ..options() };
        let report = run(&options, "cmd".to_owned(), &mut |_, _| ()).unwrap();
        assert_eq!(report.depth, 2);
        let wanted = "2 frames deep instead of 3: --max-pinned is 48 KiB".to_owned();
        assert!(report.notes.contains(&wanted), "{:?}", report.notes);
    }

    #[test]
    fn a_small_run_fills_every_field() {
        let mut seen = Vec::new();
        let report = run(&options(), "cmd".to_owned(), &mut |done, total| seen.push((done, total)));
        let report = report.unwrap();
        assert_eq!((report.backend.as_str(), report.frame.bytes), ("host", 64 * 32 * 3));
        assert_eq!((report.frames, report.depth, report.rounds), (30, 3, 3));
        let names: Vec<&str> = report.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, Rival::ALL.map(Rival::name));
        for row in &report.rows {
            assert!(row.fps > 0.0 && row.p50_us > 0.0, "{row:?}");
            assert!(row.p50_us <= row.p99_us && row.p99_us <= row.max_us, "{row:?}");
            assert_eq!(row.missed, None);
        }
        assert_eq!(report.rates.len(), 4 * 3);
        for rate in &report.rates {
            assert_eq!(rate.arrived, 30 + rate.dropped, "{rate:?}");
        }
        let ratios = &report.ratios;
        assert!(ratios.lease_over_pinned_per_frame > 0.0);
        assert!(ratios.lease_over_malloc_per_frame > 0.0 && ratios.lease_over_fixed_ring > 0.0);
        assert_eq!(seen.last(), Some(&(120, 120)));
    }

    #[test]
    fn a_paced_run_counts_missed_deadlines() {
        let paced = FramesOptions { rate: Some(50_000.0), frames: 100, ..options() };
        let started = Instant::now();
        let report = run(&paced, String::new(), &mut |_, _| ()).unwrap();
        assert!(report.rows.iter().all(|row| row.missed.is_some_and(|missed| missed <= 100)));

        // 30 frames at 100 fps for each of four rivals: 29 waits of 10 ms per rival at least,
        // less one for every round.
        let paced = FramesOptions { rate: Some(100.0), ..options() };
        let report_slow = run(&paced, String::new(), &mut |_, _| ()).unwrap();
        assert!(started.elapsed() >= Duration::from_millis(4 * 27 * 10));
        assert_eq!(report_slow.rate_fps, Some(100.0));
        // The frames are tiny: being busy is no reason to miss, and fps shows busy time only.
        assert!(report_slow.row("lease").unwrap().fps > 1000.0, "{:?}", report_slow.rows);
    }

    #[test]
    fn requests_that_make_no_sense_are_refused_with_the_option_named() {
        let refused = |options: FramesOptions, named: &str| {
            let error = options.check().unwrap_err();
            assert!(error.is_input() && error.to_string().contains(named), "{error}");
        };
        refused(FramesOptions { frames: 0, ..options() }, "--frames 0");
        refused(FramesOptions { frames: u64::MAX, ..options() }, "--frames 18446744073709551615");
        refused(FramesOptions { depth: 0, ..options() }, "--depth 0");
        refused(FramesOptions { depth: usize::MAX, ..options() }, "--depth 18446744073709551615");
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300] {
            refused(FramesOptions { rate: Some(rate), ..options() }, "--rate");
        }
        let huge = "65536x65536:rgba8".parse().unwrap();
        refused(FramesOptions { frame: huge, depth: 4096, ..options() }, "available");
        // Three sources pin a frame of 6144 bytes, which are two pages, each.
        for most in [0, 4096, 24_575] {
            let words = format!("--max-pinned {most}: ");
            refused(FramesOptions { max_pinned: Some(most), ..options() }, &words);
        }
    }
}
