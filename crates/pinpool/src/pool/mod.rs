//! The pool: opened from a plan, it hands out leases and closes when its last handle goes.

mod devices;
mod lease_future;
mod leasing;
mod many;
mod open;
mod opening;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::class::{ClassRef, Roster};
use crate::clock;
use crate::keeper::Keeper;
use crate::memory::BackendKind;
use crate::plan::Plan;
use crate::process::Home;
use crate::reclaim::Stuck;
use crate::report::{CloseReport, Holder, StartupReport, StuckSlot};
use crate::shared::Shared;
use crate::slab::Course;
use crate::stats::{ClassStats, PoolStats};
use crate::tag::Tag;

use devices::Handle;
pub use lease_future::LeaseFuture;
pub use opening::{OpenCanceller, OpenProgress, Opening, OpeningFuture};

/// A pool of pinned host memory. Cloning it copies a pointer; the clones are one pool, and so are the handles of
/// its other devices ([`Self::on`]).
///
/// Everything is allocated and pinned when the pool opens, but for what classes with `on_empty = "grow"` or
/// `"pageable"` add. From then on leasing and returning make no system call, no allocation and take no
/// lock, unless somebody waits, or a thread finds no free slots but those that another one keeps close
/// at hand: it takes them back with one system call of some microseconds. The pool closes when its last
/// handle is dropped, which waits for no lease and no work; leases stay valid, and each class's memory is
/// unpinned when its last slot comes home.
///
/// A thread that is put aside within the few instructions of a lease or a return holds up a close, the drop
/// of the last clone, and who gets in line, until it runs again; [`Self::lease_timeout`] keeps its deadline
/// all the same. Leases are not for signal handlers: one that interrupts a lease or a return on its own
/// thread would take or give a slot twice.
#[derive(Clone)]
pub struct Pool {
    handle: Arc<Handle>,
}

/// What all handles of a pool share, of whatever device.
struct Core {
    home: Home,
    /// All classes.
    roster: Arc<Roster>,
    shared: Arc<Shared>,
    plan: Arc<Plan>,
    /// The way of its opening.
    course: Arc<Course>,
    /// What is known before it is open.
    beginning: StartupReport,
    /// From when it is open.
    startup: Arc<OnceLock<StartupReport>>,
    /// Taken out by drop only.
    keeper: Option<Keeper>,
}

impl Pool {
    fn core(&self) -> &Core {
        &self.handle.core
    }

    /// The tag of a holder's name, for [`Lease::set_tag`](crate::Lease::set_tag). The same name gives the same tag in every
    /// pool. Names are kept for ever: name the stages of a pipeline, not its frames.
    #[allow(clippy::unused_self, reason = "tags belong to pools in a user's mind")]
    pub fn tag(&self, name: &str) -> Tag {
        Tag::new(name)
    }

    /// Who holds slots now: the longest first where the pool keeps track (`track_holders`). Forgotten
    /// leases are among them. Costs a look at every slot.
    pub fn holders(&self) -> Vec<Holder> {
        // One moment for all, so that their order is that of their leases.
        let now = clock::now();
        let mut holders: Vec<_> = self
            .core()
            .roster
            .iter()
            .flat_map(|class| {
                let held = class.get().held(now).map(|held| Holder::new(class.get().name(), held));
                held.collect::<Vec<_>>()
            })
            .collect();
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.held));
        holders
    }

    /// Gives back what classes have added and nobody uses: grown slabs without a lease, and pageable
    /// buffers. Returns their bytes; a slab that was leased from at the same moment goes once it comes home.
    ///
    /// The pool does so itself after `idle_after`. The slabs that it opened with always stay. Unpinning takes
    /// milliseconds, in the calling thread.
    pub fn trim(&self) -> u64 {
        if !self.core().shared.is_here() {
            return 0;
        }
        let now = clock::now();
        self.core().roster.iter().map(|class| class.trim(now, true)).sum()
    }

    /// The pool's counts now.
    pub fn stats(&self) -> PoolStats {
        let classes: Vec<_> = self.core().roster.iter().map(class_stats).collect();
        let shared = &self.core().shared;
        // Memory is mapped before it is pinned and unmapped after it: more is mapped than is pinned,
        // also while a slab comes or goes.
        let mapped = shared.mapped_bytes();
        let pinned_bytes = shared.budget.used();
        PoolStats {
            backend: self.backend(),
            pinned: self.is_pinned(),
            device_accessible: self.is_device_accessible(),
            pinned_bytes,
            cap_bytes: shared.budget.cap(),
            mapped_bytes: mapped.max(shared.mapped_bytes()),
            stuck_bytes: shared.stuck_bytes(),
            driver_failures: driver_failures(),
            under_pressure: shared.strain.lasts(),
            pressure_total: shared.strain.episodes(),
            pageable_bytes: self
                .core()
                .roster
                .iter()
                .map(|class| class.get().pageable_bytes())
                .sum(),
            classes,
        }
    }

    /// The plan the pool follows.
    pub fn plan(&self) -> &Plan {
        &self.core().plan
    }

    /// How the pool came to its memory; while it opens, what is known of it before.
    pub fn startup(&self) -> &StartupReport {
        self.core().startup.get().unwrap_or(&self.core().beginning)
    }

    /// What the memory is.
    pub fn backend(&self) -> BackendKind {
        self.core().beginning.backend
    }

    /// True when every slab is locked in RAM: not before all are there.
    pub fn is_pinned(&self) -> bool {
        self.startup().pinned
    }

    /// True when a GPU can reach the memory.
    pub fn is_device_accessible(&self) -> bool {
        let roster = &self.core().roster;
        roster.is_full() && roster.iter().all(|class| class.get().is_device_accessible())
    }

    /// Closes the pool for all its handles: waiters wake with [`LeaseError::Closed`](crate::LeaseError::Closed), no lease
    /// succeeds any more, live leases stay valid. Waits up to `timeout` for them and for work in flight,
    /// and for the memory to be given back, then reports what is still out. Nobody waits for quarantined
    /// slots, which never come home. May be called again.
    ///
    /// A pool that is still opening stops doing so, and gives back what it has.
    ///
    /// A slot that was handed to a task which has not fetched it yet is taken back: the task is told
    /// [`LeaseError::Closed`](crate::LeaseError::Closed).
    ///
    /// Once everything is home the pool's background thread has ended, too, unless a fence or a waker of
    /// the caller's keeps it busy. In a forked child this does nothing: the pool is the parent's.
    pub fn close(&self, timeout: Duration) -> CloseReport {
        let core = self.core();
        if !core.shared.is_here() {
            let slabs_left = core.roster.iter().count();
            let (still_out, in_flight) = (Vec::new(), Vec::new());
            return CloseReport {
                still_out,
                holders: Vec::new(),
                in_flight,
                quarantined: 0,
                slabs_left,
                stuck_bytes: 0,
            };
        }
        let slabs_left = core.close(timeout);
        let still_out =
            core.roster.iter().map(|class| (class.get().name(), class.get().still_out()));
        let still_out = still_out.filter(|(_, slots)| *slots > 0).collect();
        let mut in_flight: Vec<_> = core
            .roster
            .iter()
            .flat_map(|class| {
                let name = class.get().name();
                class.stuck().into_iter().map(move |stuck| (name, stuck))
            })
            .map(|(class, Stuck { slot, age })| StuckSlot { class, slot, age })
            .collect();
        in_flight.sort_by_key(|stuck| std::cmp::Reverse(stuck.age));
        let lost = core.roster.iter().map(|class| u64::from(class.get().census().quarantined));
        CloseReport {
            still_out,
            holders: self.holders(),
            in_flight,
            quarantined: lost.sum(),
            slabs_left,
            stuck_bytes: core.shared.stuck_bytes(),
        }
    }
}

