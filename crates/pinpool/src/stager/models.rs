//! Random schedules of a crew: callers who wait, await, cancel or go away, pieces that fail, copies that are
//! not ready yet, one that a single thread must take in its order, and the end of the board.
//!
//! A wake-up that is lost is a deadlock, which shuttle reports.

use std::sync::Arc;
use std::task::{Wake, Waker};

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::thread;

use super::board::{Board, Take, Work};
use super::error::StageCause;
use super::tally::Tally;
use crate::explore::check;
use crate::process::Home;
use crate::sync::{AtomicUsize, Ordering};

#[test]
fn a_crew_random() {
    check("a crew", 100_000, RandomScheduler::new, || scenario(false));
}

#[test]
fn a_crew_pct() {
    check("a crew", 50_000, |schedules| PctScheduler::new(3, schedules), || scenario(false));
}

#[test]
fn a_crew_that_fails_random() {
    check("a crew that fails", 100_000, RandomScheduler::new, || scenario(true));
}

/// A copy of some pieces, and what was seen of them.
struct Copy {
    tally: Tally,
    serial: bool,
    /// Looks until it is ready.
    unready: AtomicUsize,
    /// Threads that have a piece of it now.
    inside: AtomicUsize,
    /// The next piece, where there is an order.
    next: AtomicUsize,
    /// It is over, as its caller was told: nobody may touch it.
    told: AtomicUsize,
}

const PIECES: usize = 3;

impl Copy {
    fn new(serial: bool, unready: usize) -> Arc<Self> {
        let home = Home::here().expect("a mark");
        let [inside, next, told] = std::array::from_fn(|_| AtomicUsize::new(0));
        let unready = AtomicUsize::new(unready);
        let tally = Tally::new(home, PIECES, PIECES as u64);
        Arc::new(Self { tally, serial, unready, inside, next, told })
    }

    fn touch(&self) {
        assert_eq!(self.told.load(Ordering::SeqCst), 0, "its caller has its memory back (I18)");
    }
}

impl Work for Copy {
    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn is_serial(&self) -> bool {
        self.serial
    }

    fn is_written(&self) -> bool {
        self.serial
    }

    fn is_ready(&self) -> bool {
        let looks = self.unready.load(Ordering::SeqCst);
        self.unready.store(looks.saturating_sub(1), Ordering::SeqCst);
        looks == 0
    }
}

/// One thread of the crew, with two pieces at most on their way.
fn work(board: &Board<Copy>, hand: usize, fails: bool) {
    let mut flights: Vec<(Arc<Copy>, usize)> = Vec::new();
    loop {
        let bound = flights.iter().map(|(copy, _)| &**copy).find(|copy| copy.serial);
        match board.take(hand, flights.is_empty(), bound) {
            Take::Piece(copy, piece) => {
                let holds_up =
                    |(other, _): &(Arc<Copy>, usize)| copy.serial && !Arc::ptr_eq(other, &copy);
                while flights.len() == 2 || flights.iter().any(holds_up) {
                    land(&mut flights);
                }
                begin(&mut flights, copy, piece, fails);
            }
            Take::End if flights.is_empty() => return,
            Take::Nothing | Take::End => land(&mut flights),
        }
    }
}

fn begin(flights: &mut Vec<(Arc<Copy>, usize)>, copy: Arc<Copy>, piece: usize, fails: bool) {
    copy.touch();
    let others = copy.inside.fetch_add(1, Ordering::SeqCst);
    if copy.serial {
        assert_eq!(others, 0, "two threads read at once");
        assert_eq!(copy.next.fetch_add(1, Ordering::SeqCst), piece, "out of order");
    }
    thread::yield_now();
    copy.inside.fetch_sub(1, Ordering::SeqCst);
    if fails && piece == 1 {
        copy.tally.fail(Some(StageCause::Truncated));
        return;
    }
    copy.tally.sent();
    flights.push((copy, piece));
}

fn land(flights: &mut Vec<(Arc<Copy>, usize)>) {
    let (copy, _) = flights.remove(0);
    copy.touch();
    copy.tally.settle(1);
}

/// Wakes a task that is a thread.
struct Bell(thread::Thread);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// What a caller does with its copy.
fn call(copy: &Copy, kind: usize, fails: bool) {
    let ended = match kind {
        // It waits for the source to be read, and then for the end.
        0 => {
            assert!(copy.tally.wait_sent() || fails);
            copy.tally.wait_over()
        }
        // It awaits the end.
        1 => {
            let waker = Waker::from(Arc::new(Bell(thread::current())));
            loop {
                match copy.tally.poll_over(Some(&waker)) {
                    Some(ended) => break ended,
                    None => thread::park(),
                }
            }
        }
        // It cancels at some time.
        _ => {
            thread::yield_now();
            copy.tally.cancel();
            copy.tally.wait_over()
        }
    };
    copy.told.store(1, Ordering::SeqCst);
    assert!(copy.tally.is_over());
    let (done, total) = copy.tally.progress();
    match ended {
        Ok(()) => assert_eq!(done, total),
        Err(error) => {
            let cancelled = matches!(error.cause, StageCause::Cancelled);
            assert!(done < total && (fails || cancelled && kind == 2), "{error}");
        }
    }
}

fn scenario(fails: bool) {
    let board = Arc::new(Board::new(2));
    let crew: Vec<_> = (0..2)
        .map(|hand| {
            let board = Arc::clone(&board);
            thread::spawn(move || work(&board, hand, fails))
        })
        .collect();
    let callers: Vec<_> = [(0, false, 0), (1, true, 0), (2, false, 2)]
        .into_iter()
        .map(|(kind, serial, unready)| {
            let copy = Copy::new(serial, unready);
            board.put(Arc::clone(&copy));
            thread::spawn(move || call(&copy, kind, fails))
        })
        .collect();
    for caller in callers {
        caller.join().expect("no panic");
    }
    board.close();
    for hand in crew {
        hand.join().expect("no panic");
    }
}
