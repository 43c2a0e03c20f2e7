//! pinpool's leases, in pools of one class or of many.

use std::{hint, iter};

use pinpool::{BackendChoice, Lease, LockMode, ManualFence, Pool};

use super::Source;
use crate::BenchError;

/// Leases of one size.
#[derive(Debug)]
pub struct Leases {
    pool: Pool,
    bytes: usize,
    slots: usize,
}

impl Leases {
    /// A pool of `classes` classes, each twice as large as the one before, with `slots` slots in the one
    /// in the middle, which is leased from.
    ///
    /// # Errors
    /// A pool that does not open.
    pub fn open(slots: usize, classes: usize) -> Result<Self, BenchError> {
        let leased = classes / 2;
        let mut builder =
            Pool::builder().env(false).backend(BackendChoice::Host).lock(LockMode::Try);
        for number in 0..classes {
            let slots = if number == leased { slots } else { OTHERS_SLOTS };
            builder = builder.class(&format!("class-{number}"), SLOT_BYTES_MIN << number, slots);
        }
        let pool = builder.open().map_err(|cause| BenchError::opening_pool(&cause))?;
        Ok(Self { pool, bytes: SLOT_BYTES_MIN << leased, slots })
    }

    /// Takes everything.
    pub fn take_all(&self) -> Vec<Lease> {
        (0..self.slots).filter_map(|_| self.take()).collect()
    }
}

impl Source for Leases {
    type Held<'a> = Lease;

    #[inline]
    fn take(&self) -> Option<Lease> {
        self.pool.try_lease(self.bytes).ok()
    }

    #[inline]
    fn address(held: &Lease) -> *const u8 {
        held.as_ptr()
    }
}

/// Leases that come home by way of a fence, which is complete before they are dropped.
///
/// While another thread takes all of them home, there is none for a moment: who asks then asks again,
/// which is a part of what it costs.
#[derive(Debug)]
pub struct Retired {
    leases: Leases,
    complete: ManualFence,
}

impl Retired {
    /// Of a pool of one class.
    ///
    /// # Errors
    /// A pool that does not open.
    pub fn open(slots: usize) -> Result<Self, BenchError> {
        let complete = ManualFence::new();
        complete.complete();
        Ok(Self { leases: Leases::open(slots, 1)?, complete })
    }

    #[cold]
    fn take_again(&self) -> Option<Lease> {
        let again = || {
            hint::spin_loop();
            self.leases.take()
        };
        iter::repeat_with(again).take(TRIES_MAX).flatten().next()
    }
}

impl Source for Retired {
    type Held<'a> = RetiredLease<'a>;

    #[inline]
    fn take(&self) -> Option<RetiredLease<'_>> {
        let lease = self.leases.take().or_else(|| self.take_again())?;
        Some(RetiredLease { lease: Some(lease), complete: &self.complete })
    }

    #[inline]
    fn address(held: &RetiredLease<'_>) -> *const u8 {
        held.lease.as_ref().map_or(std::ptr::null(), Lease::as_ptr)
    }
}

/// A lease that waits for a fence when it is dropped.
#[derive(Debug)]
pub struct RetiredLease<'a> {
    lease: Option<Lease>,
    complete: &'a ManualFence,
}

impl Drop for RetiredLease<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.retire_after(self.complete.clone());
        }
    }
}

/// A pool whose only slot is out.
#[derive(Debug)]
pub struct Exhausted {
    leases: Leases,
    _held: Lease,
}

impl Exhausted {
    /// Opens the pool and takes the slot.
    ///
    /// # Errors
    /// A pool that does not open.
    pub fn open() -> Result<Self, BenchError> {
        let leases = Leases::open(1, 1)?;
        let held = leases.take();
        let held = held.ok_or_else(|| BenchError::Failed("a new pool is empty".to_owned()))?;
        Ok(Self { leases, _held: held })
    }
}

impl Source for Exhausted {
    type Held<'a> = Lease;

    #[inline]
    fn take(&self) -> Option<Lease> {
        self.leases.take()
    }

    #[inline]
    fn address(held: &Lease) -> *const u8 {
        Leases::address(held)
    }
}

/// Enough for another thread to be scheduled; then the slots are lost.
const TRIES_MAX: usize = 1_000_000;
/// The smallest class, and the only one of a pool of one.
const SLOT_BYTES_MIN: usize = 64;
/// Classes that nobody leases from.
const OTHERS_SLOTS: usize = 4;
