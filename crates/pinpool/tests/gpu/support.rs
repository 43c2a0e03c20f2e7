//! What the GPU tests share: pools, streams, patterns, gates that hold a stream, and counts.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pinpool::cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, result, sys,
};
use pinpool::{BackendChoice, ClassStats, Lease, ManualFence, Pool};

pub(crate) use pinpool_testkit::soon::{HANG, until};

pub(crate) fn pool(size: usize, count: usize) -> Pool {
    Pool::builder()
        .env(false)
        .backend(BackendChoice::Cuda)
        .class("c", size, count)
        .open()
        .expect("a cuda pool opens")
}

pub(crate) fn context(pool: &Pool) -> &Arc<CudaContext> {
    pool.cuda_context().expect("a cuda pool")
}

pub(crate) fn stream(pool: &Pool) -> Arc<CudaStream> {
    context(pool).new_stream().expect("a stream")
}

/// Device memory that is ready: what cudarc queued for it is over.
pub(crate) fn device_memory(stream: &Arc<CudaStream>, len: usize) -> CudaSlice<u8> {
    let slice = stream.alloc_zeros::<u8>(len).expect("device memory");
    stream.synchronize().expect("idle");
    slice
}

/// Device memory that cudarc does not watch with events of its own: for captures, which it would
/// ruin, and for counting the pool's events.
pub(crate) fn unwatched_memory(stream: &Arc<CudaStream>, len: usize) -> CudaSlice<u8> {
    let context = stream.context();
    // SAFETY: the callers use the slice on one stream at a time, and wait before they change it.
    unsafe { context.disable_event_tracking() };
    let slice = device_memory(stream, len);
    // SAFETY: slices made meanwhile are ordered by their users, as above.
    unsafe { context.enable_event_tracking() };
    slice
}

pub(crate) fn on_device(stream: &Arc<CudaStream>, slice: &CudaSlice<u8>) -> Vec<u8> {
    let bytes = stream.clone_dtoh(slice).expect("a plain copy");
    stream.synchronize().expect("idle");
    bytes
}

/// All bytes of the slice are `wanted`.
pub(crate) fn assert_filled(stream: &Arc<CudaStream>, slice: &CudaSlice<u8>, wanted: u8) {
    let bytes = on_device(stream, slice);
    let wrong = bytes.iter().position(|byte| *byte != wanted);
    assert_eq!(wrong, None, "the device has {:?} there, not {wanted}", wrong.map(|at| bytes[at]));
}

/// A pattern that no shifted or stale copy equals.
pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ (at >> 8) as u8 ^ seed).collect()
}

/// A whole slot, every byte `value`.
pub(crate) fn filled(pool: &Pool, len: usize, value: u8) -> Lease {
    let mut lease = pool.lease_timeout(len, HANG).expect("a slot in time");
    lease.as_mut_slice().fill(value);
    lease
}

/// The pool's only class, whose counts must balance at every instant.
pub(crate) fn class(pool: &Pool) -> ClassStats {
    let class = pool.stats().classes[0].clone();
    let sum = class.free + class.leased + class.in_flight + class.quarantined;
    assert_eq!(sum, class.slots, "the counts do not balance: {class:?}");
    class
}

/// Free, leased, in flight, quarantined.
pub(crate) fn counts(pool: &Pool) -> (u32, u32, u32, u32) {
    let class = class(pool);
    (class.free, class.leased, class.in_flight, class.quarantined)
}

/// Every slot of every class comes home.
pub(crate) fn all_home(pool: &Pool) {
    until("all slots are free", || {
        pool.stats().classes.iter().all(|class| class.free == class.slots)
    });
}

