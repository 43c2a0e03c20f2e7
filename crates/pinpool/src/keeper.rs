//! The background thread of a pool: sends complete slots home and wakes tasks, washes slots, reports
//! leaks, and sleeps for good while there is nothing to do.

mod growth;
mod leaks;
mod pressure;

use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::class::{ClassRef, Roster};
use crate::clock;
use crate::foreign::{caught, tell};
use crate::shared::Shared;
use crate::sync::{Condvar, Mutex};

use growth::Growth;
use leaks::Leaks;

/// Whether the thread has done its work.
#[derive(Debug)]
struct Ended {
    over: Mutex<bool>,
    told: Condvar,
}

/// The handle on a pool's keeper.
#[derive(Debug)]
pub(crate) struct Keeper {
    thread: Mutex<Option<JoinHandle<()>>>,
    ended: Arc<Ended>,
}

impl Keeper {
    /// Starts the thread. It holds a reference on each class of the roster, which it drops at its end.
    pub(crate) fn start(
        roster: Arc<Roster>,
        shared: Arc<Shared>,
        leak_after: Option<Duration>,
    ) -> io::Result<Self> {
        let ended = Arc::new(Ended { over: Mutex::new(false), told: Condvar::default() });
        let tell = Arc::clone(&ended);
        let thread = std::thread::Builder::new().name(NAME.into()).stack_size(STACK_BYTES).spawn(
            move || {
                Rounds::new(roster, shared, leak_after).run();
                *tell.over.lock() = true;
                tell.told.notify_all();
            },
        )?;
        Ok(Self { thread: Mutex::new(Some(thread)), ended })
    }

    /// Without a thread: the simulator makes the rounds.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn by_hand() -> Self {
        let ended = Arc::new(Ended { over: Mutex::new(true), told: Condvar::default() });
        Self { thread: Mutex::new(None), ended }
    }

    /// True on the keeper's own thread: a user's fence may drop a pool there.
    pub(crate) fn is_current(&self) -> bool {
        let own = std::thread::current().id();
        self.thread.lock().as_ref().is_some_and(|thread| thread.thread().id() == own)
    }

    /// Waits for the thread's end until `deadline`, once it has nothing left to do but what a fence's
    /// or a waker's own code still does on it.
    pub(crate) fn join(&self, deadline: Option<Instant>) {
        if self.is_current() {
            return;
        }
        let mut over = self.ended.over.lock();
        while !*over {
            if self.ended.told.wait(&mut over, deadline) {
                return;
            }
        }
        drop(over);
        let thread = self.thread.lock().take();
        // Panics are caught and logged in it.
        let _ = thread.map(JoinHandle::join);
    }
}

/// What the thread does.
pub(crate) struct Rounds {
    roster: Arc<Roster>,
    shared: Arc<Shared>,
    /// When something was last seen in flight.
    busy: Instant,
    /// Where it has no thread of its own.
    growth: Option<Growth>,
    /// Those who wait are told of larger slots. Not in a simulated world, whose tasks are woken for slots
    /// of their own class only.
    nudges: bool,
    leaks: Option<Leaks>,
}

/// What to do after a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Somebody waits for work that should be over about now.
    Again,
    Sleep(Duration),
    /// With nothing to ask, and perhaps something to tend at some time.
    SleepUntilRung(Option<Duration>),
    End,
}

impl Next {
    /// A round that asks many fences is followed by a longer pause.
    fn spared(self, took: Duration) -> Self {
        match self {
            Self::Again if took > LONG_ROUND => Self::Sleep((took * 2).min(LAZY)),
            // Not in proportion to a call that blocked for long.
            Self::Sleep(pause) => Self::Sleep(pause.max((took * 4).min(LAZY_MAX))),
            other => other,
        }
    }
}

impl Rounds {
    pub(crate) fn new(
        roster: Arc<Roster>,
        shared: Arc<Shared>,
        leak_after: Option<Duration>,
    ) -> Self {
        let now = clock::now();
        let leaks = leak_after.map(|after| Leaks::new(after, now));
        let growth = roster.adds().then(|| Growth::new(Arc::clone(&roster), Arc::clone(&shared)));
        Self { roster, shared, busy: now, growth, nudges: false, leaks }
    }

    fn run(mut self) {
        set_timer_slack();
        self.nudges = self.roster.spills();
        let growth = self.growth.take().and_then(|growth| {
            let started = growth.start();
            started.inspect_err(|error| self.grow_here(error)).ok()
        });
        loop {
            match self.turn() {
                Next::End => break,
                next => self.rest(next),
            }
        }
        // It uses the classes until it ends, which it does once they are closed.
        let _ = growth.map(JoinHandle::join);
        self.end();
    }

    /// A lack of threads must not keep a pool from growing: slowly, then.
    fn grow_here(&mut self, error: &io::Error) {
        tell!(warn, %error, "no thread for growth: the keeper pins, and others wait meanwhile");
        self.growth = Some(Growth::new(Arc::clone(&self.roster), Arc::clone(&self.shared)));
    }

    /// One round.
    pub(crate) fn turn(&mut self) -> Next {
        // Fences and wakers are foreign code. One that panics costs its slot, not the thread.
        let began = clock::now();
        let next = caught(|| self.round()).unwrap_or_else(|| {
            tell!(error, "a waker panicked in the keeper");
            Next::Sleep(LAZY)
        });
        next.spared(clock::elapsed(began))
    }

