//! One lease at a time: at once, or after a wait, as a thread or as a task; what stands in for a slot
//! of an empty class.

use std::mem::{ManuallyDrop, size_of};
use std::task::Waker;
use std::time::{Duration, Instant};

use bytemuck::Pod;

use super::{LeaseFuture, Pool};
use crate::class::{Absent, ClassRef, Got, Taken, Waiting};
use crate::clock;
use crate::error::LeaseError;
use crate::lease::Lease;
use crate::size_class::ClassId;

impl Pool {
    /// Leases `len` bytes of the smallest class that holds them, if a slot is free. Never waits for one.
    ///
    /// If none is, a larger class's slot (`max_spill`) or a pageable buffer (`on_empty = "pageable"`) may stand in,
    /// where the class says so.
    ///
    /// Where the only free slots are those that another thread keeps close at hand, they are taken back from it,
    /// with one system call of some microseconds; it takes up to two milliseconds if that thread was
    /// put aside in the middle of a lease or a return. If it is not run by then, its slots count as out.
    ///
    /// # Errors
    ///
    /// [`LeaseError::ZeroLen`], [`LeaseError::TooLarge`], [`LeaseError::Exhausted`],
    /// [`LeaseError::Closed`], [`LeaseError::Forked`], or [`LeaseError::NotReady`] while the pool opens.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a call gives the lease through memory: 10 ns of 20")]
    pub fn try_lease(&self, len: usize) -> Result<Lease, LeaseError> {
        self.try_ranked(len, false)
    }

    /// As [`Self::try_lease`], for the few leases that must not fail: they may have the class's `reserve`
    /// as well.
    ///
    /// # Errors
    ///
    /// As [`Self::try_lease`].
    pub fn try_lease_priority(&self, len: usize) -> Result<Lease, LeaseError> {
        self.try_ranked(len, true)
    }

    /// Leases `len` bytes, waiting for a slot as long as it takes.
    ///
    /// Waiters of a class, threads and tasks alike, are served first come first served: a returned slot is handed to the
    /// first in line, and nobody who comes later, `try_lease` included, can be given it. With
    /// `on_empty = "fail"` nobody waits.
    ///
    /// A thread that holds every slot of the class and asks for one more waits for itself: see
    /// [`Self::lease_many`] for the rule, and use [`Self::lease_timeout`] where it can happen.
    ///
    /// # Errors
    ///
    /// As [`Self::try_lease`], but `Exhausted` only when no slot will come back (all are quarantined) or
    /// with `on_empty = "fail"`, and never `NotReady`.
    pub fn lease(&self, len: usize) -> Result<Lease, LeaseError> {
        self.wait_ranked(len, false, clock::now(), None)
    }

    /// As [`Self::lease`], for the few leases that must not fail: they may have the class's `reserve` as
    /// well, and stand in line before all others.
    ///
    /// # Errors
    ///
    /// As [`Self::lease`].
    pub fn lease_priority(&self, len: usize) -> Result<Lease, LeaseError> {
        self.wait_ranked(len, true, clock::now(), None)
    }

    /// Leases `len` bytes, waiting at most `timeout` for a slot. A zero timeout looks once.
    ///
    /// # Errors
    ///
    /// As [`Self::lease`], [`LeaseError::Timeout`], and `NotReady` if the class was not there in time.
    pub fn lease_timeout(&self, len: usize, timeout: Duration) -> Result<Lease, LeaseError> {
        let now = clock::now();
        // A timeout past the end of the clock is no timeout.
        self.wait_ranked(len, false, now, now.checked_add(timeout))
    }

    /// Leases `len` bytes, waiting for a slot until `deadline`. One in the past looks once.
    ///
    /// # Errors
    ///
    /// As [`Self::lease_timeout`].
    pub fn lease_deadline(&self, len: usize, deadline: Instant) -> Result<Lease, LeaseError> {
        self.wait_ranked(len, false, clock::now(), Some(deadline))
    }

    /// As [`Self::lease_timeout`], with the priority of [`Self::lease_priority`].
    ///
    /// # Errors
    ///
    /// As [`Self::lease_timeout`].
    pub fn lease_priority_timeout(
        &self,
        len: usize,
        timeout: Duration,
    ) -> Result<Lease, LeaseError> {
        let now = clock::now();
        self.wait_ranked(len, true, now, now.checked_add(timeout))
    }

