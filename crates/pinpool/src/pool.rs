//! The pool: opened from a plan, it hands out leases and closes when its last handle goes.

use std::fmt;
use std::mem::size_of;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use bytemuck::Pod;

use crate::backend;
use crate::class::{ClassRef, Making, Slots, Waiting};
use crate::error::{Error, LeaseError};
use crate::keeper::Keeper;
use crate::lease::Lease;
use crate::lease_future::LeaseFuture;
use crate::memory::limits::locked_now;
use crate::memory::{BackendKind, Memlock, PageLock};
use crate::plan::{ClassPlan, Plan};
use crate::process::Home;
use crate::reclaim::Stuck;
use crate::report::{CloseReport, Holder, StartupReport, StuckSlot};
use crate::shared::Shared;
use crate::size_class::{ClassId, SizeTable};
use crate::slab::{Slab, SlabFailure, SlabSize, StartupTimes};
use crate::stats::{ClassStats, PoolStats};
use crate::tag::Tag;

/// A pool of pinned host memory. Cloning it copies a pointer; the clones are one pool.
///
/// Everything is allocated and pinned when the pool opens. From then on leasing and returning make
/// no system call, no allocation and take no lock. The pool closes when its last clone is dropped;
/// leases stay valid, and each class's memory is unpinned when its last slot comes home.
#[derive(Clone)]
pub struct Pool {
    handle: Arc<Handle>,
}

/// What all clones of a pool share.
struct Handle {
    sizes: SizeTable,
    classes: Box<[ClassRef]>,
    shared: Arc<Shared>,
    plan: Plan,
    startup: StartupReport,
    keeper: Keeper,
}

