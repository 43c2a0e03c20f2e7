//! Who holds the slots of a class, and since when: kept only where it is asked for.

use std::time::{Duration, Instant};

use super::Class;
use crate::clock;
use crate::error::OldestHolder;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The present holder of one slot.
#[derive(Debug, Default)]
struct Holder {
    /// When it was leased, in nanoseconds since the records were made.
    since: AtomicU64,
    thread: AtomicU32,
}

/// A holder of each slot, of classes that keep track.
#[derive(Debug)]
pub(super) struct Holders {
    start: Instant,
    slots: Box<[Holder]>,
}

/// A slot that is held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) slot: u32,
    /// Tells this lease from others of the slot.
    pub(crate) lease: u32,
    pub(crate) tag: u32,
    /// For how long, where the class keeps track.
    pub(crate) age: Option<Duration>,
    /// The system's number of the thread that leased it, where the class keeps track.
    pub(crate) thread: u32,
}

impl Holders {
    pub(super) fn new(slots: u32) -> Self {
        Self { start: clock::now(), slots: (0..slots).map(|_| Holder::default()).collect() }
    }

    /// The calling thread takes a slot.
    pub(super) fn note(&self, slot: u32) {
        let holder = &self.slots[slot as usize];
        let since = u64::try_from(clock::elapsed(self.start).as_nanos()).unwrap_or(u64::MAX);
        holder.since.store(since, Ordering::Relaxed);
        holder.thread.store(own_thread(), Ordering::Relaxed);
    }

    /// How long a slot has been held at `now`, and by whom.
    fn read(&self, slot: u32, now: Instant) -> (Duration, u32) {
        let holder = &self.slots[slot as usize];
        let since = Duration::from_nanos(holder.since.load(Ordering::Relaxed));
        let thread = holder.thread.load(Ordering::Relaxed);
        (now.saturating_duration_since(self.start).saturating_sub(since), thread)
    }
}

impl Class {
    /// Slots that somebody holds. Whoever returns one meanwhile may be in it.
    pub(crate) fn held(&self, now: Instant) -> impl Iterator<Item = Held> {
        (0..self.list.slots()).filter_map(move |slot| {
            let state = self.list.meta(slot);
            let lease = self.list.held_lease(slot)?;
            let tracked = self.holders.as_ref().map(|holders| holders.read(slot, now));
            let tag = state.tag();
            // Of one lease: if it is still the same one, so is what was read.
            (self.list.held_lease(slot) == Some(lease)).then(|| Held {
                slot,
                lease,
                tag,
                age: tracked.map(|(age, _)| age),
                thread: tracked.map_or(0, |(_, thread)| thread),
            })
        })
    }

    /// Whether somebody holds this very lease.
    pub(crate) fn is_held(&self, slot: u32, lease: u32) -> bool {
        self.list.held_lease(slot) == Some(lease)
    }

    /// The one who has held a slot for the longest, where the class keeps track.
    pub(super) fn oldest_holder(&self) -> Option<OldestHolder> {
        self.holders.as_ref()?;
        let own = own_thread();
        let mut own_slots = 0;
        let mut oldest: Option<Held> = None;
        for held in self.held(clock::now()) {
            own_slots += u32::from(held.thread == own);
            // Of equals the one that was found first.
            if oldest.is_none_or(|oldest| oldest.age < held.age) {
                oldest = Some(held);
            }
        }
        oldest.map(|held| OldestHolder {
            slot: held.slot,
            tag: held.tag,
            held: held.age.unwrap_or_default(),
            own_slots,
        })
    }
}

/// The system's number of the calling thread. A system call once per thread.
fn own_thread() -> u32 {
    std::thread_local! {
        // Has no destructor, so it still answers while other thread-locals are torn down (I7).
        static OWN: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }
    OWN.with(|own| {
        if own.get() == 0 {
            own.set(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
        }
        own.get()
    })
}
