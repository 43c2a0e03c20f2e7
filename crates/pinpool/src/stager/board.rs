//! The open copies of a crew, and who takes which piece next: one piece of each in turn.

use std::collections::VecDeque;
use std::sync::Arc;

use super::tally::Tally;
use crate::foreign::{caught, tell};
use crate::sync::{Condvar, Mutex};

/// What the crew works on.
pub(super) trait Work {
    fn tally(&self) -> &Tally;

    /// One thread takes all pieces, in their order.
    fn is_serial(&self) -> bool;
}

/// Copies that have pieces to take.
#[derive(Debug)]
pub(super) struct Board<J> {
    open: Mutex<Open<J>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Open<J> {
    /// The next to give a piece stands in front.
    entries: VecDeque<Entry<J>>,
    /// No further copy comes.
    closing: bool,
}

#[derive(Debug)]
struct Entry<J> {
    job: Arc<J>,
    /// The thread that alone may take its pieces.
    owner: Option<usize>,
}

/// What there is to do for a thread.
#[derive(Debug)]
pub(super) enum Take<J> {
    /// This piece.
    Piece(Arc<J>, usize),
    /// Nothing now.
    Nothing,
    /// Nothing any more.
    End,
}

impl<J: Work> Board<J> {
    pub(super) fn new() -> Self {
        let open = Mutex::new(Open { entries: VecDeque::new(), closing: false });
        Self { open, changed: Condvar::default() }
    }

    /// Lets the crew have a copy.
    pub(super) fn put(&self, job: Arc<J>) {
        self.open.lock().entries.push_back(Entry { job, owner: None });
        self.changed.notify_all();
    }

    /// No further copy comes; the crew does what there is and goes.
    pub(super) fn close(&self) {
        self.open.lock().closing = true;
        self.changed.notify_all();
    }

    /// A piece for thread number `hand`, which sleeps until there is one if it `waits`.
    pub(super) fn take(&self, hand: usize, waits: bool) -> Take<J> {
        loop {
            // What is lent to a copy goes with its last holder, and that is foreign code (I17).
            let mut gone = Vec::new();
            let mut open = self.open.lock();
            let piece = open.next(hand, &mut gone);
            let ends = open.closing && open.entries.is_empty();
            let again = gone.is_empty();
            if piece.is_none() && again && !ends && waits {
                self.changed.wait(&mut open, None);
                continue;
            }
            drop(open);
            if ends {
                // Others may sleep beside what has just left.
                self.changed.notify_all();
            }
            if caught(|| drop(gone)).is_none() {
                tell!(error, "what an owned staged copy kept panicked when it was dropped");
            }
            match piece {
                Some((job, piece)) => return Take::Piece(job, piece),
                None if ends => return Take::End,
                None if again => return Take::Nothing,
                None => {}
            }
        }
    }
}

impl<J: Work> Open<J> {
    /// The next piece for `hand`. Copies without any leave the board into `gone`.
    fn next(&mut self, hand: usize, gone: &mut Vec<Arc<J>>) -> Option<(Arc<J>, usize)> {
        for _ in 0..self.entries.len() {
            let mut entry = self.entries.pop_front()?;
            if entry.owner.is_some_and(|owner| owner != hand) {
                self.entries.push_back(entry);
                continue;
            }
            let Some(piece) = entry.job.tally().begin() else {
                gone.push(entry.job);
                continue;
            };
            let job = Arc::clone(&entry.job);
            if entry.job.tally().has_more() {
                entry.owner = job.is_serial().then_some(hand);
                self.entries.push_back(entry);
            }
            return Some((job, piece));
        }
        None
    }
}