impl Pool {
    /// Opens a pool as planned, on the given memory or on the configured backend.
    pub(crate) fn open_plan(plan: Plan, memory: Option<Arc<dyn PageLock>>) -> Result<Self, Error> {
        let start = Instant::now();
        let chosen = match memory {
            Some(memory) => backend::Chosen { memory, reason: "given by the caller".into() },
            None => backend::choose(&plan.config)?,
        };
        let home = Home::here().map_err(Error::Mark)?;
        let shared = Arc::new(Shared::new(chosen.memory, plan.cap_bytes(), home));
        let mut times = StartupTimes::default();
        let mut records = Vec::with_capacity(plan.classes.len());
        for class in &plan.classes {
            let failed = |error| SlabFailure { error, pinned: 0 };
            let slots = Slots::new(class).map_err(failed);
            records.push(slots.map_err(|failure| explain(failure, class, &plan, &shared))?);
        }
        let making = Making {
            pins: plan.pinned_bytes > 0,
            threads: plan.config.prefault_threads,
            tracks: plan.config.track_holders,
        };
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
            times,
            total: start.elapsed(),
        };
        let sizes = plan.classes.iter().map(|class| class.slot_bytes).collect();
        let classes: Box<[ClassRef]> = plan
            .classes
            .iter()
            .zip(slabs)
            .zip(records)
            .zip(0u8..)
            .map(|(((class, slab), slots), id)| ClassRef::new(ClassId(id), class, making, slab, slots))
            .collect();
        let leak_after = plan.config.leak_after;
        let started = Keeper::start(classes.clone(), Arc::clone(&shared), leak_after);
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
        let sizes = SizeTable::new(sizes);
        Ok(Self { handle: Arc::new(Handle { sizes, classes, shared, plan, startup, keeper }) })
    }

    /// Leases `len` bytes of the smallest class that holds them, if a slot is free. Never waits.
    ///
    /// If none is, a larger class's slot (`max_spill`) or a pageable buffer (`on_empty = "pageable"`) may stand in,
    /// where the class says so.
    ///
    /// # Errors
    ///
    /// [`LeaseError::ZeroLen`], [`LeaseError::TooLarge`], [`LeaseError::Exhausted`],
    /// [`LeaseError::Closed`] or [`LeaseError::Forked`].
    #[inline]
    pub fn try_lease(&self, len: usize) -> Result<Lease, LeaseError> {
        self.try_ranked(len, false)
    }

    /// As [`Self::try_lease`], for the few leases that must not fail: they may have the class's `reserve`
    /// as well.
    ///
    /// # Errors
    ///
    /// As [`Self::try_lease`].
    pub fn try_lease_priority(&self, len: usize) -> Result<Lease, LeaseError> {
        self.try_ranked(len, true)
    }

    /// Leases `len` bytes, waiting for a slot as long as it takes.
    ///
    /// Waiters of a class, threads and tasks alike, are served first come first served: a returned slot is handed to the
    /// first in line, and nobody who comes later, `try_lease` included, can be given it. With
    /// `on_empty = "fail"` nobody waits.
    ///
    /// A thread that holds every slot of the class and asks for one more waits for itself: see
    /// [`Self::lease_many`] for the rule, and use [`Self::lease_timeout`] where it can happen.
    ///
    /// # Errors
    ///
    /// As [`Self::try_lease`], but `Exhausted` only when no slot will come back (all are quarantined) or
    /// with `on_empty = "fail"`.
    pub fn lease(&self, len: usize) -> Result<Lease, LeaseError> {
        self.wait_ranked(len, false, Instant::now(), None)
    }

    /// As [`Self::lease`], for the few leases that must not fail: they may have the class's `reserve` as
    /// well, and stand in line before all others.
    ///
    /// # Errors
    ///
    /// As [`Self::lease`].
    pub fn lease_priority(&self, len: usize) -> Result<Lease, LeaseError> {
        self.wait_ranked(len, true, Instant::now(), None)
    }

    /// Leases `len` bytes, waiting at most `timeout` for a slot. A zero timeout looks once.
    ///
    /// # Errors
    ///
    /// As [`Self::lease`], and [`LeaseError::Timeout`].
    pub fn lease_timeout(&self, len: usize, timeout: Duration) -> Result<Lease, LeaseError> {
        let now = Instant::now();
        // A timeout past the end of the clock is no timeout.
        self.wait_ranked(len, false, now, now.checked_add(timeout))
    }

    /// Leases `len` bytes, waiting for a slot until `deadline`. One in the past looks once.
    ///
    /// # Errors
    ///
    /// As [`Self::lease_timeout`].
    pub fn lease_deadline(&self, len: usize, deadline: Instant) -> Result<Lease, LeaseError> {
        self.wait_ranked(len, false, Instant::now(), Some(deadline))
    }

    /// As [`Self::lease_timeout`], with the priority of [`Self::lease_priority`].
    ///
    /// # Errors
    ///
    /// As [`Self::lease_timeout`].
    pub fn lease_priority_timeout(
        &self,
        len: usize,
        timeout: Duration,
    ) -> Result<Lease, LeaseError> {
        let now = Instant::now();
        self.wait_ranked(len, true, now, now.checked_add(timeout))
    }

    /// Leases `len` bytes in a task, which stands in the same line as threads. Any executor will do.
    ///
    /// Dropping the future leaves the line, and hands on a slot that it was given meanwhile. Nothing
    /// happens before the future is first polled. While it waits it keeps the pool open.
    #[must_use = "a future does nothing until it is awaited"]
    pub fn lease_async(&self, len: usize) -> LeaseFuture {
        LeaseFuture::new(self.clone(), len, false)
    }

    /// As [`Self::lease_async`], with the priority of [`Self::lease_priority`].
    #[must_use = "a future does nothing until it is awaited"]
    pub fn lease_priority_async(&self, len: usize) -> LeaseFuture {
        LeaseFuture::new(self.clone(), len, true)
    }

    #[inline]
    fn try_ranked(&self, len: usize, urgent: bool) -> Result<Lease, LeaseError> {
        let class = self.class_for(len)?;
        match class.try_pinned(urgent)? {
            Some(taken) => Ok(Lease::new(class, taken, len)),
            None => self.stand_in(class, len).ok_or_else(|| class.get().miss()),
        }
    }

    fn wait_ranked(
        &self,
        len: usize,
        urgent: bool,
        since: Instant,
        deadline: Option<Instant>,
    ) -> Result<Lease, LeaseError> {
        match self.try_ranked(len, urgent) {
            Err(LeaseError::Exhausted(exhausted)) => {
                let class = self.class_for(len)?;
                if !class.get().waits() {
                    return Err(LeaseError::Exhausted(exhausted));
                }
                class.wait(urgent, since, deadline).map(|taken| Lease::new(class, taken, len))
            }
            settled => settled,
        }
    }

    /// A slot of a larger class, or a pageable buffer, for an empty class that may use one.
    #[cold]
    fn stand_in(&self, class: ClassRef, len: usize) -> Option<Lease> {
        let most = class.get().spill_bytes();
        let larger = self.handle.classes[class.get().id().index() + 1..].iter();
        for other in larger.take_while(|other| other.get().slot_bytes() <= most) {
            if let Ok(Some(taken)) = other.try_pinned(false) {
                class.get().count_spill();
                return Some(Lease::new(*other, taken, len));
            }
        }
        class.try_pageable().map(|taken| Lease::new(class, taken, len))
    }

    /// One step of a task that wants a lease: the lease, or its place in line.
    pub(crate) fn begin_wait(
        &self,
        len: usize,
        urgent: bool,
        waker: &Waker,
    ) -> Result<(ClassRef, Waiting), Result<Lease, LeaseError>> {
        match self.try_ranked(len, urgent) {
            Err(LeaseError::Exhausted(exhausted)) => {
                let class = self.class_for(len).map_err(Err)?;
                if !class.get().waits() {
                    return Err(Err(LeaseError::Exhausted(exhausted)));
                }
                let waiting = class.wait_async(urgent, waker);
                let lease = |taken| Lease::new(class, taken, len);
                waiting.map(|waiting| (class, waiting)).map_err(|taken| taken.map(lease))
            }
            settled => Err(settled),
        }
    }

    /// Leases `count` elements of `T`, as [`Self::try_lease`] leases bytes.
    ///
    /// # Errors
    ///
    /// As [`Self::try_lease`], and [`LeaseError::Misaligned`] when the class's slots are not aligned
    /// to `T`, which takes a `T` aligned to more than 64 bytes.
    pub fn try_lease_of<T: Pod>(&self, count: usize) -> Result<Lease<T>, LeaseError> {
        typed(self.try_lease(self.bytes_of::<T>(count)?)?)
    }

    /// Leases `count` elements of `T`, as [`Self::lease`] leases bytes.
    ///
    /// # Errors
    ///
    /// As [`Self::lease`] and [`Self::try_lease_of`].
    pub fn lease_of<T: Pod>(&self, count: usize) -> Result<Lease<T>, LeaseError> {
        typed(self.lease(self.bytes_of::<T>(count)?)?)
    }

    /// Leases `count` elements of `T`, as [`Self::lease_timeout`] leases bytes.
    ///
    /// # Errors
    ///
    /// As [`Self::lease_timeout`] and [`Self::try_lease_of`].
    pub fn lease_timeout_of<T: Pod>(
        &self,
        count: usize,
        timeout: Duration,
    ) -> Result<Lease<T>, LeaseError> {
        typed(self.lease_timeout(self.bytes_of::<T>(count)?, timeout)?)
    }

    #[inline]
    fn class_for(&self, len: usize) -> Result<ClassRef, LeaseError> {
        if len == 0 {
            return Err(LeaseError::ZeroLen);
        }
        if !self.handle.shared.is_here() {
            return Err(LeaseError::Forked);
        }
        match self.handle.sizes.class_for(len) {
            Some(id) => Ok(self.handle.classes[id.index()]),
            None => Err(self.too_large(len)),
        }
    }

    fn bytes_of<T>(&self, count: usize) -> Result<usize, LeaseError> {
        count.checked_mul(size_of::<T>()).ok_or_else(|| self.too_large(usize::MAX))
    }

    #[cold]
    fn too_large(&self, requested: usize) -> LeaseError {
        LeaseError::TooLarge { requested, largest: self.handle.sizes.largest() }
    }

    /// The tag of a holder's name, for [`Lease::set_tag`]. The same name gives the same tag in every
    /// pool. Names are kept for ever: name the stages of a pipeline, not its frames.
    #[allow(clippy::unused_self, reason = "tags belong to pools in a user's mind")]
    pub fn tag(&self, name: &str) -> Tag {
        Tag::new(name)
    }

    /// Who holds slots now: the longest first where the pool keeps track (`track_holders`). Forgotten
    /// leases are among them. Costs a look at every slot.
    pub fn holders(&self) -> Vec<Holder> {
        let mut holders: Vec<_> = self
            .handle
            .classes
            .iter()
            .flat_map(|class| class.get().held().map(|held| Holder::new(class.get().name(), held)))
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
        let now = Instant::now();
        self.handle.classes.iter().map(|class| class.trim(now, true)).sum()
    }

    /// The pool's counts now.
    pub fn stats(&self) -> PoolStats {
        let classes = self.handle.classes.iter().copied();
        let classes: Vec<_> = classes.map(class_stats).collect();
        let shared = &self.handle.shared;
        PoolStats {
            backend: self.backend(),
            pinned: self.is_pinned(),
            device_accessible: self.is_device_accessible(),
            pinned_bytes: shared.budget.used(),
            cap_bytes: shared.budget.cap(),
            mapped_bytes: shared.mapped_bytes(),
            stuck_bytes: shared.stuck_bytes(),
            driver_failures: driver_failures(),
            pageable_bytes: self.handle.classes.iter().map(|class| class.get().pageable_bytes()).sum(),
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

    /// Closes the pool for all its clones: waiters wake with [`LeaseError::Closed`], no lease
    /// succeeds any more, live leases stay valid. Waits up to `timeout` for them and for work in flight,
    /// and for the memory to be given back, then reports what is still out. May be called again.
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
        let now = Instant::now();
        for class in self.classes.iter().rev() {
            class.close();
        }
        let slabs_left = self.shared.wait_all_home(timeout);
        if self.classes.iter().all(|class| class.get().is_done()) {
            // It ends at once, unless it runs foreign code.
            self.keeper.join(now.checked_add(timeout.max(JOIN_WAIT)));
        }
        slabs_left
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.shared.is_here() {
            // The parent's: its memory is not here, and its locks may be held by threads that are not.
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

fn typed<T: Pod>(lease: Lease) -> Result<Lease<T>, LeaseError> {
    lease.cast().map_err(|(_, error)| error)
}

/// Turns a failed step into an error that names the limit and the remedy.
fn explain(failure: SlabFailure, class: &ClassPlan, plan: &Plan, shared: &Shared) -> Error {
    let SlabFailure { error: source, pinned } = failure;
    let Memlock { soft, hard } = Memlock::read();
    // The failing slab is undone by now; earlier ones still hold their share.
    let elsewhere = locked_now().saturating_sub(shared.budget.used());
    let needed = plan.pinned_bytes;
    let limited = soft.is_some_and(|soft| soft < needed.saturating_add(elsewhere));
    if shared.memory.kind() == BackendKind::Host && source.is_lock_limit() && limited {
        let source = Box::new(source);
        return Error::MemlockLimit { needed, already: pinned, elsewhere, soft, hard, source };
    }
    Error::Memory { class: class.name.clone(), pinned, total: plan.total_bytes, source }
}

fn announce(plan: &Plan, startup: &StartupReport) {
    tracing::info!(
        backend = %startup.backend,
        reason = startup.reason,
        bytes = plan.total_bytes,
        pinned = startup.pinned,
        config = ?plan.config,
        elapsed = ?startup.total,
        "pool open"
    );
    for note in &plan.notes {
        tracing::info!(note, "rounded");
    }
    if !startup.pinned && plan.pinned_bytes > 0 {
        tracing::warn!(
            "the pool is open but its memory is not locked: {}; raise the limit or accept page faults",
            Memlock::read()
        );
    }
}

/// Enough for a thread that has nothing to do to end, whatever the timeout.
const JOIN_WAIT: Duration = Duration::from_millis(100);
