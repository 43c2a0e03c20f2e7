//! The pool: opened from a plan, it hands out leases and closes when its last handle goes.

mod lease_future;
mod leasing;
mod many;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::backend;
use crate::class::{ClassRef, Making, Slots, Spread};
use crate::clock;
use crate::config::PoolConfig;
use crate::error::Error;
use crate::foreign::tell;
use crate::keeper::Keeper;
use crate::memory::limits::locked_now;
use crate::memory::{BackendKind, Memlock, MemoryCause, MemoryError, PageLock};
use crate::plan::{ClassPlan, Plan};
use crate::process::Home;
use crate::reclaim::Stuck;
use crate::report::{CloseReport, Holder, SlabReport, StartupReport, StuckSlot};
use crate::shared::{Shared, Terms};
use crate::size_class::{ClassId, SizeTable};
use crate::slab::{Slab, SlabFailure, SlabSize, StartupTimes};
use crate::stats::{ClassStats, PoolStats};
use crate::tag::Tag;

pub use lease_future::LeaseFuture;

/// A pool of pinned host memory. Cloning it copies a pointer; the clones are one pool.
///
/// Everything is allocated and pinned when the pool opens, but for what classes with `on_empty = "grow"` or
/// `"pageable"` add. From then on leasing and returning make no system call, no allocation and take no
/// lock, unless somebody waits, or a thread finds no free slots but those that another one keeps close
/// at hand: it takes them back with one system call of some microseconds. The pool closes when its last
/// clone is dropped, which waits for no lease and no work; leases stay valid, and each class's memory is
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

/// What all clones of a pool share.
struct Handle {
    /// Beside what every lease reads.
    home: Home,
    sizes: SizeTable,
    classes: Box<[ClassRef]>,
    shared: Arc<Shared>,
    plan: Plan,
    startup: StartupReport,
    /// Taken out by drop only.
    keeper: Option<Keeper>,
}

impl Pool {
    /// Opens a pool as planned, on the given memory or on the configured backend.
    pub(crate) fn open_plan(plan: Plan, memory: Option<Arc<dyn PageLock>>) -> Result<Self, Error> {
        Self::open_kept(plan, memory, Spread::over_processors(), Keeper::start)
    }

