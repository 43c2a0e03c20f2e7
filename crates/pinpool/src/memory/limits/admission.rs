//! Lets memory be taken only while the system's limits leave room for it: all at once before anything is
//! mapped, and again before each piece, because other processes take memory meanwhile.
//!
//! The kernel has no call that sets memory aside, and a group that goes over its limit is killed. Two
//! processes that both see the last room must therefore not take it both: near the limit of their
//! group, pieces are taken one at a time, under a lock on the group's folder.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::headroom::{Facts, Headroom, KeepFree, LimitKind, memlock};
use super::{Cgroup, MemInfo};
use crate::memory::{MemoryCause, MemoryError, MemoryStep, PageLock, PageTier};
use crate::sync::plain::{AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex};

/// The check that all memory of one pool passes.
#[derive(Debug)]
pub(crate) struct Admission {
    keep: KeepFree,
    /// Its memory is the system's.
    takes: bool,
    /// It is locked, or nothing is had.
    locks: bool,
    /// The folder that stands for `/`.
    root: PathBuf,
    /// Bytes that may be taken without another look, and without the lock, which threads that are woken for it
    /// would pass on slowly: a small part of what was left at the last look.
    credit: AtomicUsize,
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    group: Option<Cgroup>,
    /// Bytes that threads of this pool take at this moment: in part they count as used already.
    taking: u64,
    /// Others held the lock for too long: they are not waited for any more.
    impatient: bool,
    /// Why no more is admitted.
    refusal: Option<Refusal>,
}

#[derive(Debug)]
struct Refusal {
    error: MemoryError,
    /// Held until all is given back.
    _turn: Option<Turn>,
}

/// Room for one piece, until it was taken.
#[derive(Debug)]
pub(crate) struct Admitted<'a> {
    admission: &'a Admission,
    bytes: u64,
    /// Held while it is taken.
    _turn: Option<Turn>,
}

/// The lock on the group's folder.
#[derive(Debug)]
struct Turn(File);

impl Admission {
    /// For pools on this memory.
    pub(crate) fn new(memory: &dyn PageLock, keep: KeepFree) -> Self {
        let takes = memory.takes_system_memory() && keep != KeepFree::Off;
        Self {
            keep,
            takes,
            locks: memory.needs_memlock(),
            root: super::root(),
            credit: AtomicUsize::new(0),
            state: Mutex::new(State::default()),
            done: Condvar::default(),
        }
    }

    /// The folder that stands for `/`.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether `bytes` of this memory fit now, to be locked or not. Reserved huge pages that are free and
    /// may be used take nothing of RAM, nor of the group's limit.
    pub(crate) fn enter(
        &self,
        memory: &dyn PageLock,
        bytes: u64,
        locked: bool,
    ) -> Result<(), MemoryError> {
        let memlock = if self.locks && locked { memlock() } else { None };
        let group = self.takes.then(|| Cgroup::read_at(&self.root)).flatten();
        let facts = Facts {
            memlock,
            cgroup: group.as_ref().and_then(|group| group.limit.clone()),
            ram: self.takes.then(|| MemInfo::read_at(&self.root)).flatten(),
        };
        let group = group.map(|mut group| {
            group.skip_unlimited();
            group
        });
        let mut state = self.state.lock();
        (state.group, state.impatient) = (group, false);
        drop(state);
        self.leave_line();
        if self.takes {
            let shared = facts.headrooms(self.keep, false).map(|headroom| headroom.room());
            self.give_credit(shared.min().unwrap_or(u64::MAX));
        }
        let uses = |bytes: usize| memory.tiers(bytes).contains(&PageTier::Huge);
        let huge = usize::try_from(bytes).is_ok_and(uses);
        let pages = facts.ram.and_then(|ram| ram.huge_pages).filter(|_| huge);
        let set_aside = pages.map_or(0, |pages| pages.available().saturating_mul(pages.page_bytes));
        let needed = |headroom: &Headroom| {
            if headroom.is_memlock() { bytes } else { bytes.saturating_sub(set_aside) }
        };
        let short = facts.headrooms(self.keep, locked);
        let short = short.filter(|headroom| headroom.room() < needed(headroom));
        short.min_by_key(Headroom::room).map_or(Ok(()), |headroom| {
            let step = if headroom.is_memlock() { MemoryStep::Pin } else { MemoryStep::Reserve };
            Err(refused(step, bytes, headroom))
        })
    }

