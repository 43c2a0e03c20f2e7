//! The open copies of a crew, and who takes which piece next: one piece of each in turn.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::tally::Tally;
use crate::clock;
use crate::foreign::{caught, tell};
use crate::sync::{Condvar, Mutex};

/// What the crew works on.
pub(super) trait Work {
    fn tally(&self) -> &Tally;

    /// One thread takes all pieces, in their order.
    fn is_serial(&self) -> bool;

    /// What came of a piece is handed to something that may wait for long.
    fn is_written(&self) -> bool;

    /// What it comes behind is over. Once it is, it stays so.
    fn is_ready(&self) -> bool;
}

/// Copies that have pieces to take.
#[derive(Debug)]
pub(super) struct Board<J> {
    open: Mutex<Open<J>>,
    changed: Condvar,
    /// Threads of the crew.
    hands: usize,
}

#[derive(Debug)]
struct Open<J> {
    /// The next to give a piece stands in front.
    entries: VecDeque<Entry<J>>,
    /// No further copy comes.
    closing: bool,
    /// A thread looks for copies that become ready.
    watched: bool,
}

#[derive(Debug)]
struct Entry<J> {
    job: Arc<J>,
    /// The thread that alone may take its pieces.
    owner: Option<usize>,
    /// What it comes behind is over.
    ready: bool,
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
    pub(super) fn new(hands: usize) -> Self {
        let open = Mutex::new(Open { entries: VecDeque::new(), closing: false, watched: false });
        Self { open, changed: Condvar::default(), hands }
    }

    /// Lets the crew have a copy.
    pub(super) fn put(&self, job: Arc<J>) {
        self.open.lock().entries.push_back(Entry { job, owner: None, ready: false });
        self.changed.notify_all();
    }

    /// No further copy comes; the crew does what there is and goes.
    pub(super) fn close(&self) {
        self.open.lock().closing = true;
        self.changed.notify_all();
    }

    /// A piece for thread number `hand`, which sleeps until there is one if it `waits`.
    ///
    /// A copy whose caller's stream is still busy gives none: a thread that held buffers for it would have to
    /// wait for that stream, and all other copies with it. One thread of those that sleep looks for its turn.
    ///
    /// A reader or writer may wait for long, also for another one. So a thread takes pieces of two such copies only
    /// if all threads have one, and while pieces of the one that it is `bound` to are on their way, none that would
    /// wait with it.
    pub(super) fn take(&self, hand: usize, waits: bool, bound: Option<&J>) -> Take<J> {
        let mut open = self.open.lock();
        loop {
            let mut found = open.next(hand, bound, self.hands);
            let ends = open.closing && open.entries.is_empty();
            if found.piece.is_some() || ends || !waits {
                let hands_on = !open.watched && open.entries.iter().any(|entry| !entry.ready);
                drop(open);
                if ends || found.became_ready {
                    // Others may sleep beside what has just left, or come to it.
                    self.changed.notify_all();
                } else if hands_on {
                    self.changed.notify_one();
                }
                found.let_go();
                return match found.piece {
                    Some((job, piece)) => Take::Piece(job, piece),
                    None if ends => Take::End,
                    None => Take::Nothing,
                };
            }
            if !found.gone.is_empty() {
                drop(open);
                found.let_go();
                open = self.open.lock();
            } else if found.unready && !open.watched {
                open.watched = true;
                self.changed.wait(&mut open, clock::now().checked_add(WATCH));
                open.watched = false;
            } else {
                self.changed.wait(&mut open, None);
            }
        }
    }
}

/// What a look at the board found.
struct Found<J> {
    piece: Option<(Arc<J>, usize)>,
    /// Copies that have no piece left. What is lent to one goes with its last holder, and that is
    /// foreign code (I17): not under the lock.
    gone: Vec<Arc<J>>,
    /// Some copy must wait for its caller's stream.
    unready: bool,
    /// One that had to need not any more.
    became_ready: bool,
}

impl<J> Found<J> {
    fn let_go(&mut self) {
        let gone = std::mem::take(&mut self.gone);
        if caught(|| drop(gone)).is_none() {
            tell!(error, "what an owned staged copy kept panicked when it was dropped");
        }
    }
}

impl<J: Work> Open<J> {
    /// A thread has a copy of its own, and some other one has none.
    fn is_laden(&self, hand: usize, hands: usize) -> bool {
        let owners = || self.entries.iter().filter_map(|entry| entry.owner);
        let idle = |hand: &usize| !owners().any(|owner| owner == *hand);
        !idle(&hand) && (0..hands).any(|hand| idle(&hand))
    }

    /// The next piece for `hand`. Copies without any leave the board.
    fn next(&mut self, hand: usize, bound: Option<&J>, hands: usize) -> Found<J> {
        let laden = self.is_laden(hand, hands);
        let (gone, became_ready) = (Vec::new(), false);
        let mut found = Found { piece: None, gone, unready: false, became_ready };
        for _ in 0..self.entries.len() {
            let Some(mut entry) = self.entries.pop_front() else { break };
            let job = Arc::clone(&entry.job);
            if !job.tally().has_more() {
                found.gone.push(entry.job);
                continue;
            }
            if !entry.ready {
                entry.ready = job.is_ready();
                found.became_ready |= entry.ready;
                found.unready |= !entry.ready;
            }
            if !entry.ready || entry.owner.is_some_and(|owner| owner != hand) {
                self.entries.push_back(entry);
                continue;
            }
            if job.is_serial() && entry.owner.is_none() && laden {
                self.entries.push_back(entry);
                continue;
            }
            let other = bound.filter(|bound| !std::ptr::eq(*bound, Arc::as_ptr(&job)));
            if other.is_some_and(|other| other.is_written() || job.is_serial()) {
                // It is next, once those pieces are over.
                self.entries.push_front(entry);
                break;
            }
            let Some(piece) = job.tally().begin() else {
                found.gone.push(entry.job);
                continue;
            };
            if job.tally().has_more() {
                entry.owner = job.is_serial().then_some(hand);
                self.entries.push_back(entry);
            }
            found.piece = Some((job, piece));
            break;
        }
        found
    }
}

/// Between two looks at a stream that is busy: about as long as a system takes to wake a thread.
const WATCH: Duration = Duration::from_micros(50);
