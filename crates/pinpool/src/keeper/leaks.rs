//! Leases that are held for too long: told once, and once more when they come back after all.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::class::{ClassRef, Held, Roster};
use crate::foreign::tell;
use crate::size_class::ClassId;
use crate::tag::Tag;

/// What was told so far.
pub(super) struct Leaks {
    after: Duration,
    looked: Instant,
    /// By slot: a pool may have more of them than can be compared with each other.
    told: HashMap<(ClassId, u32), Told>,
}

/// A lease that was reported and is not back.
struct Told {
    class: ClassRef,
    slot: u32,
    lease: u32,
    tag: Option<Arc<str>>,
    since: Instant,
}

impl Leaks {
    pub(super) fn new(after: Duration, now: Instant) -> Self {
        Self { after, looked: now, told: HashMap::new() }
    }

    /// How often to look: late by a quarter at the most.
    pub(super) fn interval(&self) -> Duration {
        (self.after / 4).clamp(OFTEN, SELDOM)
    }

    /// Reports what has been held for too long and what came back, if it is time to look.
    pub(super) fn look(&mut self, roster: &Roster, now: Instant) {
        let ended = roster.iter().all(|class| class.get().is_done());
        if now.saturating_duration_since(self.looked) < self.interval() && !ended {
            return;
        }
        self.looked = now;
        self.told.retain(|_, told| {
            let held = told.class.get().is_held(told.slot, told.lease);
            if !held {
                told.returned(now);
            }
            held
        });
        for class in roster.iter() {
            for held in class.get().held(now) {
                self.report(class, held, now);
            }
        }
    }

    fn report(&mut self, class: ClassRef, held: Held, now: Instant) {
        let Some(age) = held.age.filter(|age| *age >= self.after) else { return };
        let place = (class.get().id(), held.slot);
        if self.told.get(&place).is_some_and(|told| told.lease == held.lease) {
            return;
        }
        let (name, tag) = (class.get().name(), Tag::name(held.tag));
        let count = class.get().count_leak();
        tell!(warn,
            class = %name, slot = held.slot, tag = tag.as_deref(), ?age,
            thread = held.thread, thread_name = thread_name(held.thread), count,
            "a lease is held for longer than leak_after"
        );
        let since = now.checked_sub(age).unwrap_or(now);
        let told = Told { class, slot: held.slot, lease: held.lease, tag, since };
        // Whose slot it was before came back since this look began.
        if let Some(before) = self.told.insert(place, told) {
            before.returned(now);
        }
    }
}

impl Told {
    fn returned(&self, now: Instant) {
        let held = now.saturating_duration_since(self.since);
        tell!(info,
            class = %self.class.get().name(), slot = self.slot, tag = self.tag.as_deref(), ?held,
            "a lease that was reported as held for too long was returned after all"
        );
    }
}

/// What the thread is called, if it still runs.
fn thread_name(thread: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

const OFTEN: Duration = Duration::from_millis(10);
const SELDOM: Duration = Duration::from_secs(1);
