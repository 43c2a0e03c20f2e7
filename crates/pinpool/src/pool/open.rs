//! How a pool comes to its memory: class by class in the order of the configuration, all of it undone if
//! one fails.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::{Core, Handle, Pool};
use crate::backend;
use crate::class::{ClassRef, Making, Roster, Slots, Spread};
use crate::clock;
use crate::config::PoolConfig;
use crate::error::{ClassName, Error};
use crate::foreign::tell;
use crate::keeper::Keeper;
use crate::memory::limits::locked_now;
use crate::memory::{BackendKind, Memlock, MemoryCause, MemoryError, MemoryStep, PageLock};
use crate::plan::{ClassPlan, Plan};
use crate::process::Home;
use crate::report::{CutClass, SlabReport, StartupReport};
use crate::shared::{Shared, Terms};
use crate::size_class::ClassId;
use crate::slab::{Course, Slab, SlabFailure, SlabShape, StartupTimes};

/// A pool whose classes are not there yet, and what makes them.
pub(super) struct Prepared {
    pub(super) pool: Pool,
    pub(super) opener: Opener,
}

/// Makes the classes of a pool. It holds no handle on it: the pool may be dropped meanwhile, which ends it.
pub(super) struct Opener {
    plan: Arc<Plan>,
    roster: Arc<Roster>,
    shared: Arc<Shared>,
    course: Arc<Course>,
    making: Making,
    spread: Spread,
    /// By place in the plan; taken by the class.
    records: Vec<Option<Slots>>,
    report: StartupReport,
    /// Where the report goes once all is well.
    startup: Arc<OnceLock<StartupReport>>,
    began: Instant,
    /// Bytes of all slabs that may be handed out, and the first thing that went wrong.
    usable: u64,
    first_failure: Option<Error>,
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
        start: impl FnOnce(Arc<Roster>, Arc<Shared>, Option<Duration>) -> io::Result<Keeper>,
    ) -> Result<Self, Error> {
        let course = Arc::new(course(&plan));
        let Prepared { pool, opener } = Self::prepare(plan, memory, spread, course, start)?;
        // If it fails, dropping the pool undoes what was done, the latest first.
        opener.run().map(|()| pool)
    }

    /// Everything that takes no time and no memory to speak of: whatever fails here has pinned nothing.
    pub(super) fn prepare(
        plan: Plan,
        memory: Option<Arc<dyn PageLock>>,
        spread: Spread,
        course: Arc<Course>,
        start: impl FnOnce(Arc<Roster>, Arc<Shared>, Option<Duration>) -> io::Result<Keeper>,
    ) -> Result<Prepared, Error> {
        let began = clock::now();
        let chosen = match memory {
            Some(memory) => backend::Chosen::given(memory),
            None => backend::choose(&plan.config)?,
        };
        let home = Home::here().map_err(Error::Mark)?;
        let shared = Arc::new(Shared::new(chosen.memory, terms(&plan), home));
        admit(&plan, &shared)?;
        let making = Making {
            pins: plan.pinned_bytes > 0,
            threads: plan.config.prefault_threads,
            pause: plan.config.pin_pause,
            tracks: plan.config.track_holders,
        };
        let mut records = Vec::with_capacity(plan.classes.len());
        for class in &plan.classes {
            let slots = Slots::new(class, making, spread)
                .map_err(|error| explain_now(error, class, &plan, &shared))?;
            records.push(Some(slots));
        }
        let report = StartupReport {
            backend: shared.memory.kind(),
            reason: chosen.reason,
            pinned: false,
            slabs: Vec::new(),
            notes: chosen.notes,
            times: StartupTimes::default(),
            total: Duration::ZERO,
            cut: Vec::new(),
        };
        let roster = Arc::new(Roster::new(&plan));
        let started = start(Arc::clone(&roster), Arc::clone(&shared), plan.config.leak_after);
        let keeper = Some(started.map_err(Error::Keeper)?);
        let (plan, startup) = (Arc::new(plan), Arc::default());
        // Whoever closes waits for the opener as for a slab.
        shared.slab_opened(0);
        let core = Core {
            home,
            roster: Arc::clone(&roster),
            shared: Arc::clone(&shared),
            plan: Arc::clone(&plan),
            course: Arc::clone(&course),
            beginning: report.clone(),
            startup: Arc::clone(&startup),
            keeper,
        };
        let pool = Self { handle: Arc::new(Handle::first(Arc::new(core))) };
        let (usable, first_failure) = (0, None);
        let opener = Opener {
            plan,
            roster,
            shared,
            course,
            making,
            spread,
            records,
            report,
            startup,
            began,
            usable,
            first_failure,
        };
        Ok(Prepared { pool, opener })
    }
}

