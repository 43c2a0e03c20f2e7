//! The thread that is watched: what it does in turns, and how long each turn took.

use std::time::{Duration, Instant};

use super::report::RoundFelt;
use crate::BenchError;
use crate::cuda_rig::{CudaRig, DeviceMemory};
use crate::kernels::Kernels;
use crate::rivals::pinned_cuda::DriverPages;
use crate::sink::Sink;
use crate::startup::{Ground, map_a_page};
use crate::timing::Times;

/// A kind of turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// 1 MiB to the device, or in RAM.
    Copy,
    /// A kernel that ends at once.
    Launch,
    /// A page that is mapped, touched and unmapped.
    Map,
}

impl Work {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy of 1 MiB",
            Self::Launch => "kernel launch",
            Self::Map => "mapping of a page",
        }
    }
}

/// All that the turns need, opened on the thread that takes them.
#[derive(Debug)]
pub struct Turns {
    ends: Ends,
    works: Vec<Work>,
}

#[derive(Debug)]
enum Ends {
    // Boxed, because the device's handles are much larger than two buffers.
    Device(Box<(CudaRig, DriverPages, DeviceMemory, Option<Kernels>)>),
    Host(Vec<u8>, Sink),
}

impl Turns {
    /// Those that there are on `ground`. The notes say what is left out.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn open(ground: &Ground, notes: &mut Vec<String>) -> Result<Self, BenchError> {
        let Ground::Cuda(rig) = ground else {
            let ends = Ends::Host(vec![1; COPY_BYTES], Sink::host(COPY_BYTES));
            return Ok(Self { ends, works: vec![Work::Copy, Work::Map] });
        };
        let rig = rig.with_own_stream()?;
        let source = DriverPages::new(&rig.context, COPY_BYTES)?;
        let target = rig.device_memory(COPY_BYTES)?;
        let mut not_run = None;
        let kernels = Kernels::load_if_any(&rig, &mut not_run)?;
        notes.extend(not_run.map(|why| format!("no kernel is launched: {why}")));
        let launch = kernels.is_some().then_some(Work::Launch);
        let works = std::iter::once(Work::Copy).chain(launch).collect();
        Ok(Self { ends: Ends::Device(Box::new((rig, source, target, kernels))), works })
    }

    /// The kinds of turn, in their order.
    pub fn works(&self) -> &[Work] {
        &self.works
    }

    /// One turn of a kind, from the call until the host sees its end.
    ///
    /// # Errors
    /// The system's or the driver's reason.
    pub fn take(&mut self, work: Work) -> Result<Duration, BenchError> {
        let started = Instant::now();
        match (&mut self.ends, work) {
            (_, Work::Map) => {
                map_a_page().map_err(|cause| BenchError::failed("mapping a page", cause))?;
            }
            (Ends::Host(source, sink), _) => sink.copy(source)?,
            (Ends::Device(ends), Work::Copy) => ends.2.copy_in(ends.1.bytes_mut())?,
            (Ends::Device(ends), Work::Launch) => {
                let (rig, _, _, kernels) = ends.as_ref();
                if let Some(kernels) = kernels {
                    kernels.spin(&rig.stream, Duration::ZERO)?;
                }
                let waited = rig.stream.synchronize();
                waited.map_err(|cause| BenchError::failed("waiting for a kernel", cause))?;
            }
        }
        Ok(started.elapsed())
    }

    /// Turns for `length`, of each kind in its order; one of each at least.
    pub(super) fn work(&mut self, length: Duration) -> Result<Vec<RoundFelt>, BenchError> {
        let works = self.works.clone();
        let mut felt = works.iter().map(|_| Felt::new()).collect::<Result<Vec<_>, _>>()?;
        let started = Instant::now();
        loop {
            for (work, felt) in works.iter().zip(&mut felt) {
                felt.record(self.take(*work)?);
            }
            if started.elapsed() >= length {
                let took = started.elapsed();
                let rounds = works.iter().zip(&felt);
                return Ok(rounds.map(|(work, felt)| felt.round(*work, took)).collect());
            }
        }
    }

    /// Turns that do not count.
    pub(super) fn warm_up(&mut self) -> Result<(), BenchError> {
        for _ in 0..WARM_UP {
            for work in self.works.clone() {
                self.take(work)?;
            }
        }
        Ok(())
    }
}

/// All turns of a kind in a round.
struct Felt {
    times: Times,
    long: Duration,
}

impl Felt {
    fn new() -> Result<Self, BenchError> {
        Ok(Self { times: Times::new()?, long: Duration::ZERO })
    }

    fn record(&mut self, took: Duration) {
        self.times.record(took);
        if took > LONG {
            self.long += took;
        }
    }

    fn round(&self, work: Work, took: Duration) -> RoundFelt {
        RoundFelt {
            work,
            turns: self.times.count(),
            p50_us: self.times.quantile_us(0.5),
            p99_us: self.times.quantile_us(0.99),
            max_us: self.times.max_us(),
            long_percent: 100.0 * self.long.as_secs_f64() / took.as_secs_f64(),
        }
    }
}

/// Bytes of one copy.
const COPY_BYTES: usize = 1 << 20;
/// A turn that takes longer was held up.
const LONG: Duration = Duration::from_millis(1);
const WARM_UP: usize = 100;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_is_held_up_is_told_from_the_others() {
        let mut felt = Felt::new().unwrap();
        for _ in 0..99 {
            felt.record(Duration::from_micros(10));
        }
        felt.record(Duration::from_millis(250));
        let round = felt.round(Work::Copy, Duration::from_secs(1));
        assert_eq!((round.turns, round.max_us), (100, 250_000.0));
        assert!((round.long_percent - 25.0).abs() < 1e-9 && round.p99_us < 11.0, "{round:?}");
    }
}
