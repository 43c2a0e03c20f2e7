//! Stream capture and graphs: recording operations instead of running them, and running them later.

use std::cell::Cell;

use crate::abi::Res;
use crate::codes;
use crate::state::{self, State};
use crate::streams::StreamId;
use crate::work::{Copy, Op, Side};

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`: no thread may make unsafe calls during the capture.
const GLOBAL: u32 = 0;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: everyone may. Between the two, 1 is `THREAD_LOCAL`: all but
/// the capturing thread may.
const RELAXED: u32 = 2;

/// A capture under way.
pub(crate) struct Capture {
    mode: u32,
    thread: u64,
    ops: Vec<Op>,
    invalid: bool,
}

impl Capture {
    pub(crate) fn is_valid(&self) -> bool {
        !self.invalid
    }

    pub(crate) fn invalidate(&mut self) {
        self.invalid = true;
    }

    pub(crate) fn check(&self) -> Res {
        if self.invalid { Err(codes::STREAM_CAPTURE_INVALIDATED) } else { Ok(()) }
    }

    pub(crate) fn add(&mut self, op: Op) -> Res {
        self.check()?;
        if matches!(op, Op::Free { .. }) {
            self.invalidate();
            return Err(codes::STREAM_CAPTURE_UNSUPPORTED);
        }
        self.ops.push(op);
        Ok(())
    }
}

/// Captured operations; also what an instantiated graph is.
#[derive(Clone, Default)]
pub(crate) struct Graph {
    ops: Vec<Op>,
}

thread_local! {
    /// How careful the calling thread must be while captures are under way.
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

/// Sets the calling thread's capture mode; the number is the one before.
pub(crate) fn exchange_mode(mode: u32) -> Res<u32> {
    if mode > RELAXED {
        return Err(codes::INVALID_VALUE);
    }
    Ok(MODE.replace(mode))
}

impl State {
    pub(crate) fn begin_capture(&mut self, id: StreamId, mode: u32) -> Res {
        if mode > RELAXED {
            return Err(codes::INVALID_VALUE);
        }
        let is_null = self.contexts.values().any(|context| context.null_stream == id);
        if is_null {
            return Err(codes::STREAM_CAPTURE_UNSUPPORTED);
        }
        let stream = self.stream_ref(id)?;
        if stream.capture.is_some() {
            return Err(codes::ILLEGAL_STATE);
        }
        let thread = state::thread_number();
        stream.capture = Some(Capture { mode, thread, ops: Vec::new(), invalid: false });
        Ok(())
    }

    /// Ends a capture; the number is the graph's handle.
    pub(crate) fn end_capture(&mut self, id: StreamId) -> Res<usize> {
        let stream = self.stream_ref(id)?;
        let capture = stream.capture.as_ref().ok_or(codes::ILLEGAL_STATE)?;
        if capture.mode != RELAXED && capture.thread != state::thread_number() {
            return Err(codes::STREAM_CAPTURE_WRONG_THREAD);
        }
        let Some(capture) = stream.capture.take() else { return Err(codes::ILLEGAL_STATE) };
        capture.check()?;
        Ok(self.add_graph(Graph { ops: capture.ops }))
    }

    pub(crate) fn add_graph(&mut self, graph: Graph) -> usize {
        let handle = self.new_handle();
        self.graphs.insert(handle, graph);
        handle
    }

    /// Runs a graph's operations on a stream, as often as asked.
    pub(crate) fn launch(&mut self, graph: usize, id: StreamId) -> Res {
        let ops = self.graphs.get(&graph).ok_or(codes::INVALID_HANDLE)?.ops.clone();
        let context = self.stream_ref(id)?.context;
        for op in &ops {
            self.check_captured(op, context);
        }
        ops.into_iter().try_for_each(|op| self.enqueue(id, op))
    }

    /// A captured copy names host memory for as long as the graph lives: memory that is no longer
    /// pinned was unregistered or freed too early.
    fn check_captured(&mut self, op: &Op, context: usize) {
        let Op::Copy(Copy { from, to, len, .. }) = op else { return };
        for side in [from, to] {
            let Side::Host(address) = *side else { continue };
            let pinned = self
                .host
                .find(address, *len)
                .is_ok_and(|region| region.is_some_and(|one| one.pinned_for(context)));
            if !pinned {
                let what = format!("a graph was launched over unpinned memory at {address:#x}");
                self.violation(&what);
            }
        }
    }

    /// Refuses a call that the driver calls unsafe during captures, and ruins those captures.
    pub(crate) fn refuse_during_capture(&mut self) -> Res {
        let mode = MODE.get();
        let thread = state::thread_number();
        let mut refused = false;
        for stream in self.streams.values_mut() {
            let Some(capture) = &mut stream.capture else { continue };
            let everywhere = mode == GLOBAL && capture.mode == GLOBAL;
            let here = mode != RELAXED && capture.mode != RELAXED && capture.thread == thread;
            if everywhere || here {
                capture.invalidate();
                refused = true;
            }
        }
        if refused { Err(codes::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Refuses to wait for, or ask about, a stream that is capturing.
    pub(crate) fn refuse_if_capturing(&mut self, id: StreamId) -> Res {
        match &mut self.stream_ref(id)?.capture {
            None => Ok(()),
            Some(capture) => {
                capture.invalidate();
                Err(codes::STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }
}
