//! A real pool beside the plain record of what it must answer.

use std::time::Duration;

use arbitrary::Unstructured;
use pinpool::{ClassConfig, Heap, Lease, LeaseError, Pool, Tag};

use super::op::{Kind, Op};
use crate::scripted::{Counted, Ledger};
use crate::stamp;

/// What all sequences did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Totals {
    /// Sequences.
    pub cases: u64,
    /// Operations, each checked.
    pub ops: u64,
    /// Pools opened and closed.
    pub pools: u64,
    /// Leases given.
    pub leases: u64,
    /// Leases refused because every slot was out.
    pub misses: u64,
    /// Leases refused because the pool was closed.
    pub refused_closed: u64,
}

impl Totals {
    /// Adds another run's.
    pub fn add(&mut self, other: Self) {
        self.cases += other.cases;
        self.ops += other.ops;
        self.pools += other.pools;
        self.leases += other.leases;
        self.misses += other.misses;
        self.refused_closed += other.refused_closed;
    }
}

pub(super) struct Twin {
    /// The clones. When the last is dropped the pool is gone, but its leases are not.
    pools: Vec<Pool>,
    ledger: Ledger,
    /// Calls into the memory when the pool was open: none is made before it closes.
    calls: u64,
    closed: bool,
    classes: Vec<Class>,
    held: Vec<Held>,
    tags: [Tag; 2],
    next_owner: u64,
}

/// What one class must look like.
struct Class {
    slot_bytes: usize,
    slots: u32,
    /// Address of slot 0, learnt from the first lease.
    base: Option<usize>,
    /// Slots that were leased before and are home, in the order in which they came.
    home: Vec<(u32, u64)>,
    /// Which slots were ever leased.
    used: Vec<bool>,
    leased: u32,
    high_water: u32,
    leases: u64,
    misses: u64,
    waits: u64,
}

struct Held {
    lease: Lease,
    class: usize,
    slot: u32,
    len: usize,
    owner: u64,
    tag: Option<usize>,
}

impl Twin {
    /// One to four classes of one to eight slots.
    pub(super) fn open(u: &mut Unstructured<'_>) -> arbitrary::Result<Self> {
        let mut classes = Vec::new();
        for (rank, &size) in SIZES.iter().enumerate() {
            if (rank == 0 || u.ratio(1, 3)?) && classes.len() < 4 {
                let count = u.int_in_range(1..=8)?;
                classes.push(ClassConfig::new(format!("class-{rank}"), size, count));
            }
        }
        Ok(Self::with(classes, u.ratio(1, 2)?))
    }

    /// For the end of a sequence, where no bytes are left to draw from.
    pub(super) fn smallest() -> Self {
        Self::with(vec![ClassConfig::new("only", SIZES[0], 1)], false)
    }

    fn with(list: Vec<ClassConfig>, small_chunks: bool) -> Self {
        let (memory, ledger) = Counted::new(Heap::claiming_locked());
        let mut builder = Pool::builder().env(false).memory(memory).prefault_threads(1);
        if small_chunks {
            builder = builder.pin_chunk(1);
        }
        let builder = list.into_iter().fold(builder, pinpool::PoolBuilder::class_config);
        let pool = builder.open().expect("a good configuration opens");
        let classes = pool.plan().classes.iter().map(Class::new).collect();
        let tags = TAGS.map(|name| pool.tag(name));
        let calls = ledger.calls_total();
        let pools = vec![pool];
        Self { pools, ledger, calls, closed: false, classes, held: Vec::new(), tags, next_owner: 1 }
    }

    /// True when the pool is gone or closed, and every lease is home.
    pub(super) fn is_over(&self) -> bool {
        (self.pools.is_empty() || self.closed) && self.held.is_empty()
    }

    pub(super) fn apply(&mut self, op: Op, totals: &mut Totals) {
        match op.kind {
            Kind::Lease | Kind::LeaseNow | Kind::LeaseTyped => self.lease(op, totals),
            Kind::Impossible => self.impossible(op),
            Kind::Drop => self.drop_one(op),
            Kind::Tag => self.tag(op),
            Kind::Stats => self.check_stats(),
            Kind::ClonePool => {
                if let Some(pool) = self.pools.first().filter(|_| self.pools.len() < 4) {
                    self.pools.push(pool.clone());
                }
            }
            Kind::DropPool => {
                // The last clone goes more rarely: it ends the pool.
                if self.pools.len() > 1 || op.amount < 16 {
                    self.pools.pop();
                }
            }
            Kind::Close => self.close(),
            Kind::SetLen | Kind::Stamp | Kind::Verify | Kind::View | Kind::Cast => {
                if let Some(index) = pick(op.pick, self.held.len()) {
                    self.next_owner += 1;
                    let held = &mut self.held[index];
                    held.touch(op, self.classes[held.class].slot_bytes, self.next_owner);
                }
            }
        }
        if !self.closed && !self.pools.is_empty() {
            debug_assert_eq!(self.ledger.calls_total(), self.calls, "{op:?} called the memory");
        }
    }

