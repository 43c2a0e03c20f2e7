//! Several leases at once, all or none.

use std::time::Duration;

use super::Pool;
use crate::class::{ClassRef, Taken};
use crate::clock;
use crate::error::LeaseError;
use crate::lease::Lease;

/// What is wanted of one class.
struct Share {
    class: ClassRef,
    /// Which of the leases asked for come of it.
    places: Vec<usize>,
}

impl Pool {
    /// Leases several buffers, `sizes` in bytes, all or none. Never waits.
    ///
    /// The leases come in the order of `sizes`. Neither `max_spill` nor the reserve is used.
    ///
    /// # Errors
    ///
    /// As [`Self::try_lease`] for the first that fails, and [`LeaseError::TooMany`] when a class can
    /// never give so many. No slot is kept.
    pub fn try_lease_many(&self, sizes: &[usize]) -> Result<Vec<Lease>, LeaseError> {
        let find = |size| self.class_for(size);
        Self::gather(sizes, find, |share, count| share.class.try_take_many(count))
    }

    /// As [`Self::try_lease_many`], waiting as long as it takes.
    ///
    /// **Hold and wait.** Whoever holds a lease and waits for another one can wait for ever: two stages
    /// that hold a slot each, and need one more each, of a class of two. This call takes the slots of one class
    /// in one step (the first in line gathers them, and nobody else does meanwhile) and goes through the classes
    /// in the order of the plan, from the smallest to the largest, so that any number of `lease_many` never block
    /// each other for good, whichever handles they are called on. The rule for the rest of a program is: take all leases of a step with one call, and hold
    /// none when making it; or wait with a timeout and drop what is held when it passes.
    ///
    /// # Errors
    ///
    /// As [`Self::lease`], and [`LeaseError::TooMany`].
    pub fn lease_many(&self, sizes: &[usize]) -> Result<Vec<Lease>, LeaseError> {
        let now = clock::now();
        let find = |size| self.class_by(size, None);
        Self::gather(sizes, find, |share, count| share.class.take_many(count, now, None))
    }

    /// As [`Self::lease_many`], waiting at most `timeout` for all of them.
    ///
    /// # Errors
    ///
    /// As [`Self::lease_many`], and [`LeaseError::Timeout`].
    pub fn lease_many_timeout(
        &self,
        sizes: &[usize],
        timeout: Duration,
    ) -> Result<Vec<Lease>, LeaseError> {
        let now = clock::now();
        let deadline = now.checked_add(timeout);
        let find = |size| self.class_by(size, deadline);
        Self::gather(sizes, find, |share, count| share.class.take_many(count, now, deadline))
    }

    fn gather(
        sizes: &[usize],
        find: impl Fn(usize) -> Result<ClassRef, LeaseError>,
        take: impl Fn(&Share, u32) -> Result<Vec<Taken>, LeaseError>,
    ) -> Result<Vec<Lease>, LeaseError> {
        let shares = Self::shares(sizes, find)?;
        let mut leases: Vec<Option<Lease>> = sizes.iter().map(|_| None).collect();
        for share in shares {
            let count = u32::try_from(share.places.len()).unwrap_or(u32::MAX);
            // What was taken of the classes before goes back by being dropped.
            let taken = take(&share, count)?;
            for (place, taken) in share.places.into_iter().zip(taken) {
                leases[place] = Some(Lease::new(share.class, taken, sizes[place]));
            }
        }
        Ok(leases.into_iter().flatten().collect())
    }

    /// What is wanted of each class, in the order that all handles of the pool take them in.
    fn shares(
        sizes: &[usize],
        find: impl Fn(usize) -> Result<ClassRef, LeaseError>,
    ) -> Result<Vec<Share>, LeaseError> {
        let mut shares: Vec<Share> = Vec::new();
        for (place, size) in sizes.iter().enumerate() {
            let class = find(*size)?;
            match shares.iter_mut().find(|share| share.class.is(class)) {
                Some(share) => share.places.push(place),
                None => shares.push(Share { class, places: vec![place] }),
            }
        }
        shares.sort_by_key(|share| share.class.get().id());
        for Share { class, places } in &shares {
            let (wanted, most) = (places.len(), class.get().most() as usize);
            if wanted > most {
                return Err(LeaseError::TooMany { name: class.get().name(), wanted, most });
            }
        }
        Ok(shares)
    }
}
