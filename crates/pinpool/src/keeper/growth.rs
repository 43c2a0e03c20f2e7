//! What classes add and take away, on a thread of its own: pinning takes milliseconds a frame, and
//! whoever waits for the keeper must not wait for that.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::pressure::{Change, Watch};
use crate::class::{ClassRef, Roster};
use crate::clock;
use crate::foreign::{caught, tell};
use crate::shared::Shared;

/// Adds slabs where they are wanted and gives back what is idle.
pub(super) struct Growth {
    roster: Arc<Roster>,
    shared: Arc<Shared>,
    /// When idle memory was last looked at.
    trimmed: Instant,
    /// Where memory pressure is heeded, and the system tells of it.
    watch: Option<Watch>,
}

impl Growth {
    /// For a pool of which some class adds memory.
    pub(super) fn new(roster: Arc<Roster>, shared: Arc<Shared>) -> Self {
        let watch = shared.strain.is_heeded().then(|| Watch::find(shared.admission.root()));
        let watch = watch.flatten();
        Self { roster, shared, trimmed: clock::now(), watch }
    }

    /// Starts the thread. It ends once all classes are closed; the caller keeps them until then.
    pub(super) fn start(self) -> io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name(NAME.into()).stack_size(STACK_BYTES).spawn(|| self.run())
    }

    fn run(mut self) {
        while !(self.roster.is_settled() && self.roster.iter().all(|class| class.get().is_closed()))
        {
            if caught(|| self.tend()).is_none() {
                tell!(error, "memory of the caller's own panicked while it was pinned or unpinned");
            }
            let pause = self.tends_in();
            self.shared.growth.sleep(pause.and_then(|pause| clock::now().checked_add(pause)));
        }
    }

    /// Looks once.
    pub(super) fn tend(&mut self) {
        let now = clock::now();
        self.look_for_pressure(now);
        let pressed = self.shared.strain.lasts();
        for class in self.roster.iter() {
            if pressed && !crate::seeded::bug("grows-on") {
                class.refuse_growth();
            } else {
                class.grow_if_wanted(now);
            }
        }
        if now.saturating_duration_since(self.trimmed) >= TRIM {
            self.trimmed = now;
            for class in self.roster.iter() {
                class.trim(now, pressed);
            }
        }
    }

    /// Counts and tells each beginning and end of memory pressure, once.
    fn look_for_pressure(&mut self, now: Instant) {
        let Some(watch) = &mut self.watch else { return };
        match watch.look(now) {
            Change::None => {}
            Change::Began(percent) => {
                self.shared.strain.set(true);
                let file = watch.file().display();
                tell!(warn, %file, percent, "memory pressure: unused grown slabs go, nothing grows");
            }
            Change::Ended => {
                self.shared.strain.set(false);
                tell!(info, "memory pressure is over: classes may grow again");
            }
        }
    }

    /// When to look again, though nobody asks.
    pub(super) fn tends_in(&self) -> Option<Duration> {
        let tends = self.roster.iter().filter_map(ClassRef::tends_in).min();
        // As long as there is anything to tend, there is something to give back, or that may grow.
        tends.map(|pause| self.watch.as_ref().map_or(pause, |_| pause.min(Watch::INTERVAL)))
    }
}

/// The thread's name, at most 15 bytes.
const NAME: &str = "pinpool-growth";
/// It runs a user's `PageLock` and a logger.
const STACK_BYTES: usize = 512 << 10;
/// Between two looks at idle memory.
const TRIM: Duration = Duration::from_millis(10);
