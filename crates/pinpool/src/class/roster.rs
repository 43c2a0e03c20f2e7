//! The classes of a pool, which come one by one while it opens; it makes none.

use std::ptr::{self, NonNull};
use std::task::Waker;
use std::time::Instant;

use super::{Class, ClassRef};
use crate::foreign::caught;
use crate::plan::Plan;
use crate::size_class::ClassId;
use crate::sync::{AtomicPtr, Condvar, Mutex, Ordering};

/// Places for all classes of a plan. The pool and its keeper hold it, and a reference on every class in it
/// each; one for a single device has those of the pool's that it uses, and no reference.
#[derive(Debug)]
pub(crate) struct Roster {
    /// By `ClassId`, or by the ranks of one device; null until the class is there. `Release` when it comes, `Acquire` for whoever uses it.
    /// As many as there are numbers: none is out of bounds.
    places: [AtomicPtr<Class>; PLACES],
    /// Classes that shall be.
    planned: usize,
    /// Some class adds memory.
    adds: bool,
    /// Some class uses slots of larger ones.
    spills: bool,
    stage: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Stage {
    /// No class comes any more.
    settled: bool,
    /// None is let in any more.
    closed: bool,
    /// Tasks that wait for a class, each under the number of its wait.
    tasks: Vec<(u64, Waker)>,
    /// The number of the last wait.
    last: u64,
}

/// Why there is no class yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// It comes, if all goes well.
    Coming,
    /// It never comes.
    Closed,
}

impl Roster {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            adds: plan.classes.iter().any(|class| class.grow.is_some() || class.pageable_max > 0),
            spills: plan.classes.iter().any(|class| class.max_spill > 1),
            ..Self::of_places(plan.classes.len())
        }
    }

    /// These classes, and no others; the caller keeps them, the roster is never asked to add.
    pub(crate) fn of_classes(classes: &[ClassRef]) -> Self {
        let roster = Self::of_places(classes.len());
        for (place, class) in roster.places.iter().zip(classes) {
            place.store(class.0.as_ptr(), Ordering::Release);
        }
        roster.stage.lock().settled = true;
        roster
    }

    /// Of so many classes that neither add memory nor spill.
    pub(super) fn of_places(classes: usize) -> Self {
        Self {
            places: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            planned: classes,
            adds: false,
            spills: false,
            stage: Mutex::new(Stage::default()),
            changed: Condvar::default(),
        }
    }

    /// The class with this number, if it is there.
    #[inline]
    pub(crate) fn get(&self, id: ClassId) -> Option<ClassRef> {
        Self::of(&self.places[usize::from(id.0)])
    }

    #[inline]
    fn of(place: &AtomicPtr<Class>) -> Option<ClassRef> {
        NonNull::new(place.load(Ordering::Acquire)).map(ClassRef)
    }

    /// The classes that are there, in the order of the plan.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = ClassRef> + '_ {
        self.first(self.planned)
    }

    /// Those at the first so many places.
    pub(crate) fn first(&self, places: usize) -> impl DoubleEndedIterator<Item = ClassRef> + '_ {
        self.places[..places.min(self.planned)].iter().filter_map(Self::of)
    }

    /// Some class adds memory, now or once it is there.
    pub(crate) fn adds(&self) -> bool {
        self.adds
    }

    /// Some class uses slots of larger ones.
    pub(crate) fn spills(&self) -> bool {
        self.spills
    }

    /// How many classes are there.
    pub(crate) fn ready(&self) -> usize {
        self.iter().count()
    }

    /// All classes are there.
    pub(crate) fn is_full(&self) -> bool {
        self.ready() == self.planned
    }

    /// Lets a class in, and whoever waits for it know. False once the roster is closed: the class is the
    /// caller's then.
    pub(crate) fn add(&self, class: ClassRef) -> bool {
        self.put(class.get().id(), class)
    }

    /// [`Self::add`] of the class with this number.
    pub(super) fn put(&self, id: ClassId, class: ClassRef) -> bool {
        let mut stage = self.stage.lock();
        if stage.closed {
            return false;
        }
        if crate::seeded::bug("late-class") {
            drop(stage);
            stage = self.stage.lock();
        }
        self.places[id.index()].store(class.0.as_ptr(), Ordering::Release);
        drop(stage);
        self.tell();
        true
    }

    /// No class comes any more: all are there, or the opening has failed.
    pub(crate) fn settle(&self) {
        self.stage.lock().settled = true;
        self.tell();
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.stage.lock().settled
    }

    /// Lets no class in any more.
    pub(crate) fn close(&self) {
        self.stage.lock().closed = true;
        self.tell();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.stage.lock().closed
    }

    fn tell(&self) {
        self.changed.notify_all();
        let tasks = std::mem::take(&mut self.stage.lock().tasks);
        // Wakers are foreign code (I17).
        for (_, task) in tasks {
            let _ = caught(|| task.wake());
        }
    }

    /// The class, or why it is not there.
    pub(crate) fn look(&self, id: ClassId) -> Result<ClassRef, Absent> {
        self.look_at(&self.stage.lock(), id)
    }

    /// As [`Self::look`], for whoever has the lock.
    fn look_at(&self, stage: &Stage, id: ClassId) -> Result<ClassRef, Absent> {
        match self.get(id) {
            Some(class) => Ok(class),
            None if stage.settled || stage.closed => Err(Absent::Closed),
            None => Err(Absent::Coming),
        }
    }

    /// Waits for a class until `deadline`.
    pub(crate) fn wait(&self, id: ClassId, deadline: Option<Instant>) -> Result<ClassRef, Absent> {
        let mut stage = self.stage.lock();
        loop {
            let looked = self.look_at(&stage, id);
            if looked != Err(Absent::Coming) {
                return looked;
            }
            if self.changed.wait(&mut stage, deadline) {
                return self.get(id).ok_or(Absent::Coming);
            }
        }
    }

    /// The class, or a wake-up for the task once one comes: its last waker, however often it asks with the
    /// same `wait`, until [`Self::forget`].
    pub(crate) fn poll(
        &self,
        id: ClassId,
        task: &Waker,
        wait: &mut Option<u64>,
    ) -> Result<ClassRef, Absent> {
        let task = task.clone();
        let mut stage = self.stage.lock();
        let looked = self.look_at(&stage, id);
        let unused =
            if looked == Err(Absent::Coming) { stage.enter(task, wait) } else { Some(task) };
        drop(stage);
        // Its destructor is foreign code (I17).
        let _ = caught(|| drop(unused));
        looked
    }

    /// Wakes nobody for this wait any more.
    pub(crate) fn forget(&self, wait: u64) {
        let mut stage = self.stage.lock();
        let place = stage.tasks.iter().position(|(known, _)| *known == wait);
        let unused = place.map(|place| stage.tasks.swap_remove(place));
        drop(stage);
        // As above.
        let _ = caught(|| drop(unused));
    }
}

impl Stage {
    /// Keeps the waker of a wait, and returns the one that it had before.
    fn enter(&mut self, task: Waker, wait: &mut Option<u64>) -> Option<Waker> {
        let number = *wait.get_or_insert_with(|| {
            self.last += 1;
            self.last
        });
        if let Some((_, known)) = self.tasks.iter_mut().find(|(known, _)| *known == number) {
            return Some(std::mem::replace(known, task));
        }
        self.tasks.push((number, task));
        None
    }
}

/// In a model fewer: each place is one of its objects.
const PLACES: usize = if cfg!(loom) { 4 } else { 1 << u8::BITS };
