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

/// A list of one free slot for each of so many owners, which lies at its desk.
fn at_desks(owners: u32) -> FreeList<()> {
    let list = FreeList::new(owners, 1, owners as usize, || ());
    let Ok(list) = list else { unreachable!("it is small") };
    let slots: Vec<_> = (0..owners).map(|_| pop_at(&list, 0)).collect();
    for (home, slot) in (0..).zip(&slots) {
        // A bias rests at first.
        while !list.desks.is_on(home) {
            assert_eq!(list.push_to(home, *slot, FLAGS), Push::Free);
            assert_eq!(pop_at(&list, home), *slot);
        }
    }
    for (home, slot) in (0..).zip(slots) {
        assert!(list.give_near_to(home, slot));
    }
    list
}

fn pop_at(list: &FreeList<()>, home: u32) -> u32 {
    match list.pop_from(home, Reach::REGULAR, false) {
        Pop::Slot { slot, .. } => slot,
        none => unreachable!("{none:?}"),
    }
}

/// One of two owners was put aside in the middle of a lease or a return. What is at the other's desk is
/// found (I13).
#[test]
fn an_owner_put_aside_keeps_nobody_elses_slots() {
    const STRANGER: u32 = 300;
    for aside in [0, 1] {
        let list = at_desks(2);
        list.desks.put_aside(aside, true);
        let found = list.pop_from(STRANGER, Reach::REGULAR, false);
        assert!(matches!(found, Pop::Slot { .. }), "{aside} was put aside: {found:?}");
        // Now there is none but that one's.
        assert_eq!(list.pop_from(STRANGER, Reach::REGULAR, false), Pop::Empty);
        list.desks.put_aside(aside, false);
        assert!(matches!(list.pop_from(STRANGER, Reach::REGULAR, false), Pop::Slot { .. }));
        assert_eq!(list.pop_from(STRANGER, Reach::REGULAR, false), Pop::Empty);
    }
}

/// An owner that was put aside is back: its bias is not counted any more. Everybody who gets in line
/// would make a system call and look at all desks, for as long as the pool lives.
#[test]
fn an_owner_that_comes_back_is_settled() {
    let list = at_desks(1);
    assert_eq!(list.desks.unsettled(), 1);
    list.desks.put_aside(0, true);
    for _ in 0..2 {
        assert_eq!(list.pop_from(300, Reach::REGULAR, false), Pop::Empty);
        assert_eq!(list.desks.unsettled(), 1, "it may work under it");
    }
    list.desks.put_aside(0, false);
    drop(list.quiet());
    assert_eq!(list.desks.unsettled(), 0, "no bias is on");
}

/// Threads that find their first slots in one group, whose magazines all come to lie on some desk: each
/// gets a desk of its own all the same.
#[test]
fn magazines_on_other_desks_keep_no_bias_off() {
    const OTHERS: std::ops::Range<u32> = 1..7;
    let list = FreeList::new(56, 1, 8, || ()).unwrap();
    let slots: Vec<_> = (0..56).map(|_| pop_at(&list, 0)).collect();
    // A few times, until the bias is on and all is at the desk.
    for _ in 0..20 {
        for slot in &slots {
            assert_eq!(list.push_to(0, *slot, FLAGS), Push::Free);
        }
        (0..56).for_each(|_| {
            pop_at(&list, 0);
        });
    }
    for slot in slots {
        assert_eq!(list.push_to(0, slot, FLAGS), Push::Free);
    }
    let mut held: Vec<_> = OTHERS.map(|home| pop_at(&list, home)).collect();
    for _ in 0..100 {
        for (home, slot) in OTHERS.zip(&mut held) {
            assert_eq!(list.push_to(home, *slot, FLAGS), Push::Free);
            *slot = pop_at(&list, home);
        }
    }
    let off: Vec<_> = OTHERS.filter(|home| !list.desks.is_on(*home)).collect();
    assert_eq!(off, [0; 0], "their rest is long over");
}
