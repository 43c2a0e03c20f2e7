//! What the keeper sleeps on; it knows nothing of why it is rung.

use std::time::Instant;

use crate::sync::{Condvar, Mutex};

/// A bell with one sleeper. A ring while nobody sleeps is remembered.
#[derive(Debug)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    sleeper: Condvar,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self { rung: Mutex::new(false), sleeper: Condvar::default() }
    }

    /// Wakes the sleeper.
    pub(crate) fn ring(&self) {
        let before = std::mem::replace(&mut *self.rung.lock(), true);
        // Without the lock: waking is a system call (I17).
        if !before {
            self.sleeper.notify_one();
        }
    }

    /// Whether the next sleep ends at once.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn is_rung(&self) -> bool {
        *self.rung.lock()
    }

    /// Sleeps until the bell is rung or the deadline passes. Rings before count, once.
    pub(crate) fn sleep(&self, deadline: Option<Instant>) {
        let mut rung = self.rung.lock();
        while !*rung {
            if self.sleeper.wait(&mut rung, deadline) {
                break;
            }
        }
        *rung = false;
    }
}
