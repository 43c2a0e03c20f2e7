//! Random schedules of a whole class: lessees, fences completed in any order, a keeper, a close.
//!
//! Each step of each task is shuttle's choice. A wake-up that is lost is a deadlock. A failure prints
//! its schedule, and `MODEL_REPLAY` runs that one again.

use std::future::{Future, IntoFuture};
use std::io::Write as _;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, Runner, thread};

use super::counts::Census;
use super::{ClassRef, Slots};
use crate::attached::Attached;
use crate::bell::Bell;
use crate::config::Threads;
use crate::error::{Error, LeaseError};
use crate::fence::ManualFence;
use crate::free_list::FreeList;
use crate::in_flight::{InFlight, TryTakeError};
use crate::lease::Lease;
use crate::memory::Heap;
use crate::plan::ClassPlan;
use crate::shared::Shared;
use crate::shared_lease::SharedLease;
use crate::size_class::ClassId;
use crate::slab::{Slab, StartupTimes};
use crate::slot::SlotState;
use crate::sync::plain::{AtomicU32, Ordering};
use crate::sync::{Condvar, Mutex};

/// One shape of a model.
#[derive(Debug, Clone, Copy)]
struct Shape {
    slots: u32,
    shards: usize,
    lessees: u8,
    rounds: u8,
    /// Some fences fail.
    fails: bool,
}

/// Fewer slots than lessees, so that somebody always waits.
const BUSY: Shape = Shape { slots: 2, shards: 2, lessees: 4, rounds: 2, fails: false };
/// One slot for all: each return has a waiter.
const NARROW: Shape = Shape { slots: 1, shards: 1, lessees: 3, rounds: 2, fails: false };
/// Lost slots beside others.
const FAILING: Shape = Shape { slots: 3, shards: 2, lessees: 3, rounds: 2, fails: true };

#[test]
fn a_busy_class_random() {
    check("a busy class", 350_000, RandomScheduler::new, || scenario(BUSY));
}

#[test]
fn a_busy_class_pct() {
    check("a busy class", 350_000, pct, || scenario(BUSY));
}

#[test]
fn one_slot_for_all_random() {
    check("one slot for all", 100_000, RandomScheduler::new, || scenario(NARROW));
}

#[test]
fn one_slot_for_all_pct() {
    check("one slot for all", 100_000, pct, || scenario(NARROW));
}

#[test]
fn fences_that_fail_random() {
    check("fences that fail", 50_000, RandomScheduler::new, || scenario(FAILING));
}

#[test]
fn fences_that_fail_pct() {
    check("fences that fail", 50_000, pct, || scenario(FAILING));
}

/// Three places where priorities change: what needs three ill-timed steps is found.
fn pct(schedules: usize) -> PctScheduler {
    PctScheduler::new(3, schedules)
}

/// Runs `model` under so many schedules, times `MODEL_SCHEDULES` percent.
fn check<S: Scheduler + 'static>(
    name: &str,
    schedules: usize,
    scheduler: impl FnOnce(usize) -> S,
    model: impl Fn() + Send + Sync + 'static,
) {
    let mut config = Config::new();
    config.silence_warnings = true;
    config.stack_size = STACK_BYTES;
    if let Ok(schedule) = std::env::var("MODEL_REPLAY") {
        Runner::new(ReplayScheduler::new_from_encoded(&schedule), config).run(model);
        return;
    }
    let percent = std::env::var("MODEL_SCHEDULES").ok().and_then(|text| text.parse().ok());
    let schedules = (schedules * percent.unwrap_or(100) / 100).max(1);
    let start = Instant::now();
    let run = Runner::new(scheduler(schedules), config).run(model);
    assert_eq!(run, schedules, "the scheduler ended early");
    let kind = std::any::type_name::<S>().rsplit("::").next().unwrap_or_default();
    // Past the test harness, which hides what a passing test prints.
    let _ = writeln!(
        std::io::stderr(),
        "{name}: {run} schedules of {kind} in {:.1} s",
        start.elapsed().as_secs_f64()
    );
}

