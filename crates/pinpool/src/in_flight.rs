//! A lease whose bytes some work is using: nothing can reach them until the work is over.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytemuck::Pod;

use crate::attached::Attached;
use crate::class::Departed;
#[cfg(all(test, not(any(loom, shuttle))))]
use crate::class::Taken;
use crate::error::Error;
use crate::fence::{Fence, FenceStatus};
use crate::lease::Lease;

/// A lease in flight: a copy or other work uses its bytes, and nothing can reach them meanwhile.
///
/// * [`Self::wait`], `.await` or [`Self::try_take`] give the lease back.
/// * Dropping it waits for nothing: the slot comes home by itself, once the work is over.
/// * Forgetting it costs the slot.
#[must_use = "dropping this gives the slot back once the work is over; wait for it to have the lease"]
pub struct InFlight<T: Pod = u8> {
    /// Has at least one fence. Taken out once: by `into_lease` or by drop.
    lease: ManuallyDrop<Lease<T>>,
}

/// Why [`InFlight::try_take`] gave no lease.
pub enum TryTakeError<T: Pod = u8> {
    /// The work is not over: here is the rest of the wait.
    Pending(InFlight<T>),
    /// Nobody knows whether the work is over. The slot is quarantined.
    Failed(Error),
}

impl<T: Pod> Lease<T> {
    /// Drops the lease now and lets its slot come home once `fence` is complete. Waits for nothing.
    ///
    /// For work that the pool cannot see: a network card, `io_uring`, a device of your own.
    pub fn retire_after(self, fence: impl Fence) {
        drop(self.in_flight_until(fence));
    }

    /// Locks the bytes away until `fence` is complete.
    pub fn in_flight_until(self, fence: impl Fence) -> InFlight<T> {
        self.attach(Attached::user(fence));
        InFlight::new(self)
    }
}

impl<T: Pod> InFlight<T> {
    /// Takes over a lease that has a fence.
    pub(crate) fn new(lease: Lease<T>) -> Self {
        debug_assert!(
            lease.state().is_used() || lease.slot_of().check_here().is_err(),
            "work in flight has a fence (I3)"
        );
        lease.class_ref().get().depart();
        Self { lease: ManuallyDrop::new(lease) }
    }

    /// Locks the bytes away until `fence` is complete as well: for a buffer that goes to a GPU and to
    /// a network card at once.
    pub fn also_until(self, fence: impl Fence) -> Self {
        self.lease.attach(Attached::user(fence));
        self
    }

    /// Waits until the work is over and gives the lease back.
    ///
    /// # Errors
    ///
    /// A fence failed: nobody knows whether the work still touches the memory. Its slot is
    /// quarantined: never used again, and counted. In a forked child, which has no part in the
    /// parent's work: [`LeaseError::Forked`](crate::LeaseError::Forked), at once.
    pub fn wait(self) -> Result<Lease<T>, Error> {
        self.lease.slot_of().check_here()?;
        while let Some(attached) = self.lease.state().last() {
            if let Err(error) = attached.fence.wait() {
                return Err(self.quarantine(error));
            }
            self.lease.take_off(attached);
        }
        Ok(self.into_lease())
    }

    /// Gives the lease back if the work is over.
    ///
    /// # Errors
    ///
    /// [`TryTakeError::Pending`] holds this value again; [`TryTakeError::Failed`] is as for
    /// [`Self::wait`].
    pub fn try_take(self) -> Result<Lease<T>, TryTakeError<T>> {
        match self.lease.settle() {
            Ok(FenceStatus::Complete) => Ok(self.into_lease()),
            Ok(FenceStatus::Pending) => Err(TryTakeError::Pending(self)),
            Err(error) => Err(TryTakeError::Failed(self.quarantine(error))),
        }
    }

    /// Whether the work is over.
    ///
    /// # Errors
    ///
    /// A fence failed. The slot is quarantined when this value is waited for or dropped.
    pub fn is_complete(&self) -> Result<bool, Error> {
        Ok(self.lease.settle()? == FenceStatus::Complete)
    }

    /// The slot, and its class.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn place(&self) -> (usize, Taken) {
        (self.lease.class().index(), self.lease.taken())
    }

    /// The lease, when every fence is complete.
    fn into_lease(self) -> Lease<T> {
        let mut this = ManuallyDrop::new(self);
        this.lease.class_ref().get().land();
        // SAFETY: `this` is not dropped, so the lease is taken out once.
        unsafe { ManuallyDrop::take(&mut this.lease) }
    }

    /// The slot is lost: nobody knows when its work is over (I11).
    fn quarantine(self, error: Error) -> Error {
        let this = ManuallyDrop::new(self);
        this.lease.quarantine(&error);
        error
    }
}

impl<T: Pod> Drop for InFlight<T> {
    fn drop(&mut self) {
        let (class, taken) = (self.lease.class_ref(), self.lease.taken());
        // The lease's own drop does not run: its slot is retired here, as one already in flight.
        if self.lease.state().is_used() {
            class.retire(taken, Departed::Before);
        } else {
            // `is_complete` found every fence complete.
            class.get().land();
            class.give_back(taken);
        }
    }
}

/// The future of a lease in flight, from [`IntoFuture`].
///
/// The pool's keeper wakes the task; no runtime is needed. Dropping the future drops the lease in
/// flight, as ever. Polled again after it was ready, it stays pending.
#[derive(Debug)]
pub struct Landing<T: Pod = u8> {
    /// `None` after the future was ready.
    flight: Option<InFlight<T>>,
}

impl<T: Pod> IntoFuture for InFlight<T> {
    type Output = Result<Lease<T>, Error>;
    type IntoFuture = Landing<T>;

    fn into_future(self) -> Landing<T> {
        Landing { flight: Some(self) }
    }
}

impl<T: Pod> Future for Landing<T> {
    type Output = Result<Lease<T>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(flight) = self.flight.take() else { return Poll::Pending };
        let flight = match flight.try_take() {
            Ok(lease) => return Poll::Ready(Ok(lease)),
            Err(TryTakeError::Failed(error)) => return Poll::Ready(Err(error)),
            Err(TryTakeError::Pending(flight)) => flight,
        };
        if let Some(attached) = flight.lease.state().last() {
            let class = flight.lease.class_ref();
            let shared = class.get().shared();
            shared.wakers.register(attached.fence, context.waker());
            shared.bell.ring();
        }
        self.flight = Some(flight);
        Poll::Pending
    }
}

impl<T: Pod> fmt::Debug for TryTakeError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending(flight) => f.debug_tuple("Pending").field(flight).finish(),
            Self::Failed(error) => f.debug_tuple("Failed").field(error).finish(),
        }
    }
}

impl<T: Pod> fmt::Display for TryTakeError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending(_) => f.write_str("the work is not over yet"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<T: Pod> std::error::Error for TryTakeError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Pending(_) => None,
            // Displayed as the error itself.
            Self::Failed(error) => error.source(),
        }
    }
}

impl<T: Pod> Unpin for Landing<T> {}

impl<T: Pod> Drop for Landing<T> {
    fn drop(&mut self) {
        // The keeper must not go on asking for a task that gave up.
        let Some(flight) = self.flight.take() else { return };
        if flight.lease.slot_of().check_here().is_err() {
            return;
        }
        if let Some(attached) = flight.lease.state().last() {
            flight.lease.class_ref().get().shared().wakers.forget(&attached.fence);
        }
    }
}

impl<T: Pod> fmt::Debug for InFlight<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("lease", &*self.lease).finish_non_exhaustive()
    }
}
