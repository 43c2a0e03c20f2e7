//! What the keeper sleeps on; it knows nothing of why it is rung.

use std::time::Instant;

use crate::sync::{Condvar, Mutex};

/// A bell with one sleeper. A ring while nobody sleeps is remembered.
#[derive(Debug)]
pub(crate) struct Bell {
    state: Mutex<State>,
    sleeper: Condvar,
}

#[derive(Debug, Default)]
struct State {
    rung: bool,
    /// Somebody sleeps: waking is a system call, also where nobody does.
    sleeps: bool,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State::default()), sleeper: Condvar::default() }
    }

    /// Wakes the sleeper.
    pub(crate) fn ring(&self) {
        let mut state = self.state.lock();
        let before = std::mem::replace(&mut state.rung, true);
        let wakes = state.sleeps && !before;
        drop(state);
        // Without the lock: waking is a system call (I17).
        if wakes {
            self.sleeper.notify_one();
        }
    }

    /// Whether the next sleep ends at once.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn is_rung(&self) -> bool {
        self.state.lock().rung
    }

    /// Sleeps until the bell is rung or the deadline passes. Rings before count, once.
    pub(crate) fn sleep(&self, deadline: Option<Instant>) {
        let mut state = self.state.lock();
        state.sleeps = true;
        while !state.rung {
            if self.sleeper.wait(&mut state, deadline) {
                break;
            }
        }
        *state = State::default();
    }
}
