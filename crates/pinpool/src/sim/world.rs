//! One pool in a world of one thread and a virtual clock, with its holders, tasks and streams.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use super::fence::{Mark, Stream};
use super::memory::Pages;
use super::options::Options;
use super::rng::Rng;
use super::shadow::{Place, Shadow};
use crate::class::{Roster, Taken};
use crate::clock;
use crate::error::Error;
use crate::in_flight::{InFlight, Landing};
use crate::keeper::{Keeper, Next, Rounds};
use crate::lease::Lease;
use crate::memory::PageLock;
use crate::pool::{LeaseFuture, Pool};
use crate::shared::Shared;
use crate::shared_lease::SharedLease;
use crate::sync::{AtomicU32, Ordering};

/// Everything that there is.
pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) options: Options,
    pub(super) start: Instant,
    /// `None` once it was dropped.
    pub(super) pool: Option<Pool>,
    pub(super) shared: Arc<Shared>,
    pub(super) memory: Arc<Pages>,
    pub(super) rounds: Option<Rounds>,
    pub(super) next: Next,
    pub(super) classes: Vec<Shadow>,
    pub(super) held: Vec<Lease>,
    pub(super) flights: Vec<InFlight>,
    pub(super) landings: Vec<Awaited>,
    pub(super) shares: Vec<(Taken, Vec<SharedLease>)>,
    /// Leases that were forgotten.
    pub(super) forgotten: Vec<(usize, Taken)>,
    pub(super) tasks: Vec<Task>,
    pub(super) streams: Vec<Stream>,
    /// Owners and tasks so far.
    pub(super) owners: u64,
    pub(super) places: u64,
    /// When the keeper last looked for leaks.
    pub(super) looked: u64,
    pub(super) closed: bool,
    /// Classes that the last step may have changed, as bits.
    pub(super) touched: u64,
}

/// A task that waits for a lease.
pub(super) struct Task {
    pub(super) future: LeaseFuture,
    pub(super) bell: Arc<Woken>,
    pub(super) class: usize,
    pub(super) urgent: bool,
    /// Its place in the order of coming.
    pub(super) place: u64,
    pub(super) deadline: u64,
    /// Its wake-up was seen by the audit.
    pub(super) seen: bool,
    /// It came in the last step.
    pub(super) fresh: bool,
}

/// A task that waits for its work.
pub(super) struct Awaited {
    pub(super) landing: Landing,
    pub(super) bell: Arc<Woken>,
    pub(super) class: usize,
    pub(super) taken: Taken,
    /// It waits for the last of its marks.
    pub(super) polled: bool,
}

/// Counts wake-ups.
#[derive(Debug, Default)]
pub(super) struct Woken(AtomicU32);

