//! What classes add and take away, on a thread of its own: pinning takes milliseconds a frame, and
//! whoever waits for the keeper must not wait for that.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
}

impl Growth {
    pub(super) fn new(roster: Arc<Roster>, shared: Arc<Shared>) -> Self {
        Self { roster, shared, trimmed: clock::now() }
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
        for class in self.roster.iter() {
            class.grow_if_wanted(now);
        }
        if now.saturating_duration_since(self.trimmed) >= TRIM {
            self.trimmed = now;
            for class in self.roster.iter() {
                class.trim(now, false);
            }
        }
    }

    /// When to look again, though nobody asks.
    pub(super) fn tends_in(&self) -> Option<Duration> {
        self.roster.iter().filter_map(ClassRef::tends_in).min()
    }
}

/// The thread's name, at most 15 bytes.
const NAME: &str = "pinpool-growth";
/// It runs a user's `PageLock` and a logger.
const STACK_BYTES: usize = 512 << 10;
/// Between two looks at idle memory.
const TRIM: Duration = Duration::from_millis(10);
