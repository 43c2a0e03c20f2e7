//! Events: points recorded in streams, asked and waited for by the host and by other streams.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::abi::Res;
use crate::codes;
use crate::state::State;
use crate::streams::StreamId;
use crate::work::{Mark, Op};

/// `CU_EVENT_DISABLE_TIMING`.
pub(crate) const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`, which needs [`DISABLE_TIMING`].
pub(crate) const INTERPROCESS: u32 = 4;

/// An event and its latest recording.
pub(crate) struct Event {
    pub(crate) context: usize,
    pub(crate) flags: u32,
    /// Empty before the first recording; several after a recording of a whole context.
    marks: Vec<Arc<Mark>>,
    /// The stream whose capture the event was last recorded in.
    captured: Option<StreamId>,
}

impl Event {
    pub(crate) fn new(context: usize, flags: u32) -> Self {
        Self { context, flags, marks: Vec::new(), captured: None }
    }

    /// Complete, or never recorded.
    pub(crate) fn is_done(&self) -> bool {
        self.marks.iter().all(|mark| mark.is_done())
    }

    /// The latest recording, which a later one does not change.
    pub(crate) fn marks(&self) -> Vec<Arc<Mark>> {
        self.marks.clone()
    }

    fn time(&self) -> Res<Instant> {
        if self.flags & DISABLE_TIMING != 0 || self.marks.is_empty() {
            return Err(codes::INVALID_HANDLE);
        }
        let times = self.marks.iter().map(|mark| mark.time()).collect::<Option<Vec<_>>>();
        times.and_then(|times| times.into_iter().max()).ok_or(codes::NOT_READY)
    }
}

impl State {
    pub(crate) fn event(&mut self, handle: usize) -> Res<&mut Event> {
        if !self.events.contains_key(&handle) {
            return Err(self.no_such_handle(handle));
        }
        self.events.get_mut(&handle).ok_or(codes::INVALID_HANDLE)
    }

    /// The event, unless it stands for a point in a capture, where asking ruins the capture.
    pub(crate) fn event_outside_capture(&mut self, handle: usize) -> Res<&mut Event> {
        if let Some(id) = self.event(handle)?.captured {
            if let Some(capture) = self.streams.get_mut(&id).and_then(|one| one.capture.as_mut()) {
                capture.invalidate();
            }
            return Err(codes::CAPTURED_EVENT);
        }
        self.event(handle)
    }

    /// Records the stream's present work.
    pub(crate) fn record(&mut self, handle: usize, id: StreamId) -> Res {
        let context = self.event(handle)?.context;
        let stream = self.stream_ref(id)?;
        if stream.context != context {
            return Err(codes::INVALID_HANDLE);
        }
        if let Some(capture) = &mut stream.capture {
            capture.check()?;
            self.event(handle)?.captured = Some(id);
            return Ok(());
        }
        let mark = Arc::new(Mark::default());
        self.enqueue(id, Op::Record(Arc::clone(&mark)))?;
        let event = self.event(handle)?;
        event.marks = vec![mark];
        event.captured = None;
        Ok(())
    }

    /// Records the present work of all streams of the event's context.
    pub(crate) fn record_context(&mut self, handle: usize, context: usize) -> Res {
        if self.event(handle)?.context != context {
            return Err(codes::INVALID_HANDLE);
        }
        let mut streams = Vec::new();
        for (&id, stream) in self.streams.iter_mut().filter(|(_, one)| one.context == context) {
            if let Some(capture) = &mut stream.capture {
                capture.invalidate();
                return Err(codes::STREAM_CAPTURE_UNSUPPORTED);
            }
            streams.push(id);
        }
        let marks = streams.into_iter().map(|id| self.mark(id)).collect::<Res<Vec<_>>>()?;
        let event = self.event(handle)?;
        event.marks = marks;
        event.captured = None;
        Ok(())
    }

    /// Makes a stream wait for the event's latest recording.
    pub(crate) fn wait_event(&mut self, id: StreamId, handle: usize) -> Res {
        let event = self.event(handle)?;
        let (marks, captured) = (event.marks(), event.captured);
        let stream = self.stream_ref(id)?;
        match (&mut stream.capture, captured) {
            // A point of the same capture lies before anyway.
            (Some(capture), Some(origin)) if origin == id => return capture.check(),
            (Some(capture), _) => {
                capture.invalidate();
                return Err(codes::STREAM_CAPTURE_ISOLATION);
            }
            // A real driver would draw this stream into the capture.
            (None, Some(_)) => return Err(codes::NOT_SUPPORTED),
            (None, None) => {}
        }
        for mark in marks.into_iter().filter(|mark| !mark.is_done()) {
            self.enqueue(id, Op::Wait(mark))?;
        }
        Ok(())
    }

    /// Time from one event to another, in milliseconds.
    pub(crate) fn elapsed_ms(&mut self, from: usize, to: usize) -> Res<f32> {
        let start = self.event_outside_capture(from)?.time()?;
        let end = self.event_outside_capture(to)?.time()?;
        let millis = |span: Duration| span.as_secs_f32() * 1e3;
        Ok(match end.checked_duration_since(start) {
            Some(span) => millis(span),
            None => -millis(start.duration_since(end)),
        })
    }
}