impl Woken {
    pub(super) fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Polls once.
pub(super) fn poll<F: Future + Unpin>(future: &mut F, bell: &Arc<Woken>) -> Option<F::Output> {
    let waker = Waker::from(Arc::clone(bell));
    match Pin::new(future).poll(&mut Context::from_waker(&waker)) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

impl World {
    /// Opens a pool as the seed says. `Err` if its memory failed, with the books checked.
    pub(super) fn open(mut rng: Rng) -> Result<Self, Error> {
        let start = clock::simulated::stand_still();
        let options = Options::new(&mut rng)?;
        crate::free_list::set_home(0);
        let memory = Arc::new(Pages::new(rng.clone()));
        if rng.chance(30) {
            memory.look(|books| books.rates = options.memory_faults);
        }
        let mut kept = None;
        let keep = |roster: Arc<Roster>, shared: Arc<Shared>, leak_after| {
            kept = Some((
                Arc::clone(&roster),
                Rounds::new(roster, Arc::clone(&shared), leak_after),
                shared,
            ));
            Ok(Keeper::by_hand())
        };
        let pages: Arc<dyn PageLock> = Arc::clone(&memory) as _;
        let opened = Pool::open_kept(options.plan.clone(), Some(pages), options.spread, keep);
        let Some((roster, rounds, shared)) = kept else { unreachable!("a pool has a keeper") };
        let pool = match opened {
            Ok(pool) => pool,
            Err(error) => {
                rounds.end();
                memory.look(|books| {
                    assert_eq!(books.wrong, None);
                    assert!(
                        books.mapped == 0 || books.stuck > 0,
                        "a failed opening left memory behind"
                    );
                });
                memory.clear();
                return Err(error);
            }
        };
        memory.look(|books| books.rates = options.memory_faults);
        let plans = options.plan.classes.iter().cloned();
        let classes = roster.iter().zip(plans).map(|(class, plan)| Shadow::new(class, plan));
        Ok(Self {
            start,
            shared,
            memory,
            rounds: Some(rounds),
            next: Next::Again,
            classes: classes.collect(),
            held: Vec::new(),
            flights: Vec::new(),
            landings: Vec::new(),
            shares: Vec::new(),
            forgotten: Vec::new(),
            tasks: Vec::new(),
            streams: (0..4).map(Stream::named).collect(),
            owners: 0,
            places: 0,
            looked: 0,
            closed: false,
            touched: u64::MAX,
            pool: Some(pool),
            options,
            rng,
        })
    }

    /// The world's time in nanoseconds.
    #[allow(clippy::cast_possible_truncation, reason = "a world lasts minutes")]
    pub(super) fn now(&self) -> u64 {
        clock::elapsed(self.start).as_nanos() as u64
    }

    /// One round of the keeper, after its pause. False if it sleeps, and nothing wakes it.
    pub(super) fn keep(&mut self) -> bool {
        let Some(rounds) = &mut self.rounds else { return false };
        if self.next == Next::SleepUntilRung(None) && !self.shared.bell.is_rung() {
            return false;
        }
        self.touched = u64::MAX;
        rounds.rest(self.next);
        let open = !self.closed;
        let now = self.now();
        let Some(rounds) = &mut self.rounds else { return false };
        self.next = rounds.turn();
        if open {
            self.expect_leaks(now);
        }
        self.audit_round();
        if self.next == Next::End {
            self.rounds.take().into_iter().for_each(Rounds::end);
        }
        true
    }

    /// The leaks that a round at this time tells of.
    fn expect_leaks(&mut self, now: u64) {
        let Some(after) = self.options.plan.config.leak_after else { return };
        let interval = (after / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
        let (after, interval) = (nanos(after), nanos(interval));
        if now - self.looked < interval {
            return;
        }
        self.looked = now;
        for shadow in &mut self.classes {
            for slot in &mut shadow.slots {
                let held = matches!(slot.place, Place::Out | Place::Flying);
                if held && !slot.told && now - slot.leased_at >= after {
                    slot.told = true;
                    shadow.counted.leaks += 1;
                }
            }
        }
    }

    /// What the shadow knows of a slot's marks once its holder has asked: `None` for work that is not
    /// over, `Some(false)` for work that failed. Complete marks are taken off as the pool does.
    pub(super) fn settle(&mut self, class: usize, slot: u32) -> Option<bool> {
        let now = self.now();
        let marks = &mut self.classes[class].slots[slot as usize].marks;
        while let Some(last) = marks.last() {
            if !last.is_over(now) {
                return None;
            }
            if last.fails() {
                return Some(false);
            }
            marks.pop();
        }
        Some(true)
    }

    /// The pool, while it is not dropped.
    pub(super) fn pool(&self) -> &Pool {
        self.pool.as_ref().unwrap()
    }

    /// Marks of one slot.
    pub(super) fn marks(&mut self, class: usize, slot: u32) -> &mut Vec<Arc<Mark>> {
        &mut self.classes[class].slots[slot as usize].marks
    }
}

#[allow(clippy::cast_possible_truncation, reason = "durations of the simulator are short")]
pub(super) fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}
