//! Every interleaving of retiring, asking, completing, closing and falling asleep, on the real inbox,
//! lines, slots and free list.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a model that panics has failed")]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::attached::{Attached, Order};
use crate::bell::Bell;
use crate::explore::explore;
use crate::fence::{Fence, FenceError, ManualFence};
use crate::free_list::{FreeList, Pop, Push, Reach};
use crate::sync::Ordering::Relaxed;
use crate::sync::{AtomicUsize, Condvar};
use crate::waiters::{Handed, Sleeper, Waiters, Want, Woken};

/// A class without memory.
struct Model {
    list: FreeList<SlotState>,
    reclaim: Reclaim,
    waiters: Waiters,
    bell: Bell,
    /// What stands for a slot's bytes: reading and writing it at once is an error that loom sees.
    bytes: Vec<UnsafeCell<u32>>,
    home: AtomicUsize,
    lost: AtomicUsize,
}

/// One pass; what it settles.
struct Pass<'a> {
    model: &'a Model,
    handed: Handed,
}

impl Home for Pass<'_> {
    fn state(&self, slot: u32) -> &SlotState {
        self.model.list.meta(slot)
    }

    fn settle(&mut self, slot: u32, _: u32) {
        if self.model.list.push(slot) == Push::Waited {
            self.handed.append(self.model.waiters.give(&self.model.list, slot));
        }
        self.model.home.fetch_add(1, Relaxed);
    }

    fn quarantine(&mut self, _: u32, _: &Error) {
        self.model.lost.fetch_add(1, Relaxed);
    }

    fn after(&mut self, fences: &mut dyn Iterator<Item = AnyFence>) {
        fences.for_each(drop);
        let _ = std::mem::take(&mut self.handed).wake();
    }

    fn enough(&mut self) -> bool {
        false
    }
}

impl Model {
    /// All slots are taken.
    fn new(slots: u32) -> Arc<Self> {
        let list = FreeList::new(slots, 1, 0, SlotState::new).unwrap();
        for _ in 0..slots {
            let Pop::Slot { slot, .. } = list.pop_within(Reach::REGULAR) else {
                unreachable!("all are free")
            };
            let _ = list.lease(slot);
        }
        Arc::new(Self {
            list,
            reclaim: Reclaim::new(),
            waiters: Waiters::new(),
            bell: Bell::new(),
            bytes: (0..slots).map(|_| UnsafeCell::new(0)).collect(),
            home: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
        })
    }

    fn state(&self, slot: u32) -> &SlotState {
        self.list.meta(slot)
    }

    fn attach(&self, slot: u32, fence: &ManualFence) {
        assert!(self.state(slot).attach(Attached::user(fence.clone())).0.is_none());
    }

    /// As `ClassRef::retire`.
    fn retire(&self, slot: u32) {
        if self.list.is_watched() || !self.reclaim.retire(slot, self.state(slot)) {
            self.reclaim.retire_waking(slot, self.state(slot));
            self.bell.ring();
        }
    }

    fn pass(&self) {
        self.reclaim.pass(&mut Pass { model: self, handed: Handed::default() });
    }

    fn home(&self) -> usize {
        self.home.load(Relaxed)
    }

    /// The next owner writes the bytes.
    fn own_next(&self) -> Option<u32> {
        let Pop::Slot { slot, .. } = self.list.pop_within(Reach::REGULAR) else { return None };
        // SAFETY: I2 and I3, the slot is ours and no work uses it; loom checks exactly that.
        self.bytes[slot as usize].with_mut(|bytes| unsafe { *bytes += 1 });
        Some(slot)
    }

    /// The work in flight writes the bytes, then is over.
    fn work(&self, slot: u32, fence: &ManualFence) {
        // SAFETY: the fence is pending, so that nobody else touches the bytes.
        self.bytes[slot as usize].with_mut(|bytes| unsafe { *bytes += 10 });
        fence.complete();
    }
}

fn spawn(model: &Arc<Model>, work: impl FnOnce(&Model) + 'static) -> thread::JoinHandle<()> {
    let model = Arc::clone(model);
    thread::spawn(move || work(&model))
}

/// The work ends while the slot is retired and asked for: the next owner sees all it wrote (I3).
#[test]
fn the_next_owner_comes_after_the_work() {
    explore(Some(3), || {
        let model = Model::new(1);
        let fence = ManualFence::new();
        model.attach(0, &fence);
        let device = spawn(&model, move |model| model.work(0, &fence));
        let holder = spawn(&model, |model| model.retire(0));
        model.pass();
        let early = model.own_next();
        device.join().unwrap();
        holder.join().unwrap();
        model.pass();
        assert_eq!(early.or_else(|| model.own_next()), Some(0));
        assert_eq!(model.home(), 1);
    });
}

/// A fence that was complete before it was attached.
#[test]
fn a_fence_complete_before_it_is_attached() {
    explore(None, || {
        let model = Model::new(1);
        let fence = ManualFence::new();
        fence.complete();
        let holder = spawn(&model, move |model| {
            model.attach(0, &fence);
            model.retire(0);
        });
        model.pass();
        holder.join().unwrap();
        model.pass();
        assert_eq!((model.home(), model.own_next()), (1, Some(0)));
    });
}

