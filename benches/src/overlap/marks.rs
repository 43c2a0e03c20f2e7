//! Events between the steps of a run, and the times that they saw.

use std::sync::Arc;

use pinpool::cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, sys};

use super::report::TimelineSpan;
use crate::BenchError;
use crate::timing::rounded;

/// The steps of a chunk, in their order.
pub(super) const STEPS: [&str; 3] = ["copy in", "kernel", "copy out"];

/// The events of one run, in the order of their recording.
#[derive(Debug)]
pub(super) struct Marks {
    context: Arc<CudaContext>,
    begin: CudaEvent,
    /// The chunk's stream, and what was recorded before its first step and after each.
    chunks: Vec<(usize, Vec<CudaEvent>)>,
}

impl Marks {
    /// Begins in `stream`, which is dry as all others are.
    pub(super) fn begin(
        context: &Arc<CudaContext>,
        stream: &CudaStream,
    ) -> Result<Self, BenchError> {
        let begin = recorded(context, stream)?;
        Ok(Self { context: Arc::clone(context), begin, chunks: Vec::new() })
    }

    /// The next chunk is about to be queued in this stream.
    pub(super) fn chunk(&mut self, which: usize, stream: &CudaStream) -> Result<(), BenchError> {
        let first = recorded(&self.context, stream)?;
        self.chunks.push((which, vec![first]));
        Ok(())
    }

    /// A step of the latest chunk was queued.
    pub(super) fn step(&mut self, stream: &CudaStream) -> Result<(), BenchError> {
        let event = recorded(&self.context, stream)?;
        if let Some((_, events)) = self.chunks.last_mut() {
            events.push(event);
        }
        Ok(())
    }

    /// All steps in milliseconds from the beginning, once all streams are dry.
    pub(super) fn spans(&self) -> Result<Vec<TimelineSpan>, BenchError> {
        let mut spans = Vec::new();
        for (chunk, (stream, events)) in self.chunks.iter().enumerate() {
            for (step, ends) in STEPS.iter().zip(events.windows(2)) {
                spans.push(TimelineSpan {
                    stream: *stream as u64,
                    chunk: chunk as u64,
                    step: (*step).to_owned(),
                    start_ms: rounded(elapsed_ms(&self.begin, &ends[0])?),
                    end_ms: rounded(elapsed_ms(&self.begin, &ends[1])?),
                });
            }
        }
        Ok(spans)
    }
}

/// An event that takes the time, recorded in `stream`.
pub(super) fn recorded(
    context: &Arc<CudaContext>,
    stream: &CudaStream,
) -> Result<CudaEvent, BenchError> {
    let flags = sys::CUevent_flags::CU_EVENT_DEFAULT;
    let event = context.new_event(Some(flags)).map_err(failed)?;
    event.record(stream).map_err(failed)?;
    Ok(event)
}

/// Milliseconds between two events; waits for both.
pub(super) fn elapsed_ms(from: &CudaEvent, to: &CudaEvent) -> Result<f64, BenchError> {
    from.elapsed_ms(to).map(f64::from).map_err(failed)
}

fn failed(cause: DriverError) -> BenchError {
    BenchError::failed("taking the time with an event", cause)
}