    /// The pause after a round.
    pub(crate) fn rest(&self, next: Next) {
        match next {
            Next::Again => (0..SPINS).for_each(|_| std::hint::spin_loop()),
            Next::Sleep(pause) => self.shared.bell.sleep(clock::now().checked_add(pause)),
            Next::SleepUntilRung(until) => {
                let deadline = until.and_then(|pause| clock::now().checked_add(pause));
                self.shared.bell.sleep(deadline);
                self.roster.iter().for_each(|class| class.get().wake_up());
            }
            Next::End => {}
        }
    }

    /// Ends the keeper's hold on the classes.
    pub(crate) fn end(self) {
        for class in self.roster.iter() {
            class.drop_reference();
        }
    }

    fn round(&mut self) -> Next {
        for class in self.roster.iter() {
            class.reclaim();
            class.wash(WASHED_AT_ONCE);
        }
        if let Some(growth) = &mut self.growth {
            growth.tend();
        }
        self.look_for_leaks(clock::now());
        self.shared.wakers.pass(|fence| self.shared.recycle(fence));
        if self.is_done() {
            // What came home last was not told of.
            self.look_for_leaks(clock::now());
            self.shared.tell_closers();
            // Whoever awaits a fence yet asks again, and sees that the pool is closed.
            self.shared.wakers.wake_all();
            return Next::End;
        }
        let now = clock::now();
        if self.nudges && self.nudge() {
            return Next::Sleep(self.pause(now).map_or(LAZY, |pause| pause.min(LAZY)));
        }
        if let Some(pause) = self.pause(now) {
            self.busy = now;
            return if pause.is_zero() { Next::Again } else { Next::Sleep(pause) };
        }
        let lingers = now.saturating_duration_since(self.busy) < LINGER;
        let waited = self.roster.iter().any(|class| class.get().is_waited());
        // A waiter needs to be told of the next retirement at once; otherwise the keeper stays up
        // for a while, so that a steady stream of copies never pays for waking it.
        if lingers && !waited {
            return Next::Sleep(LAZY);
        }
        if self.roster.iter().all(|class| class.get().fall_asleep()) {
            return Next::SleepUntilRung(self.tends_in());
        }
        self.roster.iter().for_each(|class| class.get().wake_up());
        Next::Sleep(LAZY)
    }

    /// Nothing of a closed pool can come home any more.
    fn is_done(&self) -> bool {
        // In this order: what comes in after that is closed by whoever lets it in.
        self.roster.is_settled() && self.roster.iter().all(|class| class.get().is_done())
    }

    /// Tells the first in each line of larger slots that it may have. True while anybody waits for any.
    fn nudge(&self) -> bool {
        let mut waits = false;
        for class in self.roster.iter() {
            let class = class.get();
            if !(class.spills() && class.is_waited()) {
                continue;
            }
            waits = true;
            let frees = |other: ClassRef| class.may_spill_to(other.get()) && other.get().has_free();
            if self.roster.iter().any(frees) {
                class.nudge();
            }
        }
        waits
    }

    fn look_for_leaks(&mut self, now: Instant) {
        if let Some(leaks) = &mut self.leaks {
            leaks.look(&self.roster, now);
        }
    }

    /// When there is something to tend, though nothing is in flight.
    fn tends_in(&self) -> Option<Duration> {
        let growth = self.growth.as_ref().and_then(Growth::tends_in);
        growth.into_iter().chain(self.leaks.as_ref().map(Leaks::interval)).min()
    }

    /// How long to pause while something is in flight; `None` if nothing is.
    fn pause(&self, now: Instant) -> Option<Duration> {
        let closing = self.shared.is_awaited();
        let per_class = self.roster.iter().filter_map(|class| {
            let due = class.get().due(now)?;
            let urgent = closing || class.get().is_waited();
            let most = if due < LATE { URGENT_MAX } else { LAZY };
            // Work that does not end is asked less and less.
            Some(if urgent { due.min(most) } else { due.clamp(LAZY, LAZY_MAX) })
        });
        let tasks = self.shared.wakers.youngest(now);
        let tasks = tasks.map(|awaited| {
            let most = if awaited < FORGOTTEN { LAZY } else { LAZY_MAX };
            (awaited / 16).clamp(TASKS, most)
        });
        per_class.chain(tasks).min()
    }
}

/// Lets short sleeps be short: the kernel adds 50 us to each by default. No harm if it fails.
fn set_timer_slack() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// The thread's name, at most 15 bytes.
const NAME: &str = "pinpool-keeper";
/// It runs users' fences and a logger on it.
const STACK_BYTES: usize = 512 << 10;
/// Between rounds while nobody waits: free slots remain, or whoever misses looks itself.
const LAZY: Duration = Duration::from_millis(1);
/// The same for work that takes long, or that may be stuck.
const LAZY_MAX: Duration = Duration::from_millis(20);
/// How long it stays up after the last slot came home.
const LINGER: Duration = Duration::from_millis(100);
/// The longest pause between rounds while somebody waits, unless the work should have been over
/// long ago: it may be stuck.
const URGENT_MAX: Duration = Duration::from_micros(100);
const LATE: Duration = Duration::from_millis(2);
/// Work that was awaited for so long may never end.
const FORGOTTEN: Duration = Duration::from_secs(5);
/// A round without a pause asks a few fences.
const LONG_ROUND: Duration = Duration::from_micros(50);
/// Bytes washed in one round: a few milliseconds.
const WASHED_AT_ONCE: usize = 32 << 20;
/// Between questions without a sleep: asking takes a third of a microsecond.
const SPINS: u32 = 20;
/// Between rounds while tasks await work, at first; later a sixteenth of the time awaited.
const TASKS: Duration = Duration::from_micros(20);
