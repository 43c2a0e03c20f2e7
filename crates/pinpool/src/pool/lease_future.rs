//! A task's wait for a lease, in the same line as the threads'.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Pool;
use crate::class::{ClassRef, Got, Waiting};
use crate::error::LeaseError;
use crate::lease::Lease;

/// The future of [`Pool::lease_async`].
///
/// Its task is woken when a slot was handed to it, or the pool closed. Dropping it loses neither the slot nor
/// the place of others. Polled again after it was ready, it stays pending.
#[must_use = "a future does nothing until it is awaited"]
pub struct LeaseFuture {
    pool: Pool,
    len: usize,
    urgent: bool,
    stage: Stage,
}

enum Stage {
    /// With the number of its wait for the class, once it has one.
    New(Option<u64>),
    InLine(ClassRef, Waiting),
    Over,
}

impl LeaseFuture {
    pub(crate) fn new(pool: Pool, len: usize, urgent: bool) -> Self {
        Self { pool, len, urgent, stage: Stage::New(None) }
    }
}

impl Future for LeaseFuture {
    type Output = Result<Lease, LeaseError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { pool, len, urgent, stage } = &mut *self;
        if let Stage::New(wait) = stage {
            match pool.begin_wait(*len, *urgent, context.waker(), wait) {
                Ok((class, waiting)) => *stage = Stage::InLine(class, waiting),
                Err(Err(LeaseError::NotReady)) => return Poll::Pending,
                Err(settled) => {
                    *stage = Stage::Over;
                    return Poll::Ready(settled);
                }
            }
        }
        // A slot may have been handed over while we got in line.
        let Stage::InLine(class, waiting) = stage else { return Poll::Pending };
        let class = *class;
        let look = || pool.spill(class, *len);
        let Some(got) = waiting.poll(context.waker(), look) else { return Poll::Pending };
        *stage = Stage::Over;
        Poll::Ready(got.map(|got| match got {
            Got::Own(taken) => Lease::new(class, taken, *len),
            Got::Other(lease) => lease,
        }))
    }
}

impl Drop for LeaseFuture {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::New(Some(wait)) => self.pool.forget_wait(wait),
            Stage::InLine(_, waiting) => waiting.leave(),
            Stage::New(None) | Stage::Over => {}
        }
    }
}

impl fmt::Debug for LeaseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waits = matches!(self.stage, Stage::InLine(..));
        f.debug_struct("LeaseFuture")
            .field("len", &self.len)
            .field("waits", &waits)
            .finish_non_exhaustive()
    }
}
