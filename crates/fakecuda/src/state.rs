//! The one driver of the process: everything it knows, behind one lock.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::abi::Res;
use crate::capture::Graph;
use crate::codes::{self, CuResult};
use crate::config::Config;
use crate::context::{Context, Primary};
use crate::device_memory::DeviceMemory;
use crate::events::Event;
use crate::fault::{self, Fault, Verdict};
use crate::host_memory::HostMemory;
use crate::streams::{Stream, StreamId};

/// First handle. Handles are numbers no pointer can equal, so dereferencing one crashes.
const HANDLE_BASE: usize = 0x00fc_0000_0000_0000;

static STATE: Mutex<State> = Mutex::new(State::new());
/// Signalled whenever a stream finished an operation, and on hold, release, poison, destruction.
static CHANGED: Condvar = Condvar::new();
/// The process that made the first driver call; 0 before it.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// The driver state, locked.
pub(crate) type Guard = MutexGuard<'static, State>;

/// All that the driver knows.
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) initialised: bool,
    environment_read: bool,
    next_handle: usize,
    pub(crate) contexts: BTreeMap<usize, Context>,
    pub(crate) primaries: BTreeMap<i32, Primary>,
    pub(crate) streams: BTreeMap<StreamId, Stream>,
    pub(crate) stream_handles: BTreeMap<usize, StreamId>,
    /// Handles of destroyed streams, for `FAKECUDA_REUSE_HANDLES`.
    pub(crate) free_stream_handles: Vec<usize>,
    pub(crate) events: BTreeMap<usize, Event>,
    pub(crate) graphs: BTreeMap<usize, Graph>,
    pub(crate) host: HostMemory,
    pub(crate) device: DeviceMemory,
    faults: Vec<Fault>,
    calls: BTreeMap<&'static str, u64>,
    /// The error that every call returns since a device was lost.
    pub(crate) sticky: Option<CuResult>,
    /// All streams stand still.
    pub(crate) held: bool,
    /// Callers that wait for work which must finish although streams are held.
    pub(crate) draining: u32,
    pub(crate) violations: u64,
    pub(crate) overwrites: u64,
    /// Calls that named a stream or an event which was destroyed before.
    pub(crate) stale_handles: u64,
    /// Calls made inside a host function.
    pub(crate) callback_calls: u64,
}

impl State {
    const fn new() -> Self {
        Self {
            config: Config::new(),
            initialised: false,
            environment_read: false,
            next_handle: HANDLE_BASE,
            contexts: BTreeMap::new(),
            primaries: BTreeMap::new(),
            streams: BTreeMap::new(),
            stream_handles: BTreeMap::new(),
            free_stream_handles: Vec::new(),
            events: BTreeMap::new(),
            graphs: BTreeMap::new(),
            host: HostMemory::new(),
            device: DeviceMemory::new(),
            faults: Vec::new(),
            calls: BTreeMap::new(),
            sticky: None,
            held: false,
            draining: 0,
            violations: 0,
            overwrites: 0,
            stale_handles: 0,
            callback_calls: 0,
        }
    }

    pub(crate) fn new_handle(&mut self) -> usize {
        self.next_handle += 16;
        self.next_handle
    }

    /// The error for a handle of nothing that lives now; counted if something once had it.
    pub(crate) fn no_such_handle(&mut self, handle: usize) -> CuResult {
        if (HANDLE_BASE..=self.next_handle).contains(&handle) {
            self.stale_handles += 1;
            report(&format!("STALE: a call named {handle:#x}, which was destroyed"));
        }
        codes::INVALID_HANDLE
    }

    pub(crate) fn count_call(&mut self, name: &'static str) {
        *self.calls.entry(name).or_default() += 1;
    }

    /// Calls of one function, or of all.
    pub(crate) fn calls(&self, name: Option<&str>) -> u64 {
        match name {
            Some(name) => self.calls.get(name).copied().unwrap_or(0),
            None => self.calls.values().sum(),
        }
    }

    /// Forgets what was counted, so that a test can look at one stretch of its work.
    pub(crate) fn reset_counters(&mut self) {
        self.calls.clear();
        self.violations = 0;
        self.overwrites = 0;
        self.stale_handles = 0;
        self.callback_calls = 0;
    }

    /// Counts the call in the plans; what they demand of it.
    pub(crate) fn trip(&mut self, name: &str) -> Verdict {
        fault::trip(&mut self.faults, name)
    }

