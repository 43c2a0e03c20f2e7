//! Forked children of a process with copies in flight: the driver is the parent's, and hears nothing of
//! them (I12).

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use pinpool::{Error, InFlight, Lease, LeaseError, ManualFence, Pool, SharedLease};
use pinpool_testkit::fork::{Ended, fork_to};

use crate::Check;
use crate::support::*;

/// On the software driver, which counts its calls. What a real one does in a child is its own affair.
pub(crate) const ON_SOFTWARE: &[Check] =
    &[check("a_forked_child_calls_no_driver", a_forked_child_calls_no_driver)];

const fn check(name: &'static str, run: fn()) -> Check {
    Check { name, settings: &[], run }
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
fn uses(
    all: &mut Inherited,
    stream: &std::sync::Arc<pinpool::cudarc::driver::CudaStream>,
    mut target: pinpool::cudarc::driver::CudaSlice<u8>,
) -> i32 {
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
