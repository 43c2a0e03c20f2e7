//! One of everything that a pool gives out, for a child to use and to drop; and what it is answered.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use pinpool::{
    Error, InFlight, Landing, Lease, LeaseError, LeaseFuture, ManualFence, Pool, SharedLease, Tag,
    TryTakeError,
};
use pinpool_testkit::stamp;

use super::SIZE;

/// What a child inherits. It takes things out of its own copy; the parent keeps its.
pub(crate) struct Everything {
    pool: Option<Pool>,
    closing: Option<Pool>,
    /// The first pool's handle of another device.
    other: Option<Pool>,
    lease: Option<Lease>,
    shared: Option<SharedLease>,
    flights: Vec<InFlight>,
    landing: Option<Landing>,
    /// In the line of a class whose only slot is held below.
    future: Option<LeaseFuture>,
    only: Option<Lease>,
    fence: ManualFence,
}

const OWNER: u64 = 77;
/// Long enough to be noticed, in a child that waits.
const LONG: Duration = Duration::from_secs(60);

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

impl Everything {
    pub(crate) fn new(pool: &Pool, closing: &Pool) -> Self {
        let fence = ManualFence::new();
        let mut lease = pool.try_lease(SIZE).unwrap();
        stamp::write_slot(&mut lease, OWNER);
        let flight = || pool.try_lease(2 * SIZE).unwrap().in_flight_until(fence.clone());
        let mut landing = flight().into_future();
        assert!(poll(&mut landing).is_pending());
        let shared = pool.try_lease(2 * SIZE).unwrap().share();
        shared.clone().retire_after(fence.clone());
        let only = pool.try_lease(3 * SIZE).unwrap();
        let mut future = pool.lease_async(3 * SIZE);
        assert!(poll(&mut future).is_pending());
        Self {
            flights: (0..3).map(|_| flight()).collect(),
            pool: Some(pool.clone()),
            closing: Some(closing.clone()),
            other: Some(pool.on(1).unwrap()),
            lease: Some(lease),
            shared: Some(shared),
            landing: Some(landing),
            future: Some(future),
            only: Some(only),
            fence,
        }
    }

    /// The parent's bytes are as it wrote them.
    pub(crate) fn is_whole(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| stamp::is_whole(lease.as_slice(), OWNER))
    }

    pub(crate) fn drop_all(&mut self) {
        self.fence.fail("the child's own copy");
        drop((self.future.take(), self.landing.take(), self.shared.take(), self.only.take()));
        self.flights.clear();
        drop(self.lease.take());
        drop((self.pool.take(), self.closing.take(), self.other.take()));
    }
}

impl Drop for Everything {
    fn drop(&mut self) {
        self.fence.complete();
    }
}

/// Every public method, once. The first step that is not answered as it should be, or 0.
pub(crate) fn uses(all: &mut Everything, inherits: bool) -> i32 {
    let start = Instant::now();
    let (Some(pool), Some(closing)) = (all.pool.take(), all.closing.take()) else { return 100 };
    let Some(other) = all.other.take() else { return 101 };
    let refusals = leasing(&pool).or_else(|| leasing(&closing)).or_else(|| leasing(&other));
    if let Some(step) = refusals {
        return step;
    }
    let asked = asking(&pool).or_else(|| asking(&closing)).or_else(|| asking(&other));
    let held = asked.or_else(|| holding(all, pool.tag("child"), inherits)).or_else(|| flying(all));
    drop((pool, closing, other));
    match held {
        Some(step) => step,
        None if start.elapsed() > LONG / 30 => 99,
        None => 0,
    }
}

