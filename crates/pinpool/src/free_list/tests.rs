//! One thread and a free list: what it hands out, in which order, and what it counts.

use super::*;

#[test]
fn hands_out_every_slot_once_then_says_empty() {
    let list = FreeList::new(10, 4, 0, || ()).unwrap();
    let mut seen = Vec::new();
    while let Pop::Slot { slot, .. } = list.pop() {
        seen.push(slot);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..10).collect::<Vec<_>>());
    assert_eq!(list.pop(), Pop::Empty);
    assert_eq!(list.census(Reach::REGULAR).0, 0);
}

#[test]
fn depth_counts_exactly_through_any_order() {
    let list = FreeList::new(7, 2, 0, || ()).unwrap();
    let mut out = Vec::new();
    for round in 0..1000u32 {
        if round % 3 == 0 || out.is_empty() {
            if let Pop::Slot { slot, .. } = list.pop() {
                out.push(slot);
            }
        } else {
            let slot = out.swap_remove(round as usize % out.len());
            assert_eq!(list.push(slot), Push::Free);
        }
        assert_eq!(list.census(Reach::REGULAR).0 as usize + out.len(), 7);
    }
}

#[test]
fn the_last_slot_returned_is_the_first_handed_out() {
    let list = FreeList::new(4, 1, 0, || ()).unwrap();
    let Pop::Slot { slot, .. } = list.pop() else { unreachable!("four are free") };
    assert_eq!(list.push(slot), Push::Free);
    assert!(matches!(list.pop(), Pop::Slot { slot: again, .. } if again == slot));
}

#[test]
fn a_closed_list_gives_out_nothing_and_takes_nothing() {
    let list = FreeList::new(5, 2, 0, || ()).unwrap();
    let Pop::Slot { slot, .. } = list.pop() else { unreachable!("five are free") };
    assert_eq!(list.close(), Some(4));
    assert_eq!(list.pop(), Pop::Closed);
    assert_eq!(list.push(slot), Push::Closed);
    assert_eq!(list.close(), None);
}

#[test]
fn a_watched_list_asks_for_a_wake_up() {
    let list = FreeList::new(1, 1, 0, || ()).unwrap();
    let Pop::Slot { slot, .. } = list.pop() else { unreachable!("one is free") };
    list.watch();
    assert_eq!(list.push(slot), Push::Waited);
    assert_eq!(list.push_unwanted(slot), Push::Free);
    list.unwatch();
    assert!(matches!(list.pop(), Pop::Slot { .. }));
}

#[test]
fn a_second_return_of_one_lease_is_refused() {
    let list = FreeList::new(1, 1, 0, || ()).unwrap();
    let Pop::Slot { slot, .. } = list.pop() else { unreachable!("one is free") };
    let first = list.lease(slot);
    assert!(list.take_back(slot, first).1);
    assert!(!list.take_back(slot, first).1, "the slot is free: nothing to give back");
    let second = list.lease(slot);
    assert!(!list.take_back(slot, first).1, "the slot has another owner now");
    assert!(list.take_back(slot, second).1);
    assert_eq!(list.leases(), 2);
}

/// An owner that is put aside in the middle of a return holds up others for a moment and not for ever.
#[test]
fn a_miss_does_not_wait_for_an_owner_that_never_runs() {
    let list = FreeList::new(2, 1, 2, || ()).unwrap();
    set_home(0);
    // Until the bias is on, and both slots are at the desk.
    for _ in 0..100 {
        let slots = [list.pop(), list.pop()].map(|pop| match pop {
            Pop::Slot { slot, .. } => slot,
            nothing => unreachable!("two are free: {nothing:?}"),
        });
        assert_eq!(slots.map(|slot| list.push(slot)), [Push::Free; 2]);
    }
    assert!(list.desks.is_on(0), "the barrier is available");
    list.desks.put_aside(0, true);
    set_home(1);
    assert_eq!(list.pop(), Pop::Empty, "its slots count as out");
    assert_eq!(list.census(Reach::REGULAR).0, 2);
    list.desks.put_aside(0, false);
    assert!(matches!(list.pop(), Pop::Slot { .. }), "they are there again");
    assert!(matches!(list.pop(), Pop::Slot { .. }));
}