/// Two passes learn of the same completion: the slot goes home once.
#[test]
fn two_passes_send_a_slot_home_once() {
    explore(Some(3), || {
        let model = Model::new(2);
        let fences = [ManualFence::new(), ManualFence::new()];
        for (slot, fence) in (0..).zip(&fences) {
            model.attach(slot, fence);
            model.retire(slot);
        }
        fences[0].complete();
        let other = spawn(&model, Model::pass);
        model.pass();
        fences[1].complete();
        other.join().unwrap();
        model.pass();
        assert_eq!(model.home(), 2);
        assert_eq!(model.list.census(Reach::REGULAR).0, 2);
    });
}

/// Two threads retire while a third drains: nothing is lost in the inbox.
#[test]
fn the_inbox_loses_nothing() {
    explore(Some(3), || {
        let model = Model::new(2);
        let fence = ManualFence::new();
        fence.complete();
        for slot in 0..2 {
            model.attach(slot, &fence);
        }
        let others = [0, 1].map(|slot| spawn(&model, move |model| model.retire(slot)));
        model.pass();
        others.into_iter().for_each(|other| other.join().unwrap());
        model.pass();
        assert_eq!(model.home(), 2);
    });
}

/// The keeper falls asleep while a slot is retired: it sleeps over nothing, or is woken. A lost
/// wake-up would be a deadlock.
#[test]
fn a_retirement_wakes_the_keeper() {
    explore(Some(3), || {
        let model = Model::new(1);
        let fence = ManualFence::new();
        fence.complete();
        model.attach(0, &fence);
        let keeper = spawn(&model, |model| {
            while model.home() == 0 {
                model.pass();
                if model.home() == 0 && model.reclaim.fall_asleep(|| true) {
                    model.bell.sleep(None);
                    model.reclaim.wake_up();
                }
                thread::yield_now();
            }
        });
        model.retire(0);
        keeper.join().unwrap();
        assert_eq!(model.own_next(), Some(0));
    });
}

/// The keeper falls asleep while another thread's pass moves a pending slot from the inbox to a line:
/// it does not sleep over it.
#[test]
fn the_keeper_does_not_sleep_over_a_slot_on_the_move() {
    explore(Some(3), || {
        let model = Model::new(1);
        model.attach(0, &ManualFence::new());
        model.retire(0);
        let other = spawn(&model, Model::pass);
        assert!(!model.reclaim.fall_asleep(|| true));
        other.join().unwrap();
        assert!(!model.reclaim.fall_asleep(|| true));
    });
}

/// A waiter, a retirement and the keeper, who sends the slot home: the waiter gets it.
#[test]
fn a_retired_slot_reaches_a_waiter() {
    explore(Some(2), || {
        let model = Model::new(1);
        let fence = ManualFence::new();
        fence.complete();
        model.attach(0, &fence);
        let waiter = spawn(&model, |model| {
            let ready = std::sync::Arc::new(Condvar::default());
            let sleeper = Sleeper::Thread(std::sync::Arc::clone(&ready));
            let want = Want { count: 1, reach: Reach::REGULAR };
            let (entered, handed) = model.waiters.enter(&model.list, want, sleeper, || false);
            let _ = handed.wake();
            let woken = entered.map_or_else(
                |woken| woken,
                |ticket| {
                    model.pass();
                    model.bell.ring();
                    model.waiters.sleep(&model.list, ticket, &ready, None).0
                },
            );
            assert_eq!(woken, Woken::Slots(vec![0]));
        });
        let holder = spawn(&model, |model| model.retire(0));
        holder.join().unwrap();
        model.pass();
        waiter.join().unwrap();
        assert_eq!(model.home(), 1);
    });
}

/// A slot with fences of two streams, two passes: home once, after both.
#[test]
fn a_slot_with_two_fences_waits_for_both() {
    explore(Some(2), || {
        let model = Model::new(1);
        let fences = [ManualFence::new(), ManualFence::new()];
        for (stream, fence) in (1..).zip(&fences) {
            let before = model.reclaim.before_recording();
            let order = Order { stream, before, after: model.reclaim.after_recording() };
            let attached = Attached { order, ..Attached::user(fence.clone()) };
            assert!(model.state(0).attach(attached).0.is_none());
        }
        model.retire(0);
        // The one attached last is asked first.
        let [first, second] = fences;
        second.complete();
        let device = spawn(&model, move |model| model.work(0, &first));
        model.pass();
        let early = model.own_next();
        device.join().unwrap();
        model.pass();
        assert_eq!(early.or_else(|| model.own_next()), Some(0));
    });
}

/// A stream of a device: what is recorded in it is complete in that order.
struct Stream {
    recorded: crate::sync::Mutex<Vec<u32>>,
    complete: AtomicUsize,
}

struct InStream(Arc<Stream>, u32);

