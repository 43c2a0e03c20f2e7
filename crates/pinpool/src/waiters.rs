//! Threads that sleep until a slot of their class comes home; it knows the free list, not the slots.

use std::time::Instant;

use crate::free_list::{FreeList, Pop};
use crate::sync::{Condvar, Mutex};

/// The sleepers of one class.
///
/// A sleeper holds the lock from its last look to its sleep, and whoever returns a slot to a watched
/// list takes the lock between its push and its wake. So a push that the sleeper's last look missed
/// finds the sleeper asleep, and each returned slot wakes one (I9).
#[derive(Debug)]
pub(crate) struct Waiters {
    /// How many threads are inside `wait`. The list is watched while it is above zero.
    asleep: Mutex<usize>,
    ready: Condvar,
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The caller owns this slot now.
    Slot(u32),
    /// The deadline passed and nothing was free at that moment.
    TimedOut,
    /// The pool closed.
    Closed,
    /// No slot can come home any more.
    Hopeless,
}

impl Waiters {
    pub(crate) fn new() -> Self {
        Self { asleep: Mutex::new(0), ready: Condvar::default() }
    }

    /// Sleeps until a slot is free, the deadline passes or the list closes. `announced` is called
    /// once the list is watched, without a lock: what comes home later wakes this sleeper. Once
    /// `hopeless` is true, and [`Self::wake_all`] was called, nobody sleeps.
    pub(crate) fn wait<M>(
        &self,
        list: &FreeList<M>,
        deadline: Option<Instant>,
        announced: impl FnOnce(),
        hopeless: impl Fn() -> bool,
    ) -> Woken {
        let mut asleep = self.asleep.lock();
        if *asleep == 0 {
            list.watch();
        }
        *asleep += 1;
        drop(asleep);
        announced();
        let mut asleep = self.asleep.lock();
        let mut timed_out = false;
        let woken = loop {
            match list.pop() {
                Pop::Slot { slot, .. } => break Woken::Slot(slot),
                Pop::Closed => break Woken::Closed,
                Pop::Empty if timed_out => break Woken::TimedOut,
                Pop::Empty if hopeless() => break Woken::Hopeless,
                Pop::Empty => timed_out = self.ready.wait(&mut asleep, deadline),
            }
        };
        *asleep -= 1;
        if *asleep == 0 {
            list.unwatch();
        }
        woken
    }

    /// Wakes one sleeper, if there is one, after a slot was pushed.
    pub(crate) fn wake_one(&self) {
        if crate::seeded::bug("lost-wake") {
            return;
        }
        let asleep = self.asleep.lock();
        if *asleep > 0 {
            self.ready.notify_one();
        }
    }

    /// Wakes all sleepers.
    pub(crate) fn wake_all(&self) {
        // Taken once: no sleeper is between its last look and its sleep then.
        drop(self.asleep.lock());
        self.ready.notify_all();
    }

    /// Closes the list while no sleeper is between its last look and its sleep, then wakes all.
    ///
    /// `count` is told the free slots that were taken out, before a second closer can get past the
    /// lock. Its answer is returned, or `None` if the list was closed before.
    pub(crate) fn close<M, R>(
        &self,
        list: &FreeList<M>,
        count: impl FnOnce(u32) -> R,
    ) -> Option<R> {
        let asleep = self.asleep.lock();
        let counted = list.close().map(count);
        drop(asleep);
        self.ready.notify_all();
        counted
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;

    use super::*;
    use crate::free_list::Push;

    /// What `Class::give_back` does.
    fn give_back(list: &FreeList<()>, waiters: &Waiters, slot: u32) {
        if list.push(slot) == Push::Waited {
            assert_eq!(list.push_waited(slot), Push::Free);
            waiters.wake_one();
        }
    }

    /// One slot out, one sleeper, one return: the sleeper always gets it. A lost wake-up would be a
    /// deadlock, which loom reports.
    #[test]
    fn a_return_reaches_a_sleeper() {
        loom::model(|| {
            let shared = Arc::new((FreeList::new(1, 1, || ()).expect("memory"), Waiters::new()));
            let Pop::Slot { slot, .. } = shared.0.pop() else { unreachable!("one is free") };
            let sleeper = {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || shared.1.wait(&shared.0, None, || (), || false))
            };
            give_back(&shared.0, &shared.1, slot);
            assert_eq!(sleeper.join().ok(), Some(Woken::Slot(slot)));
        });
    }

    /// Two slots out, two sleepers, two returns from one thread: both sleepers get one.
    #[test]
    fn two_returns_reach_two_sleepers() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let shared = Arc::new((FreeList::new(2, 1, || ()).expect("memory"), Waiters::new()));
            let taken: Vec<u32> = (0..2)
                .map(|_| match shared.0.pop() {
                    Pop::Slot { slot, .. } => slot,
                    other => unreachable!("two are free, got {other:?}"),
                })
                .collect();
            let sleepers: Vec<_> = (0..2)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    loom::thread::spawn(move || shared.1.wait(&shared.0, None, || (), || false))
                })
                .collect();
            for slot in taken {
                give_back(&shared.0, &shared.1, slot);
            }
            let mut got: Vec<_> = sleepers.into_iter().map(|sleeper| sleeper.join().ok()).collect();
            got.sort_by_key(|woken| matches!(woken, Some(Woken::Slot(1))));
            assert_eq!(got, [Some(Woken::Slot(0)), Some(Woken::Slot(1))]);
        });
    }

    /// Close wakes a sleeper, whenever it comes.
    #[test]
    fn close_wakes_a_sleeper() {
        loom::model(|| {
            let shared = Arc::new((FreeList::new(1, 1, || ()).expect("memory"), Waiters::new()));
            assert!(matches!(shared.0.pop(), Pop::Slot { .. }));
            let sleeper = {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || shared.1.wait(&shared.0, None, || (), || false))
            };
            assert_eq!(shared.1.close(&shared.0, |taken| taken), Some(0));
            assert_eq!(sleeper.join().ok(), Some(Woken::Closed));
        });
    }
}
