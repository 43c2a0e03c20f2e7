//! The world around a class in its models: what is true of each slot, the device that completes
//! fences in any order, the other holders, and the ways in which a lease is used and ends.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use shuttle::rand::Rng;
use shuttle::thread;

use super::Shape;
use crate::attached::Attached;
use crate::bell::Bell;
use crate::error::Error;
use crate::fence::ManualFence;
use crate::in_flight::{InFlight, TryTakeError};
use crate::lease::Lease;
use crate::shared_lease::SharedLease;
use crate::sync::plain::{AtomicU32, Ordering};
use crate::sync::{Condvar, Mutex};

/// What the tasks know beside the class: the truth that it must agree with.
pub(super) struct World {
    pub(super) shape: Shape,
    shadows: Box<[Shadow]>,
    agenda: Mutex<Agenda>,
    more: Condvar,
}

/// The truth about one slot. No step of it is the scheduler's: tasks of one model share a thread.
#[derive(Default)]
struct Shadow {
    /// The lessee, 0 for none.
    owner: AtomicU32,
    /// What is attached or about to be.
    fences: std::sync::Mutex<Vec<ManualFence>>,
    /// A fence failed.
    lost: AtomicU32,
}

/// What the device and the other holders have to do.
struct Agenda {
    works: Vec<Work>,
    /// Lessees that may add to it.
    lessees: u8,
}

enum Work {
    /// The device is done with the slot, which nobody may have touched until now.
    Complete { fence: ManualFence, slot: u32, bytes: Bytes, stamp: u8 },
    /// Another holder looks at the bytes and lets go.
    LetGo(SharedLease, u8),
}

/// Where a device would read.
struct Bytes(*const [u8]);

// SAFETY: tasks of one model share a thread.
unsafe impl Send for Bytes {}

impl Bytes {
    fn are(&self, stamp: u8) -> bool {
        // SAFETY: the slot is in flight until its fence is complete, so that its slab is mapped
        // and nobody writes it (I1, I3).
        unsafe { &*self.0 }.iter().all(|byte| *byte == stamp)
    }
}
impl World {
    pub(super) fn new(shape: Shape) -> Self {
        Self {
            shape,
            shadows: (0..shape.most()).map(|_| Shadow::default()).collect(),
            agenda: Mutex::new(Agenda { works: Vec::new(), lessees: shape.lessees }),
            more: Condvar::default(),
        }
    }

    /// A lessee got this lease. Stamps it.
    pub(super) fn own(&self, lease: &mut Lease, me: u8) {
        let shadow = self.shadow(lease.slot());
        assert_eq!(shadow.owner.swap(me.into(), Ordering::Relaxed), 0, "two owners (I2)");
        assert_eq!(shadow.lost.load(Ordering::Relaxed), 0, "leased when lost (I11)");
        let fences = std::mem::take(&mut *shadow.fences.lock().expect("one thread"));
        for fence in fences {
            assert!(fence.is_complete(), "leased before its fence is complete (I3)");
        }
        lease.as_mut_slice().fill(me);
    }

    /// No slot has a lessee.
    pub(super) fn assert_left(&self) {
        for shadow in &self.shadows {
            assert_eq!(shadow.owner.load(Ordering::Relaxed), 0);
        }
    }

    /// One of the ways in which a lease is used and ends.
    pub(super) fn use_lease(&self, lease: Lease, me: u8) {
        let slot = lease.slot();
        match pick(8) {
            0 => {
                assert!(lease.as_slice().iter().all(|byte| *byte == me), "overwritten (I2)");
                self.disown(slot);
                drop(lease);
            }
            1 => {
                let fence = self.fence(&lease, me);
                self.disown(slot);
                lease.retire_after(fence);
            }
            2 => {
                for shard in 0..2 {
                    let fence = self.fence(&lease, me);
                    lease.attach(Attached { shard, ..Attached::user(fence) });
                }
                self.disown(slot);
                drop(lease);
            }
            3 => {
                let flight = self.flight(lease, me);
                self.disown(slot);
                drop(flight);
            }
            4 => {
                let flight = self.flight(lease, me);
                let _ = flight.is_complete();
                self.disown(slot);
                drop(flight);
            }
            5 => self.poll_until_landed(lease, me),
            6 => self.await_landing(lease, me),
            _ => {
                let share = lease.share();
                self.disown(slot);
                self.add(Work::LetGo(share.clone(), me));
                self.add(Work::LetGo(share.clone(), me));
                assert!(share.as_slice().iter().all(|byte| *byte == me), "overwritten (I2)");
                drop(share);
            }
        }
    }
}