impl Core {
    /// Closes every class and waits up to `timeout` for all slabs to be given back. Returns how many
    /// are left.
    fn close(&self, timeout: Duration) -> usize {
        let now = clock::now();
        // An opening ends at its next step, and no class comes any more.
        self.course.cancel();
        self.roster.close();
        for class in self.roster.iter().rev() {
            class.close();
        }
        // A quarantined slot never comes home: nobody waits for it, nor for its slab.
        let lasting = || self.roster.iter().map(|class| class.get().lasting_slabs()).sum();
        let slabs_left = self.shared.wait_all_home(timeout, lasting);
        let is_done = |class: ClassRef| class.get().is_done();
        if self.roster.is_settled() && self.roster.iter().all(is_done) {
            // It ends at once, unless it runs foreign code.
            let until = now.checked_add(timeout.max(JOIN_WAIT));
            self.keeper.iter().for_each(|keeper| keeper.join(until));
        }
        slabs_left
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if !self.shared.is_here() {
            // The parent's: its memory is not here, and its locks may be held by threads that are not.
            // The number of its keeper's thread may be another's by now.
            std::mem::forget(self.keeper.take());
            return;
        }
        // What is out, or in flight, keeps its memory and the keeper until it is home.
        self.close(Duration::ZERO);
        for class in self.roster.iter().rev() {
            class.drop_reference();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("backend", &self.backend())
            .field("device", &self.device())
            .field("classes", &self.core().plan.classes.len())
            .field("bytes", &self.core().plan.total_bytes)
            .finish_non_exhaustive()
    }
}

fn class_stats(class: ClassRef) -> ClassStats {
    let class = class.get();
    // First: it takes the lock under which slots come home, so that none is half counted.
    let oldest_in_flight = class.oldest_in_flight();
    let (census, high_water) = class.sampled();
    let events = class.events();
    ClassStats {
        id: class.id(),
        name: class.name(),
        size: class.size(),
        slot_bytes: class.slot_bytes(),
        slots: census.slots,
        grown: class.added_slots(),
        pageable: class.pageable_out(),
        free: census.free,
        reserved: class.reserved().min(census.free),
        leased: census.leased,
        in_flight: census.in_flight,
        quarantined: census.quarantined,
        waiting: class.waiting(),
        oldest_in_flight,
        high_water,
        leases_total: class.leases_total(),
        landed_total: class.landed_total(),
        misses_total: class.misses_total(),
        waits_total: events.waits,
        timeouts_total: events.timeouts,
        cancelled_total: events.cancelled,
        waited_total: events.waited,
        longest_wait: events.longest_wait,
        spilled_total: events.spilled,
        pageable_total: events.pageable,
        grown_total: events.grown,
        grow_failures_total: events.grow_failures,
        trimmed_total: events.trimmed,
        leaks_total: events.leaks,
        overruns_total: events.overruns,
        late_writes_total: events.late_writes,
        stale_returns_total: class.stale_returns_total(),
    }
}

#[cfg(feature = "cuda")]
fn driver_failures() -> usize {
    crate::cuda::noted_failures()
}

#[cfg(not(feature = "cuda"))]
fn driver_failures() -> usize {
    0
}

/// Enough for a thread that has nothing to do to end, whatever the timeout.
const JOIN_WAIT: Duration = Duration::from_millis(100);