    /// Everything comes home, and then nothing is left.
    pub(super) fn finish(mut self, totals: &mut Totals) {
        self.check_stats();
        totals.pools += 1;
        while let Some(held) = self.held.pop() {
            held.verify(self.classes[held.class].slot_bytes);
        }
        if let Some(pool) = self.pools.first() {
            assert!(pool.close(Duration::from_secs(10)).is_complete());
        }
        self.pools.clear();
        self.ledger.assert_clean();
    }

    fn lease(&mut self, op: Op, totals: &mut Totals) {
        let Some(pool) = pick(op.pick, self.pools.len()).map(|at| &self.pools[at]) else { return };
        let rank = usize::from(op.pick >> 2) % self.classes.len();
        let below = rank.checked_sub(1).map_or(0, |below| self.classes[below].slot_bytes);
        let room = self.classes[rank].slot_bytes - below;
        let mut len = below + 1 + (usize::from(op.amount) * 17) % room;
        let leased = match op.kind {
            Kind::LeaseNow => pool.lease_timeout(len, Duration::ZERO),
            Kind::LeaseTyped => {
                len = len.next_multiple_of(4);
                pool.try_lease_of::<u32>(len / 4).map(|lease| {
                    assert_eq!((lease.len(), lease.capacity()), (len / 4, (below + room) / 4));
                    lease.cast::<u8>().unwrap()
                })
            }
            _ => pool.try_lease(len),
        };
        let class = &mut self.classes[rank];
        if op.kind == Kind::LeaseNow && !self.closed && class.leased == class.slots {
            class.waits += 1;
        }
        match leased {
            Ok(lease) => {
                assert!(!self.closed, "a closed pool leases nothing");
                self.next_owner += 1;
                let held = class.leased(lease, rank, len, self.next_owner);
                self.held.push(held);
                totals.leases += 1;
            }
            Err(LeaseError::Closed) => {
                assert!(self.closed);
                totals.refused_closed += 1;
            }
            Err(LeaseError::Exhausted(exhausted) | LeaseError::Timeout { exhausted, .. }) => {
                assert!(!self.closed && class.leased == class.slots, "not empty: {exhausted:?}");
                assert_eq!(exhausted.slots, class.slots);
                class.misses += 1;
                class.high_water = class.slots;
                totals.misses += 1;
            }
            Err(error) => panic!("a lease of {len} bytes from class {rank}: {error}"),
        }
    }

    fn impossible(&self, op: Op) {
        let Some(pool) = self.pools.first() else { return };
        let largest = self.classes.last().map_or(0, |class| class.slot_bytes);
        assert_eq!(pool.try_lease(0).unwrap_err(), LeaseError::ZeroLen);
        let requested = largest.saturating_add(1 << (op.amount % 64));
        let refused = LeaseError::TooLarge { requested, largest };
        assert_eq!(pool.try_lease(requested).unwrap_err(), refused);
    }

    fn drop_one(&mut self, op: Op) {
        let Some(index) = pick(op.pick, self.held.len()) else { return };
        let held = self.held.swap_remove(index);
        let class = &mut self.classes[held.class];
        held.verify(class.slot_bytes);
        class.home.push((held.slot, held.owner));
        class.leased -= 1;
    }

    fn tag(&mut self, op: Op) {
        let Some(index) = pick(op.pick, self.held.len()) else { return };
        let held = &mut self.held[index];
        let name = held.tag.map(|tag| TAGS[tag]);
        assert_eq!(held.lease.tag().as_deref(), name, "the tag is what was set");
        let tag = usize::from(op.amount & 1);
        held.lease.set_tag(self.tags[tag]);
        held.tag = Some(tag);
    }

    fn close(&mut self) {
        let Some(pool) = self.pools.first() else { return };
        let report = pool.close(Duration::ZERO);
        self.closed = true;
        let out: Vec<_> = report.still_out.iter().map(|(_, out)| *out).collect();
        let leased = self.classes.iter().map(|class| class.leased as usize);
        assert_eq!(out, leased.filter(|leased| *leased > 0).collect::<Vec<_>>());
        assert_eq!(report.stuck_bytes, 0);
    }