impl World {
    /// A fence for a leased slot, which the device completes at some time.
    fn fence(&self, lease: &Lease, me: u8) -> ManualFence {
        let (fence, slot) = (ManualFence::new(), lease.slot());
        // Not through `as_slice`, which waits for the fences attached before.
        let bytes = Bytes(std::ptr::slice_from_raw_parts(lease.as_ptr(), lease.len()));
        self.shadow(slot).fences.lock().expect("one thread").push(fence.clone());
        self.add(Work::Complete { fence: fence.clone(), slot, bytes, stamp: me });
        fence
    }

    fn flight(&self, lease: Lease, me: u8) -> InFlight {
        let fence = self.fence(&lease, me);
        lease.in_flight_until(fence)
    }

    fn poll_until_landed(&self, lease: Lease, me: u8) {
        let slot = lease.slot();
        let mut flight = self.flight(lease, me);
        let landed = loop {
            match flight.try_take() {
                Ok(lease) => break Ok(lease),
                Err(TryTakeError::Pending(rest)) => flight = rest,
                Err(TryTakeError::Failed(error)) => break Err(error),
            }
            thread::yield_now();
        };
        self.landed(slot, landed, me);
    }

    /// A task without a runtime: only the keeper can wake it.
    fn await_landing(&self, lease: Lease, me: u8) {
        let slot = lease.slot();
        let alarm = Arc::new(Alarm::default());
        let waker = Waker::from(Arc::clone(&alarm));
        let mut landing = pin!(self.flight(lease, me).into_future());
        let landed = loop {
            match landing.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(landed) => break landed,
                // Dropped while it waits.
                Poll::Pending if pick(4) == 0 => return self.disown(slot),
                Poll::Pending => alarm.sleep(),
            }
        };
        self.landed(slot, landed, me);
    }

    fn landed(&self, slot: u32, landed: Result<Lease, Error>, me: u8) {
        match landed {
            Ok(lease) => {
                for fence in &*self.shadow(slot).fences.lock().expect("one thread") {
                    assert!(fence.is_complete(), "taken before its fence is complete (I3)");
                }
                assert!(lease.as_slice().iter().all(|byte| *byte == me), "overwritten (I2)");
                self.disown(slot);
                drop(lease);
            }
            Err(_) => {
                assert_eq!(self.shadow(slot).lost.load(Ordering::Relaxed), 1, "no fence failed");
                self.disown(slot);
            }
        }
    }

    /// What the device and the other holders do, in any order, until no lessee is left.
    pub(super) fn work(&self) {
        loop {
            let mut agenda = self.agenda.lock();
            while agenda.works.is_empty() && agenda.lessees > 0 {
                self.more.wait(&mut agenda, None);
            }
            if agenda.works.is_empty() {
                return;
            }
            let at = pick(agenda.works.len());
            let work = agenda.works.swap_remove(at);
            drop(agenda);
            match work {
                Work::Complete { fence, slot, bytes, stamp } => {
                    assert!(bytes.are(stamp), "overwritten in flight (I3)");
                    if self.shape.fails && pick(4) == 0 {
                        self.shadow(slot).lost.store(1, Ordering::Relaxed);
                        fence.fail("lost");
                    } else {
                        fence.complete();
                    }
                }
                Work::LetGo(share, stamp) => {
                    assert!(share.as_slice().iter().all(|byte| *byte == stamp), "overwritten (I2)");
                    let last = share.into_lease();
                    drop(last);
                }
            }
        }
    }

    fn add(&self, work: Work) {
        self.agenda.lock().works.push(work);
        self.more.notify_one();
    }

    /// A lessee is done.
    pub(super) fn leave(&self) {
        self.agenda.lock().lessees -= 1;
        self.more.notify_one();
    }

    /// The lessee is about to let go of the slot.
    fn disown(&self, slot: u32) {
        self.shadow(slot).owner.store(0, Ordering::Relaxed);
    }

    fn shadow(&self, slot: u32) -> &Shadow {
        &self.shadows[slot as usize]
    }

    /// Slots that have a failed fence.
    pub(super) fn lost(&self) -> u32 {
        self.shadows.iter().map(|shadow| shadow.lost.load(Ordering::Relaxed)).sum()
    }
}

/// Wakes a task.
pub(super) struct Alarm(Bell);

impl Default for Alarm {
    fn default() -> Self {
        Self(Bell::new())
    }
}

impl Alarm {
    pub(super) fn sleep(&self) {
        self.0.sleep(None);
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.ring();
    }
}
/// A number below `end` that belongs to the schedule.
pub(super) fn pick(end: usize) -> usize {
    shuttle::rand::thread_rng().gen_range(0..end)
}
