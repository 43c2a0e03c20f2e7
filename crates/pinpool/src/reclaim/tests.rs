//! Lines and passes on one thread: what is asked, in which order things go home, and what a failure
//! costs.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::sync::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Instant;

use super::*;
use crate::attached::{Attached, Order};
use crate::fence::{Fence, FenceError, FenceStatus, ManualFence};

/// Counts how often it is asked.
struct Asked(ManualFence, Arc<AtomicUsize>);

impl Fence for Asked {
    fn poll(&self) -> Result<FenceStatus, FenceError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.poll()
    }
}

/// Slots, and what became of them.
struct Slots {
    states: Vec<SlotState>,
    home: Vec<u32>,
    lost: Vec<u32>,
    over: usize,
    asked: Arc<AtomicUsize>,
}

impl Home for Slots {
    fn state(&self, slot: u32) -> &SlotState {
        &self.states[slot as usize]
    }

    fn settle(&mut self, slot: u32, _: u32) {
        self.home.push(slot);
    }

    fn quarantine(&mut self, slot: u32, _: &Error) {
        self.lost.push(slot);
    }

    fn after(&mut self, fences: &mut dyn Iterator<Item = AnyFence>) {
        // References of entries and of probes: the last one is the end of a fence.
        let last = |fence: &AnyFence| matches!(fence, AnyFence::User(user) if Arc::strong_count(user) == 1);
        self.over += fences.filter(last).count();
    }

    fn enough(&mut self) -> bool {
        false
    }
}

impl Slots {
    fn new(count: usize) -> Self {
        let states = (0..count).map(|_| SlotState::new()).collect();
        Self { states, home: Vec::new(), lost: Vec::new(), over: 0, asked: Arc::default() }
    }

    /// Attaches a fence of a stream, as a recording that overlaps with no other.
    fn record(&self, reclaim: &Reclaim, slot: u32, stream: u64) -> ManualFence {
        let before = reclaim.before_recording();
        let order = Order { stream, before, after: reclaim.after_recording() };
        self.attach(slot, order)
    }

    fn attach(&self, slot: u32, order: Order) -> ManualFence {
        let fence = ManualFence::new();
        let asked = Asked(fence.clone(), Arc::clone(&self.asked));
        let attached = Attached { order, since: Instant::now(), ..Attached::user(asked) };
        assert!(self.states[slot as usize].attach(attached).0.is_none());
        fence
    }

    fn retire(&self, reclaim: &Reclaim, slot: u32) {
        assert!(reclaim.retire(slot, &self.states[slot as usize]));
    }

    fn asked(&self) -> usize {
        self.asked.swap(0, Ordering::Relaxed)
    }
}

const STREAM: u64 = 7;

#[test]
fn one_complete_fence_settles_all_recorded_before_it() {
    let (reclaim, mut slots) = (Reclaim::new(), Slots::new(100));
    let fences: Vec<_> = (0..100).map(|slot| slots.record(&reclaim, slot, STREAM)).collect();
    // Retired in another order than recorded.
    for slot in (0..100).rev() {
        slots.retire(&reclaim, slot);
    }
    reclaim.pass(&mut slots);
    assert_eq!((slots.home.len(), slots.asked()), (0, 1), "a pending head is asked once");
    fences[..90].iter().for_each(ManualFence::complete);
    reclaim.pass(&mut slots);
    assert_eq!(slots.home, (0..90).collect::<Vec<_>>());
    let asked = slots.asked();
    assert!(asked <= 20, "{asked} questions for 90 slots: a gallop needs twice the logarithm");
    fences[90..].iter().for_each(ManualFence::complete);
    reclaim.pass(&mut slots);
    assert_eq!((slots.home.len(), slots.over), (100, 100));
    assert!(reclaim.due(Instant::now()).is_none());
}

#[test]
fn a_stuck_stream_holds_nothing_but_its_own() {
    let (reclaim, mut slots) = (Reclaim::new(), Slots::new(64));
    let stuck = slots.record(&reclaim, 0, 1);
    let loose = slots.attach(1, Order::none());
    slots.retire(&reclaim, 0);
    slots.retire(&reclaim, 1);
    for slot in 2..64 {
        let stream = 2 + u64::from(slot % 5);
        let fence = slots.record(&reclaim, slot, stream);
        slots.retire(&reclaim, slot);
        fence.complete();
        reclaim.pass(&mut slots);
        assert_eq!(slots.home.last(), Some(&slot));
    }
    assert_eq!(reclaim.stuck(&mut slots).len(), 2);
    stuck.complete();
    loose.complete();
    reclaim.pass(&mut slots);
    assert_eq!(slots.home.len(), 64);
}

