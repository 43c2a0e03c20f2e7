//! What an upload and its drop cost in driver calls and allocations once the pool is warm, on the
//! software driver. That is a library of its own with its own allocator, so that what is counted
//! here are the allocations of the pool and of cudarc.
#![cfg(feature = "cuda")]

use std::sync::Arc;

use fakecuda::Control;
use pinpool::cudarc::driver::{CudaSlice, CudaStream};
use pinpool::{BackendChoice, Pool};
use pinpool_testkit::child;

use crate::counting::allocations;
use crate::support;

/// Rounds before and while calls are counted.
const WARM: usize = 2_000;
const ROUNDS: usize = 20_000;
/// Slots: more than copies ever in flight, or the rounds would wait.
const SLOTS: usize = 32;
const BYTES: usize = 4096;

/// The calls that are counted by name.
const CALLS: [&str; 12] = [
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuStreamIsCapturing",
    "cuStreamGetId",
    "cuMemcpyHtoDAsync_v2",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuEventDestroy_v2",
    "cuStreamSynchronize",
    "cuThreadExchangeStreamCaptureMode",
];

fn on_software(test: &str, body: impl FnOnce(Control)) {
    if child::in_child() {
        return body(Control::open().unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    if let Err(error) = fakecuda::install(folder.path()) {
        return support::not_run(&format!("{test}: {error}"));
    }
    let mut command = child::command(test, &[]);
    command.env("LD_LIBRARY_PATH", folder.path());
    let output = support::finish(command);
    print!("{}", String::from_utf8_lossy(&output.stdout));
}

fn pool() -> Pool {
    let builder = Pool::builder().env(false).backend(BackendChoice::Cuda);
    builder.class("frame", BYTES, SLOTS).open().unwrap()
}

/// A stream and device memory for which cudarc records no events of its own.
fn target(pool: &Pool) -> (Arc<CudaStream>, CudaSlice<u8>) {
    let context = pool.cuda_context().unwrap();
    // SAFETY: the one slice is used on one stream.
    unsafe { context.disable_event_tracking() };
    let stream = context.new_stream().unwrap();
    let slice = stream.alloc_zeros(BYTES).unwrap();
    stream.synchronize().unwrap();
    (stream, slice)
}

/// Uploads and drops. Each waits at the end for its own copy, so that the next finds it complete.
fn rounds(pool: &Pool, stream: &Arc<CudaStream>, slice: &mut CudaSlice<u8>, count: usize) {
    for _ in 0..count {
        let lease = pool.try_lease(BYTES).unwrap();
        drop(lease.upload(stream, slice).unwrap());
        stream.synchronize().unwrap();
    }
}

fn counts(driver: Control) -> [u64; CALLS.len()] {
    CALLS.map(|call| driver.calls(call))
}

#[test]
fn a_copy_is_one_copy_and_one_record_and_allocates_nothing() {
    on_software("copies::a_copy_is_one_copy_and_one_record_and_allocates_nothing", |driver| {
        let pool = pool();
        let (stream, mut slice) = target(&pool);
        rounds(&pool, &stream, &mut slice, WARM);
        let (before, all, allocated) = (counts(driver), driver.all_calls(), allocations());
        rounds(&pool, &stream, &mut slice, ROUNDS);
        // First: asking the driver allocates.
        let allocated = allocations() - allocated;
        let (after, all) = (counts(driver), driver.all_calls() - all);
        let calls = |name: &str| {
            let at = CALLS.iter().position(|call| *call == name).unwrap();
            after[at] - before[at]
        };
        // The keeper asks as well, so that the questions are no exact number.
        println!("{ROUNDS} rounds on the software driver, {allocated} allocations; calls a round:");
        for name in CALLS {
            println!("  {name}: {:.4}", calls(name) as f64 / ROUNDS as f64);
        }
        println!("  all, the synchronisation with them: {:.4}", all as f64 / ROUNDS as f64);
        let rounds = ROUNDS as u64;
        assert_eq!(calls("cuMemcpyHtoDAsync_v2"), rounds);
        assert_eq!(calls("cuEventRecord"), rounds, "one record of ours a copy");
        assert_eq!(calls("cuEventSynchronize"), 0);
        assert!(calls("cuEventQuery") < 2 * rounds, "one answer settles many copies");
        // Events are reused, unless several threads let go of one at the same moment.
        let (created, destroyed) = (calls("cuEventCreate"), calls("cuEventDestroy_v2"));
        assert!(created <= rounds / 1000, "{created} events were created");
        assert!(destroyed <= rounds / 1000, "{destroyed} events were destroyed");
        assert_eq!(allocated, created, "nothing is allocated but such events");
    });
}
