//! Streams: a queue and a thread each, the order within a stream and between streams.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Condvar, MutexGuard};

use crate::abi::Res;
use crate::capture::Capture;
use crate::codes::{self, CuResult};
use crate::device_memory::DeviceBuffer;
use crate::fault::{ASYNC_COPY, Verdict};
use crate::state::{self, Guard, State};
use crate::work::{Mark, Op, Outcome};

/// `CU_STREAM_NON_BLOCKING`: no implicit order with the null stream.
pub(crate) const NON_BLOCKING: u32 = 1;
/// The handle of the legacy default stream, besides null.
const LEGACY: usize = 1;
/// The handle of the calling thread's default stream.
const PER_THREAD: usize = 2;

/// What a stream is inside; never reused, unlike handles.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamId(pub(crate) u64);

/// A stream and its waiting work.
pub(crate) struct Stream {
    pub(crate) context: usize,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    queue: VecDeque<Op>,
    /// The operation that the thread runs right now, without the lock.
    running: Option<Op>,
    /// Signalled when there may be something to do.
    ready: Arc<Condvar>,
    has_thread: bool,
    /// Destroyed; goes away when its queue is empty.
    closed: bool,
    pub(crate) held: bool,
    /// Operations that may run although the stream is held.
    pub(crate) steps: u64,
    pub(crate) capture: Option<Capture>,
}

/// What the thread of a stream should do next.
enum Next {
    Run(Op),
    Sleep(Arc<Condvar>),
    /// The first operation waits for another stream.
    Blocked,
    Exit,
}

impl Stream {
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.running.is_none()
    }

    pub(crate) fn pending(&self) -> usize {
        self.queue.len() + usize::from(self.running.is_some())
    }

    fn unfinished(&self) -> impl Iterator<Item = &Op> {
        self.running.iter().chain(&self.queue)
    }

    fn next(&mut self, all_held: bool, draining: bool) -> Next {
        let Some(first) = self.queue.front() else {
            return if self.closed { Next::Exit } else { Next::Sleep(Arc::clone(&self.ready)) };
        };
        let free = draining || !(all_held || self.held);
        if !free && self.steps == 0 {
            return Next::Sleep(Arc::clone(&self.ready));
        }
        if matches!(first, Op::Wait(mark) if !mark.is_done()) {
            return Next::Blocked;
        }
        if !free {
            self.steps -= 1;
        }
        let Some(op) = self.queue.pop_front() else {
            return Next::Blocked;
        };
        self.running = Some(op.clone());
        Next::Run(op)
    }
}

impl State {
    /// Makes a stream that has no handle yet.
    pub(crate) fn new_stream(&mut self, context: usize, flags: u32, priority: i32) -> StreamId {
        let id = StreamId(self.new_handle() as u64);
        let stream = Stream {
            context,
            flags,
            priority,
            queue: VecDeque::new(),
            running: None,
            ready: Arc::new(Condvar::new()),
            has_thread: false,
            closed: false,
            held: false,
            steps: 0,
            capture: None,
        };
        self.streams.insert(id, stream);
        id
    }

    /// Makes a stream for a caller; the number is its handle.
    pub(crate) fn open_stream(&mut self, context: usize, flags: u32, priority: i32) -> usize {
        let id = self.new_stream(context, flags, priority);
        let reused = if self.config.reuse_handles { self.free_stream_handles.pop() } else { None };
        let handle = reused.unwrap_or_else(|| self.new_handle());
        self.stream_handles.insert(handle, id);
        handle
    }

    /// Ends the handle at once; queued work still runs, as the driver documents.
    pub(crate) fn close_stream(&mut self, handle: usize) -> Res {
        let known = self.stream_handles.remove(&handle);
        let id = known.ok_or_else(|| self.no_such_handle(handle))?;
        self.free_stream_handles.push(handle);
        self.retire_stream(id);
        Ok(())
    }

    pub(crate) fn retire_stream(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.closed = true;
        if stream.has_thread {
            stream.ready.notify_all();
        } else {
            self.streams.remove(&id);
        }
    }

    /// The stream that a handle means to a thread whose context is `current`.
    pub(crate) fn stream(&mut self, handle: usize, current: Option<usize>) -> Res<StreamId> {
        if handle != 0 && handle != LEGACY && handle != PER_THREAD {
            let known = self.stream_handles.get(&handle).copied();
            return known.ok_or_else(|| self.no_such_handle(handle));
        }
        let current = current.ok_or(codes::INVALID_CONTEXT)?;
        let context = self.contexts.get(&current).ok_or(codes::CONTEXT_IS_DESTROYED)?;
        if handle != PER_THREAD {
            return Ok(context.null_stream);
        }
        let thread = state::thread_number();
        if let Some(id) = context.per_thread.get(&thread) {
            return Ok(*id);
        }
        let id = self.new_stream(current, 0, 0);
        if let Some(context) = self.contexts.get_mut(&current) {
            context.per_thread.insert(thread, id);
        }
        Ok(id)
    }

    pub(crate) fn stream_ref(&mut self, id: StreamId) -> Res<&mut Stream> {
        self.streams.get_mut(&id).ok_or(codes::INVALID_HANDLE)
    }

    /// Puts an operation behind the stream's other work, or into the graph that it captures.
    pub(crate) fn enqueue(&mut self, id: StreamId, op: Op) -> Res {
        if let Some(capture) = &mut self.stream_ref(id)?.capture {
            return capture.add(op);
        }
        self.order_with_null_stream(id)?;
        self.push(id, op)
    }

