//! Random schedules of a whole class: lessees, fences completed in any order, a keeper, a close.
//!
//! Each step of each task is shuttle's choice, and a wake-up that is lost is a deadlock. A failure
//! prints its schedule, and `MODEL_REPLAY` runs that one again.

mod world;

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::thread;

use super::counts::Census;
use super::{ClassRef, Got, Making, Slots, Taken};
use crate::config::{OnEmpty, OnPressure, Scrub, Threads};
use crate::error::LeaseError;
use crate::explore::check;
use crate::free_list::FreeList;
use crate::lease::Lease;
use crate::memory::{Heap, KeepFree};
use crate::plan::{ClassPlan, GrowPlan};
use crate::process::Home;
use crate::shared::{Shared, Terms};
use crate::size_class::ClassId;
use crate::slab::{Course, Slab, SlabShape, StartupTimes};
use crate::slot::SlotState;

use world::{Alarm, World, pick};

/// One shape of a model.
#[derive(Debug, Clone, Copy)]
struct Shape {
    slots: u32,
    shards: usize,
    lessees: u8,
    rounds: u8,
    /// Some fences fail.
    fails: bool,
    /// How many of the slots are for the urgent.
    reserve: u32,
    on_empty: OnEmpty,
    scrub: Scrub,
}

impl Shape {
    /// Each task has one, unless slots are washed on their way.
    fn desks(&self) -> usize {
        if self.scrub == Scrub::None { 8 } else { 0 }
    }

    /// Slots that there can be.
    fn most(&self) -> u32 {
        let more = matches!(self.on_empty, OnEmpty::Grow | OnEmpty::Pageable);
        self.slots + u32::from(more)
    }
}

const PLAIN: Shape = Shape {
    slots: 2,
    shards: 2,
    lessees: 4,
    rounds: 2,
    fails: false,
    reserve: 0,
    on_empty: OnEmpty::Wait,
    scrub: Scrub::None,
};

/// Fewer slots than lessees, so that somebody always waits.
const BUSY: Shape = PLAIN;
/// One slot for all: each return has a waiter.
const NARROW: Shape = Shape { slots: 1, shards: 1, lessees: 3, ..PLAIN };
/// Lost slots beside others.
const FAILING: Shape = Shape { slots: 3, lessees: 3, fails: true, ..PLAIN };
/// One slot for everybody, one for the urgent.
const RESERVED: Shape = Shape { reserve: 1, lessees: 3, ..PLAIN };
/// The keeper adds a slab, and takes it away.
const GROWING: Shape = Shape { slots: 1, lessees: 3, on_empty: OnEmpty::Grow, ..PLAIN };
/// Slots are scrubbed between owners; what is missing is pageable.
const SCRUBBED: Shape =
    Shape { slots: 1, lessees: 3, on_empty: OnEmpty::Pageable, scrub: Scrub::Zero, ..PLAIN };

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

#[test]
fn a_reserve_random() {
    check("a reserve", 50_000, RandomScheduler::new, || scenario(RESERVED));
}

#[test]
fn a_reserve_pct() {
    check("a reserve", 50_000, pct, || scenario(RESERVED));
}

#[test]
fn a_growing_class_random() {
    check("a growing class", 50_000, RandomScheduler::new, || scenario(GROWING));
}

#[test]
fn a_growing_class_pct() {
    check("a growing class", 50_000, pct, || scenario(GROWING));
}

#[test]
fn scrubbed_and_pageable_random() {
    check("scrubbed and pageable", 50_000, RandomScheduler::new, || scenario(SCRUBBED));
}

#[test]
fn scrubbed_and_pageable_pct() {
    check("scrubbed and pageable", 50_000, pct, || scenario(SCRUBBED));
}