    fn check_stats(&self) {
        let Some(pool) = self.pools.last() else { return };
        let stats = pool.stats();
        for (real, class) in stats.classes.iter().zip(&self.classes) {
            assert_eq!(real.free + real.leased + real.in_flight + real.quarantined, real.slots);
            assert_eq!(
                (real.leased, real.in_flight, real.quarantined, real.stale_returns_total),
                (class.leased, 0, 0, 0)
            );
            assert_eq!((real.leases_total, real.misses_total), (class.leases, class.misses));
            assert_eq!((real.waits_total, real.timeouts_total), (class.waits, class.waits));
            assert_eq!(real.high_water, class.high_water, "{real:?}");
        }
        let mapped: u64 =
            if self.closed { self.ledger.reserved_bytes() as u64 } else { pool.plan().total_bytes };
        assert_eq!((stats.mapped_bytes, stats.pinned_bytes), (mapped, mapped));
    }
}

impl Class {
    fn new(plan: &pinpool::ClassPlan) -> Self {
        Self {
            slot_bytes: plan.slot_bytes,
            slots: plan.count,
            base: None,
            home: Vec::new(),
            used: vec![false; plan.count as usize],
            leased: 0,
            high_water: 0,
            leases: 0,
            misses: 0,
            waits: 0,
        }
    }

    /// Checks a new lease: the right slot at the right address with the right contents. Stamps it.
    fn leased(&mut self, mut lease: Lease, rank: usize, len: usize, owner: u64) -> Held {
        assert_eq!((lease.class().index(), lease.len()), (rank, len));
        assert_eq!(lease.capacity(), self.slot_bytes);
        let slot = lease.slot();
        let start = lease.as_ptr() as usize;
        let base = *self.base.get_or_insert(start - slot as usize * self.slot_bytes);
        assert_eq!(start, base + slot as usize * self.slot_bytes, "slot {slot} has its own place");
        lease.set_len(self.slot_bytes).unwrap();
        // The same thread takes and returns everything, so the last one home is the next out.
        if let Some((warm, owner)) = self.home.pop() {
            assert_eq!(slot, warm, "the warmest slot comes first");
            assert!(stamp::is_whole(lease.as_slice(), owner), "as its last owner left it");
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
        self.high_water = self.high_water.max(self.leased);
        Held { lease, class: rank, slot, len, owner, tag: None }
    }
}

impl Held {
    fn touch(&mut self, op: Op, slot_bytes: usize, owner: u64) {
        let lease = &mut self.lease;
        match op.kind {
            Kind::SetLen => {
                let len = usize::from(op.amount) * 23 % (slot_bytes + 64);
                let fits = lease.set_len(len).is_ok();
                assert_eq!(fits, len <= slot_bytes, "{len} of {slot_bytes}");
                self.len = if fits { len } else { self.len };
            }
            Kind::Stamp => {
                stamp::write_slot(lease, owner);
                lease.set_len(self.len).unwrap();
                self.owner = owner;
            }
            Kind::View => {
                let (start, end) = (usize::from(op.pick), usize::from(op.amount));
                let view = lease.view(start..end);
                assert_eq!(view.is_ok(), start <= end && end <= self.len);
                if let Ok(view) = view {
                    assert_eq!(view.as_slice(), &lease.as_slice()[start..end]);
                }
            }
            Kind::Cast => {
                let whole = self.len.is_multiple_of(8);
                assert_eq!(
                    lease.typed::<u64>().map(<[u64]>::len).ok(),
                    whole.then_some(self.len / 8)
                );
            }
            _ => {}
        }
        assert_eq!(
            (lease.len(), lease.slot(), lease.is_empty()),
            (self.len, self.slot, self.len == 0)
        );
        if op.kind == Kind::Verify {
            let part = lease.as_slice().chunks_exact(8).len() * 8;
            assert!(stamp::is_whole(&lease.as_slice()[..part], self.owner), "still our own");
        }
    }

    /// The whole slot is as this owner left it.
    fn verify(&self, slot_bytes: usize) {
        assert_eq!(self.lease.len(), self.len);
        // SAFETY: I2, the lease owns all `slot_bytes` bytes of its slot, which are initialised; the
        // length in use may be shorter.
        let slot = unsafe { std::slice::from_raw_parts(self.lease.as_ptr(), slot_bytes) };
        stamp::verify(slot, self.owner);
    }
}

fn pick(number: u8, len: usize) -> Option<usize> {
    usize::from(number).checked_rem(len)
}

/// Slot sizes to choose from; the smallest is always there. Small, so that every byte is checked.
const SIZES: [usize; 6] = [64, 128, 192, 320, 512, 4096];
/// Names of holders.
const TAGS: [&str; 2] = ["camera", "encoder"];
