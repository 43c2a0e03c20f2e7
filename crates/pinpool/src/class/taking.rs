//! How a slot of a class is found and made somebody's own: the short way, then everywhere.

use super::homecoming::Homecoming;
use super::{ClassRef, Taken};
use crate::error::LeaseError;
use crate::free_list::{Near, Pop, Reach};
use crate::reclaim::Home;

/// Why a slot is not handed out after all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfit {
    /// The system has no memory for a pageable one. It went home.
    Unbacked,
    /// It was written after it was returned. It is out of use.
    Lost,
}

impl ClassRef {
    /// Takes a slot from the calling thread's desk, if one is there: the short way, without a call. What
    /// is at a desk can be handed out as it is.
    #[inline]
    pub(crate) fn try_near(self) -> Option<Taken> {
        let Near { slot, generation, meta } = self.get().list.take_near()?;
        meta.begin();
        Some(Taken { slot, generation })
    }

    /// Takes a pinned slot if one is free, or in flight and complete. `urgent` ones may have the reserve.
    pub(crate) fn try_pinned(self, urgent: bool) -> Result<Option<Taken>, LeaseError> {
        match self.try_near() {
            Some(taken) => Ok(Some(taken)),
            None => self.try_further(urgent),
        }
    }

    /// Looks everywhere, until a slot is found that may be handed out.
    #[cold]
    #[inline(never)]
    pub(crate) fn try_further(self, urgent: bool) -> Result<Option<Taken>, LeaseError> {
        let reach = Reach { pageable: false, ..self.get().reach(urgent) };
        while let Some(slot) = self.find(reach)? {
            // One that is out of use now may have others beside it.
            if let Ok(taken) = self.adopt(slot) {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    /// A pinned slot that is free, or complete, or unwashed.
    pub(super) fn find(self, reach: Reach) -> Result<Option<u32>, LeaseError> {
        let class = self.get();
        match class.list.pop_within(reach) {
            Pop::Slot { slot, new_low } => {
                if new_low {
                    class.sample_high_water();
                }
                return Ok(Some(slot));
            }
            Pop::Closed => return Err(LeaseError::Closed),
            Pop::Empty => {}
        }
        // A slot that landed since the list was looked at is in it by now.
        let mut home = Homecoming::of_one(self, reach);
        if class.in_flight() > 0 {
            class.reclaim.pass(&mut home);
        } else if class.has_flown() {
            let _ = home.enough();
        }
        let found = home.found;
        Ok(found.or_else(|| self.wash_one(reach)))
    }

    /// A slot that nobody has, pinned or else pageable. It is not made anybody's own yet.
    pub(super) fn find_any(self) -> Result<Option<u32>, LeaseError> {
        let class = self.get();
        let found = self.find(Reach { pageable: false, ..class.reach(false) })?;
        Ok(found.or_else(|| class.pop_pageable()))
    }

    /// Takes a pageable buffer, where the class may use one.
    pub(crate) fn try_pageable(self) -> Option<Taken> {
        let slot = self.get().pop_pageable()?;
        self.adopt(slot).ok()
    }

    /// As [`Self::try_pinned`], then a pageable buffer; counts a miss.
    #[cfg(all(test, shuttle))]
    pub(crate) fn try_take(self, urgent: bool) -> Result<Taken, LeaseError> {
        match self.try_pinned(urgent)?.or_else(|| self.try_pageable()) {
            Some(taken) => Ok(taken),
            None => Err(self.get().miss()),
        }
    }

    /// Makes a slot, which the caller owns, its own, unless it may not be handed out.
    pub(super) fn adopt(self, slot: u32) -> Result<Taken, Unfit> {
        let class = self.get();
        if !class.back(slot) {
            self.send_home(slot);
            return Err(Unfit::Unbacked);
        }
        if class.wash.checks() && !class.check_unwritten(slot) {
            class.depart();
            self.lose(slot);
            return Err(Unfit::Lost);
        }
        if let Some(holders) = &class.holders {
            holders.note(slot);
        }
        Ok(class.taken(slot))
    }
}