/// Three places where priorities change: what needs three ill-timed steps is found.
fn pct(schedules: usize) -> PctScheduler {
    PctScheduler::new(3, schedules)
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
    let home = Home::here().expect("a mark");
    let (keep_free, on_pressure) = (KeepFree::Off, OnPressure::Ignore);
    let terms = Terms { cap: u64::MAX, keep_free, on_pressure };
    let shared = Arc::new(Shared::new(Arc::new(Heap::new()), terms, home));
    let plan = ClassPlan {
        name: "model".into(),
        size: SLOT_BYTES,
        slot_bytes: SLOT_BYTES,
        count: shape.slots,
        align: SLOT_BYTES,
        slab_bytes: SLAB_BYTES,
        waste_bytes: 0,
        chunk_bytes: SLAB_BYTES,
        stride_bytes: SLOT_BYTES,
        on_empty: shape.on_empty,
        reserve: shape.reserve,
        max_spill: 1,
        scrub: shape.scrub,
        grow: (shape.on_empty == OnEmpty::Grow).then(GrowPlan::of_one),
        pageable_max: u32::from(shape.on_empty == OnEmpty::Pageable),
        idle_after: Duration::from_secs(10),
        device: None,
    };
    let size = SlabShape { bytes: SLAB_BYTES, chunk_bytes: SLAB_BYTES, device: None };
    let making =
        Making { pins: false, threads: Threads::Count(1), pause: Duration::ZERO, tracks: false };
    let (course, mut times) = (Course::default(), StartupTimes::default());
    let slab = Slab::open(size, false, making.threads, &course, &shared, &mut times);
    let list = FreeList::new(Slots::layout(&plan), shape.shards, shape.desks(), SlotState::new)
        .expect("memory");
    let (slab, _) = slab.expect("memory");
    let class = ClassRef::new(ClassId(0), &plan, making, slab, Slots(list));
    let world = Arc::new(World::new(shape));
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
        assert_eq!(shared.wait_all_home(Duration::MAX, || None), 0, "everything comes home");
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

/// Until the keeper brought home what is over, and holds no pageable buffer that it frees. A slot on its
/// way counts as leased.
fn await_landings(class: ClassRef) -> Census {
    loop {
        let census = class.get().census();
        if census.in_flight + census.leased == 0 {
            return census;
        }
        thread::yield_now();
    }
}

/// Nobody leases and every fence is over: all slots come home, and the counts are exact.
fn at_rest(class: ClassRef, world: &World) {
    let census = await_landings(class);
    let lost = world.lost();
    let (slots, free) = (census.slots, census.slots - lost);
    assert!(slots >= world.shape.slots, "what is free is there");
    let wanted = Census { slots, free, in_flight: 0, quarantined: lost, leased: 0 };
    assert_eq!(census, wanted, "the counts at rest (I5)");
    assert_eq!(class.get().stale_returns_total(), 0);
    world.assert_left();
}

/// Closes, brings lost slots home by hand so that the model leaves nothing, and sees the end.
fn finish(house: Arc<House>, shared: &Arc<Shared>, keeper: thread::JoinHandle<()>) {
    let (class, lost) = (house.class, house.world.lost());
    class.close();
    let left = usize::from(lost > 0);
    assert_eq!(
        shared.wait_all_home(Duration::from_secs(1), || None).min(left),
        left,
        "lost slots stay (I11)"
    );
    for _ in 0..lost {
        assert!(shared.mapped_bytes() > 0, "the memory of lost slots stays mapped (I6)");
        class.get().lifetime.arrive().then(|| class.all_home());
    }
    assert_eq!(shared.wait_all_home(Duration::MAX, || None), 0);
    drop(house);
    keeper.join().expect("the model fails first");
    assert_eq!(Arc::strong_count(shared), 1, "the class is freed");
}

/// The rounds of the pool's keeper, without its clock.
fn keep(class: ClassRef, shared: &Shared) {
    loop {
        class.reclaim();
        class.wash(usize::MAX);
        class.grow_if_wanted(Instant::now());
        match pick(8) {
            0 | 1 => {
                class.trim(Instant::now(), true);
            }
            // There is nothing elsewhere.
            2 => class.get().nudge(),
            _ => {}
        }
        shared.wakers.pass(|fence| shared.recycle(fence));
        if class.get().is_done() {
            break;
        }
        let now = Instant::now();
        if class.get().due(now).is_some() || shared.wakers.youngest(now).is_some() {
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
    /// A lease in one of many ways, stamped.
    fn lease(&self, me: u8) -> Option<Lease> {
        let now = Instant::now();
        let urgent = pick(3) == 0;
        let taken = match pick(8) {
            4 | 5 => self.lease_async(urgent),
            6 => self.lease_two(),
            0 => self.class.try_take(urgent),
            1 => self.class.take(urgent, now, Some(now)),
            // Lost slots never come home, so that waiting could last for ever.
            _ if self.world.shape.fails => self.class.take(urgent, now, Some(now)),
            _ => self.class.take(urgent, now, None),
        };
        if pick(4) == 0 {
            assert_balanced(self.class.get().census(), self.world.shape);
        }
        match taken {
            Ok(taken) => {
                let mut lease = Lease::new(self.class, taken, SLOT_BYTES);
                self.world.own(&mut lease, me);
                Some(lease)
            }
            Err(LeaseError::Exhausted(_) | LeaseError::Timeout { .. } | LeaseError::Closed) => None,
            Err(other) => panic!("{other}"),
        }
    }
}

impl House {
    /// As a task that only its waker wakes, and which gives up at times.
    fn lease_async(&self, urgent: bool) -> Result<Taken, LeaseError> {
        let gives_up = self.world.shape.fails || pick(2) == 0;
        match self.class.try_take(urgent) {
            Err(LeaseError::Exhausted(_)) => {}
            settled => return settled,
        }
        let alarm = Arc::new(Alarm::default());
        let waker = Waker::from(Arc::clone(&alarm));
        let mut waiting = match self.class.wait_async(urgent, &waker) {
            Ok(waiting) => waiting,
            Err(settled) => return settled,
        };
        loop {
            match waiting.poll(&waker, || None) {
                Some(settled) => {
                    return settled.map(|got| match got {
                        Got::Own(taken) | Got::Other(taken) => taken,
                    });
                }
                None if gives_up => {
                    if pick(2) == 0 {
                        waiting.leave();
                        return Err(LeaseError::Closed);
                    }
                    thread::yield_now();
                }
                None => alarm.sleep(),
            }
        }
    }

    /// Two at once or none; one goes back at once.
    fn lease_two(&self) -> Result<Taken, LeaseError> {
        let now = Instant::now();
        let most = self.world.shape.slots - self.world.shape.reserve;
        // Without an end where nobody is sure to give enough back.
        let deadline = (self.world.shape.fails || pick(2) == 0).then_some(now);
        let mut taken = self.class.take_many(most.min(2), now, deadline)?;
        let kept = taken.pop().expect("one at least");
        taken.into_iter().for_each(|one| self.class.give_back(one));
        Ok(kept)
    }
}

fn assert_balanced(census: Census, shape: Shape) {
    let Census { slots, free, in_flight, quarantined, leased } = census;
    assert_eq!(free + in_flight + quarantined + leased, slots, "{census:?} (I5)");
    assert!((shape.slots..=shape.most()).contains(&slots), "{census:?}");
}

const SLOT_BYTES: usize = 64;
const SLAB_BYTES: usize = 4096;
