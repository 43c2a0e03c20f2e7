//! A real pool beside the plain record of what it must answer.

mod ending;

use std::time::Duration;

use arbitrary::Unstructured;
use pinpool::{ClassConfig, Error, Heap, LeaseError, ManualFence, Pool, Tag, TryTakeError};

use super::class::Class;
use super::held::{About, Flight, Held, Retired, State};
use super::op::{Kind, Op};
use crate::scripted::{Counted, Ledger};

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
    /// Slots that went into flight.
    pub flights: u64,
    /// Leases that came back from flight.
    pub taken: u64,
    /// Slots lost to a failed fence.
    pub lost: u64,
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
        self.flights += other.flights;
        self.taken += other.taken;
        self.lost += other.lost;
    }
}

pub(super) struct Twin {
    /// The clones. When the last is dropped the pool is gone, but its leases are not.
    pools: Vec<Pool>,
    ledger: Ledger,
    /// Calls into the memory when the pool was open: none is made before it closes.
    calls: u64,
    closed: bool,
    /// Some slot comes home by itself after the close: when is not known.
    returned_late: bool,
    classes: Vec<Class>,
    held: Vec<Held>,
    flights: Vec<Flight>,
    retired: Vec<Retired>,
    tags: [Tag; 2],
    next_owner: u64,
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
        Self {
            calls: ledger.calls_total(),
            tags: TAGS.map(|name| pool.tag(name)),
            pools: vec![pool],
            ledger,
            closed: false,
            returned_late: false,
            classes,
            held: Vec::new(),
            flights: Vec::new(),
            retired: Vec::new(),
            next_owner: 1,
        }
    }

    /// True when the pool is gone or closed, and nobody holds anything.
    pub(super) fn is_over(&self) -> bool {
        (self.pools.is_empty() || self.closed) && self.held.is_empty() && self.flights.is_empty()
    }

    pub(super) fn apply(&mut self, op: Op, totals: &mut Totals) {
        match op.kind {
            Kind::Lease | Kind::LeaseNow | Kind::LeaseTyped => self.lease(op, totals),
            Kind::Impossible => self.impossible(op),
            Kind::Drop => self.drop_one(op),
            Kind::Attach | Kind::Hold => self.depart(op, totals),
            Kind::Complete => self.complete(op),
            Kind::Fail => self.fail(op, totals),
            Kind::Take => self.take(op, totals),
            Kind::Tag => self.tag(op),
            Kind::Stats => self.check_stats(),
            Kind::ClonePool => {
                if let Some(pool) = self.pools.first().filter(|_| self.pools.len() < 4) {
                    self.pools.push(pool.clone());
                }
            }
            Kind::DropPool => self.drop_pool(op),
            Kind::Close => self.close(),
            Kind::SetLen | Kind::Stamp | Kind::Verify | Kind::View | Kind::Cast => {
                if let Some(index) = pick(op.pick, self.held.len()) {
                    self.next_owner += 1;
                    let held = &mut self.held[index];
                    held.touch(op, self.classes[held.about.class].slot_bytes, self.next_owner);
                }
            }
        }
        if !self.closed && !self.pools.is_empty() {
            debug_assert_eq!(self.ledger.calls_total(), self.calls, "{op:?} called the memory");
        }
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
        if op.kind == Kind::LeaseNow && !self.closed && class.is_empty() {
            match leased {
                // Nobody waits where nothing can come home.
                Err(LeaseError::Exhausted(all)) => assert_eq!(all.quarantined, all.slots),
                _ => class.waits += 1,
            }
        }
        match leased {
            Ok(lease) => {
                assert!(!self.closed, "a closed pool leases nothing");
                self.next_owner += 1;
                self.held.push(class.lease(lease, rank, len, self.next_owner));
                totals.leases += 1;
            }
            Err(LeaseError::Closed) => {
                assert!(self.closed);
                totals.refused_closed += 1;
            }
            Err(LeaseError::Exhausted(exhausted) | LeaseError::Timeout { exhausted, .. }) => {
                assert!(!self.closed);
                class.missed(&exhausted);
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

    /// Takes a lease from its holder, who finds its bytes whole.
    fn give_up(&mut self, op: Op) -> Option<Held> {
        let held = self.held.swap_remove(pick(op.pick, self.held.len())?);
        let class = &mut self.classes[held.about.class];
        held.verify(class.slot_bytes);
        class.leased -= 1;
        Some(held)
    }

    fn drop_one(&mut self, op: Op) {
        let Some(held) = self.give_up(op) else { return };
        self.classes[held.about.class].home.push((held.about.slot, held.about.owner));
    }

    /// Sends a lease into flight, and keeps it or not.
    fn depart(&mut self, op: Op, totals: &mut Totals) {
        let Some(Held { lease, about }) = self.give_up(op) else { return };
        totals.flights += 1;
        self.classes[about.class].in_flight += 1;
        let fence = ManualFence::new();
        if op.kind == Kind::Hold {
            let lease = lease.in_flight_until(fence.clone());
            self.flights.push(Flight { lease, about, fence, state: State::Pending });
        } else {
            lease.retire_after(fence.clone());
            self.retired.push(Retired { about, fence });
        }
    }

    /// Ends some work: of a retired slot or of a lease in flight.
    fn complete(&mut self, op: Op) {
        let Some(at) = pick(op.pick, self.retired.len() + self.flights.len()) else { return };
        if at < self.retired.len() {
            let Retired { about, fence } = self.retired.swap_remove(at);
            fence.complete();
            self.returned_late |= self.closed;
            self.classes[about.class].ripen(about);
            return;
        }
        let flight = &mut self.flights[at - self.retired.len()];
        flight.fence.complete();
        if flight.state == State::Pending {
            flight.state = State::Complete;
        }
    }

    fn fail(&mut self, op: Op, totals: &mut Totals) {
        // Each leaves a thread and a mapping behind.
        if totals.lost >= LOST_MAX {
            return;
        }
        let Some(at) = pick(op.pick, self.retired.len() + self.flights.len()) else { return };
        if at < self.retired.len() {
            let Retired { about, fence } = self.retired.swap_remove(at);
            fence.fail("planted");
            self.classes[about.class].dies();
            totals.lost += 1;
            return;
        }
        let flight = &mut self.flights[at - self.retired.len()];
        if flight.state == State::Pending {
            flight.fence.fail("planted");
            flight.state = State::Failed;
            totals.lost += 1;
        }
    }

    /// Asks for a lease in flight back, asks whether it is complete, or drops it.
    fn take(&mut self, op: Op, totals: &mut Totals) {
        let Some(index) = pick(op.pick, self.flights.len()) else { return };
        let Flight { lease: flight, about, fence, state } = self.flights.swap_remove(index);
        match (op.amount / 4 % 8, state) {
            (0, _) => {
                let asked = flight.is_complete().ok();
                let state = match state {
                    State::Pending | State::Failed => state,
                    State::Complete | State::Seen => State::Seen,
                };
                assert_eq!(asked, (state != State::Failed).then_some(state == State::Seen));
                self.flights.push(Flight { lease: flight, about, fence, state });
            }
            (1, _) => {
                drop(flight);
                self.dropped(Retired { about, fence }, state);
            }
            (2, State::Complete | State::Seen) => self.landed(flight.wait(), about, totals),
            (2, State::Failed) => {
                assert!(matches!(flight.wait(), Err(Error::Fence(_))));
                self.classes[about.class].dies();
            }
            _ => match flight.try_take() {
                Err(TryTakeError::Pending(flight)) => {
                    assert_eq!(state, State::Pending);
                    self.flights.push(Flight { lease: flight, about, fence, state });
                }
                Err(TryTakeError::Failed(error)) => {
                    assert!(state == State::Failed && error.to_string().contains("planted"));
                    self.classes[about.class].dies();
                }
                Ok(lease) => self.landed(Ok(lease), about, totals),
            },
        }
    }

    /// A lease in flight was dropped.
    fn dropped(&mut self, retired: Retired, state: State) {
        let class = &mut self.classes[retired.about.class];
        match state {
            State::Pending => self.retired.push(retired),
            State::Complete => {
                self.returned_late |= self.closed;
                class.ripen(retired.about);
            }
            State::Failed => class.dies(),
            // The pool knew that the work was over: this was a plain return.
            State::Seen => {
                class.in_flight -= 1;
                class.landed += 1;
                class.home.push((retired.about.slot, retired.about.owner));
            }
        }
    }

    /// A lease came back from flight.
    fn landed(&mut self, lease: Result<pinpool::Lease, Error>, about: About, totals: &mut Totals) {
        let held = Held { lease: lease.expect("its work is over"), about };
        let class = &mut self.classes[about.class];
        held.verify(class.slot_bytes);
        assert_eq!(held.lease.tag().as_deref(), about.tag.map(|tag| TAGS[tag]), "it keeps its tag");
        class.in_flight -= 1;
        class.landed += 1;
        class.leased += 1;
        totals.taken += 1;
        self.held.push(held);
    }

    fn tag(&mut self, op: Op) {
        let Some(index) = pick(op.pick, self.held.len()) else { return };
        let Held { lease, about } = &mut self.held[index];
        let name = about.tag.map(|tag| TAGS[tag]);
        assert_eq!(lease.tag().as_deref(), name, "the tag is what was set");
        let tag = usize::from(op.amount & 1);
        lease.set_tag(self.tags[tag]);
        about.tag = Some(tag);
    }
}

fn pick(number: u8, len: usize) -> Option<usize> {
    usize::from(number).checked_rem(len)
}

/// Slot sizes to choose from; the smallest is always there. Small, so that every byte is checked.
const SIZES: [usize; 6] = [64, 128, 192, 320, 512, 4096];
/// Names of holders.
const TAGS: [&str; 2] = ["camera", "encoder"];
/// Slots that the sequences of one run may lose.
const LOST_MAX: u64 = 100;