fn terms(plan: &Plan) -> Terms {
    let PoolConfig { keep_free, on_pressure, .. } = plan.config;
    Terms { cap: plan.cap_bytes(), keep_free, on_pressure }
}

/// How an opening goes by its configuration.
pub(super) fn course(plan: &Plan) -> Course {
    let config = &plan.config;
    let course = Course::paced(config.pin_pause).within(config.open_timeout);
    course.partial(config.min_bytes.is_some())
}

impl Opener {
    /// Makes all classes. If one fails, those that are there close, the latest first.
    pub(super) fn run(mut self) -> Result<(), Error> {
        self.make_all()?;
        self.report.pinned = self.roster.iter().all(|class| class.get().is_locked_first());
        self.report.total = clock::elapsed(self.began);
        announce(&self.plan, &self.report);
        self.startup.get_or_init(|| self.report.clone());
        self.roster.settle();
        Ok(())
    }

    fn make_all(&mut self) -> Result<(), Error> {
        let plan = Arc::clone(&self.plan);
        for config in &plan.config.classes {
            let place = plan.classes.iter().position(|class| class.name == config.name);
            if let Some(place) = place {
                self.make(place, &plan.classes[place])?;
            }
        }
        match self.first_failure.take() {
            Some(error) if self.usable < plan.config.min_bytes.unwrap_or(0) => Err(error),
            _ => Ok(()),
        }
    }

    fn make(&mut self, place: usize, class: &ClassPlan) -> Result<(), Error> {
        let ClassPlan { slab_bytes: bytes, chunk_bytes, device, .. } = *class;
        let shape = SlabShape { bytes, chunk_bytes, device };
        let Making { pins, threads, .. } = self.making;
        let made =
            Slab::open(shape, pins, threads, &self.course, &self.shared, &mut self.report.times);
        let (slab, cut) = made.map_err(|failure| {
            let error = explain(failure, class, &self.plan, &self.shared);
            // What failed first is why this fails, too.
            self.first_failure.take().unwrap_or(error)
        })?;
        self.check_cancelled(class)?;
        self.usable += slab.usable_bytes() as u64;
        self.report.slabs.push(SlabReport::new(&class.name, &slab));
        let id = ClassId(u8::try_from(place).unwrap_or(u8::MAX));
        let made = match cut {
            None => {
                let Some(slots) = self.records[place].take() else { return Ok(()) };
                ClassRef::new(id, class, self.making, slab, slots)
            }
            Some(failure) => self.make_smaller(id, class, slab, failure)?,
        };
        if !self.roster.add(made) {
            // Closed meanwhile: nobody else knows of the class.
            made.close();
            made.drop_reference();
            made.drop_reference();
            return self.check_cancelled(class);
        }
        // A keeper that sleeps does not know of it.
        self.shared.ring_for_growth();
        Ok(())
    }

    /// Nobody may want any more what was just made. Whoever closes cancels first.
    fn check_cancelled(&self, class: &ClassPlan) -> Result<(), Error> {
        let checked = self.course.check_cancelled(MemoryStep::Pin, class.slab_bytes);
        checked.map_err(|error| explain_now(error, class, &self.plan, &self.shared))
    }

