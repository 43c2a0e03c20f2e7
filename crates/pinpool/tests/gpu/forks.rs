//! Forked children of a process with copies in flight: the driver is the parent's, and hears nothing of
//! them (I12). They take no page away from the device, and are told why they cannot open a CUDA pool.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use pinpool::cudarc::driver::{CudaSlice, CudaStream, DevicePtr, result};
use pinpool::{
    BackendChoice, BackendKind, Error, ForkPolicy, HugePages, InFlight, Lease, LeaseError,
    ManualFence, Pool, SharedLease,
};
use pinpool_testkit::fork::{Ended, fork_to};

use crate::support::*;
use crate::{Check, check};

pub(crate) const ALL: &[Check] = &[
    check("a_device_sees_what_is_written_after_a_fork", a_device_sees_what_is_written),
    check("a_child_is_told_that_cuda_is_its_parents", a_child_is_told),
];

/// On the software driver, which counts its calls. What a real one does in a child is its own affair.
pub(crate) const ON_SOFTWARE: &[Check] =
    &[check("a_forked_child_calls_no_driver", a_forked_child_calls_no_driver)];

/// Kind of fault: after a fork the parent's write moved its page, and the device went on reading the old one.
///
/// Children that only live share the slab, as far as the policy lets them; the parent rewrites every page of
/// it, and the device gets the new bytes by a copy and by reading in place.
///
/// Case fork-2.
fn a_device_sees_what_is_written() {
    const BYTES: usize = 4 << 20;
    for policy in [ForkPolicy::Deny, ForkPolicy::Inherit] {
        for huge in [HugePages::Off, HugePages::Try] {
            let builder = Pool::builder().env(false).backend(BackendChoice::Cuda).fork(policy);
            let pool = builder.huge_pages(huge).class("c", BYTES, 2).open().expect("a pool");
            println!("{policy:?}: {:?}", pool.startup().slabs);
            let stream = stream(&pool);
            let mut target = device_memory(&stream, BYTES);
            let mut lease = filled(&pool, BYTES, 0xee);
            let mut children = Vec::new();
            for round in 0..4 {
                // The device has used the pages before the fork as well.
                lease = lease.upload(&stream, &mut target).expect("queued").wait().expect("copied");
                children.push(Idler::fork());
                let wanted = pattern(BYTES, round);
                lease.as_mut_slice().copy_from_slice(&wanted);
                lease = lease.upload(&stream, &mut target).expect("queued").wait().expect("copied");
                assert!(on_device(&stream, &target) == wanted, "{policy:?}, {huge:?}, {round}");
                lease.as_mut_slice().fill(round);
                read_in_place(&lease, &stream, &target);
                assert_filled(&stream, &target, round);
                // The other way round: what the device writes arrives where the parent reads.
                lease = lease.download(&target, &stream).expect("queued").wait().expect("copied");
                assert!(lease.as_slice().iter().all(|byte| *byte == round));
            }
            drop((children, lease));
            all_home(&pool);
        }
    }
    no_harm_done();
}

/// Lets the device copy from the GPU's address of the lease.
fn read_in_place(lease: &Lease, stream: &Arc<CudaStream>, target: &CudaSlice<u8>) {
    stream.context().bind_to_thread().expect("binds");
    let (address, _recorded) = target.device_ptr(stream);
    let source = lease.device_ptr().expect("a GPU address");
    // SAFETY: both are valid on the device for so many bytes, and nobody writes to them meanwhile.
    unsafe { result::memcpy_dtod_sync(address, source, lease.len()) }
        .expect("a copy on the device");
}

/// A child that lives and touches nothing, until it is killed.
struct Idler(libc::pid_t);

impl Idler {
    fn fork() -> Self {
        // SAFETY: the child makes system calls only, and ends itself.
        let process = unsafe { libc::fork() };
        assert!(process >= 0, "{}", std::io::Error::last_os_error());
        if process == 0 {
            // SAFETY: an orphan ends by itself.
            unsafe { libc::sleep(60) };
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(0) };
        }
        Self(process)
    }
}

impl Drop for Idler {
    fn drop(&mut self) {
        let mut status = -1;
        // SAFETY: the child is ours, and was not waited for.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        // SAFETY: as above.
        let waited = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        let lived = waited == self.0 && libc::WIFSIGNALED(status);
        assert!(lived || std::thread::panicking(), "it did not live so long: {status:#x}");
    }
}

