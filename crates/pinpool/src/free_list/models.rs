//! Every interleaving of the free list's operations, on lists small enough to exhaust. The tag has
//! two bits here, so that it wraps within a model's reach.

mod desks;

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::explore::explore;

/// A list whose slots carry an owner mark: two owners at once would find it set.
type Marked = FreeList<AtomicU32>;

fn marked(slots: u32, shards: usize) -> Arc<Marked> {
    Arc::new(FreeList::new(slots, shards, 0, || AtomicU32::new(0)).expect("memory"))
}

/// Takes a slot from shard `home` and marks it owned.
fn take(list: &Marked, home: u32) -> Option<u32> {
    match list.pop_from(home, Reach::REGULAR, false) {
        Pop::Slot { slot, .. } => {
            assert_eq!(list.meta(slot).swap(1, Ordering::Relaxed), 0, "two owners (I2)");
            Some(slot)
        }
        Pop::Empty | Pop::Closed => None,
    }
}

/// Clears the mark and gives the slot back to shard `home`.
fn give(list: &Marked, home: u32, slot: u32) -> Push {
    assert_eq!(list.meta(slot).swap(0, Ordering::Relaxed), 1, "the giver owned it");
    list.push_shard(home, slot, CLOSED)
}

/// Runs `work` on a thread of its own. The first load of a thread that has just spawned another is not
/// explored against that other one, so both sides of a race are spawned.
fn aside<R: 'static>(
    list: &Arc<Marked>,
    work: impl FnOnce(&Marked) -> R + 'static,
) -> thread::JoinHandle<R> {
    let list = Arc::clone(list);
    thread::spawn(move || work(&list))
}

