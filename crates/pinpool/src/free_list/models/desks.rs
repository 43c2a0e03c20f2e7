//! Every interleaving of owners, takers, waiters and closers around desks. A desk has two magazines of
//! two slots here, its bias comes on at the first return, and tags have two bits.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::super::*;
use crate::explore::explore;

/// Marks as in the other models.
type Marked = FreeList<AtomicU32>;

/// A list of one shard whose slots are all free, some of them at the desk of `OWNER`.
fn list(slots: u32, at_desk: usize) -> Arc<Marked> {
    let list = FreeList::new(slots, 1, 2, || AtomicU32::new(0)).expect("memory");
    fill(&list, OWNER, at_desk);
    Arc::new(list)
}

/// Leases so many slots and returns them to the desk.
fn fill(list: &Marked, home: u32, slots: usize) {
    let held: Vec<_> = (0..slots).filter_map(|_| lease(list, home)).collect();
    assert_eq!(held.len(), slots);
    held.into_iter().for_each(|held| assert_eq!(give(list, home, held), Push::Free));
}

/// What `Pool::try_lease` does.
fn lease(list: &Marked, home: u32) -> Option<(u32, Generation)> {
    let near = list.take_near_from(home).map(|near| (near.slot, near.generation));
    let held = near.or_else(|| match list.pop_from(home, Reach::REGULAR, false) {
        Pop::Slot { slot, .. } => Some((slot, list.lease(slot))),
        Pop::Empty | Pop::Closed => None,
    });
    if let Some((slot, _)) = held {
        assert_eq!(list.meta(slot).swap(1, Ordering::Relaxed), 0, "two owners (I2)");
    }
    held
}

/// What dropping a lease does.
fn give(list: &Marked, home: u32, (slot, held): (u32, Generation)) -> Push {
    assert_eq!(list.meta(slot).swap(0, Ordering::Relaxed), 1, "the giver owned it");
    assert!(list.take_back(slot, held).1, "nobody gave it back before");
    if list.give_near_to(home, slot) { Push::Free } else { list.push_to(home, slot, FLAGS) }
}

fn lease_and_give(list: &Marked, home: u32) {
    let held = lease(list, home).expect("there is one for everybody");
    assert_eq!(give(list, home, held), Push::Free);
}

/// What getting in line does, up to the look.
fn get_in_line(list: &Marked) -> Pop {
    let _quiet = list.quiet();
    list.watch();
    list.pop_watched(Reach::REGULAR)
}

/// What closing a class does: the slots that were taken out.
fn close(list: &Marked) -> u32 {
    let _quiet = list.quiet();
    list.close().expect("closed once")
}

/// The slot was found by the look, or its return was told of who waits.
fn assert_found_or_handed(returned: Push, looked: Pop) {
    match (returned, looked) {
        (Push::Free, Pop::Slot { .. }) | (Push::Waited, Pop::Empty) => {}
        wrong => panic!("a lost wake-up: {wrong:?}"),
    }
}

/// Runs `work` on a thread of its own.
fn aside<R: 'static>(
    list: &Arc<Marked>,
    work: impl FnOnce(&Marked) -> R + 'static,
) -> thread::JoinHandle<R> {
    let list = Arc::clone(list);
    thread::spawn(move || work(&list))
}

fn join<R>(thread: thread::JoinHandle<R>) -> R {
    thread.join().expect("the model fails first")
}

fn free(list: &Marked) -> u32 {
    list.census(Reach::REGULAR).0
}

/// The owner takes and gives at its desk while another takes a slot from there: two slots, one each.
#[test]
fn an_owner_and_a_thief() {
    explore(Some(4), || {
        let list = list(2, 2);
        let owner = aside(&list, |list| lease_and_give(list, OWNER));
        let thief = aside(&list, |list| lease_and_give(list, THIEF));
        join(owner);
        join(thief);
        assert_eq!(free(&list), 2);
    });
}

/// The owner goes on while its bias is taken away: its slots have one owner each, before and after.
#[test]
fn an_owner_that_goes_on() {
    explore(Some(3), || {
        let list = list(2, 2);
        let owner = aside(&list, |list| {
            lease_and_give(list, OWNER);
            lease_and_give(list, OWNER);
        });
        let thief = aside(&list, |list| lease(list, THIEF).is_some());
        join(owner);
        assert!(join(thief));
        assert_eq!(free(&list), 1);
    });
}