    pub(crate) fn plan_fault(&mut self, text: &str) -> Result<(), String> {
        self.faults.push(Fault::parse(text)?);
        Ok(())
    }

    pub(crate) fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// Counts a use of memory that its owner took away too early, and says so on stderr.
    pub(crate) fn violation(&mut self, what: &str) {
        self.violations += 1;
        report(&format!("VIOLATION: {what}"));
    }

    fn read_environment(&mut self) {
        if self.environment_read {
            return;
        }
        self.environment_read = true;
        OWNER.store(std::process::id(), Ordering::Release);
        if let Err(why) = self.config.read(&mut self.faults, |name| std::env::var(name).ok()) {
            report(&why);
            self.config.init = codes::UNKNOWN;
        }
    }
}

/// Locks the driver.
pub(crate) fn lock() -> Guard {
    let mut state = STATE.lock();
    state.read_environment();
    state
}

/// Whether this process was forked from the one whose driver this is.
///
/// `Acquire` pairs with the `Release` in `read_environment`; the value alone matters.
pub(crate) fn is_forked_child() -> bool {
    let owner = OWNER.load(Ordering::Acquire);
    owner != 0 && owner != std::process::id()
}

/// Wakes every thread that waits for a change of state.
pub(crate) fn changed() {
    CHANGED.notify_all();
}

/// Gives the lock up until something changed.
pub(crate) fn wait_for_change(state: &mut Guard) {
    CHANGED.wait(state);
}

/// Waits until `ready`, or until the device is lost.
pub(crate) fn wait_until(state: &mut Guard, ready: impl Fn(&State) -> bool) -> Res {
    loop {
        if let Some(code) = state.sticky {
            return Err(code);
        }
        if ready(state) {
            return Ok(());
        }
        wait_for_change(state);
    }
}

/// Waits until `ready` even while streams are held, by letting them run meanwhile.
pub(crate) fn drain_until(state: &mut Guard, ready: impl Fn(&State) -> bool) -> Res {
    state.draining += 1;
    state.wake_streams();
    let result = wait_until(state, ready);
    state.draining -= 1;
    result
}

/// One line on stderr; a closed stderr is not this library's problem.
pub(crate) fn report(line: &str) {
    let _ = writeln!(std::io::stderr(), "fakecuda: {line}");
}

/// Depth of `cuCtxPushCurrent` that is supported.
const CONTEXTS_MAX: usize = 16;

/// The calling thread's stack of contexts; the top one is current. `Copy` and without destructor,
/// so it works in thread-local teardown too.
#[derive(Clone, Copy)]
struct ContextStack {
    handles: [usize; CONTEXTS_MAX],
    depth: usize,
}

thread_local! {
    static CONTEXTS: Cell<ContextStack> =
        const { Cell::new(ContextStack { handles: [0; CONTEXTS_MAX], depth: 0 }) };
    static THREAD_NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// The calling thread's context, live or not.
pub(crate) fn current_context() -> Option<usize> {
    let stack = CONTEXTS.get();
    stack.depth.checked_sub(1).map(|top| stack.handles[top])
}

/// Makes `context` current in place of the one that was; 0 pops it.
pub(crate) fn set_current_context(context: usize) {
    let mut stack = CONTEXTS.get();
    if context == 0 {
        stack.depth = stack.depth.saturating_sub(1);
    } else {
        stack.depth = stack.depth.max(1);
        stack.handles[stack.depth - 1] = context;
    }
    CONTEXTS.set(stack);
}

pub(crate) fn push_context(context: usize) -> Res {
    let mut stack = CONTEXTS.get();
    let top = stack.handles.get_mut(stack.depth).ok_or(codes::OUT_OF_MEMORY)?;
    *top = context;
    stack.depth += 1;
    CONTEXTS.set(stack);
    Ok(())
}

pub(crate) fn pop_context() -> Option<usize> {
    let top = current_context()?;
    let mut stack = CONTEXTS.get();
    stack.depth -= 1;
    CONTEXTS.set(stack);
    Some(top)
}

/// A number of the calling thread that no other thread ever has.
pub(crate) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if THREAD_NUMBER.get() == 0 {
        // `Relaxed`: only uniqueness matters.
        THREAD_NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    THREAD_NUMBER.get()
}