/// Kind of fault: some library had initialised CUDA before the fork, and the child's first pinned allocation
/// failed with an obscure message.
///
/// Case fork-3.
fn a_child_is_told() {
    drop(pool(4096, 1));
    threads_are_quiet();
    let ended = fork_to(|| {
        let open = |backend| Pool::builder().env(false).backend(backend).class("c", 4096, 2).open();
        let Err(error) = open(BackendChoice::Cuda) else { return 1 };
        let text = error.to_string();
        if !text.contains("before this process was forked") || !text.contains("exec") {
            return 2;
        }
        let Ok(own) = open(BackendChoice::Auto) else { return 3 };
        if own.backend() != BackendKind::Host || own.try_lease(4096).is_err() {
            return 4;
        }
        if !own.startup().reason.contains("before this process was forked") {
            return 5;
        }
        0
    });
    assert_eq!(ended, Ended::Code(0));
    drop(pool(4096, 1));
    no_harm_done();
}

/// What a child inherits; it takes things out of its own copy.
struct Inherited {
    pool: Option<Pool>,
    lease: Option<Lease>,
    part: Option<Lease>,
    shared: Option<SharedLease>,
    flights: Vec<InFlight>,
}

/// With copies held up, children copy, record, wait, drop and exit: each step is refused, nothing is
/// registered, unregistered, recorded or asked, and the parent's copies arrive whole.
fn a_forked_child_calls_no_driver() {
    for round in 0..60 {
        let pool = pool(4096, 8);
        let stream = stream(&pool);
        let mut targets: Vec<_> = (0..4).map(|_| device_memory(&stream, 4096)).collect();
        let spare = targets.pop().expect("four");
        let gate = Gate::close_now(&stream);
        let copy = |target| filled(&pool, 4096, 7).upload(&stream, target).expect("queued");
        let flights = targets.iter_mut().map(copy).collect();
        let shared = filled(&pool, 4096, 9).share();
        shared.record_use(&stream).expect("recorded");
        let (lease, part) = (filled(&pool, 4096, 8), filled(&pool, 4096, 8));
        assert!(lease.device_ptr().is_some());
        let mut all = Inherited {
            pool: Some(pool.clone()),
            lease: Some(lease),
            part: Some(part),
            shared: Some(shared),
            flights,
        };
        let registered = driver().pinned_bytes();
        let ended = fork_to(|| {
            let before = driver().all_calls();
            let step = if round % 2 == 0 { uses(&mut all, &stream, spare) } else { 0 };
            drops(&mut all);
            if driver().all_calls() != before || driver().pinned_bytes() != registered {
                return 50;
            }
            if round % 3 == 0 {
                // SAFETY: the process ends, its exit handlers run.
                unsafe { libc::exit(step) }
            }
            step
        });
        assert_eq!(ended, Ended::Code(0), "round {round}");
        assert_eq!(driver().pinned_bytes(), registered);
        gate.open();
        for flight in all.flights.drain(..) {
            let lease = flight.wait().expect("copied");
            assert!(lease.as_slice().iter().all(|byte| *byte == 7));
        }
        for target in &targets {
            assert_filled(&stream, target, 7);
        }
        drops(&mut all);
        all_home(&pool);
        assert!(pool.close(HANG).is_complete());
    }
    no_harm_done();
}

/// The first step that is not refused, or 0.
fn uses(all: &mut Inherited, stream: &Arc<CudaStream>, mut target: CudaSlice<u8>) -> i32 {
    let refused = |error: &Error| matches!(error, Error::Lease(LeaseError::Forked));
    let (Some(lease), Some(part), Some(shared)) =
        (all.lease.take(), all.part.take(), all.shared.take())
    else {
        return 1;
    };
    if lease.device_ptr().is_some() || lease.record_use(stream).is_ok() {
        return 2;
    }
    let again = match lease.upload(stream, &mut target) {
        Err(kept) if refused(&kept.error) => kept.lease,
        _ => return 3,
    };
    if !part.download(&target, stream).is_err_and(|kept| refused(&kept.error)) {
        return 4;
    }
    if !shared.upload(stream, &mut target).is_err_and(|error| refused(&error)) {
        return 5;
    }
    if !shared.wait().is_err_and(|error| refused(&error)) {
        return 6;
    }
    let Some(again) = again else { return 7 };
    let hold = again.hold_for_graph();
    if !hold.upload(stream, &mut target).is_err_and(|error| refused(&error)) {
        return 8;
    }
    drop(hold);
    let (Some(waits), Some(awaits)) = (all.flights.pop(), all.flights.pop()) else { return 9 };
    if !waits.wait().is_err_and(|error| refused(&error)) {
        return 10;
    }
    let mut landing = pin!(awaits.into_future());
    if landing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        return 11;
    }
    shared.retire_after(ManualFence::new());
    // Device memory is cudarc's, which would call the driver.
    std::mem::forget(target);
    0
}

fn drops(all: &mut Inherited) {
    all.flights.clear();
    drop((all.lease.take(), all.part.take(), all.shared.take()));
    if let Some(pool) = all.pool.take() {
        drop((pool.stats(), pool.try_lease(4096).is_err()));
        pool.close(Duration::ZERO);
    }
}
