//! Every interleaving of the free list's operations, on lists small enough to exhaust. The tag has
//! two bits here, so that it wraps within a model's reach.

use loom::sync::Arc;
use loom::thread;

use super::*;

/// A list whose slots carry an owner mark: two owners at once would find it set.
type Marked = FreeList<AtomicU32>;

fn marked(slots: u32, shards: usize) -> Arc<Marked> {
    Arc::new(FreeList::new(slots, shards, || AtomicU32::new(0)).expect("memory"))
}

/// Takes a slot from shard `home` and marks it owned.
fn take(list: &Marked, home: usize) -> Option<u32> {
    match list.pop_from(home, Reach::REGULAR) {
        Pop::Slot { slot, .. } => {
            assert_eq!(list.meta(slot).swap(1, Ordering::Relaxed), 0, "two owners (I2)");
            Some(slot)
        }
        Pop::Empty | Pop::Closed => None,
    }
}

/// Clears the mark and gives the slot back to shard `home`.
fn give(list: &Marked, home: usize, slot: u32) -> Push {
    assert_eq!(list.meta(slot).swap(0, Ordering::Relaxed), 1, "the giver owned it");
    list.push_to(home, slot, CLOSED)
}

fn bounded(bound: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound);
    builder.check(model);
}

/// Two threads, two slots, one shard: each takes and gives back; nobody misses.
#[test]
fn two_takers_two_slots() {
    loom::model(|| {
        let list = marked(2, 1);
        let other = {
            let list = Arc::clone(&list);
            thread::spawn(move || {
                let slot = take(&list, 0).expect("two slots for two takers");
                assert_eq!(give(&list, 0, slot), Push::Free);
            })
        };
        let slot = take(&list, 0).expect("two slots for two takers");
        assert_eq!(give(&list, 0, slot), Push::Free);
        other.join().expect("the model fails first");
        assert_eq!(list.census(Reach::REGULAR).0, 2);
    });
}

/// The ABA shape: one thread stalls between reading a head and its swap, while another takes two
/// slots and gives the first back. Without a tag the swap succeeds and the second has two owners.
#[test]
fn a_stalled_taker_does_not_corrupt_the_stack() {
    loom::model(|| {
        let list = marked(3, 1);
        let other = {
            let list = Arc::clone(&list);
            thread::spawn(move || {
                let first = take(&list, 0);
                let second = take(&list, 0);
                if let Some(slot) = first {
                    give(&list, 0, slot);
                }
                // `second` is kept: if it is handed out again, its mark says so.
                second
            })
        };
        let mine = take(&list, 0);
        let again = take(&list, 0);
        let theirs = other.join().expect("the model fails first");
        let out = [mine, again, theirs].iter().flatten().count();
        assert_eq!(list.census(Reach::REGULAR).0 as usize + out, 3);
    });
}

/// A slot that moves between shards is never missed: one of two is free at every instant, so a
/// taker that never owns more than one always gets one.
#[test]
fn a_moving_slot_is_found() {
    bounded(3, || {
        let list = marked(2, 2);
        let other = {
            let list = Arc::clone(&list);
            thread::spawn(move || {
                if let Some(slot) = take(&list, 1) {
                    give(&list, 0, slot);
                }
            })
        };
        assert!(take(&list, 0).is_some(), "the other thread holds one slot at the most");
        other.join().expect("the model fails first");
    });
}

/// Close and a return cross: the slot is either taken out by close or handed back to its owner.
#[test]
fn close_counts_every_slot_once() {
    loom::model(|| {
        let list = marked(2, 2);
        let slot = take(&list, 0).expect("two are free");
        let other = {
            let list = Arc::clone(&list);
            thread::spawn(move || usize::from(give(&list, 0, slot) == Push::Closed))
        };
        let taken = list.close().expect("closed once") as usize;
        let home = other.join().expect("the model fails first");
        assert_eq!(taken + home, 2);
        assert_eq!(list.pop_from(0, Reach::REGULAR), Pop::Closed);
    });
}

/// Close and a taker cross: the slot has exactly one fate.
#[test]
fn close_and_a_taker_share_no_slot() {
    loom::model(|| {
        let list = marked(1, 1);
        let other = {
            let list = Arc::clone(&list);
            thread::spawn(move || usize::from(take(&list, 0).is_some()))
        };
        let taken = list.close().expect("closed once") as usize;
        assert_eq!(taken + other.join().expect("the model fails first"), 1);
    });
}

/// A write to a slot's bytes before its return is seen by the next owner.
#[test]
fn bytes_travel_with_the_slot() {
    loom::model(|| {
        let list =
            Arc::new(FreeList::new(1, 1, || loom::cell::UnsafeCell::new(0u32)).expect("memory"));
        let Pop::Slot { slot, .. } = list.pop_from(0, Reach::REGULAR) else {
            panic!("one is free")
        };
        let other = {
            let list = Arc::clone(&list);
            thread::spawn(move || {
                // SAFETY: I2, this thread owns the slot until it is pushed.
                list.meta(slot).with_mut(|bytes| unsafe { *bytes = 7 });
                list.push_to(0, slot, FLAGS)
            })
        };
        if let Pop::Slot { slot, .. } = list.pop_from(0, Reach::REGULAR) {
            // SAFETY: I2, this thread owns the slot now.
            list.meta(slot).with(|bytes| assert_eq!(unsafe { *bytes }, 7));
        }
        assert_eq!(other.join().expect("the model fails first"), Push::Free);
    });
}

/// Three threads, two slots, two shards, bounded: marks and the final count hold.
#[test]
fn three_takers_two_slots() {
    bounded(2, || {
        let list = marked(2, 2);
        let others: Vec<_> = (0..2)
            .map(|home| {
                let list = Arc::clone(&list);
                thread::spawn(move || {
                    if let Some(slot) = take(&list, home) {
                        give(&list, home, slot);
                    }
                })
            })
            .collect();
        if let Some(slot) = take(&list, 0) {
            give(&list, 1, slot);
        }
        for other in others {
            other.join().expect("the model fails first");
        }
        assert_eq!(list.census(Reach::REGULAR).0, 2);
    });
}

/// The census is exact once nobody moves, and never above the truth's bounds while somebody does.
#[test]
fn the_census_balances() {
    loom::model(|| {
        let list = marked(2, 2);
        let other = {
            let list = Arc::clone(&list);
            thread::spawn(move || take(&list, 1))
        };
        let first = list.census(Reach::REGULAR);
        if list.census(Reach::REGULAR) == first {
            assert!(first.0 == 2 || first.0 == 1);
        }
        assert!(other.join().expect("the model fails first").is_some());
        assert_eq!(list.census(Reach::REGULAR).0, 1);
    });
}
