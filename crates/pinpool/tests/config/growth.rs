//! Growth: its defaults, its rounding, and the room it needs.

use pinpool::{ClassConfig, GROWN_SLABS_MAX, LockMode, OnEmpty};

use crate::policies::{SLOTS_MAX, assert_class_refused, class, growing, with};
use crate::{builder, refused};

/// The slots of a growing class: how many a slab, how many slabs, and at how many free ones.
fn growth(class: ClassConfig) -> (u32, u32, u32) {
    let plan = with(class).plan().unwrap_or_else(|error| panic!("{error}"));
    let grow = plan.classes[0].grow.unwrap_or_else(|| panic!("it grows:\n{plan}"));
    assert_eq!(grow.slots_max(), grow.by * grow.slabs);
    (grow.by, grow.slabs, grow.at)
}

#[test]
fn growth_has_defaults_that_follow_the_count() {
    for (count, expected) in [
        (1, (1, 1, 0)),
        (2, (1, 2, 0)),
        (7, (2, 4, 0)),
        (8, (2, 4, 1)),
        (32, (8, 4, 4)),
        (33, (9, 4, 4)),
    ] {
        assert_eq!(growth(growing(count)), expected, "{count}");
        // Whatever the defaults round up is not worth a note.
        assert_eq!(with(growing(count)).plan().unwrap().notes, [""; 0], "{count}");
    }
    assert_eq!(growth(growing(32).grow_max(3)), (3, 1, 4), "no step exceeds the whole");
    assert_eq!(growth(growing(32).grow_by(1)), (1, 32, 4));
    assert_eq!(growth(growing(32).grow_at(0)), (8, 4, 0));
}

#[test]
fn growth_is_rounded_up_to_whole_slabs_with_a_note() {
    for (class, by, slabs) in [
        (growing(32).grow_max(20), 8, 3),
        (growing(32).grow_by(5), 5, 7),
        (growing(32).grow_max(7).grow_by(3), 3, 3),
    ] {
        let plan = with(class).plan().unwrap();
        let grow = plan.classes[0].grow.unwrap();
        assert_eq!((grow.by, grow.slabs), (by, slabs));
        let [note] = &plan.notes[..] else { panic!("one note: {:?}", plan.notes) };
        for word in ["class 'a'", "grow_max", &(by * slabs).to_string(), &format!("grow_by {by}")] {
            assert!(note.contains(word), "`{word}` is missing: {note}");
        }
    }
    let exact = with(growing(32).grow_max(9).grow_by(3)).plan().unwrap();
    assert_eq!(exact.notes, [""; 0]);
}

#[test]
fn a_class_grows_by_at_most_64_slabs() {
    assert_eq!(growth(growing(100).grow_max(64).grow_by(1)), (1, GROWN_SLABS_MAX, 12));
    assert_eq!(growth(growing(100).grow_max(127).grow_by(2)), (2, GROWN_SLABS_MAX, 12));
    assert_class_refused(
        growing(100).grow_max(65).grow_by(1),
        &["grow_max 65", "grow_by 1", "65 slabs", "at most 64", "grow_by to 2", "grow_max to 64"],
    );
    // The remedy is one.
    assert_eq!(growth(growing(100).grow_max(65).grow_by(2)), (2, 33, 12));
    // Steps that follow a small count can be too many as well.
    assert_class_refused(growing(4).grow_max(100), &["100 slabs", "grow_by to 2"]);
}

#[test]
fn steps_of_growth_that_make_no_sense_are_refused() {
    assert_class_refused(growing(8).grow_max(4).grow_by(5), &["grow_by is 5", "grow_max only 4"]);
    assert_class_refused(growing(8).grow_by(9), &["grow_by is 9", "grow_max only 8", "raise"]);
    assert_class_refused(growing(8).grow_at(8), &["grow_at is 8", "use 0 to 7"]);
    assert_eq!(growth(growing(8).grow_at(7)), (2, 4, 7));
}

#[test]
fn slots_of_all_kinds_are_counted_together() {
    let half = SLOTS_MAX / 2;
    assert_eq!(growth(growing(half).grow_by(half)), (2_097_151, 1, 262_143));
    assert_class_refused(
        growing(half + 1).grow_by(half + 1),
        &["count 2097152", "grow_max 2097152", "4194302", "lower count or grow_max"],
    );
    // The rounding counts as well.
    let rounded = |max| growing(SLOTS_MAX - 10).grow_max(max).grow_by(5);
    assert!(with(rounded(10)).plan().is_ok());
    assert_class_refused(rounded(11), &["grow_max 15", "4194302"]);
    let pageable = |count| class(count).on_empty(OnEmpty::Pageable);
    assert_eq!(with(pageable(half)).plan().unwrap().classes[0].pageable_max as usize, half);
    assert_class_refused(pageable(half + 1), &["pageable_max 2097152", "lower count"]);
    assert!(with(pageable(SLOTS_MAX - 1).pageable_max(1)).plan().is_ok());
}

/// Growth without a cap pins until the host has nothing left; a cap without room never grows.
#[test]
fn growth_needs_a_cap_with_room_for_one_slab_of_every_growing_class() {
    let base = || {
        let other = ClassConfig::new("b", 65_536, 4).on_empty(OnEmpty::Grow);
        builder().class_config(growing(8)).class_config(other).class("c", 128, 2)
    };
    let start = 8 * 4096 + 4 * 65_536 + 4096;
    let needed = start + 2 * 4096 + 65_536;
    for lock in [LockMode::Require, LockMode::Try] {
        let message = refused(&base().lock(lock)).to_string();
        let words = ["on_empty", "\"grow\"", "'a', 'b'", "max_pinned is not set"];
        for word in words.into_iter().chain([needed.to_string().as_str()]) {
            assert!(message.contains(word), "`{word}` is missing: {message}");
        }
        assert!(!message.contains("'c'"), "{message}");
        let message = refused(&base().lock(lock).max_pinned(needed - 1)).to_string();
        for word in ["on_empty", "max_pinned is", &needed.to_string(), "grow_by"] {
            assert!(message.contains(word), "`{word}` is missing: {message}");
        }
        let plan = base().lock(lock).max_pinned(needed).plan().unwrap();
        assert_eq!((plan.pinned_bytes, plan.cap_bytes()), (start, needed));
    }
    // What is not locked needs no cap.
    assert_eq!(base().lock(LockMode::Off).plan().unwrap().pinned_bytes, 0);
}

#[test]
fn growth_past_the_address_space_is_refused() {
    let huge = |count, by| {
        let class = ClassConfig::new("a", 1 << 60, count).on_empty(OnEmpty::Grow);
        builder().class_config(class.grow_by(by).grow_max(by)).lock(LockMode::Off)
    };
    assert!(huge(1, 6).plan().is_ok());
    let message = refused(&huge(1, 7)).to_string();
    assert!(message.contains("address space") && message.contains("grow_max"), "{message}");
    let message = refused(&huge(1, 8)).to_string();
    assert!(message.contains("'a'") && message.contains("grow_by 8"), "{message}");
}
