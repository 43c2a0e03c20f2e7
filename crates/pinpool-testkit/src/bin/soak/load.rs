//! What one thread does: frames of three leases, each stamped over the whole slot and checked.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use pinpool::{Lease, LeaseError, ManualFence, Pool};
use pinpool_testkit::soon::HANG;
use pinpool_testkit::stamp;

use crate::device::Copy;
use crate::verdict::Verdict;

/// One slot a thread, and nobody holds two: a lease of this class never fails (I13).
pub(crate) const OWN: usize = 64;
/// One slot for four threads, waited for.
pub(crate) const SCARCE: usize = 256;
/// Slots that are dropped by another thread than leased them.
pub(crate) const HANDED: usize = 1024;
/// Slots that are left to the device now and then. It is often slower than the threads.
pub(crate) const RETIRED: usize = 4096;
/// Leases that wait for their new holder at most. The class has as many slots more, so that nobody
/// waits for a slot that lies before their own door.
pub(crate) const INBOX: usize = 2;

/// A stamped lease for another thread.
pub(crate) type Handed = (u64, Lease);

/// What a thread did.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) leases: u64,
    pub(crate) handed: u64,
    pub(crate) retired: u64,
    pub(crate) waits: u64,
    pub(crate) timeouts: u64,
    /// Nanoseconds of one lease and its drop.
    pub(crate) latency: Histogram<u64>,
    /// What was handed over and not taken, when the thread had done its part.
    inbox: Option<Receiver<Handed>>,
}

impl Tally {
    pub(crate) fn new() -> Result<Self, String> {
        let latency = Histogram::new_with_bounds(1, 60_000_000_000, 3);
        let latency = latency.map_err(|error| error.to_string())?;
        Ok(Self { leases: 0, handed: 0, retired: 0, waits: 0, timeouts: 0, latency, inbox: None })
    }

    /// Adds what another thread did, and checks what lies before its door.
    pub(crate) fn add(&mut self, other: &Self, verdict: &Verdict) {
        self.leases += other.leases;
        self.handed += other.handed;
        self.retired += other.retired;
        self.waits += other.waits;
        self.timeouts += other.timeouts;
        if let Err(error) = self.latency.add(&other.latency) {
            verdict.wrong(error.to_string());
        }
        for (owner, lease) in other.inbox.iter().flat_map(Receiver::try_iter) {
            verdict.check(&lease, owner);
        }
    }
}