/// Two threads, two slots, one shard: each takes and gives back; nobody misses.
#[test]
fn two_takers_two_slots() {
    explore(None, || {
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
    explore(None, || {
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
    explore(Some(3), || {
        let list = marked(2, 2);
        let other = aside(&list, |list| {
            if let Some(slot) = take(list, 1) {
                give(list, 0, slot);
            }
        });
        let taker = aside(&list, |list| {
            assert!(take(list, 0).is_some(), "the other thread holds one slot at the most");
        });
        other.join().expect("the model fails first");
        taker.join().expect("the model fails first");
    });
}

/// Close and a return cross: the slot is either taken out by close or handed back to its owner.
#[test]
fn close_counts_every_slot_once() {
    explore(None, || {
        let list = marked(2, 2);
        let slot = take(&list, 0).expect("two are free");
        let other = {
            let list = Arc::clone(&list);
            thread::spawn(move || usize::from(give(&list, 0, slot) == Push::Closed))
        };
        let taken = list.close().expect("closed once") as usize;
        let home = other.join().expect("the model fails first");
        assert_eq!(taken + home, 2);
        assert_eq!(list.pop_from(0, Reach::REGULAR, false), Pop::Closed);
    });
}

/// Close and a taker cross: the slot has exactly one fate.
#[test]
fn close_and_a_taker_share_no_slot() {
    explore(None, || {
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
    explore(None, || {
        let list =
            Arc::new(FreeList::new(1, 1, 0, || loom::cell::UnsafeCell::new(0u32)).expect("memory"));
        let Pop::Slot { slot, .. } = list.pop_from(0, Reach::REGULAR, false) else {
            panic!("one is free")
        };
        let other = {
            let list = Arc::clone(&list);
            thread::spawn(move || {
                // SAFETY: I2, this thread owns the slot until it is pushed.
                list.meta(slot).with_mut(|bytes| unsafe { *bytes = 7 });
                list.push_shard(0, slot, FLAGS)
            })
        };
        let next = {
            let list = Arc::clone(&list);
            thread::spawn(move || {
                if let Pop::Slot { slot, .. } = list.pop_from(0, Reach::REGULAR, false) {
                    // SAFETY: I2, this thread owns the slot now.
                    list.meta(slot).with(|bytes| assert_eq!(unsafe { *bytes }, 7));
                }
            })
        };
        next.join().expect("the model fails first");
        assert_eq!(other.join().expect("the model fails first"), Push::Free);
    });
}

/// Three threads, two slots, two shards, bounded: marks and the final count hold.
#[test]
fn three_takers_two_slots() {
    explore(Some(3), || {
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
    explore(None, || {
        let list = marked(2, 2);
        let other = {
            let list = Arc::clone(&list);
            thread::spawn(move || take(&list, 1))
        };
        let counter = aside(&list, |list| {
            let first = list.census(Reach::REGULAR);
            if list.census(Reach::REGULAR) == first {
                assert!(first.0 == 2 || first.0 == 1);
            }
        });
        counter.join().expect("the model fails first");
        assert!(other.join().expect("the model fails first").is_some());
        assert_eq!(list.census(Reach::REGULAR).0, 1);
    });
}

/// A list with two regular slots out of a layout with one bay of one slot, closed.
fn with_bay() -> (Arc<Marked>, BayId) {
    let layout = Layout { regular: 1, slabs: 1, slab_slots: 1, ..Layout::default() };
    let list = FreeList::new(layout, 1, 0, || AtomicU32::new(0)).expect("memory");
    (Arc::new(list), BayId::of_slab(0))
}

/// A bay opens while somebody looks: its slot is found or not, and has one owner.
#[test]
fn an_opening_bay_and_a_taker() {
    explore(None, || {
        let (list, bay) = with_bay();
        let other = {
            let list = Arc::clone(&list);
            thread::spawn(move || [take(&list, 0), take(&list, 0)].iter().flatten().count())
        };
        assert!(list.open_bay(bay));
        let another = aside(&list, |list| usize::from(take(list, 0).is_some()));
        let mine = another.join().expect("the model fails first");
        let taken = mine + other.join().expect("the model fails first");
        assert_eq!(list.census(Reach::REGULAR).0 as usize + taken, 2);
        assert!(taken >= 1, "the regular slot is always there");
    });
}

/// A bay closes while its slot is on the way home: the slot is taken out or handed back, once; then
/// the bay opens again and has it.
#[test]
fn a_closing_bay_counts_every_slot_once() {
    explore(None, || {
        let (list, bay) = with_bay();
        assert!(list.open_bay(bay));
        let own = take(&list, 0).expect("the regular one");
        let slot = take(&list, 0).expect("the bay's");
        let other = {
            let list = Arc::clone(&list);
            thread::spawn(move || u32::from(give(&list, 0, slot) == Push::Closed))
        };
        let home = list.close_bay(bay);
        let home = home + other.join().expect("the model fails first");
        assert_eq!(home, 1, "home once");
        assert_eq!(take(&list, 0), None, "nothing comes out of a closed bay");
        assert!(list.open_bay(bay));
        assert_eq!(take(&list, 0), Some(slot));
        assert_eq!(give(&list, 0, own), Push::Free);
    });
}

/// A bay closes and opens again while a taker stalls between reading its head and its swap.
#[test]
fn a_bay_that_comes_back_is_not_corrupted() {
    explore(Some(3), || {
        let (list, bay) = with_bay();
        assert!(list.open_bay(bay));
        let regular = take(&list, 0).expect("the regular one");
        let other = {
            let list = Arc::clone(&list);
            thread::spawn(move || take(&list, 0))
        };
        let home = list.close_bay(bay);
        // With its slot out the slab stays; otherwise it goes, and another comes.
        let reopened = home == 1 && list.open_bay(bay);
        let theirs = other.join().expect("the model fails first");
        let free = list.census(Reach::REGULAR).0;
        assert_eq!(free + u32::from(theirs.is_some()), u32::from(reopened || home == 0));
        assert_eq!(give(&list, 0, regular), Push::Free);
    });
}

/// The list closes while a bay would open: it opens before, and is emptied, or not at all.
#[test]
fn no_bay_opens_after_the_close() {
    explore(None, || {
        let (list, bay) = with_bay();
        // The waiters' lock, under which both are done.
        let lock = Arc::new(crate::sync::Mutex::new(()));
        let other = {
            let (list, lock) = (Arc::clone(&list), Arc::clone(&lock));
            thread::spawn(move || {
                let _held = lock.lock();
                list.open_bay(bay)
            })
        };
        let held = lock.lock();
        assert_eq!(list.close(), Some(1));
        drop(held);
        let opened = other.join().expect("the model fails first");
        assert_eq!(list.close_bay(bay), u32::from(opened));
        assert_eq!(list.pop_from(0, Reach::PINNED, false), Pop::Closed);
    });
}

/// The reserve moves under the eyes of one who may have it: it is never missed, and nobody else gets it.
#[test]
fn a_reserve_on_the_move_is_found() {
    explore(Some(3), || {
        let layout = Layout { regular: 1, reserve: 1, ..Layout::default() };
        let list = Arc::new(FreeList::new(layout, 1, 0, || AtomicU32::new(0)).expect("memory"));
        let other = {
            let list = Arc::clone(&list);
            thread::spawn(move || {
                if let Some(slot) = take(&list, 0) {
                    assert_eq!(slot, 0, "the reserve is not for everybody");
                    give(&list, 0, slot);
                }
            })
        };
        let urgent = aside(&list, |list| {
            let found = list.pop_from(0, Reach::PINNED, false);
            assert!(matches!(found, Pop::Slot { .. }), "one of two is always free: {found:?}");
        });
        urgent.join().expect("the model fails first");
        other.join().expect("the model fails first");
    });
}

/// The census counts a slot in a bay, in a shard, or out, and never twice.
#[test]
fn the_census_balances_with_bays() {
    explore(None, || {
        let (list, bay) = with_bay();
        assert!(list.open_bay(bay));
        let other = {
            let list = Arc::clone(&list);
            thread::spawn(move || [take(&list, 0), take(&list, 0)].iter().flatten().count())
        };
        let counter = aside(&list, |list| {
            let first = list.census(Reach::PINNED);
            if list.census(Reach::PINNED) == first {
                assert!(first.0 <= 2);
            }
        });
        counter.join().expect("the model fails first");
        assert_eq!(other.join().expect("the model fails first"), 2);
        assert_eq!(list.census(Reach::PINNED).0, 0);
    });
}

/// Two takers and a closing bay: each slot has one fate, and what is home is counted once.
#[test]
fn two_takers_and_a_closing_bay() {
    explore(Some(4), || {
        let layout = Layout { regular: 1, slabs: 1, slab_slots: 2, ..Layout::default() };
        let list = Arc::new(FreeList::new(layout, 1, 0, || AtomicU32::new(0)).expect("memory"));
        let bay = BayId::of_slab(0);
        assert!(list.open_bay(bay));
        let takers = [0, 1].map(|_| {
            aside(&list, |list| match take(list, 0) {
                Some(slot) => u32::from(give(list, 0, slot) == Push::Closed),
                None => 0,
            })
        });
        let closer = aside(&list, move |list| list.close_bay(bay));
        let home: u32 = takers.into_iter().map(|taker| taker.join().expect("it ends")).sum();
        assert_eq!(home + closer.join().expect("the model fails first"), 2);
        assert_eq!(list.census(Reach::PINNED).0, 1, "the regular slot is free");
    });
}
