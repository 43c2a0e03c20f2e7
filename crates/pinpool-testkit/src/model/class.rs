//! What one class must look like: where each slot is, as far as anybody can know, and the counts.
//!
//! A retired slot whose work is over is *ripe*: the pool brings it home when it likes. Until it is
//! seen somewhere its place is open; all other counts are exact all the same.

use pinpool::{ClassStats, Exhausted, Lease};

use super::held::{About, Held};
use crate::stamp;

pub(super) struct Class {
    pub(super) slot_bytes: usize,
    pub(super) slots: u32,
    /// Address of slot 0, learnt from the first lease.
    base: Option<usize>,
    /// Slots that were leased before and are home, in the order in which they came, and their last
    /// owners.
    pub(super) home: Vec<(u32, u64)>,
    /// Slots that are home, or come home without being asked, at an unknown place in that order.
    ripe: Vec<(u32, u64)>,
    /// Ripe slots that may not be home yet, at most.
    ripe_out: u32,
    /// Failed fences of retired slots that may not have been seen yet, at most.
    dying: u32,
    /// Which slots were ever leased.
    used: Vec<bool>,
    pub(super) leased: u32,
    pub(super) in_flight: u32,
    pub(super) quarantined: u32,
    pub(super) landed: u64,
    /// The most slots that were certainly out when the pool looked, and that may have been.
    high_water: [u32; 2],
    leases: u64,
    misses: u64,
    pub(super) waits: u64,
}

impl Class {
    pub(super) fn new(plan: &pinpool::ClassPlan) -> Self {
        Self {
            slot_bytes: plan.slot_bytes,
            slots: plan.count,
            base: None,
            home: Vec::new(),
            ripe: Vec::new(),
            ripe_out: 0,
            dying: 0,
            used: vec![false; plan.count as usize],
            leased: 0,
            in_flight: 0,
            quarantined: 0,
            landed: 0,
            high_water: [0; 2],
            leases: 0,
            misses: 0,
            waits: 0,
        }
    }

    /// True if a lease must fail: nothing is home, and nothing that is out is complete.
    pub(super) fn is_empty(&self) -> bool {
        self.leased + self.in_flight + self.quarantined + self.dying == self.slots
    }

    /// Checks a new lease: the right slot at the right address with the right contents. Stamps it.
    pub(super) fn lease(&mut self, mut lease: Lease, rank: usize, len: usize, owner: u64) -> Held {
        assert_eq!((lease.class().index(), lease.len()), (rank, len));
        assert_eq!(lease.capacity(), self.slot_bytes);
        let slot = lease.slot();
        let start = lease.as_ptr() as usize;
        let base = *self.base.get_or_insert(start - slot as usize * self.slot_bytes);
        assert_eq!(start, base + slot as usize * self.slot_bytes, "slot {slot} has its own place");
        lease.set_len(self.slot_bytes).unwrap();
        if let Some(last) = self.taken(slot) {
            assert!(stamp::is_whole(lease.as_slice(), last), "as its last owner left it");
        } else {
            let used = std::mem::replace(&mut self.used[slot as usize], true);
            assert!(!used, "slot {slot} is out already");
            assert!(
                lease.as_slice().iter().fold(0, |sum, byte| sum | byte) == 0,
                "a fresh slot is zero"
            );
        }
        stamp::write(lease.as_mut_slice(), owner);
        lease.set_len(len).unwrap();
        self.leases += 1;
        self.leased += 1;
        self.note_high_water();
        Held { lease, about: About { class: rank, slot, len, owner, tag: None } }
    }

    /// Takes a slot out of those that are home. Its last owner, or `None` for a fresh one.
    fn taken(&mut self, slot: u32) -> Option<u64> {
        if let Some(at) = self.ripe.iter().position(|ripe| ripe.0 == slot) {
            let (_, owner) = self.ripe.swap_remove(at);
            let left = u32::try_from(self.ripe.len()).expect("a class is small");
            self.ripe_out = self.ripe_out.min(left);
            return Some(owner);
        }
        // In which order is the pool's affair: mostly the last one home is the next out.
        let at = self.home.iter().position(|home| home.0 == slot)?;
        Some(self.home.swap_remove(at).1)
    }

