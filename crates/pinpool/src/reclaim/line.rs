//! Retired slots of one stream, in the order in which their fences were recorded, and how to find
//! the complete ones with few questions.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{BATCH, Stuck};
use crate::attached::{AnyFence, Attached, Order};
use crate::clock;

/// One stream's slots, or the slots whose fences have no stream.
#[derive(Debug)]
pub(super) struct Line {
    /// By rising `after`, which is the order of recording. Without a stream: in any order.
    waiting: VecDeque<Waiting>,
    /// Entries without a stream that are complete and not home yet.
    over: Vec<Waiting>,
    /// The stream, or the last one while nothing waits: the line is then free for any.
    stream: Option<u64>,
    /// Every entry of the stream with a smaller `after` is complete.
    complete_before: u64,
    /// When the last entry was seen complete.
    completed: Option<Instant>,
    /// How long the stream takes for one entry, smoothed.
    typical: Duration,
}

#[derive(Debug)]
struct Waiting {
    slot: u32,
    attached: Attached,
    complete: bool,
}

/// A fence to ask, and the entry it belongs to.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) slot: u32,
    pub(super) fence: AnyFence,
    order: Order,
    /// Where the entry was.
    at: usize,
}

/// Where in a line to ask next.
#[derive(Debug)]
pub(super) enum Gallop {
    /// Entries in order: the one `step` places from the head, the step doubling while fences are
    /// complete and halving from the first pending one on. It ends when the head itself is pending.
    Ordered { step: usize, grows: bool, ended: bool },
    /// No order: each entry below `rest`, from the last to the first. One that leaves meanwhile is
    /// replaced by the last, so that entries only move down and none is missed.
    Each { rest: usize },
}