/// Waits until the harness's threads that have no test are gone: a child that is forked while one ends
/// can start none. A real driver has threads of its own, which stay.
pub(crate) fn threads_are_quiet() {
    let start = Instant::now();
    while pinpool_testkit::proc::threads() > 2 && start.elapsed() < Duration::from_millis(500) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The software driver, where the test runs on it.
pub(crate) fn software() -> Option<fakecuda::Control> {
    fakecuda::Control::open().ok()
}

/// The software driver, for tests that exist only there.
pub(crate) fn driver() -> fakecuda::Control {
    fakecuda::Control::open().expect("this test runs on the software driver")
}

/// Every gate held. On the software driver also: no memory was given up or rewritten while a copy
/// used it, no call named a dead handle, and no host function called the driver.
pub(crate) fn no_harm_done() {
    assert!(!GAVE_UP.load(Ordering::Acquire), "a gate gave up: its stream was not held");
    let Some(driver) = software() else { return };
    assert_eq!(driver.violations(), 0, "memory was given up under a running copy");
    assert_eq!(driver.overwrites(), 0, "memory was written under a queued copy");
    assert_eq!(driver.stale_handles(), 0, "a call named a destroyed stream or event");
    assert_eq!(driver.callback_calls(), 0, "a host function called the driver");
}

/// Runs the calling check once more, in a process of its own that has `variable` set.
pub(crate) fn once_more(check: &str, variable: &str, value: &str) {
    let mut command = std::process::Command::new(std::env::current_exe().expect("a path"));
    command.args(["--exact", check, "--nocapture"]).env(variable, value);
    let output = pinpool_testkit::child::finish(command, Duration::from_secs(60));
    let said = pinpool_testkit::child::describe(&output);
    assert!(output.status.success() && said.contains("1 passed"), "{variable}={value}: {said}");
    println!("{variable}={value}: {}", output.status);
}

/// How often to do it: the software driver moves every byte with the processor, twice.
pub(crate) fn rounds(on_a_device: usize, on_software: usize) -> usize {
    let rounds = if software().is_some() { on_software } else { on_a_device };
    println!("{rounds} rounds");
    rounds
}

/// Queues a plain asynchronous copy as a foreign library would: nothing tracks it.
pub(crate) fn foreign_upload(lease: &Lease, stream: &CudaStream, target: &mut CudaSlice<u8>) {
    assert!(target.len() >= lease.len());
    let (address, _recorded) = target.device_ptr_mut(stream);
    queue_upload(lease, stream, address);
}

fn queue_upload(lease: &Lease, stream: &CudaStream, target: u64) {
    stream.context().bind_to_thread().expect("binds");
    let (source, bytes) = (lease.as_ptr().cast(), lease.len());
    // SAFETY: the target is as long, by the callers, who keep the lease until the copy is over, or
    // tell the pool.
    let queued =
        unsafe { sys::cuMemcpyHtoDAsync_v2(target, source, bytes, stream.cu_stream()) }.result();
    queued.expect("queued");
}

/// A stream that stands still until the gate is opened, on any driver: a host function waits.
///
/// A real driver may run all host functions on one thread: close gates in the order in which they
/// will be opened. It also maps many streams to few hardware queues, where one that stands still
/// holds up its neighbours: [`streams_apart`] finds streams that run beside it.
pub(crate) struct Gate(Arc<Leaf>);

#[derive(Default)]
struct Leaf {
    open: AtomicBool,
    reached: AtomicBool,
    gave_up: AtomicBool,
}

/// Some gate of this process gave up, so that nothing that was seen since counts.
static GAVE_UP: AtomicBool = AtomicBool::new(false);

impl Gate {
    /// Closes a gate behind the work that the stream has.
    pub(crate) fn close(stream: &CudaStream) -> Self {
        let leaf = Arc::new(Leaf::default());
        queue_host_function(stream, stand_at_gate, Arc::into_raw(Arc::clone(&leaf)).cast());
        Self(leaf)
    }

    /// The same, and all earlier work is over.
    pub(crate) fn close_now(stream: &CudaStream) -> Self {
        let gate = Self::close(stream);
        until("the stream comes to the gate", || gate.0.reached.load(Ordering::Acquire));
        gate
    }

    /// Lets the stream go on.
    pub(crate) fn open(&self) {
        self.0.open.store(true, Ordering::Release);
        assert!(!self.0.gave_up.load(Ordering::Acquire), "the gate gave up before it was opened");
    }

    /// Opens it a little later, from another thread.
    pub(crate) fn open_soon(self) -> std::thread::JoinHandle<()> {
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(60));
            self.open();
        })
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.0.open.store(true, Ordering::Release);
        let gave_up = self.0.gave_up.load(Ordering::Acquire);
        assert!(!gave_up || std::thread::panicking(), "the gate gave up before it was opened");
    }
}