    /// Makes a class of as many slots as there is memory for.
    fn make_smaller(
        &mut self,
        id: ClassId,
        class: &ClassPlan,
        slab: Slab,
        failure: SlabFailure,
    ) -> Result<ClassRef, Error> {
        let reason = failure.error.to_string();
        let error = explain(failure, class, &self.plan, &self.shared);
        let slots = u32::try_from(slab.usable_bytes() / class.stride_bytes).unwrap_or(u32::MAX);
        let Some(smaller) = class.cut_to(slots) else {
            return Err(self.first_failure.take().unwrap_or(error));
        };
        let records = Slots::new(&smaller, self.making, self.spread)
            .map_err(|error| explain_now(error, class, &self.plan, &self.shared))?;
        self.records[id.index()] = None;
        self.first_failure.get_or_insert(error);
        let (class_name, wanted) = (ClassName::new(&class.name), class.count);
        self.report.cut.push(CutClass { class: class_name, slots, wanted, reason });
        Ok(ClassRef::new(id, &smaller, self.making, slab, records))
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        // Also if memory of the caller's own panicked: nobody waits for what never comes.
        if !self.roster.is_settled() {
            self.roster.close();
            self.roster.iter().rev().for_each(ClassRef::close);
            self.roster.settle();
            self.shared.admission.leave_line();
        }
        self.shared.ring_for_growth();
        self.shared.slab_closed(0, 0);
    }
}

/// As [`explain`], for what fails outside of a slab.
fn explain_now(error: MemoryError, class: &ClassPlan, plan: &Plan, shared: &Shared) -> Error {
    let failure = SlabFailure { error, pinned: shared.budget.used(), offset: 0 };
    explain(failure, class, plan, shared)
}

/// Turns a failed step into an error that names the limit and the remedy.
fn explain(failure: SlabFailure, class: &ClassPlan, plan: &Plan, shared: &Shared) -> Error {
    let SlabFailure { error: source, pinned, offset } = failure;
    let (class, total) = (class.name.clone(), plan.total_bytes);
    match source.cause {
        MemoryCause::Cancelled => return Error::OpenCancelled { class, pinned, total },
        MemoryCause::TimedOut(timeout) => {
            return Error::OpenTimeout { class, timeout, pinned, total };
        }
        _ => {}
    }
    // The failing slab is undone by now; earlier ones still hold their share.
    let elsewhere = locked_now().saturating_sub(shared.budget.used());
    let soft = Memlock::read().soft;
    let limited = soft.is_some_and(|soft| soft < plan.pinned_bytes.saturating_add(elsewhere));
    if shared.memory.kind() == BackendKind::Host && source.is_lock_limit() && limited {
        return over_memlock(plan, pinned, elsewhere, source);
    }
    if let MemoryCause::NotHuge { .. } = source.cause {
        let slabs = plan.classes.iter().map(|class| class.slab_bytes as u64);
        return Error::not_huge(class, slabs, source);
    }
    match source.cause {
        MemoryCause::NoRoom(headroom) if !headroom.is_memlock() => {
            Error::NoRoom { needed: total, taken: shared.mapped_bytes(), headroom }
        }
        _ => Error::Memory { class, pinned, total, offset: offset as u64, source },
    }
}

/// Refuses a plan that the system's limits have no room for, before anything is mapped. One that may become
/// smaller is refused if there is no room for the least of it.
fn admit(plan: &Plan, shared: &Shared) -> Result<(), Error> {
    let needed = plan.config.min_bytes.unwrap_or(plan.total_bytes);
    let entered = shared.enter(needed, plan.pinned_bytes > 0);
    entered.map_err(|source| match source.cause {
        MemoryCause::NoRoom(headroom) if !headroom.is_memlock() => {
            Error::NoRoom { needed, taken: 0, headroom }
        }
        _ => over_memlock(plan, 0, locked_now(), source),
    })
}

fn over_memlock(plan: &Plan, already: u64, elsewhere: u64, source: MemoryError) -> Error {
    let Memlock { soft, hard } = Memlock::read();
    let (needed, source) = (plan.pinned_bytes, Box::new(source));
    Error::MemlockLimit { needed, already, elsewhere, soft, hard, source }
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
    for CutClass { class, slots, wanted, reason } in &startup.cut {
        tell!(warn, %class, slots, wanted, reason, "the class is smaller than configured, as min_bytes allows");
    }
    if !startup.pinned && plan.pinned_bytes > 0 {
        tell!(
            warn,
            "the pool is open but its memory is not locked: {}; raise the limit or accept page faults",
            Memlock::read()
        );
    }
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests;