    /// A slot's work is over, and nobody holds it.
    pub(super) fn ripen(&mut self, about: About) {
        self.in_flight -= 1;
        self.landed += 1;
        self.ripe.push((about.slot, about.owner));
        self.ripe_out += 1;
    }

    /// A retired slot's fence failed.
    pub(super) fn dies(&mut self) {
        self.in_flight -= 1;
        self.landed += 1;
        self.dying += 1;
    }

    /// Checks the numbers of a refusal.
    pub(super) fn missed(&mut self, exhausted: &Exhausted) {
        assert!(self.is_empty(), "not empty: {exhausted:?}");
        assert_eq!(exhausted.slots, self.slots);
        let between = |real: u32, low: u32, open: u32| (low..=low + open).contains(&real);
        assert!(between(exhausted.in_flight, self.in_flight, self.dying), "{exhausted:?}");
        assert!(between(exhausted.quarantined, self.quarantined, self.dying), "{exhausted:?}");
        self.misses += 1;
        self.note_high_water();
        self.high_water[0] = self.high_water[0].max(self.leased + self.in_flight);
    }

    /// What the pool's mark may be after it looked, and must be once somebody makes it look.
    fn note_high_water(&mut self) {
        let certain = self.leased + self.in_flight;
        let [low, high] = &mut self.high_water;
        *high = (*high).max(certain + self.ripe_out + self.dying);
        // While nothing is open every new height is seen.
        if self.landed == 0 {
            *low = (*low).max(certain);
        }
    }

    /// Checks the pool's counts, and learns from them what has come home. The pool may be
    /// `closed`, and some work `pending`.
    pub(super) fn check(&mut self, real: &ClassStats, closed: bool, pending: bool) {
        assert_eq!(real.free + real.leased + real.in_flight + real.quarantined, real.slots);
        assert_eq!(real.stale_returns_total, 0);
        assert_eq!((real.leases_total, real.misses_total), (self.leases, self.misses));
        assert_eq!((real.waits_total, real.timeouts_total), (self.waits, self.waits));
        let open = self.ripe_out + self.dying;
        assert!((self.in_flight..=self.in_flight + open).contains(&real.in_flight), "{real:?}");
        let lost = self.quarantined..=self.quarantined + self.dying;
        assert!(lost.contains(&real.quarantined), "{real:?}");
        assert!(real.landed_total <= self.landed, "{real:?}");
        assert!(real.landed_total + u64::from(open) >= self.landed, "{real:?}");
        // A slot leaves flight when it is home already, of a closed pool just before, and before it
        // is lost.
        let landed = real.in_flight == self.in_flight;
        if landed && (!closed || real.leased == self.leased) {
            self.ripe_out = 0;
        }
        self.dying -= real.quarantined - self.quarantined;
        self.quarantined = real.quarantined;
        if self.ripe_out + self.dying == 0 {
            assert_eq!((real.leased, real.in_flight), (self.leased, self.in_flight), "{real:?}");
            assert_eq!(real.landed_total, self.landed, "{real:?}");
        }
        self.note_high_water();
        self.high_water[0] = self.high_water[0].max(self.leased + self.in_flight);
        let [low, high] = self.high_water;
        assert!((low..=high).contains(&real.high_water), "{low} to {high}: {real:?}");
        self.high_water[0] = real.high_water;
        // Work that is over but not known to be counts until somebody asks.
        assert!(real.oldest_in_flight.is_some() || !pending, "{real:?}");
        assert!(real.oldest_in_flight.is_none() || real.in_flight > 0 || open > 0, "{real:?}");
    }

    /// Slots that a close report must count as out, and may count.
    pub(super) fn out(&self) -> std::ops::RangeInclusive<u32> {
        let certain = self.leased + self.in_flight + self.quarantined + self.dying;
        certain..=certain + self.ripe_out
    }

    /// Slots that are lost.
    pub(super) fn lost(&self) -> u32 {
        self.quarantined + self.dying
    }

    /// True when nothing is open: every slot is where it was seen.
    pub(super) fn is_settled(&self) -> bool {
        self.ripe_out + self.dying == 0
    }
}