    /// As [`Self::open_plan`], with free slots so spread and the keeper that `start` gives,
    /// which is told the classes, what all share, and what counts as a leak.
    pub(crate) fn open_kept(
        plan: Plan,
        memory: Option<Arc<dyn PageLock>>,
        spread: Spread,
        start: impl FnOnce(Box<[ClassRef]>, Arc<Shared>, Option<Duration>) -> io::Result<Keeper>,
    ) -> Result<Self, Error> {
        let began = clock::now();
        let chosen = match memory {
            Some(memory) => backend::Chosen::given(memory),
            None => backend::choose(&plan.config)?,
        };
        let home = Home::here().map_err(Error::Mark)?;
        let shared = Arc::new(Shared::new(chosen.memory, terms(&plan), home));
        admit(&plan, &shared)?;
        let mut times = StartupTimes::default();
        let making = Making {
            pins: plan.pinned_bytes > 0,
            threads: plan.config.prefault_threads,
            tracks: plan.config.track_holders,
        };
        let mut records = Vec::with_capacity(plan.classes.len());
        for class in &plan.classes {
            let failed = |error| SlabFailure { error, pinned: 0 };
            let slots = Slots::new(class, making, spread).map_err(failed);
            records.push(slots.map_err(|failure| explain(failure, class, &plan, &shared))?);
        }
        let mut slabs = Vec::with_capacity(plan.classes.len());
        for class in &plan.classes {
            // A failure drops the slabs made so far, the latest first.
            let size = SlabSize { bytes: class.slab_bytes, chunk_bytes: class.chunk_bytes };
            match Slab::open(size, making.pins, making.threads, &shared, &mut times) {
                Ok(slab) => slabs.push(slab),
                Err(error) => {
                    let error = explain(error, class, &plan, &shared);
                    while slabs.pop().is_some() {}
                    return Err(error);
                }
            }
        }
        let pinned = slabs.iter().all(Slab::is_locked);
        let startup = StartupReport {
            backend: shared.memory.kind(),
            reason: chosen.reason,
            pinned,
            slabs: SlabReport::of_all(&plan.classes, &slabs),
            notes: chosen.notes,
            times,
            total: clock::elapsed(began),
        };
        let sizes: Vec<_> = plan.classes.iter().map(|class| class.slot_bytes).collect();
        let classes: Box<[ClassRef]> = plan
            .classes
            .iter()
            .zip(slabs)
            .zip(records)
            .zip(0u8..)
            .map(|(((class, slab), slots), id)| {
                ClassRef::new(ClassId(id), class, making, slab, slots)
            })
            .collect();
        let leak_after = plan.config.leak_after;
        let started = start(classes.clone(), Arc::clone(&shared), leak_after);
        let keeper = started.map_err(|error| {
            for class in classes.iter().rev() {
                class.close();
                // The keeper's reference and the handle's.
                class.drop_reference();
                class.drop_reference();
            }
            Error::Keeper(error)
        })?;
        announce(&plan, &startup);
        let (sizes, keeper) = (SizeTable::new(&sizes), Some(keeper));
        Ok(Self {
            handle: Arc::new(Handle { home, sizes, classes, shared, plan, startup, keeper }),
        })
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
            .handle
            .classes
            .iter()
            .flat_map(|class| {
                class.get().held(now).map(|held| Holder::new(class.get().name(), held))
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
        if !self.handle.shared.is_here() {
            return 0;
        }
        let now = clock::now();
        self.handle.classes.iter().map(|class| class.trim(now, true)).sum()
    }

    /// The pool's counts now.
    pub fn stats(&self) -> PoolStats {
        let classes = self.handle.classes.iter().copied();
        let classes: Vec<_> = classes.map(class_stats).collect();
        let shared = &self.handle.shared;
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
                .handle
                .classes
                .iter()
                .map(|class| class.get().pageable_bytes())
                .sum(),
            classes,
        }
    }

    /// The plan the pool follows.
    pub fn plan(&self) -> &Plan {
        &self.handle.plan
    }

    /// How the pool came to its memory.
    pub fn startup(&self) -> &StartupReport {
        &self.handle.startup
    }

    /// What the memory is.
    pub fn backend(&self) -> BackendKind {
        self.handle.startup.backend
    }

    /// True when every slab is locked in RAM.
    pub fn is_pinned(&self) -> bool {
        self.handle.startup.pinned
    }

    /// True when a GPU can reach the memory.
    pub fn is_device_accessible(&self) -> bool {
        self.handle.classes.iter().all(|class| class.get().is_device_accessible())
    }

    /// The CUDA context that the memory is pinned for, on the cuda backend.
    #[cfg(feature = "cuda")]
    pub fn cuda_context(&self) -> Option<&Arc<cudarc::driver::CudaContext>> {
        Some(crate::cuda::CudaPages::of(&*self.handle.shared.memory)?.context())
    }

    /// Closes the pool for all its clones: waiters wake with [`LeaseError::Closed`](crate::LeaseError::Closed), no lease
    /// succeeds any more, live leases stay valid. Waits up to `timeout` for them and for work in flight,
    /// and for the memory to be given back, then reports what is still out. Nobody waits for quarantined
    /// slots, which never come home. May be called again.
    ///
    /// A slot that was handed to a task which has not fetched it yet is taken back: the task is told
    /// [`LeaseError::Closed`](crate::LeaseError::Closed).
    ///
    /// Once everything is home the pool's background thread has ended, too, unless a fence or a waker of
    /// the caller's keeps it busy. In a forked child this does nothing: the pool is the parent's.
    pub fn close(&self, timeout: Duration) -> CloseReport {
        let handle = &*self.handle;
        if !handle.shared.is_here() {
            let slabs_left = handle.classes.len();
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
        let slabs_left = handle.close(timeout);
        let still_out =
            handle.classes.iter().map(|class| (class.get().name(), class.get().still_out()));
        let still_out = still_out.filter(|(_, slots)| *slots > 0).collect();
        let mut in_flight: Vec<_> = handle
            .classes
            .iter()
            .flat_map(|class| class.stuck().into_iter().map(|stuck| (class.get().name(), stuck)))
            .map(|(class, Stuck { slot, age })| StuckSlot { class, slot, age })
            .collect();
        in_flight.sort_by_key(|stuck| std::cmp::Reverse(stuck.age));
        let lost = handle.classes.iter().map(|class| u64::from(class.get().census().quarantined));
        CloseReport {
            still_out,
            holders: self.holders(),
            in_flight,
            quarantined: lost.sum(),
            slabs_left,
            stuck_bytes: handle.shared.stuck_bytes(),
        }
    }
}

impl Handle {
    /// Closes every class and waits up to `timeout` for all slabs to be given back. Returns how many
    /// are left.
    fn close(&self, timeout: Duration) -> usize {
        let now = clock::now();
        for class in self.classes.iter().rev() {
            class.close();
        }
        // A quarantined slot never comes home: nobody waits for it, nor for its slab.
        let lasting = || self.classes.iter().map(|class| class.get().lasting_slabs()).sum();
        let slabs_left = self.shared.wait_all_home(timeout, lasting);
        if self.classes.iter().all(|class| class.get().is_done()) {
            // It ends at once, unless it runs foreign code.
            let until = now.checked_add(timeout.max(JOIN_WAIT));
            self.keeper.iter().for_each(|keeper| keeper.join(until));
        }
        slabs_left
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.shared.is_here() {
            // The parent's: its memory is not here, and its locks may be held by threads that are not.
            // The number of its keeper's thread may be another's by now.
            std::mem::forget(self.keeper.take());
            return;
        }
        // What is out, or in flight, keeps its memory and the keeper until it is home.
        self.close(Duration::ZERO);
        for class in self.classes.iter().rev() {
            class.drop_reference();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("backend", &self.backend())
            .field("classes", &self.handle.plan.classes.len())
            .field("bytes", &self.handle.plan.total_bytes)
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

fn terms(plan: &Plan) -> Terms {
    let PoolConfig { keep_free, on_pressure, .. } = plan.config;
    Terms { cap: plan.cap_bytes(), keep_free, on_pressure }
}

/// Refuses a plan that the system's limits have no room for, before anything is mapped.
fn admit(plan: &Plan, shared: &Shared) -> Result<(), Error> {
    let entered = shared.enter(plan.total_bytes, plan.pinned_bytes > 0);
    entered.map_err(|source| match source.cause {
        MemoryCause::NoRoom(headroom) if !headroom.is_memlock() => {
            Error::NoRoom { needed: plan.total_bytes, taken: 0, headroom }
        }
        _ => over_memlock(plan, 0, locked_now(), source),
    })
}

fn over_memlock(plan: &Plan, already: u64, elsewhere: u64, source: MemoryError) -> Error {
    let Memlock { soft, hard } = Memlock::read();
    let (needed, source) = (plan.pinned_bytes, Box::new(source));
    Error::MemlockLimit { needed, already, elsewhere, soft, hard, source }
}

/// Turns a failed step into an error that names the limit and the remedy.
fn explain(failure: SlabFailure, class: &ClassPlan, plan: &Plan, shared: &Shared) -> Error {
    let SlabFailure { error: source, pinned } = failure;
    // The failing slab is undone by now; earlier ones still hold their share.
    let elsewhere = locked_now().saturating_sub(shared.budget.used());
    let soft = Memlock::read().soft;
    let limited = soft.is_some_and(|soft| soft < plan.pinned_bytes.saturating_add(elsewhere));
    if shared.memory.kind() == BackendKind::Host && source.is_lock_limit() && limited {
        return over_memlock(plan, pinned, elsewhere, source);
    }
    match source.cause {
        MemoryCause::NotHuge { .. } => {
            let slabs = plan.classes.iter().map(|class| class.slab_bytes as u64);
            Error::not_huge(class.name.clone(), slabs, source)
        }
        MemoryCause::NoRoom(headroom) if !headroom.is_memlock() => {
            Error::NoRoom { needed: plan.total_bytes, taken: shared.mapped_bytes(), headroom }
        }
        _ => Error::Memory { class: class.name.clone(), pinned, total: plan.total_bytes, source },
    }
}

fn announce(plan: &Plan, startup: &StartupReport) {
    tell!(info,
        backend = %startup.backend,
        reason = startup.reason,
        bytes = plan.total_bytes,
        pinned = startup.pinned,
        slabs = startup.slabs_line(),
        config = ?plan.config,
        elapsed = ?startup.total,
        "pool open"
    );
    for note in &plan.notes {
        tell!(info, note, "rounded");
    }
    for note in &startup.notes {
        tell!(warn, note, "not as asked for");
    }
    if !startup.pinned && plan.pinned_bytes > 0 {
        tell!(
            warn,
            "the pool is open but its memory is not locked: {}; raise the limit or accept page faults",
            Memlock::read()
        );
    }
}

/// Enough for a thread that has nothing to do to end, whatever the timeout.
const JOIN_WAIT: Duration = Duration::from_millis(100);

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests;
