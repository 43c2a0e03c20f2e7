//! Every driver call that opens or closes a pool fails, the n-th and from the n-th on: a typed error with
//! the driver's own word, nothing left behind, and what could not be given back stays mapped and counted.

use std::sync::Arc;

use pinpool::cudarc::driver::{CudaContext, result};
use pinpool::{BackendChoice, BackendKind, Error, LeaseError, MemoryCause, Pool, PoolBuilder};

use crate::support::*;
use crate::{Check, check_with};

pub(crate) const ON_SOFTWARE: &[Check] = &[
    check_with("the_nth_call_of_an_opening_fails", &[], || sweep(CALLS)),
    check_with(
        "the_nth_call_of_an_opening_fails_where_the_driver_allocates",
        &[("FAKECUDA_REGISTER", "unsupported")],
        || sweep(CALLS_THAT_ALLOCATE),
    ),
    check_with("a_roll_back_that_fails_keeps_what_is_pinned", &[], a_roll_back_that_fails),
    check_with("a_chunk_without_an_address_is_kept_if_it_must_be", &[], a_chunk_without_an_address),
];

/// What an opening and a close call, in about this order.
const CALLS: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetName",
    "cuDeviceGetPCIBusId",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuThreadExchangeStreamCaptureMode",
    REGISTER,
    "cuMemHostGetDevicePointer_v2",
    UNREGISTER,
    "cuDevicePrimaryCtxRetain",
    ATTRIBUTE,
    RELEASE,
];

/// The same, of memory that the driver allocates.
const CALLS_THAT_ALLOCATE: &[&str] =
    &["cuMemHostAlloc", "cuMemHostGetDevicePointer_v2", "cuMemFreeHost"];

/// After these the device's context stays. cudarc forgets one that it has retained if the device does not
/// tell of its memory pools then.
const KEEP_THE_CONTEXT: &[&str] = &[ATTRIBUTE, RELEASE];
const ATTRIBUTE: &str = "cuDeviceGetAttribute";
const RELEASE: &str = "cuDevicePrimaryCtxRelease_v2";
const REGISTER: &str = "cuMemHostRegister_v2";
const UNREGISTER: &str = "cuMemHostUnregister";