impl Fence for InStream {
    fn poll(&self) -> Result<FenceStatus, FenceError> {
        let place = self.0.recorded.lock().iter().position(|slot| *slot == self.1);
        let complete = self.0.complete.load(Relaxed);
        let over = place.is_some_and(|place| place < complete);
        Ok(if over { FenceStatus::Complete } else { FenceStatus::Pending })
    }
}

/// Two threads record in one stream at once, and the stream completes one recording: whatever the
/// clock says of their order, the other one does not go home.
#[test]
fn the_recording_clock_never_claims_too_much() {
    explore(Some(3), || {
        let model = Model::new(3);
        let stream = Arc::new(Stream {
            recorded: crate::sync::Mutex::new(Vec::new()),
            complete: AtomicUsize::new(0),
        });
        let record = |slot: u32| {
            let stream = Arc::clone(&stream);
            move |model: &Model| {
                let before = model.reclaim.before_recording();
                stream.recorded.lock().push(slot);
                let order = Order { stream: 1, before, after: model.reclaim.after_recording() };
                let fence = InStream(stream, slot);
                let attached = Attached { order, ..Attached::user(fence) };
                assert!(model.state(slot).attach(attached).0.is_none());
                model.retire(slot);
            }
        };
        record(2)(&model);
        let threads = [spawn(&model, record(0)), spawn(&model, record(1))];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        // The first is complete, and one of the two: the pass asks the farther one of these.
        stream.complete.store(2, Relaxed);
        model.pass();
        let second = stream.recorded.lock()[1];
        let home: Vec<_> = std::iter::from_fn(|| model.own_next()).collect();
        // The second may have to wait for the third, where their recordings overlapped.
        assert!(home.contains(&2) && home.iter().all(|slot| *slot == 2 || *slot == second));
        stream.complete.store(3, Relaxed);
        model.pass();
        assert_eq!(model.home(), 3);
    });
}

/// Two passes learn that a fence failed: the slot is quarantined once, and never home.
#[test]
fn a_failed_fence_is_counted_once() {
    explore(Some(3), || {
        let model = Model::new(1);
        let fence = ManualFence::new();
        fence.fail("planted");
        model.attach(0, &fence);
        model.retire(0);
        let other = spawn(&model, Model::pass);
        model.pass();
        other.join().unwrap();
        assert_eq!((model.lost.load(Relaxed), model.home()), (1, 0));
        assert_eq!(model.own_next(), None);
    });
}

/// The list closes while a slot comes home from flight: it is counted by one of the two.
#[test]
fn a_slot_that_lands_during_close_is_counted_once() {
    explore(Some(3), || {
        let model = Model::new(1);
        let fence = ManualFence::new();
        fence.complete();
        model.attach(0, &fence);
        model.retire(0);
        let other = spawn(&model, Model::pass);
        let taken = model.list.close().expect("closed once");
        other.join().unwrap();
        model.pass();
        assert_eq!(model.home(), 1, "home either way: in the list, or handed back");
        assert!(taken <= 1);
        assert_eq!(model.list.pop_within(Reach::REGULAR), Pop::Closed);
    });
}

/// Two holders of a shared lease attach and let go: one of them is the last, and sees both fences.
#[test]
fn the_last_of_two_holders_sees_every_fence() {
    explore(None, || {
        let model = Model::new(1);
        model.state(0).clone_share();
        let last = Arc::new(AtomicUsize::new(0));
        let holder = |last: Arc<AtomicUsize>| {
            move |model: &Model| {
                model.attach(0, &ManualFence::new());
                if model.state(0).drop_share() {
                    assert!(model.state(0).detach().is_some() && model.state(0).detach().is_some());
                    last.fetch_add(1, Relaxed);
                }
            }
        };
        let other = spawn(&model, holder(Arc::clone(&last)));
        holder(Arc::clone(&last))(&model);
        other.join().unwrap();
        assert_eq!(last.load(Relaxed), 1);
    });
}

/// Two threads find the same fence complete and take it off: one does, and no other fence goes.
#[test]
fn a_complete_fence_comes_off_once() {
    explore(None, || {
        let model = Model::new(1);
        let (pending, complete) = (ManualFence::new(), ManualFence::new());
        complete.complete();
        model.attach(0, &pending);
        model.attach(0, &complete);
        let asked = model.state(0).last().unwrap().fence;
        let other = {
            let asked = asked.clone();
            spawn(&model, move |model| drop(model.state(0).remove(&asked)))
        };
        drop(model.state(0).remove(&asked));
        other.join().unwrap();
        assert!(model.state(0).is_used(), "the pending fence stays");
        assert!(model.state(0).detach().is_some() && !model.state(0).is_used());
    });
}

/// A ring before, while or after the sleeper lies down wakes it.
#[test]
fn the_bell_is_never_missed() {
    explore(None, || {
        let bell = Arc::new(Bell::new());
        let sleeper = {
            let bell = Arc::clone(&bell);
            thread::spawn(move || bell.sleep(None))
        };
        bell.ring();
        sleeper.join().unwrap();
    });
}