/// What the tasks know beside the class: the truth that it must agree with.
struct World {
    shape: Shape,
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

/// The pool's handle; the last lessee's clone closes the class.
struct House {
    class: ClassRef,
    world: Arc<World>,
}

impl Drop for House {
    fn drop(&mut self) {
        self.class.close();
        self.class.drop_reference();
    }
}

fn open(shape: Shape) -> (House, Arc<Shared>) {
    let shared = Arc::new(Shared::new(Arc::new(Heap::new()), u64::MAX));
    let plan = ClassPlan {
        name: "model".into(),
        size: SLOT_BYTES,
        slot_bytes: SLOT_BYTES,
        count: shape.slots,
        align: SLOT_BYTES,
        slab_bytes: SLAB_BYTES,
        waste_bytes: 0,
        chunk_bytes: SLAB_BYTES,
    };
    let slab = Slab::open(&plan, false, Threads::Count(1), &shared, &mut StartupTimes::default());
    let list = FreeList::new(shape.slots, shape.shards, SlotState::new).expect("memory");
    let class = ClassRef::new(ClassId(0), &plan, slab.expect("memory"), Slots(list));
    let world = Arc::new(World {
        shape,
        shadows: (0..shape.slots).map(|_| Shadow::default()).collect(),
        agenda: Mutex::new(Agenda { works: Vec::new(), lessees: shape.lessees }),
        more: Condvar::default(),
    });
    (House { class, world }, shared)
}

/// One life of a class.
fn scenario(shape: Shape) {
    let (house, shared) = open(shape);
    let (class, world, house) = (house.class, Arc::clone(&house.world), Arc::new(house));
    let keeper = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || keep(class, &shared))
    };
    let device = {
        let world = Arc::clone(&world);
        thread::spawn(move || world.work())
    };
    let lessees: Vec<_> = (1..=shape.lessees)
        .map(|me| {
            let house = Arc::clone(&house);
            thread::spawn(move || lessee(house, me))
        })
        .collect();
    assert_balanced(class.get().census(), shape);
    let join = |tasks: Vec<thread::JoinHandle<()>>| {
        tasks.into_iter().for_each(|task| task.join().expect("the model fails first"));
    };
    match pick(3) {
        // Closed under their feet.
        0 => class.close(),
        // Closed by the last of them.
        1 if !shape.fails => {}
        _ => {
            join(lessees);
            join(vec![device]);
            at_rest(class, &world);
            return finish(house, &shared, keeper);
        }
    }
    if !shape.fails {
        // The memory goes although nobody but the keeper asks any fence.
        drop(house);
        assert_eq!(shared.wait_all_home(Duration::MAX), 0, "everything comes home");
        join(lessees);
        join(vec![device, keeper]);
        assert_eq!(Arc::strong_count(&shared), 1, "the class is freed");
        return;
    }
    join(lessees);
    join(vec![device]);
    await_landings(class);
    finish(house, &shared, keeper);
}

/// Until the keeper brought home what is over. A slot on its way counts as leased.
fn await_landings(class: ClassRef) {
    loop {
        let Census { in_flight, leased, .. } = class.get().census();
        if in_flight + leased == 0 {
            return;
        }
        thread::yield_now();
    }
}

/// Nobody leases and every fence is over: all slots come home, and the counts are exact.
fn at_rest(class: ClassRef, world: &World) {
    await_landings(class);
    let lost = world.lost();
    let wanted =
        Census { free: world.shape.slots - lost, in_flight: 0, quarantined: lost, leased: 0 };
    assert_eq!(class.get().census(), wanted, "the counts at rest (I5)");
    assert_eq!(class.get().stale_returns_total(), 0);
    for shadow in &world.shadows {
        assert_eq!(shadow.owner.load(Ordering::Relaxed), 0);
    }
}