/// Two take the bias away at once while the owner turns it on again.
#[test]
fn two_thieves_and_an_owner() {
    explore(Some(2), || {
        let list = list(3, 2);
        let owner = aside(&list, |list| lease_and_give(list, OWNER));
        let thieves =
            [THIEF, STRANGER].map(|home| aside(&list, move |list| lease(list, home).is_some()));
        join(owner);
        assert!(thieves.into_iter().all(join));
        assert_eq!(free(&list), 1);
    });
}

/// The slots of a thread that is gone are found by two others at once.
#[test]
fn an_idle_owner_strands_nothing() {
    explore(Some(3), || {
        let list = list(2, 2);
        let thieves =
            [THIEF, STRANGER].map(|home| aside(&list, move |list| lease(list, home).is_some()));
        assert!(thieves.into_iter().all(join), "both slots are there (I13)");
        assert_eq!(free(&list), 0);
    });
}

/// A thief stalls anywhere while the owner takes and gives: also when it has waited and is about to publish
/// the magazine, until the owner, who has turned its bias on again, is in the middle of a section.
#[test]
fn a_stalled_thief_takes_nothing_twice() {
    explore(Some(2), || {
        let list = list(2, 2);
        let thief = aside(&list, |list| lease(list, THIEF));
        let owner = aside(&list, |list| {
            let first = lease(list, OWNER);
            let second = lease(list, OWNER);
            if let Some(held) = first {
                give(list, OWNER, held);
            }
            second
        });
        let out = usize::from(join(thief).is_some()) + usize::from(join(owner).is_some());
        assert_eq!(free(&list) as usize + out, 2);
    });
}

/// A thief stalls between reading a published magazine and its swap, while the owner takes it back, takes a
/// slot, gives another, and publishes it again: it looks the same and is not.
#[test]
fn a_magazine_that_comes_back_changed() {
    explore(Some(3), || {
        let list = list(4, 0);
        let held: Vec<_> = (0..4).filter_map(|_| lease(&list, OWNER)).collect();
        let [first, second, third, fourth] = held[..] else { unreachable!("four are free") };
        for held in [first, second, third] {
            assert_eq!(give(&list, OWNER, held), Push::Free);
        }
        // Two are published, and the hot magazine is empty again.
        let third = lease(&list, OWNER).expect("the last one given");
        let thief = aside(&list, |list| lease(list, THIEF).is_some());
        let owner = aside(&list, move |list| {
            let kept = lease(list, OWNER);
            give(list, OWNER, third);
            give(list, OWNER, fourth);
            kept.is_some()
        });
        let out = u32::from(join(thief)) + u32::from(join(owner));
        assert_eq!(out, 2, "two are free at every instant");
        assert_eq!(free(&list), 2);
    });
}

/// A full magazine is published while another thread looks: each slot has one owner, and none is missed.
#[test]
fn a_full_magazine_is_published() {
    explore(Some(3), || {
        let list = list(3, 2);
        let held = lease(&list, STRANGER).expect("the one in the stack");
        let owner = aside(&list, move |list| give(list, OWNER, held));
        let thief = aside(&list, |list| lease(list, THIEF).is_some());
        assert_eq!(join(owner), Push::Free);
        assert!(join(thief), "two are free at every instant");
        assert_eq!(free(&list), 2);
    });
}

/// The owner takes its published magazine back while another takes from it.
#[test]
fn a_published_magazine_is_taken_back() {
    explore(Some(3), || {
        let list = list(3, 3);
        let owner = aside(&list, |list| {
            let held = [lease(list, OWNER), lease(list, OWNER)];
            held.iter().flatten().count()
        });
        let thief = aside(&list, |list| usize::from(lease(list, THIEF).is_some()));
        assert_eq!(join(owner) + join(thief), 3, "there are three for three");
        assert_eq!(free(&list), 0);
    });
}

/// A slot that moves from the stack to a desk is never missed: one of two is free at every instant.
#[test]
fn a_slot_on_its_way_to_a_desk_is_found() {
    explore(Some(3), || {
        let list = list(2, 0);
        let owner = aside(&list, |list| lease_and_give(list, OWNER));
        let taker = aside(&list, |list| lease(list, THIEF).is_some());
        join(owner);
        assert!(join(taker), "the owner holds one at the most");
    });
}