    fn push(&mut self, id: StreamId, op: Op) -> Res {
        let stream = self.stream_ref(id)?;
        if !stream.has_thread {
            let name = "fakecuda-stream".to_owned();
            std::thread::Builder::new()
                .name(name)
                .spawn(move || serve(id))
                .map_err(|_| codes::OPERATING_SYSTEM)?;
            stream.has_thread = true;
        }
        stream.queue.push_back(op);
        stream.ready.notify_all();
        Ok(())
    }

    /// The legacy rule: the null stream waits for all blocking streams of its context, and they
    /// wait for it.
    fn order_with_null_stream(&mut self, id: StreamId) -> Res {
        let stream = self.stream_ref(id)?;
        let (context, flags) = (stream.context, stream.flags);
        if flags & NON_BLOCKING != 0 {
            return Ok(());
        }
        let Some(null) = self.contexts.get(&context).map(|context| context.null_stream) else {
            return Err(codes::CONTEXT_IS_DESTROYED);
        };
        let mut first = Vec::new();
        for (&other, stream) in &mut self.streams {
            let blocking = stream.context == context && stream.flags & NON_BLOCKING == 0;
            if other == id || !blocking || (id != null && other != null) {
                continue;
            }
            if let Some(capture) = &mut stream.capture {
                capture.invalidate();
                return Err(codes::STREAM_CAPTURE_IMPLICIT);
            }
            if !stream.is_idle() {
                first.push(other);
            }
        }
        for other in first {
            let mark = Arc::new(Mark::default());
            self.push(other, Op::Record(Arc::clone(&mark)))?;
            self.push(id, Op::Wait(mark))?;
        }
        Ok(())
    }

    /// A mark that is done when the stream's present work is.
    pub(crate) fn mark(&mut self, id: StreamId) -> Res<Arc<Mark>> {
        let mark = Arc::new(Mark::default());
        if self.is_quiet(id)? {
            mark.finish();
        } else {
            self.order_with_null_stream(id)?;
            self.push(id, Op::Record(Arc::clone(&mark)))?;
        }
        Ok(mark)
    }

    /// Whether the stream has nothing to wait for; the null stream stands for all blocking ones.
    pub(crate) fn is_quiet(&self, id: StreamId) -> Res<bool> {
        let stream = self.streams.get(&id).ok_or(codes::INVALID_HANDLE)?;
        let null = self.contexts.values().any(|context| context.null_stream == id);
        let joined = |other: &&Stream| {
            null && other.context == stream.context && other.flags & NON_BLOCKING == 0
        };
        Ok(stream.is_idle() && self.streams.values().filter(joined).all(Stream::is_idle))
    }

    pub(crate) fn host_in_use(&self, range: &Range<usize>) -> bool {
        self.unfinished().any(|op| op.touches_host(range))
    }

    pub(crate) fn host_written(&self, range: &Range<usize>) -> bool {
        self.unfinished().any(|op| op.writes_host(range))
    }

    pub(crate) fn buffer_in_use(&self, buffer: &Arc<DeviceBuffer>) -> bool {
        self.unfinished().any(|op| op.uses_buffer(buffer))
    }

    fn unfinished(&self) -> impl Iterator<Item = &Op> {
        self.streams.values().flat_map(Stream::unfinished)
    }

    /// Tells every stream thread and every waiting caller to look again.
    pub(crate) fn wake_streams(&self) {
        for stream in self.streams.values() {
            stream.ready.notify_all();
        }
        state::changed();
    }

    /// The device is lost: queued work never runs, and every call returns `code` from now on.
    pub(crate) fn poison(&mut self, code: CuResult) {
        self.sticky = Some(code);
        for stream in self.streams.values_mut() {
            stream.queue.clear();
        }
        self.wake_streams();
    }

    /// Books what a finished operation did.
    fn settle(&mut self, id: StreamId, op: &Op, outcome: Outcome) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.running = None;
        }
        if let Some(what) = outcome.violation {
            self.violation(&what);
        }
        self.overwrites += u64::from(outcome.overwritten);
        match op {
            Op::Record(mark) => mark.finish(),
            Op::Free { buffer, device, len } => {
                if self.buffer_in_use(buffer) {
                    self.violation("device memory was freed while another stream still uses it");
                }
                self.device.give_back(*device, *len);
            }
            Op::Copy(_) | Op::Fill { .. } | Op::Wait(_) | Op::Call(_) => {}
        }
        if let Some(code) = outcome.error {
            self.poison(code);
        }
    }
}

/// The thread of one stream.
fn serve(id: StreamId) {
    let mut state = state::lock();
    loop {
        let (held, draining) = (state.held, state.draining > 0);
        let Some(stream) = state.streams.get_mut(&id) else { return };
        match stream.next(held, draining) {
            Next::Run(op) => run(&mut state, id, &op),
            Next::Sleep(ready) => ready.wait(&mut state),
            Next::Blocked => state::wait_for_change(&mut state),
            Next::Exit => {
                state.streams.remove(&id);
                state::changed();
                return;
            }
        }
    }
}

fn run(state: &mut Guard, id: StreamId, op: &Op) {
    let planned =
        if matches!(op, Op::Copy(_)) { state.trip(ASYNC_COPY) } else { Verdict::default() };
    let delay = state.config.copy_delay + planned.sleep;
    let outcome = match planned.code {
        Some(code) => Outcome { error: Some(code), ..Outcome::default() },
        None => MutexGuard::unlocked(state, || op.run(delay)),
    };
    state.settle(id, op, outcome);
    state::changed();
}