/// Closes, brings lost slots home by hand so that the model leaves nothing, and sees the end.
fn finish(house: Arc<House>, shared: &Arc<Shared>, keeper: thread::JoinHandle<()>) {
    let (class, lost) = (house.class, house.world.lost());
    class.close();
    let left = usize::from(lost > 0);
    assert_eq!(
        shared.wait_all_home(Duration::from_secs(1)).min(left),
        left,
        "lost slots stay (I11)"
    );
    for _ in 0..lost {
        assert!(shared.mapped_bytes() > 0, "the memory of lost slots stays mapped (I6)");
        class.arrive();
    }
    assert_eq!(shared.wait_all_home(Duration::MAX), 0);
    drop(house);
    keeper.join().expect("the model fails first");
    assert_eq!(Arc::strong_count(shared), 1, "the class is freed");
}

/// The rounds of the pool's keeper, without its clock.
fn keep(class: ClassRef, shared: &Shared) {
    loop {
        class.reclaim();
        shared.wakers.pass(|fence| shared.recycle(fence));
        if class.get().is_done() {
            break;
        }
        let now = Instant::now();
        if class.get().due(now).is_some() || !shared.wakers.is_empty() {
            shared.bell.sleep(Some(now));
        } else if class.get().fall_asleep() {
            shared.bell.sleep(None);
            class.get().wake_up();
        } else {
            class.get().wake_up();
            shared.bell.sleep(Some(now));
        }
    }
    class.drop_reference();
}

fn lessee(house: Arc<House>, me: u8) {
    let world = Arc::clone(&house.world);
    for round in 0..world.shape.rounds {
        let Some(lease) = house.lease(me) else { continue };
        if round + 1 == world.shape.rounds && pick(2) == 0 {
            // The lease outlives the pool.
            drop(house);
            world.use_lease(lease, me);
            return world.leave();
        }
        world.use_lease(lease, me);
    }
    drop(house);
    world.leave();
}

impl House {
    /// A lease in one of three ways, stamped.
    fn lease(&self, me: u8) -> Option<Lease> {
        let now = Instant::now();
        let taken = match pick(4) {
            0 => self.class.try_take(),
            1 => self.class.take(now, Some(now)),
            // Lost slots never come home, so that waiting could last for ever.
            _ if self.world.shape.fails => self.class.take(now, Some(now)),
            _ => self.class.take(now, None),
        };
        if pick(4) == 0 {
            assert_balanced(self.class.get().census(), self.world.shape);
        }
        match taken {
            Ok(taken) => {
                let shadow = &self.world.shadows[taken.slot as usize];
                assert_eq!(shadow.owner.swap(me.into(), Ordering::Relaxed), 0, "two owners (I2)");
                assert_eq!(shadow.lost.load(Ordering::Relaxed), 0, "leased when lost (I11)");
                let fences = std::mem::take(&mut *shadow.fences.lock().expect("one thread"));
                for fence in fences {
                    assert!(fence.is_complete(), "leased before its fence is complete (I3)");
                }
                let mut lease = Lease::new(self.class, taken, SLOT_BYTES);
                lease.as_mut_slice().fill(me);
                Some(lease)
            }
            Err(LeaseError::Exhausted(_) | LeaseError::Timeout { .. } | LeaseError::Closed) => None,
            Err(other) => panic!("{other}"),
        }
    }
}

impl World {
    /// One of the ways in which a lease is used and ends.
    fn use_lease(&self, lease: Lease, me: u8) {
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
                Poll::Pending => alarm.0.sleep(None),
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
    fn work(&self) {
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
    fn leave(&self) {
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
    fn lost(&self) -> u32 {
        self.shadows.iter().map(|shadow| shadow.lost.load(Ordering::Relaxed)).sum()
    }
}

/// Wakes a task.
struct Alarm(Bell);

impl Default for Alarm {
    fn default() -> Self {
        Self(Bell::new())
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.ring();
    }
}

fn assert_balanced(census: Census, shape: Shape) {
    let Census { free, in_flight, quarantined, leased } = census;
    assert_eq!(free + in_flight + quarantined + leased, shape.slots, "{census:?} (I5)");
}

/// A number below `end` that belongs to the schedule.
fn pick(end: usize) -> usize {
    shuttle::rand::thread_rng().gen_range(0..end)
}

const SLOT_BYTES: usize = 64;
const SLAB_BYTES: usize = 4096;
/// Panics and log lines are made on it.
const STACK_BYTES: usize = 256 << 10;