/// Codes of the driver and their names: out of memory, nonsense, somebody else's, anything.
const CODES: &[(i32, &str)] = &[
    (2, "CUDA_ERROR_OUT_OF_MEMORY"),
    (1, "CUDA_ERROR_INVALID_VALUE"),
    (712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"),
    (999, "CUDA_ERROR_UNKNOWN"),
];

/// Calls of which a life makes so many at most.
const NTH_MAX: u64 = 200;

const CHUNK: usize = 4096;
const SLOTS: usize = 5;

fn builder(backend: BackendChoice) -> PoolBuilder {
    Pool::builder().env(false).backend(backend).pin_chunk(CHUNK as u64).class("c", CHUNK, SLOTS)
}

/// What one life came to.
#[derive(Debug)]
enum End {
    /// The error of the opening.
    Refused(Error),
    /// It opened on this, and so many bytes could not be given back.
    Lived(BackendKind, u64),
}

fn life(backend: BackendChoice) -> End {
    let pool = match builder(backend).open() {
        Ok(pool) => pool,
        Err(error) => return End::Refused(error),
    };
    let kind = pool.backend();
    let mut leases: Vec<_> =
        (0..SLOTS).map(|_| pool.try_lease(CHUNK).expect("a pool that opened is whole")).collect();
    for (lease, value) in leases.iter_mut().zip(1..) {
        assert_eq!(lease.device_ptr().is_some(), kind == BackendKind::Cuda);
        lease.as_mut_slice().fill(value);
    }
    for (lease, value) in leases.iter().zip(1..) {
        assert!(lease.as_slice().iter().all(|byte| *byte == value));
    }
    drop(leases);
    let report = pool.close(HANG);
    assert_eq!(report.still_out, []);
    assert!(matches!(pool.try_lease(1), Err(LeaseError::Closed)));
    let stats = pool.stats();
    assert_eq!(stats.stuck_bytes, report.stuck_bytes);
    End::Lived(kind, report.stuck_bytes)
}

/// The error is of the kind that belongs to the step, and carries the driver's word.
fn assert_typed(error: &Error, call: &str, word: &str, plan: &str) {
    let text = error.to_string();
    assert!(text.contains(word), "{plan}: {text}");
    match error {
        Error::Memory { class, source, .. } => {
            assert_eq!(class, "c", "{plan}");
            assert_eq!(source.cause, MemoryCause::Driver(word.into()), "{plan}");
        }
        Error::BackendUnavailable { backend, .. } => {
            assert_eq!(*backend, BackendKind::Cuda, "{plan}");
            assert!(!call.starts_with("cuMem"), "{plan}: the device is there: {text}");
        }
        other => panic!("{plan}: {other:?}"),
    }
}

fn sweep(calls: &[&str]) {
    // The library is looked through once, at the first opening.
    assert!(matches!(life(BackendChoice::Cuda), End::Lived(BackendKind::Cuda, 0)));
    let mut faults = 0;
    let mut context_stays = false;
    for call in calls {
        // With the last pool's context the driver would forget all that it has registered.
        let context = a_context();
        let mut most = 0;
        for (code, word) in CODES {
            for onwards in ["", "+"] {
                for backend in [BackendChoice::Cuda, BackendChoice::Auto] {
                    let count = befall(call, onwards, *code, word, backend);
                    faults += count;
                    most = most.max(count);
                }
            }
        }
        println!("{call}: {most} calls in a life");
        assert!(most > 0, "{call} is never made: the list is wrong");
        drop(context);
        context_stays |= KEEP_THE_CONTEXT.contains(call);
        assert!(driver().live_contexts() == 0 || context_stays, "{call}: a context is left");
    }
    println!("{faults} faults");
    no_harm_done();
}

/// The device's context, current nowhere.
fn a_context() -> Arc<CudaContext> {
    let context = CudaContext::new(0).expect("a device");
    // SAFETY: null is no context.
    unsafe { result::ctx::set_current(std::ptr::null_mut()) }.expect("the driver works");
    context
}

/// Lets the n-th call fail, n = 1, 2, ... until a life is over before; how many there were.
fn befall(call: &str, onwards: &str, code: i32, word: &str, backend: BackendChoice) -> u64 {
    for nth in 1..=NTH_MAX {
        let plan = format!("{call}:{nth}{onwards}:{code} on {backend:?}");
        let (calls, pinned) = (driver().calls(call), driver().pinned_bytes());
        let text = format!("{call}:{nth}{onwards}:{code}");
        driver().fail(&text).expect("a plan that the driver understands");
        let end = life(backend);
        let happened = driver().calls(call) - calls >= nth;
        driver().clear_faults();
        let kept = driver().pinned_bytes() - pinned;
        match &end {
            End::Lived(BackendKind::Cuda, stuck) => {
                assert_eq!(kept, *stuck, "{plan}: what stays pinned is what is reported stuck");
            }
            End::Lived(kind, stuck) => {
                assert_eq!((backend, *kind), (BackendChoice::Auto, BackendKind::Host), "{plan}");
                assert_eq!((*stuck, kept), (0, 0), "{plan}");
            }
            End::Refused(error) => {
                assert_typed(error, call, word, &plan);
                // Without the context nothing can be unregistered either.
                let excused = call.starts_with("cuCtx");
                assert!(kept == 0 || excused, "{plan}: {kept} bytes are left pinned");
            }
        }
        assert_eq!(driver().lost_bytes(), 0, "{plan}: registered memory was unmapped");
        assert_eq!(driver().violations(), 0, "{plan}");
        assert_eq!((driver().live_contexts(), driver().live_events()), (1, 0), "{plan}");
        let next = life(BackendChoice::Cuda);
        assert!(matches!(next, End::Lived(BackendKind::Cuda, 0)), "after {plan}: {next:?}");
        if !happened {
            return nth - 1;
        }
    }
    panic!("{call} is made more than {NTH_MAX} times in a life");
}

/// The n-th chunk is refused, and none of those before it can be unregistered: they stay registered, mapped
/// and out of everybody's hands.
fn a_roll_back_that_fails() {
    let context = a_context();
    let mut kept = 0;
    for nth in 1..=SLOTS as u64 {
        driver().fail(&format!("{REGISTER}:{nth}:2")).expect("a plan");
        driver().fail(&format!("{UNREGISTER}:1+:1")).expect("a plan");
        let End::Refused(error) = life(BackendChoice::Cuda) else { panic!("the chunk is refused") };
        driver().clear_faults();
        // The first error is the one to report.
        assert_typed(&error, REGISTER, "CUDA_ERROR_OUT_OF_MEMORY", REGISTER);
        kept += (nth - 1) * CHUNK as u64;
        assert_eq!(driver().pinned_bytes(), kept);
        assert_eq!(driver().lost_bytes(), 0, "registered memory was unmapped");
        assert!(matches!(life(BackendChoice::Cuda), End::Lived(BackendKind::Cuda, 0)));
    }
    drop(context);
    assert_eq!(driver().violations(), 0);
}

/// A chunk is registered, has no address, and cannot be unregistered: its region is never released.
fn a_chunk_without_an_address() {
    let context = a_context();
    for nth in 1..=SLOTS as u64 {
        let before = driver().pinned_bytes();
        driver().fail(&format!("cuMemHostGetDevicePointer_v2:{nth}:1")).expect("a plan");
        driver().fail(&format!("{UNREGISTER}:1:999")).expect("a plan");
        let End::Refused(error) = life(BackendChoice::Cuda) else { panic!("it has no address") };
        driver().clear_faults();
        assert_typed(&error, REGISTER, "CUDA_ERROR_INVALID_VALUE", "no address");
        assert_eq!(driver().pinned_bytes() - before, CHUNK as u64, "the others are undone");
        assert_eq!(driver().lost_bytes(), 0, "registered memory was unmapped");
        assert!(matches!(life(BackendChoice::Cuda), End::Lived(BackendKind::Cuda, 0)));
    }
    drop(context);
    assert_eq!(driver().violations(), 0);
}