#[test]
fn overlapping_recordings_say_nothing_about_each_other() {
    let (reclaim, mut slots) = (Reclaim::new(), Slots::new(3));
    // All three began before any had ended.
    let fences: Vec<_> = (0..3)
        .map(|slot| slots.attach(slot, Order { stream: STREAM, before: 0, after: slot.into() }))
        .collect();
    (0..3).for_each(|slot| slots.retire(&reclaim, slot));
    fences[2].complete();
    reclaim.pass(&mut slots);
    assert!(slots.home.is_empty(), "the third being complete proves nothing");
    fences[0].complete();
    reclaim.pass(&mut slots);
    assert_eq!(slots.home, [0]);
    fences[1].complete();
    reclaim.pass(&mut slots);
    assert_eq!(slots.home, [0, 1, 2]);
}

#[test]
fn fences_without_a_stream_come_home_in_any_order() {
    let (reclaim, mut slots) = (Reclaim::new(), Slots::new(40));
    let fences: Vec<_> = (0..40).map(|slot| slots.attach(slot, Order::none())).collect();
    (0..40).for_each(|slot| slots.retire(&reclaim, slot));
    for slot in [17, 3, 39, 0] {
        fences[slot as usize].complete();
        reclaim.pass(&mut slots);
        assert_eq!(slots.home.last(), Some(&slot));
    }
    fences.iter().for_each(ManualFence::complete);
    reclaim.pass(&mut slots);
    slots.home.sort_unstable();
    assert_eq!(slots.home, (0..40).collect::<Vec<_>>());
}

#[test]
fn a_slot_with_several_fences_waits_for_all() {
    let (reclaim, mut slots) = (Reclaim::new(), Slots::new(1));
    let fences = [
        slots.record(&reclaim, 0, 1),
        slots.record(&reclaim, 0, 2),
        slots.attach(0, Order::none()),
        slots.record(&reclaim, 0, 3),
    ];
    slots.retire(&reclaim, 0);
    for fence in &fences {
        reclaim.pass(&mut slots);
        assert!(slots.home.is_empty());
        fence.complete();
    }
    reclaim.pass(&mut slots);
    assert_eq!((slots.home.as_slice(), slots.over), (&[0][..], 4));
}

#[test]
fn a_failed_fence_costs_its_slot_only() {
    let (reclaim, mut slots) = (Reclaim::new(), Slots::new(5));
    let fences: Vec<_> = (0..5).map(|slot| slots.record(&reclaim, slot, STREAM)).collect();
    let _second_of_the_lost = slots.record(&reclaim, 1, STREAM + 1);
    (0..5).for_each(|slot| slots.retire(&reclaim, slot));
    fences.iter().for_each(ManualFence::complete);
    // Complete fences that came before were settled without a question.
    let failed = slots.attach(1, Order::none());
    failed.fail("the cable was pulled");
    reclaim.pass(&mut slots);
    assert_eq!((slots.lost.as_slice(), slots.over), (&[1][..], 7), "all its fences went with it");
    assert_eq!(slots.home, [0, 2, 3, 4]);
}

#[test]
fn lines_are_used_again() {
    let (reclaim, mut slots) = (Reclaim::new(), Slots::new(4));
    for stream in 1..1000 {
        let fence = slots.record(&reclaim, 0, stream);
        slots.retire(&reclaim, 0);
        fence.complete();
        reclaim.pass(&mut slots);
    }
    assert_eq!(slots.home.len(), 999);
    assert_eq!(reclaim.lines.lock().all.len(), 1, "an idle stream leaves nothing behind");
}

#[test]
fn the_keeper_sleeps_only_over_an_empty_inbox() {
    let (reclaim, mut slots) = (Reclaim::new(), Slots::new(2));
    let fences = [slots.record(&reclaim, 0, 1), slots.record(&reclaim, 1, 1)];
    slots.retire(&reclaim, 0);
    assert!(!reclaim.fall_asleep(|| true), "the inbox has a slot");
    reclaim.pass(&mut slots);
    assert!(!reclaim.fall_asleep(|| true), "a line has a slot");
    fences[0].complete();
    reclaim.pass(&mut slots);
    assert!(reclaim.fall_asleep(|| true));
    assert!(!reclaim.retire(1, &slots.states[1]), "the retirer is told to wake it");
    reclaim.retire_waking(1, &slots.states[1]);
    reclaim.wake_up();
    fences[1].complete();
    reclaim.pass(&mut slots);
    assert_eq!(slots.home, [0, 1]);
}