    /// Room for a piece that is backed with memory now. Call [`Self::enter`] for the whole first.
    ///
    /// After a refusal no more is admitted, and who was refused in its turn keeps that until
    /// [`Self::leave_line`]: the next in line should find what is given back by then.
    pub(crate) fn admit(&self, bytes: u64) -> Result<Admitted<'_>, MemoryError> {
        if !self.takes || crate::seeded::bug("blind-admission") {
            return Ok(Admitted { admission: self, bytes: 0, _turn: None });
        }
        if self.takes_on_credit(bytes) {
            return Ok(Admitted { admission: self, bytes: 0, _turn: None });
        }
        let mut turn = None;
        let admitted = self.room_for(bytes, false).and_then(|line| {
            let Some(folder) = line else { return Ok(()) };
            turn = self.line_up(&folder);
            // Those before it in the line took theirs.
            self.room_for(bytes, true).map(drop)
        });
        match admitted {
            Ok(()) => Ok(Admitted { admission: self, bytes, _turn: turn }),
            Err(error) => {
                let first = || Refusal { error: error.clone(), _turn: turn };
                let mut state = self.state.lock();
                state.refusal.get_or_insert_with(first);
                // Whoever gives credit looks for a refusal first, under this lock.
                self.credit.store(0, Ordering::Relaxed);
                drop(state);
                Err(error)
            }
        }
    }

    /// Lets some be taken without a look, where so much is left.
    fn give_credit(&self, left: u64) {
        let credit = (left.saturating_sub(NEAR) / SHARERS).min(CREDIT_MAX);
        self.credit.store(usize::try_from(credit).unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    fn takes_on_credit(&self, bytes: u64) -> bool {
        let Ok(bytes) = usize::try_from(bytes) else { return false };
        let less = |credit: usize| credit.checked_sub(bytes);
        self.credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// All that was taken was given back, after a refusal.
    pub(crate) fn leave_line(&self) {
        let refusal = self.state.lock().refusal.take();
        drop(refusal);
    }

    /// Counts `bytes` as being taken, if there is room. Unless it has its `turn`: if little is left of
    /// the group's limit nothing is counted yet, and the folder is where to line up.
    fn room_for(&self, bytes: u64, turn: bool) -> Result<Option<PathBuf>, MemoryError> {
        let mut state = self.state.lock();
        loop {
            if let Some(refusal) = &state.refusal {
                return Err(refusal.error.clone());
            }
            let wanted = state.taking.saturating_add(bytes);
            let (headroom, spare) = state.headroom(wanted, self.keep, &self.root);
            let Some(headroom) = headroom else {
                self.give_credit(spare.saturating_sub(wanted));
                state.taking = wanted;
                return Ok(None);
            };
            let room = headroom.room();
            let lines_up = !turn && !state.impatient && room < wanted.saturating_add(NEAR);
            match &headroom.limit {
                // Also if there is too little: who is in its turn may be giving back.
                LimitKind::Cgroup(file) if lines_up => {
                    return Ok(file.parent().map(Path::to_path_buf));
                }
                _ if room >= wanted => {
                    state.taking = wanted;
                    self.give_credit(room.min(spare).saturating_sub(wanted));
                    return Ok(None);
                }
                _ if state.taking == 0 => {
                    return Err(refused(MemoryStep::Populate, bytes, headroom));
                }
                // What others take may be counted twice: only who takes alone knows.
                _ => self.done.wait(&mut state, Instant::now().checked_add(LOOK)),
            };
        }
    }

    /// Waits for its turn among the processes of the group; `None` without one.
    fn line_up(&self, folder: &Path) -> Option<Turn> {
        let turn = File::open(folder).ok()?;
        let until = Instant::now() + PATIENCE;
        loop {
            match flock(&turn, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Some(Turn(turn)),
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                // No such locks here.
                Err(_) => return None,
            }
            let mut state = self.state.lock();
            // The turn may be that of another thread of this pool, which was refused.
            if state.refusal.is_some() {
                return None;
            }
            if Instant::now() >= until {
                state.impatient = true;
                return None;
            }
            self.done.wait(&mut state, Instant::now().checked_add(LOOK));
        }
    }

    fn leave(&self, bytes: u64) {
        self.state.lock().taking -= bytes;
        self.done.notify_all();
    }
}

impl State {
    /// The limit that binds now, among those that are shared with other processes. The group's is not
    /// among them if it leaves much more than `wanted` bytes; how much, then, else no bound.
    fn headroom(&mut self, wanted: u64, keep: KeepFree, root: &Path) -> (Option<Headroom>, u64) {
        let far = wanted.saturating_add(NEAR);
        let spare = self.group.as_ref().and_then(|group| group.spare(|all| keep.of(all)));
        let ample = spare.filter(|spare| *spare >= far);
        let group = self.group.as_mut().filter(|_| ample.is_none());
        let cgroup = group.and_then(|group| {
            group.refresh();
            group.limit.clone()
        });
        let facts = Facts { memlock: None, cgroup, ram: MemInfo::read_at(root) };
        (facts.binding(keep, false), ample.unwrap_or(u64::MAX))
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.admission.leave(self.bytes);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // To close it would not do: a child that was forked meanwhile has the file as well, and would keep
        // the turn for as long as it lives.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

fn refused(step: MemoryStep, bytes: u64, headroom: Headroom) -> MemoryError {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    MemoryError { step, bytes, cause: MemoryCause::NoRoom(Box::new(headroom)) }
}

/// So little room that one piece at a time is taken: as many bytes as 32 threads take at once.
const NEAR: u64 = 512 << 20;
/// So many processes may take on credit what each of them saw at the same moment, and all of it is there.
const SHARERS: u64 = 64;
/// A look costs some 50 us, one thread at a time; backing so much takes 20 ms.
const CREDIT_MAX: u64 = 1 << 30;
/// Between looks while others take theirs: a piece of 4 MiB takes a millisecond or more.
const LOOK: Duration = Duration::from_millis(1);
/// How long another process is waited for. A stopped one holds its turn for ever.
const PATIENCE: Duration = Duration::from_secs(2);

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests;