impl Line {
    pub(super) fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            over: Vec::new(),
            stream: None,
            complete_before: 0,
            completed: None,
            typical: Duration::ZERO,
        }
    }

    /// The line is of this stream, or was last.
    pub(super) fn is_of(&self, stream: u64) -> bool {
        self.stream == Some(stream)
    }

    /// Nothing waits here.
    pub(super) fn is_vacant(&self) -> bool {
        self.waiting.is_empty() && self.over.is_empty()
    }

    /// Adds an entry at its place.
    pub(super) fn enter(&mut self, slot: u32, attached: Attached) {
        let order = attached.order;
        if self.stream != Some(order.line()) {
            let (waiting, over) =
                (std::mem::take(&mut self.waiting), std::mem::take(&mut self.over));
            *self = Self { waiting, over, ..Self::new() };
            self.stream = Some(order.line());
        }
        if order.line() == Order::NO_STREAM {
            self.waiting.push_back(Waiting { slot, attached, complete: false });
            return;
        }
        let complete = order.after < self.complete_before;
        // Nearly always the last place: a lease kept for long after its copy comes earlier.
        let last = self.waiting.back().is_none_or(|last| last.attached.order.after < order.after);
        let at = if last {
            self.waiting.len()
        } else {
            self.waiting.partition_point(|entry| entry.attached.order.after < order.after)
        };
        self.waiting.insert(at, Waiting { slot, attached, complete });
    }

    pub(super) fn gallop(&self) -> Gallop {
        match self.stream {
            Some(Order::NO_STREAM) => Gallop::Each { rest: self.waiting.len() },
            _ => Gallop::Ordered { step: 1, grows: true, ended: false },
        }
    }

    /// The next fence to ask.
    pub(super) fn probe(&self, gallop: &mut Gallop) -> Option<Probe> {
        let at = match gallop {
            Gallop::Ordered { ended: true, .. } => return None,
            Gallop::Ordered { step, .. } => {
                *step = (*step).min(self.waiting.len());
                // Known to be complete, but behind one whose recording overlapped with its own.
                while *step > 1 && self.waiting[*step - 1].complete {
                    *step -= 1;
                }
                step.checked_sub(1)?
            }
            Gallop::Each { rest } => {
                *rest = (*rest).min(self.waiting.len()).checked_sub(1)?;
                *rest
            }
        };
        let entry = self.waiting.get(at)?;
        let fence = entry.attached.fence.clone();
        Some(Probe { slot: entry.slot, fence, order: entry.attached.order, at })
    }

    /// A probed fence is complete, and with it all of the stream that were recorded before. True
    /// when entries should leave before more is asked.
    pub(super) fn complete(&mut self, probe: &Probe) -> bool {
        // The line may serve another stream by now.
        if self.stream != Some(probe.order.line()) {
            return false;
        }
        let at = self.position(probe);
        if probe.order.line() == Order::NO_STREAM {
            let entry = at.and_then(|at| self.waiting.swap_remove_back(at));
            self.over.extend(entry);
            return self.over.len() >= BATCH;
        }
        let order = probe.order;
        let before = if crate::seeded::bug("claims-order") { order.after } else { order.before };
        self.complete_before = self.complete_before.max(before);
        if let Some(at) = at {
            self.waiting[at].complete = true;
        }
        self.learn(clock::now());
        true
    }

    /// Notes that the head, and maybe more, were seen complete now. Completion is often noticed
    /// late, so that short times count at once and long ones by degrees.
    fn learn(&mut self, now: Instant) {
        let over = self.waiting.iter().take_while(|entry| self.is_over(entry)).count();
        let over = u32::try_from(over).unwrap_or(u32::MAX);
        if let Some(began) = self.began().filter(|_| over > 0) {
            let took = now.saturating_duration_since(began) / over;
            let longest = self.typical + self.typical / 8;
            self.typical = if self.typical.is_zero() { took } else { took.min(longest) };
        }
        self.completed = Some(now);
    }

    /// When the stream began with the head, as far as is known.
    fn began(&self) -> Option<Instant> {
        let since = self.waiting.front()?.attached.since;
        Some(self.completed.map_or(since, |completed| completed.max(since)))
    }

    fn is_over(&self, entry: &Waiting) -> bool {
        entry.complete || entry.attached.order.after < self.complete_before
    }

    /// Takes out a complete entry, if there is one.
    pub(super) fn leave(&mut self) -> Option<(u32, Attached)> {
        let entry = match self.stream? {
            Order::NO_STREAM => self.over.pop()?,
            _ if self.is_over(self.waiting.front()?) => self.waiting.pop_front()?,
            _ => return None,
        };
        Some((entry.slot, entry.attached))
    }

    /// Takes out the entry of a failed fence, unless it left already.
    pub(super) fn remove(&mut self, probe: &Probe) -> Option<AnyFence> {
        let at = self.position(probe)?;
        let entry = match self.stream? {
            Order::NO_STREAM => self.waiting.swap_remove_back(at)?,
            _ => self.waiting.remove(at)?,
        };
        Some(entry.attached.fence)
    }

    /// Where the entry of a probe is, if it is still here: mostly where it was.
    fn position(&self, probe: &Probe) -> Option<usize> {
        let is =
            |entry: &Waiting| entry.slot == probe.slot && entry.attached.fence.is(&probe.fence);
        if self.waiting.get(probe.at).is_some_and(is) {
            return Some(probe.at);
        }
        self.waiting.iter().position(is)
    }

    /// How long to wait before looking again: half of what the head should still take, or an eighth
    /// of what it took too long; nothing close to the time when it should be complete, because a
    /// sleep may end late.
    pub(super) fn due(&self, now: Instant) -> Option<Duration> {
        if !self.over.is_empty() || self.waiting.front()?.complete {
            return Some(Duration::ZERO);
        }
        let expected = self.began()? + self.typical;
        let rest = expected.saturating_duration_since(now);
        let late = now.saturating_duration_since(expected);
        let close = rest.max(late) < CLOSE;
        Some(if close { Duration::ZERO } else { (rest / 2).max(late / 8) })
    }

    pub(super) fn stuck(&self, now: Instant) -> impl Iterator<Item = Stuck> {
        self.waiting.iter().chain(&self.over).map(move |entry| Stuck {
            slot: entry.slot,
            age: now.saturating_duration_since(entry.attached.since),
        })
    }
}

impl Gallop {
    /// Entries are asked one by one.
    pub(super) fn is_long(&self) -> bool {
        matches!(self, Self::Each { .. })
    }

    pub(super) fn complete(&mut self) {
        if let Self::Ordered { step, grows, .. } = self {
            *step = if *grows { *step * 2 } else { (*step / 2).max(1) };
        }
    }

    pub(super) fn pending(&mut self) {
        if let Self::Ordered { step, grows, ended } = self {
            *ended = *step <= 1;
            *grows = false;
            *step = (*step / 2).max(1);
        }
    }
}

/// Sleeps of a millisecond ended 16 us late on a virtual machine with an H200, one in a hundred 64 us.
const CLOSE: Duration = Duration::from_micros(50);
