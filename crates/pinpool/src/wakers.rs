//! Tasks that await fences; it asks the fences when the keeper says so.

use std::task::Waker;
use std::time::{Duration, Instant};

use crate::attached::AnyFence;
use crate::clock;
use crate::fence::FenceStatus;
use crate::foreign::{caught, tell};
use crate::sync::Mutex;

/// Fences that tasks await, each with the waker of its task.
#[derive(Debug)]
pub(crate) struct Wakers(Mutex<Vec<Awaited>>);

#[derive(Debug)]
struct Awaited {
    fence: AnyFence,
    task: Waker,
    since: Instant,
}

impl Wakers {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Remembers whom to wake when the fence is over. One task awaits a fence: the last one.
    pub(crate) fn register(&self, fence: AnyFence, task: &Waker) {
        let task = task.clone();
        let mut list = self.0.lock();
        let old = take(&mut list, &fence);
        let since = old.as_ref().map_or_else(clock::now, |old| old.since);
        list.push(Awaited { fence, task, since });
        drop(list);
        // A waker's destructor is foreign code (I17). The fence is the new entry's, too.
        let _ = caught(|| drop(old));
    }

    /// Nobody awaits this fence any more.
    pub(crate) fn forget(&self, fence: &AnyFence) {
        let mut list = self.0.lock();
        let old = take(&mut list, fence);
        drop(list);
        // From a drop, which never panics (I7).
        let _ = caught(|| drop(old));
    }

    /// Wakes all tasks, of whatever fence: nobody asks any more.
    pub(crate) fn wake_all(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        for Awaited { task, .. } in all {
            if caught(|| task.wake()).is_none() {
                tell!(error, "a waker panicked in the keeper");
            }
        }
    }

    /// How long the youngest of the awaited fences has been awaited.
    pub(crate) fn youngest(&self, now: Instant) -> Option<Duration> {
        let list = self.0.lock();
        list.iter().map(|awaited| now.saturating_duration_since(awaited.since)).min()
    }

    /// Asks every fence once and wakes the tasks of those that are over or failed; `recycle` takes
    /// the fences.
    pub(crate) fn pass(&self, mut recycle: impl FnMut(AnyFence)) {
        // From the last to the first: entries that leave meanwhile only move others down.
        let mut at = self.0.lock().len();
        while let Some(below) = at.checked_sub(1) {
            at = below;
            let fence = self.0.lock().get(at).map(|awaited| awaited.fence.clone());
            let Some(fence) = fence else { continue };
            if matches!(fence.poll(), Ok(FenceStatus::Pending)) {
                continue;
            }
            let over = take(&mut self.0.lock(), &fence);
            drop(fence);
            if let Some(Awaited { fence, task, .. }) = over {
                recycle(fence);
                if caught(|| task.wake()).is_none() {
                    tell!(error, "a waker panicked in the keeper");
                }
            }
        }
    }
}

fn take(list: &mut Vec<Awaited>, fence: &AnyFence) -> Option<Awaited> {
    let at = list.iter().position(|awaited| awaited.fence.is(fence))?;
    Some(list.swap_remove(at))
}
