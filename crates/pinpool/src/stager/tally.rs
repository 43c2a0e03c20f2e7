//! The course of one staged copy: which pieces are taken, sent and over, and who waits for that. It
//! knows neither bytes nor devices.

use std::task::Waker;

use super::error::{StageCause, StageError};
use crate::foreign::{caught, tell};
use crate::process::Home;
use crate::sync::{AtomicU64, Condvar, Mutex, Ordering};

/// One copy's books. A copy is over once no piece of it is out and none will be taken any more: from
/// then on the crew touches nothing that was lent to it (I18).
#[derive(Debug)]
pub(super) struct Tally {
    home: Home,
    pieces: usize,
    total: u64,
    /// Bytes that have arrived. Beside the lock, for whoever only looks.
    done: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The next piece to take.
    next: usize,
    /// Pieces taken whose work is not over.
    out: usize,
    /// Pieces whose source has been read.
    sent: usize,
    /// Why no further piece is taken; `None` again once somebody was told.
    cause: Option<StageCause>,
    /// No further piece is taken.
    stopped: bool,
    /// The task that awaits the end: the last one.
    task: Option<Waker>,
}

impl State {
    fn is_over(&self, pieces: usize) -> bool {
        let ends = self.stopped || self.next == pieces;
        ends && (self.out == 0 || crate::seeded::bug("early-end"))
    }
}

impl Tally {
    /// Of `total` bytes in so many pieces.
    pub(super) fn new(home: Home, pieces: usize, total: u64) -> Self {
        let (done, state) = (AtomicU64::new(0), Mutex::new(State::default()));
        Self { home, pieces, total, done, state, changed: Condvar::default() }
    }

    /// Takes the next piece.
    pub(super) fn begin(&self) -> Option<usize> {
        let mut state = self.state.lock();
        if state.stopped || state.next == self.pieces {
            return None;
        }
        let piece = state.next;
        state.next += 1;
        state.out += 1;
        Some(piece)
    }

    /// There are pieces to take.
    pub(super) fn has_more(&self) -> bool {
        let state = self.state.lock();
        !state.stopped && state.next < self.pieces
    }

    /// The source of a piece has been read, and its copy is queued.
    pub(super) fn sent(&self) {
        let mut state = self.state.lock();
        state.sent += 1;
        if state.sent == self.pieces {
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Nobody wants the pieces that are not taken yet, nor what comes of those that are.
    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// A piece has arrived.
    pub(super) fn settle(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        self.end(None, true);
    }

    /// A piece is over and has not arrived: for this reason, or for that of another one.
    pub(super) fn fail(&self, cause: Option<StageCause>) {
        self.end(cause, false);
    }

    fn end(&self, mut cause: Option<StageCause>, arrived: bool) {
        let mut state = self.state.lock();
        state.out = state.out.saturating_sub(1);
        if !arrived {
            state.stopped = true;
            // The first failure is the one to tell.
            if state.cause.is_none() {
                state.cause = cause.take();
            }
        }
        self.tell_if_over(state);
        // What a reader or writer put into the other is foreign code (I17).
        let _ = caught(|| drop(cause));
    }

    /// Takes no further piece. Those that are out come to their end; if they were the last, the copy
    /// is done all the same.
    pub(super) fn cancel(&self) {
        if !self.home.is_here() {
            return;
        }
        let mut state = self.state.lock();
        if state.stopped || state.next == self.pieces {
            return;
        }
        state.stopped = true;
        state.cause = Some(StageCause::Cancelled);
        self.tell_if_over(state);
    }

    fn tell_if_over(&self, mut state: crate::sync::MutexGuard<'_, State>) {
        if !state.is_over(self.pieces) {
            return;
        }
        let task = state.task.take();
        drop(state);
        self.changed.notify_all();
        // A waker is foreign code (I17).
        if let Some(task) = task
            && caught(|| task.wake()).is_none()
        {
            tell!(error, "a waker panicked at the end of a staged copy");
        }
    }

    /// Waits until the whole source has been read: false if that will not be, and the copy is over.
    pub(super) fn wait_sent(&self) -> bool {
        if !self.home.is_here() {
            return false;
        }
        let mut state = self.state.lock();
        while state.sent < self.pieces {
            if state.is_over(self.pieces) {
                return false;
            }
            self.changed.wait(&mut state, None);
        }
        true
    }

    /// Waits until the copy is over, however it ends. In a forked child nobody works on it.
    pub(super) fn wait_quietly(&self) {
        if !self.home.is_here() {
            return;
        }
        let mut state = self.state.lock();
        while !state.is_over(self.pieces) {
            self.changed.wait(&mut state, None);
        }
    }

    /// Nothing of the copy runs any more.
    pub(super) fn is_over(&self) -> bool {
        self.state.lock().is_over(self.pieces)
    }

    /// Waits until the copy is over.
    pub(super) fn wait_over(&self) -> Result<(), StageError> {
        if !self.home.is_here() {
            return Err(self.error(StageCause::Forked));
        }
        self.wait_quietly();
        let cause = self.state.lock().cause.take();
        self.outcome(cause)
    }

    /// How the copy ended, if it is over. If it is not, `task` is woken once it is.
    pub(super) fn poll_over(&self, task: Option<&Waker>) -> Option<Result<(), StageError>> {
        if !self.home.is_here() {
            return Some(Err(self.error(StageCause::Forked)));
        }
        // Cloning one is foreign code (I17).
        let mut task = task.cloned();
        let mut state = self.state.lock();
        if state.is_over(self.pieces) {
            let cause = state.cause.take();
            drop(state);
            return Some(self.outcome(cause));
        }
        if task.is_some() {
            std::mem::swap(&mut state.task, &mut task);
        }
        drop(state);
        let _ = caught(|| drop(task));
        None
    }

    /// Whether the copy is over, and if so, why it failed.
    pub(super) fn look(&self) -> Option<Result<(), String>> {
        if !self.home.is_here() {
            return Some(Err(StageCause::Forked.to_string()));
        }
        let state = self.state.lock();
        if !state.is_over(self.pieces) {
            return None;
        }
        if self.is_all() {
            return Some(Ok(()));
        }
        let cause = state.cause.as_ref();
        Some(Err(cause.map_or_else(|| "a staged copy failed".to_owned(), ToString::to_string)))
    }

    /// Bytes that have arrived, and all bytes.
    pub(super) fn progress(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total)
    }

    fn is_all(&self) -> bool {
        self.done.load(Ordering::Relaxed) == self.total
    }

    fn outcome(&self, cause: Option<StageCause>) -> Result<(), StageError> {
        if self.is_all() {
            return Ok(());
        }
        Err(self.error(cause.unwrap_or(StageCause::Cancelled)))
    }

    /// A failure of this copy.
    pub(super) fn error(&self, cause: StageCause) -> StageError {
        let (done, total) = self.progress();
        StageError { done, total, cause }
    }
}
