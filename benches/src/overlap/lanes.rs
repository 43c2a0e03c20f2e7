//! The streams, each with its block of device memory, and the runs through them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pinpool::cudarc::driver::{CudaContext, CudaStream};

use super::host::{Host, Memory};
use super::marks::{Marks, elapsed_ms, recorded};
use super::report::{Alone, Timeline};
use crate::BenchError;
use crate::cuda_rig::{CudaRig, DeviceMemory};
use crate::kernels::Kernels;
use crate::timing::{median, rounded};

/// How the chunks are queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Course {
    /// In one stream that is waited for after each step.
    Serial,
    /// In so many streams, in turn.
    Streams(usize),
}

impl Course {
    fn streams(self) -> usize {
        match self {
            Self::Serial => 1,
            Self::Streams(streams) => streams,
        }
    }
}

/// All streams of a device, and the kernel that runs in them.
#[derive(Debug)]
pub struct Lanes {
    context: Arc<CudaContext>,
    kernels: Kernels,
    /// A block for each stream, which it is made, used and freed in.
    blocks: Vec<DeviceMemory>,
    steps: u32,
}

impl Lanes {
    /// So many streams, for chunks of `bytes`.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn open(
        rig: &CudaRig,
        kernels: Kernels,
        streams: usize,
        bytes: usize,
    ) -> Result<Self, BenchError> {
        let block = |_| rig.with_own_stream()?.device_memory(bytes);
        let blocks = (0..streams).map(block).collect::<Result<Vec<_>, _>>()?;
        let lanes = Self { context: Arc::clone(&rig.context), kernels, blocks, steps: 1 };
        lanes.wait(streams)?;
        Ok(lanes)
    }

    /// Steps of the kernel.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// Makes the kernel take about as long as a pinned copy to the device; what each step takes alone.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn tune(&mut self, hosts: &mut [Host; 2]) -> Result<Alone, BenchError> {
        let event_gap_us = self.alone(|_, _| Ok(()))?;
        let mut copies = [[0.0; 2]; 2];
        for (host, copies) in hosts.iter_mut().zip(&mut copies) {
            let [copy_in, copy_out] = copies;
            let (source, target) = host.ends(0);
            // SAFETY: `alone` waits for the stream before it returns, and so does every failure of it;
            // `source` and `target` are borrowed for longer.
            *copy_in = self.alone(|_, lane| unsafe { lane.queue_in(source) })? - event_gap_us;
            // SAFETY: as above.
            *copy_out = self.alone(|_, lane| unsafe { lane.queue_out(target) })? - event_gap_us;
        }
        let wanted = copies[Memory::Pinned as usize][0];
        let mut kernel_us = 0.0;
        self.steps = STEPS_FIRST;
        // A few times, because not all of a kernel's time is that of its steps.
        for tries in (0..TUNE_TRIES).rev() {
            let steps = self.steps;
            kernel_us = self.alone(|kernels, lane| kernels.chain(lane, steps))? - event_gap_us;
            if tries > 0 && kernel_us > 0.0 {
                self.steps = steps_for(f64::from(steps) * wanted / kernel_us);
            }
        }
        let [[pageable_in, pageable_out], [pinned_in, pinned_out]] = copies;
        Ok(Alone {
            kernel_us: rounded(kernel_us),
            pinned_in_us: rounded(pinned_in),
            pinned_out_us: rounded(pinned_out),
            pageable_in_us: rounded(pageable_in),
            pageable_out_us: rounded(pageable_out),
            event_gap_us: rounded(event_gap_us),
        })
    }

    /// Microseconds between events around `queue` in a stream that is dry, the median.
    fn alone(
        &mut self,
        mut queue: impl FnMut(&Kernels, &mut DeviceMemory) -> Result<(), BenchError>,
    ) -> Result<f64, BenchError> {
        let mut times = Vec::new();
        for repeat in 0..=ALONE_REPEATS {
            let lane = &mut self.blocks[0];
            let stream = Arc::clone(lane.stream());
            let from = recorded(&self.context, &stream)?;
            let queued = queue(&self.kernels, lane);
            let to = recorded(&self.context, &stream);
            self.wait(1)?;
            queued?;
            // The first warms up.
            if repeat > 0 {
                times.push(elapsed_ms(&from, &to?)? * 1e3);
            }
        }
        Ok(median(&times))
    }

    /// All chunks of `host` there and back; how long that took.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn run(&mut self, host: &mut Host, course: Course) -> Result<Duration, BenchError> {
        self.run_marked(host, course, None)
    }

    /// Runs with events around each step, in so many streams.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn timeline(&mut self, host: &mut Host, streams: usize) -> Result<Timeline, BenchError> {
        let mut marks = Marks::begin(&self.context, self.blocks[0].stream())?;
        let took = self.run_marked(host, Course::Streams(streams), Some(&mut marks))?;
        Ok(Timeline {
            memory: host.memory.name().to_owned(),
            streams: streams as u64,
            ms: rounded(took.as_secs_f64() * 1e3),
            spans: marks.spans()?,
        })
    }

    fn run_marked(
        &mut self,
        host: &mut Host,
        course: Course,
        marks: Option<&mut Marks>,
    ) -> Result<Duration, BenchError> {
        let started = Instant::now();
        // SAFETY: the streams are waited for below, whether or not all was queued, and `host` stays
        // borrowed until then.
        let queued = unsafe { self.queue(host, course, marks) };
        let waited = self.wait(course.streams());
        queued.and(waited)?;
        Ok(started.elapsed())
    }

    /// Queues all chunks.
    ///
    /// # Safety
    /// Nobody touches the memory of `host` until the streams have run dry, also where this fails.
    unsafe fn queue(
        &mut self,
        host: &mut Host,
        course: Course,
        mut marks: Option<&mut Marks>,
    ) -> Result<(), BenchError> {
        for chunk in 0..host.chunks() {
            let which = chunk % course.streams();
            let lane = &mut self.blocks[which];
            let stream = Arc::clone(lane.stream());
            if let Some(marks) = &mut marks {
                marks.chunk(which, &stream)?;
            }
            let mut step_queued = || after_step(&stream, course, marks.as_deref_mut());
            let (source, target) = host.ends(chunk);
            // SAFETY: the caller keeps the source until the stream has run dry.
            unsafe { lane.queue_in(source) }?;
            step_queued()?;
            self.kernels.chain(lane, self.steps)?;
            step_queued()?;
            // SAFETY: the caller keeps the target until the stream has run dry.
            unsafe { lane.queue_out(target) }?;
            step_queued()?;
        }
        Ok(())
    }

    /// Runs once and looks at every number that came back.
    ///
    /// # Errors
    /// A wrong number; the driver's reason.
    pub fn verify(&mut self, host: &mut Host, course: Course) -> Result<(), BenchError> {
        host.wipe();
        self.run(host, course)?;
        host.verify()
    }

    /// Waits for the first streams.
    fn wait(&self, streams: usize) -> Result<(), BenchError> {
        let mut waited = Ok(());
        // Each is waited for, whether or not an earlier one failed.
        for block in self.blocks.iter().take(streams) {
            waited = waited.and(block.stream().synchronize());
        }
        waited.map_err(|cause| BenchError::failed(WAITING, cause))
    }
}

/// An odd number of steps: an even one would leave every number as it was.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is clamped to numbers that fit, and what is no number makes zero"
)]
fn steps_for(wanted: f64) -> u32 {
    wanted.clamp(1.0, STEPS_MAX) as u32 | 1
}

/// What follows each step.
fn after_step(
    stream: &CudaStream,
    course: Course,
    marks: Option<&mut Marks>,
) -> Result<(), BenchError> {
    if let Some(marks) = marks {
        marks.step(stream)?;
    }
    if course != Course::Serial {
        return Ok(());
    }
    stream.synchronize().map_err(|cause| BenchError::failed(WAITING, cause))
}

const WAITING: &str = "waiting for a stream";
const STEPS_FIRST: u32 = 1001;
/// A kernel of so many steps takes milliseconds for every number that it has a thread for.
const STEPS_MAX: f64 = 1e6;
const TUNE_TRIES: u32 = 4;
const ALONE_REPEATS: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_has_an_odd_number_of_steps_and_not_too_many() {
        assert_eq!([0.0, 1.0, 2.0, 1000.7].map(steps_for), [1, 1, 3, 1001]);
        assert_eq!(steps_for(f64::INFINITY), 1_000_001);
        assert_eq!(steps_for(f64::NAN), 1);
    }
}