    /// Leases `len` bytes in a task, which stands in the same line as threads. Any executor will do.
    ///
    /// Dropping the future leaves the line, and hands on a slot that it was given meanwhile. Nothing
    /// happens before the future is first polled. While it waits it keeps the pool open.
    #[must_use = "a future does nothing until it is awaited"]
    pub fn lease_async(&self, len: usize) -> LeaseFuture {
        LeaseFuture::new(self.clone(), len, false)
    }

    /// As [`Self::lease_async`], with the priority of [`Self::lease_priority`].
    #[must_use = "a future does nothing until it is awaited"]
    pub fn lease_priority_async(&self, len: usize) -> LeaseFuture {
        LeaseFuture::new(self.clone(), len, true)
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "as above")]
    fn try_ranked(&self, len: usize, urgent: bool) -> Result<Lease, LeaseError> {
        let class = self.class_for(len)?;
        let lease = match class.try_near() {
            // No desk has any but regular slots.
            Some(taken) => Lease::of_first_slab(class, taken, len),
            None => match self.try_further(class, len, urgent) {
                Some((class, taken)) => Lease::new(class, taken, len),
                None => return Err(refusal(class)),
            },
        };
        Ok(lease)
    }

    /// What a lease is made of, as two words: a whole one would come, and the near one with it, through memory.
    #[cold]
    #[inline(never)]
    fn try_further(&self, class: ClassRef, len: usize, urgent: bool) -> Option<(ClassRef, Taken)> {
        let found = self.find(class, len, urgent).ok().flatten()?;
        let lease = ManuallyDrop::new(found);
        Some((lease.class_ref(), lease.taken()))
    }

    /// A lease of the class, or what stands in for one, if there is any.
    fn find(&self, class: ClassRef, len: usize, urgent: bool) -> Result<Option<Lease>, LeaseError> {
        match class.try_further(urgent)? {
            Some(taken) => Ok(Some(Lease::new(class, taken, len))),
            None => Ok(self.stand_in(class, len)),
        }
    }

    /// As [`Self::find`], for one who waits if there is none: `Ok(None)` then.
    fn find_or_wait(
        &self,
        class: ClassRef,
        len: usize,
        urgent: bool,
    ) -> Result<Option<Lease>, LeaseError> {
        let found = self.find(class, len, urgent)?;
        if found.is_none() {
            if !class.get().waits() {
                return Err(class.get().miss());
            }
            class.get().count_miss();
        }
        Ok(found)
    }

    fn wait_ranked(
        &self,
        len: usize,
        urgent: bool,
        since: Instant,
        deadline: Option<Instant>,
    ) -> Result<Lease, LeaseError> {
        let class = self.class_by(len, deadline)?;
        if let Some(lease) = self.find_or_wait(class, len, urgent)? {
            return Ok(lease);
        }
        match class.wait(urgent, since, deadline, || self.spill(class, len))? {
            Got::Own(taken) => Ok(Lease::new(class, taken, len)),
            Got::Other(lease) => Ok(lease),
        }
    }

    /// A slot of a larger class, or a pageable buffer, for an empty class that may use one.
    fn stand_in(&self, class: ClassRef, len: usize) -> Option<Lease> {
        // Those in line come first: the keeper tells them to look.
        let spilled = if class.get().is_waited() { None } else { self.spill(class, len) };
        spilled.or_else(|| class.try_pageable().map(|taken| Lease::new(class, taken, len)))
    }

    /// A slot of a larger class.
    pub(super) fn spill(&self, class: ClassRef, len: usize) -> Option<Lease> {
        let others = self.handle.classes();
        for other in others.filter(|other| class.get().may_spill_to(other.get())) {
            if let Ok(Some(taken)) = other.try_pinned(false) {
                class.get().count_spill();
                return Some(Lease::new(other, taken, len));
            }
        }
        None
    }

    /// One step of a task that wants a lease: the lease, or its place in line. `NotReady`: its class is not
    /// there yet, and the task is woken once it may be, unless its `wait` is forgotten before.
    pub(crate) fn begin_wait(
        &self,
        len: usize,
        urgent: bool,
        waker: &Waker,
        wait: &mut Option<u64>,
    ) -> Result<(ClassRef, Waiting), Result<Lease, LeaseError>> {
        let class = self.class_later(len, waker, wait).map_err(Err)?;
        if let Some(lease) = self.find_or_wait(class, len, urgent).map_err(Err)? {
            return Err(Ok(lease));
        }
        let waiting = class.wait_async(urgent, waker);
        let lease = |taken| Lease::new(class, taken, len);
        waiting.map(|waiting| (class, waiting)).map_err(|taken| taken.map(lease))
    }

    /// Leases `count` elements of `T`, as [`Self::try_lease`] leases bytes.
    ///
    /// # Errors
    ///
    /// As [`Self::try_lease`], and [`LeaseError::Misaligned`] when the class's slots are not aligned
    /// to `T`, which takes a `T` aligned to more than 64 bytes.
    pub fn try_lease_of<T: Pod>(&self, count: usize) -> Result<Lease<T>, LeaseError> {
        typed(self.try_lease(self.bytes_of::<T>(count)?)?)
    }

    /// Leases `count` elements of `T`, as [`Self::lease`] leases bytes.
    ///
    /// # Errors
    ///
    /// As [`Self::lease`] and [`Self::try_lease_of`].
    pub fn lease_of<T: Pod>(&self, count: usize) -> Result<Lease<T>, LeaseError> {
        typed(self.lease(self.bytes_of::<T>(count)?)?)
    }

    /// Leases `count` elements of `T`, as [`Self::lease_timeout`] leases bytes.
    ///
    /// # Errors
    ///
    /// As [`Self::lease_timeout`] and [`Self::try_lease_of`].
    pub fn lease_timeout_of<T: Pod>(
        &self,
        count: usize,
        timeout: Duration,
    ) -> Result<Lease<T>, LeaseError> {
        typed(self.lease_timeout(self.bytes_of::<T>(count)?, timeout)?)
    }

    #[inline]
    pub(super) fn class_for(&self, len: usize) -> Result<ClassRef, LeaseError> {
        if len == 0 {
            return Err(LeaseError::ZeroLen);
        }
        if !self.handle.home.is_here() {
            return Err(LeaseError::Forked);
        }
        let Some(id) = self.handle.sizes.class_for(len) else { return Err(self.too_large(len)) };
        self.handle.roster.get(id).ok_or_else(|| self.not_there(id))
    }

    /// Why a class is not there.
    #[cold]
    #[inline(never)]
    fn not_there(&self, id: ClassId) -> LeaseError {
        // Also if it has come meanwhile: whoever does not wait may ask again.
        self.handle.roster.look(id).err().unwrap_or(Absent::Coming).into()
    }

    /// As [`Self::class_for`], for one who waits for the class, too: until `deadline`.
    pub(super) fn class_by(
        &self,
        len: usize,
        deadline: Option<Instant>,
    ) -> Result<ClassRef, LeaseError> {
        self.class_or(len, |id| self.handle.roster.wait(id, deadline))
    }

    /// As [`Self::class_for`], for a task, which is woken once a class has come.
    fn class_later(
        &self,
        len: usize,
        task: &Waker,
        wait: &mut Option<u64>,
    ) -> Result<ClassRef, LeaseError> {
        self.class_or(len, |id| self.handle.roster.poll(id, task, wait))
    }

    /// As [`Self::class_for`], and what `later` says of a class that is not there yet.
    fn class_or(
        &self,
        len: usize,
        later: impl FnOnce(ClassId) -> Result<ClassRef, Absent>,
    ) -> Result<ClassRef, LeaseError> {
        match (self.class_for(len), self.handle.sizes.class_for(len)) {
            (Err(LeaseError::NotReady), Some(id)) => later(id).map_err(LeaseError::from),
            (found, _) => found,
        }
    }

    /// Wakes nobody any more for a class that is not there.
    pub(super) fn forget_wait(&self, wait: u64) {
        if self.handle.home.is_here() {
            self.handle.roster.forget(wait);
        }
    }

    fn bytes_of<T>(&self, count: usize) -> Result<usize, LeaseError> {
        count.checked_mul(size_of::<T>()).ok_or_else(|| self.too_large(usize::MAX))
    }

    #[cold]
    fn too_large(&self, requested: usize) -> LeaseError {
        LeaseError::TooLarge { requested, largest: self.handle.sizes.largest() }
    }
}

impl From<Absent> for LeaseError {
    fn from(absent: Absent) -> Self {
        match absent {
            Absent::Coming => Self::NotReady,
            Absent::Closed => Self::Closed,
        }
    }
}

/// Why nothing was found.
#[cold]
#[inline(never)]
fn refusal(class: ClassRef) -> LeaseError {
    if class.get().is_closed() { LeaseError::Closed } else { class.get().miss() }
}

fn typed<T: Pod>(lease: Lease) -> Result<Lease<T>, LeaseError> {
    lease.cast().map_err(|(_, error)| error)
}
