//! What a thread has in a list for itself: whether it works under a bias, and how that went so far; see
//! [`desks`](super).

use super::magazine::SLOTS;
use super::{GROUP, MODELLED, u32_of};
use crate::sync::{AtomicU32, AtomicU64, Ordering, pause};

/// One thread's. Lines of its own: others touch nothing of it but what comes first, and that rarely.
#[derive(Debug)]
#[repr(align(128))]
pub(in crate::free_list) struct Desk {
    /// 1 within a section.
    pub(super) busy: AtomicU32,
    /// Odd while the owner may work in sections. Only the owner makes it odd, anybody even.
    pub(super) bias: AtomicU32,
    /// Of what is unsettled, that which was turned off by somebody who gave up waiting.
    owed: AtomicU32,
    // The rest is the owner's alone.
    /// The magazine that is biased to the owner while `bias` is odd.
    pub(super) hot: AtomicU32,
    /// Slots at which the hot magazine is published: fewer if others came for them.
    pub(super) limit: AtomicU32,
    /// The last even `bias` that the owner knows of.
    pub(super) known: AtomicU32,
    /// Slow ways until the owner turns its bias on again, and how many it waits the next time.
    pub(super) rest: AtomicU32,
    pub(super) patience: AtomicU32,
    /// The group that a slot was last found in.
    pub(super) from: AtomicU32,
    /// Leases that this thread and earlier owners took, and how many when the bias was turned on.
    pub(super) leases: AtomicU64,
    pub(super) since: AtomicU64,
}

impl Desk {
    pub(super) fn new(number: usize) -> Self {
        Self {
            busy: AtomicU32::new(0),
            bias: AtomicU32::new(0),
            owed: AtomicU32::new(0),
            hot: AtomicU32::new(u32_of(number * GROUP)),
            limit: AtomicU32::new(u32_of(SLOTS)),
            known: AtomicU32::new(0),
            rest: AtomicU32::new(REST),
            patience: AtomicU32::new(REST),
            from: AtomicU32::new(u32_of(number)),
            leases: AtomicU64::new(0),
            since: AtomicU64::new(0),
        }
    }

    /// Counts a lease of the owner.
    #[inline]
    pub(in crate::free_list) fn count_lease(&self) {
        let leases = self.leases.load(Ordering::Relaxed).wrapping_add(1);
        self.leases.store(leases, Ordering::Relaxed);
    }

    /// The owner's bias was taken away.
    pub(super) fn rest(&self) {
        let patience = self.patience.load(Ordering::Relaxed);
        let lasted = self.leases.load(Ordering::Relaxed) - self.since.load(Ordering::Relaxed);
        let long = lasted > u64::from(patience) * WORTH;
        let patience = if long { (patience / 2).max(REST) } else { (patience * 2).min(REST_MAX) };
        self.patience.store(patience, Ordering::Relaxed);
        self.rest.store(patience, Ordering::Relaxed);
        let limit = self.limit.load(Ordering::Relaxed);
        self.limit.store((limit / 2).max(1), Ordering::Relaxed);
    }

    /// The owner takes back what it published: nobody came for it.
    pub(super) fn comes_back(&self, home: u32, magazine: usize) {
        if magazine / GROUP == home as usize {
            let limit = self.limit.load(Ordering::Relaxed);
            self.limit.store((limit + 1).min(u32_of(SLOTS)), Ordering::Relaxed);
        }
    }

    /// The magazines of the owner's group and of that which a slot was last found in.
    pub(super) fn near(&self, home: u32) -> impl Iterator<Item = usize> + use<> {
        let own = home as usize * GROUP;
        let from = self.from.load(Ordering::Relaxed) as usize * GROUP;
        let other = if from == own { 0 } else { GROUP };
        (from..from + other).chain(own..own + GROUP)
    }

    pub(super) fn found_in(&self, magazine: usize) {
        self.from.store(u32_of(magazine / GROUP), Ordering::Relaxed);
    }

    /// The even bias from here on, and whether this call made it so.
    pub(super) fn turn_off(&self) -> (u32, bool) {
        loop {
            let bias = self.bias.load(Ordering::Acquire);
            if !is_on(bias) {
                return (bias, false);
            }
            if self.swap_bias(bias, bias.wrapping_add(1)) {
                return (bias.wrapping_add(1), true);
            }
        }
    }

    /// As [`Self::turn_off`], and how many are settled once the caller has waited.
    pub(super) fn turn_off_and_owe(&self) -> (u32, u32) {
        // First: what was turned off later is not waited for.
        let owed = self.owed.swap(0, Ordering::AcqRel);
        let (off, mine) = self.turn_off();
        (off, owed + u32::from(mine))
    }

    /// The caller gave up waiting.
    pub(super) fn owe(&self, over: u32) {
        self.owed.fetch_add(over, Ordering::AcqRel);
    }

    pub(super) fn swap_bias(&self, from: u32, to: u32) -> bool {
        self.bias.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Waits until no section is run that began before the bias was turned `off`; true if so. After the
    /// heavy barrier.
    pub(super) fn settle(&self, off: u32, rounds: u32) -> bool {
        if crate::seeded::bug("no-settle") {
            return true;
        }
        for round in 0..rounds {
            let idle = self.busy.load(Ordering::Acquire) == 0;
            // Its owner turned it on again: it is in no section of before.
            if idle || self.bias.load(Ordering::Acquire) != off {
                return true;
            }
            pause(round);
        }
        false
    }
}

#[inline]
pub(super) fn is_on(bias: u32) -> bool {
    bias & 1 == 1
}

/// Slow ways before the first bias, and the most after revocations. A revocation costs some
/// microseconds, and a slow way some tens of nanoseconds.
pub(super) const REST: u32 = if MODELLED {
    0
} else if cfg!(test) {
    8
} else {
    64
};
const REST_MAX: u32 = if MODELLED { 1 } else { 1 << 14 };
/// Leases under a bias, for each slow way before it, that make it worth while.
const WORTH: u64 = 16;