/// The first refusal that is none.
fn leasing(pool: &Pool) -> Option<i32> {
    let deadline = Instant::now().checked_add(LONG)?;
    let one = |lease: Result<Lease, LeaseError>| lease.map(drop);
    let many = |leases: Result<Vec<Lease>, LeaseError>| leases.map(drop);
    let task = |mut future: LeaseFuture| match poll(&mut future) {
        Poll::Ready(lease) => lease.map(drop),
        Poll::Pending => Ok(()),
    };
    let answers = [
        one(pool.try_lease(256)),
        one(pool.try_lease_priority(256)),
        one(pool.lease(256)),
        one(pool.lease_priority(256)),
        one(pool.lease_timeout(256, LONG)),
        one(pool.lease_priority_timeout(256, LONG)),
        one(pool.lease_deadline(256, deadline)),
        many(pool.try_lease_many(&[256, 256])),
        many(pool.lease_many(&[256])),
        many(pool.lease_many_timeout(&[256], LONG)),
        task(pool.lease_async(256)),
        task(pool.lease_priority_async(256)),
        pool.try_lease_of::<u32>(64).map(drop),
        pool.lease_of::<u32>(64).map(drop),
        pool.lease_timeout_of::<u32>(64, LONG).map(drop),
    ];
    for device in [0, 1, 2] {
        if !matches!(pool.on(device), Err(Error::Lease(LeaseError::Forked))) {
            return Some(19);
        }
    }
    let refused = answers.iter().position(|answer| *answer != Err(LeaseError::Forked));
    refused.and_then(|at| i32::try_from(at + 1).ok())
}

/// What only asks is answered, and what changes something does nothing.
fn asking(pool: &Pool) -> Option<i32> {
    let stats = pool.stats();
    let mapped = stats.mapped_bytes == 0 && stats.classes.iter().all(|class| class.waiting == 0);
    let tag = pool.tag("of the child") == pool.tag("of the child");
    let report = pool.close(LONG);
    drop((pool.holders(), format!("{pool:?} {stats:?} {report}"), pool.plan(), pool.startup()));
    let answers = [mapped, tag, pool.trim() == 0, !report.is_complete(), pool.clone().trim() == 0];
    let wrong = answers.iter().position(|right| !right)?;
    i32::try_from(wrong).ok().map(|wrong| 20 + wrong)
}

/// Leases that the child inherits.
fn holding(all: &mut Everything, tag: Tag, inherits: bool) -> Option<i32> {
    let mut lease = all.lease.take()?;
    if inherits && !stamp::is_whole(lease.as_slice(), OWNER) {
        return Some(30);
    }
    lease.set_tag(tag);
    let described = format!("{lease:?} {:?} {} {}", lease.tag(), lease.slot(), lease.class_name());
    let address = lease.device_ptr();
    if described.is_empty() || address.is_some() || lease.view(..).is_err() {
        return Some(31);
    }
    if inherits {
        lease.as_mut_slice().fill(1);
    }
    let Ok(typed) = lease.cast::<u32>() else { return Some(32) };
    // A use of its own, and one of the parent's that it would wait for.
    let flight = typed.in_flight_until(ManualFence::new()).also_until(ManualFence::new());
    match flight.wait() {
        Err(Error::Lease(LeaseError::Forked)) => {}
        _ => return Some(33),
    }
    all.only.take()?.retire_after(ManualFence::new());
    let shared = all.shared.take()?;
    drop(shared.clone());
    if !matches!(shared.wait(), Err(Error::Lease(LeaseError::Forked))) {
        return Some(34);
    }
    let _ = (shared.len(), shared.as_ptr(), shared.class_name(), format!("{shared:?}"));
    if inherits && shared.as_slice().len() != shared.len() {
        return Some(35);
    }
    match shared.into_lease() {
        Err(shared) => shared.retire_after(ManualFence::new()),
        Ok(_) => return Some(36),
    }
    None
}

/// Leases in flight, and tasks, that the child inherits.
fn flying(all: &mut Everything) -> Option<i32> {
    let (waits, takes, stays) = (all.flights.pop()?, all.flights.pop()?, all.flights.pop()?);
    if !matches!(stays.is_complete(), Err(Error::Lease(LeaseError::Forked))) {
        return Some(40);
    }
    if !matches!(waits.wait(), Err(Error::Lease(LeaseError::Forked))) {
        return Some(41);
    }
    if !matches!(takes.try_take(), Err(TryTakeError::Failed(Error::Lease(LeaseError::Forked)))) {
        return Some(42);
    }
    drop(stays);
    let mut landing = all.landing.take()?;
    if !matches!(poll(&mut landing), Poll::Ready(Err(Error::Lease(LeaseError::Forked)))) {
        return Some(43);
    }
    let mut future = all.future.take()?;
    if !matches!(poll(&mut future), Poll::Ready(Err(LeaseError::Forked))) {
        return Some(44);
    }
    None
}