/// One thread's part of the load.
#[derive(Debug)]
pub(crate) struct Worker<'a> {
    pool: &'a Pool,
    verdict: &'a Verdict,
    id: u64,
    inbox: Receiver<Handed>,
    next: SyncSender<Handed>,
    device: SyncSender<Copy>,
    tally: Tally,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(
        pool: &'a Pool,
        verdict: &'a Verdict,
        id: u64,
        inbox: Receiver<Handed>,
        next: SyncSender<Handed>,
        device: SyncSender<Copy>,
    ) -> Result<Self, String> {
        Ok(Self { pool, verdict, id, inbox, next, device, tally: Tally::new()? })
    }

    /// Works until it has had so many leases, or something is wrong.
    pub(crate) fn run(mut self, leases: u64) -> Result<Tally, String> {
        let mut round = 0;
        while self.tally.leases < leases && !self.verdict.is_wrong() {
            round += 1;
            self.frame(round)?;
            if round % 16 == 0 {
                self.time_one()?;
            }
            if round % 32 == 0 {
                self.wait_for_scarce(round)?;
            }
        }
        Ok(Tally { inbox: Some(self.inbox), ..self.tally })
    }

    /// Three leases at a time, in the order of their classes: nobody waits in a circle.
    fn frame(&mut self, round: u64) -> Result<(), String> {
        let owner = self.id << 48 | round;
        let mut own = self.lease_own()?;
        stamp::write_slot(&mut own, owner);
        let mut handed = self.lease(HANDED)?;
        stamp::write_slot(&mut handed, owner);
        let mut retired = self.lease(RETIRED)?;
        stamp::write_slot(&mut retired, owner);
        if round.is_multiple_of(512) {
            std::thread::yield_now();
        }
        self.verdict.check(&own, owner);
        drop(own);
        for (owner, lease) in self.inbox.try_iter() {
            self.verdict.check(&lease, owner);
        }
        if round % 16 == 8 {
            self.hand_over(owner, handed);
        } else {
            self.verdict.check(&handed, owner);
            drop(handed);
        }
        if round % 32 == 24 {
            return self.leave_to_device(owner, retired, round / 32 % 4);
        }
        self.verdict.check(&retired, owner);
        Ok(())
    }

    /// A lease of the class that is never empty.
    fn lease_own(&mut self) -> Result<Lease, String> {
        let lease = self.pool.try_lease(OWN);
        self.tally.leases += 1;
        lease.map_err(|error| format!("a slot is home, and yet: {error}"))
    }

    /// A lease of a class that may be empty for a moment.
    fn lease(&mut self, size: usize) -> Result<Lease, String> {
        self.tally.leases += 1;
        if let Ok(lease) = self.pool.try_lease(size) {
            return Ok(lease);
        }
        self.tally.waits += 1;
        let start = Instant::now();
        let lease = self.pool.lease_timeout(size, HANG).map_err(|error| error.to_string())?;
        // One that nobody woke finds its slot by the last look.
        if start.elapsed() > HANG / 2 {
            return Err(format!("a waiter slept beside a free slot of {size} bytes"));
        }
        Ok(lease)
    }

    /// Stays away from the slot afterwards, unless the neighbour has no room or is done.
    fn hand_over(&mut self, owner: u64, lease: Lease) {
        match self.next.try_send((owner, lease)) {
            Ok(()) => self.tally.handed += 1,
            Err(
                TrySendError::Full((owner, lease)) | TrySendError::Disconnected((owner, lease)),
            ) => {
                self.verdict.check(&lease, owner);
            }
        }
    }

    /// The device reads the slot while nobody holds it, or while this thread waits for it.
    fn leave_to_device(&mut self, owner: u64, lease: Lease, way: u64) -> Result<(), String> {
        self.tally.retired += 1;
        let fence = ManualFence::new();
        let (start, bytes) = (lease.as_ptr() as usize, lease.len());
        let copy = Copy { start, bytes, owner, fence: fence.clone() };
        let mut flight = None;
        if way == 0 {
            lease.retire_after(fence);
        } else {
            flight = Some(lease.in_flight_until(fence));
        }
        self.device.send(copy).map_err(|_| "the device is gone".to_owned())?;
        if let (1, Some(flight)) = (way, flight) {
            let lease = flight.wait().map_err(|error| error.to_string())?;
            self.verdict.check(&lease, owner);
        }
        Ok(())
    }

    /// A class that is mostly out: waits with a short time, which may end without a slot.
    fn wait_for_scarce(&mut self, round: u64) -> Result<(), String> {
        let owner = self.id << 48 | round;
        let limit = if round.is_multiple_of(64) { HANG } else { Duration::from_micros(20) };
        let start = Instant::now();
        match self.pool.lease_timeout(SCARCE, limit) {
            Ok(mut lease) => {
                self.tally.leases += 1;
                stamp::write_slot(&mut lease, owner);
                if round.is_multiple_of(256) {
                    std::thread::yield_now();
                }
                self.verdict.check(&lease, owner);
            }
            Err(LeaseError::Timeout { .. }) if limit < HANG => self.tally.timeouts += 1,
            Err(error) => return Err(format!("the scarce class: {error}")),
        }
        if start.elapsed() > HANG / 2 {
            return Err("a waiter slept beside a free slot of the scarce class".into());
        }
        Ok(())
    }

    /// One lease and its drop by the clock, with nothing done in between.
    fn time_one(&mut self) -> Result<(), String> {
        let start = Instant::now();
        drop(self.lease_own()?);
        let took = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.tally.latency.saturating_record(took);
        Ok(())
    }
}