unsafe extern "C" fn stand_at_gate(leaf: *mut c_void) {
    // SAFETY: `Gate::close` gave one count of this to one call.
    let leaf = unsafe { Arc::from_raw(leaf.cast::<Leaf>()) };
    leaf.reached.store(true, Ordering::Release);
    let start = Instant::now();
    while !leaf.open.load(Ordering::Acquire) {
        if start.elapsed() > HANG {
            leaf.gave_up.store(true, Ordering::Release);
            GAVE_UP.store(true, Ordering::Release);
            return;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Streams of which each runs beside the first one, even while that stands still.
pub(crate) fn streams_apart<const N: usize>(pool: &Pool) -> [Arc<CudaStream>; N] {
    let probe = Probe::new(pool);
    let first = stream(pool);
    let gate = Gate::close_now(&first);
    let (mut found, mut unfit) = (vec![first], Vec::new());
    while found.len() < N {
        assert!(unfit.len() < TRIES, "{TRIES} streams stand still with another one");
        let candidate = stream(pool);
        // One that is unfit is kept, or the next would get its place in the hardware.
        if probe.runs_on(&candidate) { &mut found } else { &mut unfit }.push(candidate);
    }
    gate.open();
    context(pool).synchronize().expect("idle");
    found.try_into().unwrap_or_else(|_| panic!("not {N} streams"))
}

/// More streams than any driver maps to one hardware queue when asked for many queues.
pub(crate) const TRIES: usize = 16;

/// A small copy that shows whether a stream moves.
pub(crate) struct Probe {
    source: Lease,
    target: CudaSlice<u8>,
}

impl Probe {
    /// Has a pool of its own, so that the tested one is not touched.
    pub(crate) fn new(tested: &Pool) -> Self {
        let source = self::pool(4096, 1).try_lease(4096).expect("a slot");
        Self { source, target: unwatched_memory(&stream(tested), 4096) }
    }

    /// Whether a copy on the stream is soon over.
    pub(crate) fn runs_on(&self, stream: &CudaStream) -> bool {
        queue_upload(&self.source, stream, self.target_address());
        let copied = stream.record_event(None).expect("recorded");
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(200) {
            if copied.is_complete() {
                return true;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        false
    }

    fn target_address(&self) -> u64 {
        let (address, _recorded) = self.target.device_ptr(self.target.stream());
        address
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // The last copies may still read the source. A lost device has none left.
        let _ = self.target.stream().context().synchronize();
    }
}

/// A fence that a host function completes once the stream's present work is over.
pub(crate) fn complete_behind(stream: &CudaStream) -> ManualFence {
    let fence = ManualFence::new();
    let argument = Box::into_raw(Box::new(fence.clone()));
    queue_host_function(stream, complete, argument.cast_const().cast());
    fence
}

unsafe extern "C" fn complete(fence: *mut c_void) {
    // SAFETY: `complete_behind` gave the box to one call.
    unsafe { Box::from_raw(fence.cast::<ManualFence>()) }.complete();
}

/// Queues `work` as a host function of the stream. It says whether it came to its end.
pub(crate) fn host_function(
    stream: &CudaStream,
    work: impl FnOnce() + Send + 'static,
) -> std::sync::mpsc::Receiver<bool> {
    type Work = Box<dyn FnOnce() + Send>;
    unsafe extern "C" fn run(work: *mut c_void) {
        // SAFETY: the box was made below and is given to one call.
        let work = unsafe { Box::from_raw(work.cast::<Work>()) };
        work();
    }
    let (done, told) = std::sync::mpsc::channel();
    let work: Work = Box::new(move || {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        let _ = done.send(outcome.is_ok());
    });
    queue_host_function(stream, run, Box::into_raw(Box::new(work)).cast_const().cast());
    told
}

fn queue_host_function(
    stream: &CudaStream,
    function: unsafe extern "C" fn(*mut c_void),
    argument: *const c_void,
) {
    stream.context().bind_to_thread().expect("binds");
    // SAFETY: the stream is alive, and the argument is the function's to free.
    let queued = unsafe {
        result::stream::launch_host_function(stream.cu_stream(), function, argument.cast_mut())
    };
    queued.expect("a host function is queued");
}