/// What an owner wrote before it returned a slot to its desk is seen by who takes it from there.
#[test]
fn bytes_come_along_from_a_desk() {
    explore(Some(3), || {
        let list = Arc::new(FreeList::new(1, 1, 2, || UnsafeCell::new(0u32)).expect("memory"));
        let write = |list: &FreeList<UnsafeCell<u32>>| {
            let near = list.take_near_from(OWNER).map(|near| (near.slot, near.generation));
            let pop = || match list.pop_from(OWNER, Reach::REGULAR, false) {
                Pop::Slot { slot, .. } => Some((slot, list.lease(slot))),
                _ => None,
            };
            let Some((slot, held)) = near.or_else(pop) else { return };
            // SAFETY: I2, this thread owns the slot.
            list.meta(slot).with_mut(|bytes| unsafe { *bytes += 1 });
            assert!(list.take_back(slot, held).1);
            if !list.give_near_to(OWNER, slot) {
                assert_eq!(list.push_to(OWNER, slot, FLAGS), Push::Free);
            }
        };
        write(&list);
        let owner = {
            let list = Arc::clone(&list);
            thread::spawn(move || write(&list))
        };
        let taker = {
            let list = Arc::clone(&list);
            thread::spawn(move || {
                if let Pop::Slot { slot, .. } = list.pop_from(THIEF, Reach::REGULAR, false) {
                    // SAFETY: I2, this thread owns the slot now.
                    list.meta(slot).with(|bytes| assert!(unsafe { *bytes } >= 1));
                }
            })
        };
        join(owner);
        join(taker);
    });
}

/// Somebody gets in line while the owner returns the only slot: it is found by the look, or handed over.
/// With the bias on before, and with the return turning it on.
fn a_return_and_a_waiter(at_desk: usize) {
    explore(Some(4), move || {
        let list = list(1, at_desk);
        let held = lease(&list, OWNER).expect("one is free");
        let owner = aside(&list, move |list| give(list, OWNER, held));
        let waiter = aside(&list, get_in_line);
        assert_found_or_handed(join(owner), join(waiter));
    });
}

#[test]
fn a_return_to_a_desk_and_a_waiter() {
    a_return_and_a_waiter(1);
}

#[test]
fn a_first_return_and_a_waiter() {
    a_return_and_a_waiter(0);
}

/// Somebody turns the owner's bias off and stalls before it has waited; who gets in line then must not
/// believe the owner done.
#[test]
fn a_waiter_after_one_that_stalls() {
    explore(Some(3), || {
        let list = list(1, 1);
        let held = lease(&list, OWNER).expect("one is free");
        let owner = aside(&list, move |list| give(list, OWNER, held));
        let stalled = aside(&list, |list| list.desks.stall(OWNER));
        let waiter = aside(&list, get_in_line);
        join(stalled);
        assert_found_or_handed(join(owner), join(waiter));
    });
}

/// The list closes while the owner returns one slot and another is at its desk: both are home once.
#[test]
fn a_close_counts_what_is_at_a_desk() {
    explore(Some(4), || {
        let list = list(2, 2);
        let held = lease(&list, OWNER).expect("two are free");
        let owner = aside(&list, move |list| u32::from(give(list, OWNER, held) == Push::Closed));
        let closer = aside(&list, close);
        assert_eq!(join(owner) + join(closer), 2);
        assert_eq!(list.take_near_from(OWNER).map(|near| near.slot), None);
        assert_eq!(list.pop_from(OWNER, Reach::REGULAR, false), Pop::Closed);
    });
}

/// The list closes while a lease is taken from a desk: it is taken before, or not at all.
#[test]
fn a_close_and_a_lease() {
    explore(Some(4), || {
        let list = list(1, 1);
        let owner = aside(&list, |list| u32::from(lease(list, OWNER).is_some()));
        let closer = aside(&list, close);
        assert_eq!(join(owner) + join(closer), 1);
    });
}

/// The census is exact between two equal readings, also while a slot moves from the stack to a desk: one
/// of two is free at every instant.
#[test]
fn the_census_sees_desks() {
    explore(Some(3), || {
        let list = list(2, 0);
        let owner = aside(&list, |list| {
            lease_and_give(list, OWNER);
            lease_and_give(list, OWNER);
        });
        let counter = aside(&list, |list| {
            let first = list.census(Reach::REGULAR);
            if list.census(Reach::REGULAR) == first {
                assert!(first.0 == 2 || first.0 == 1, "{first:?}");
            }
        });
        join(counter);
        join(owner);
        assert_eq!(free(&list), 2);
    });
}

/// Numbers of threads: two with desks and one without.
const OWNER: u32 = 0;
const THIEF: u32 = 1;
const STRANGER: u32 = 300;
