//! Guards and fork policies, as a process and its children meet them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::Write;

use pinpool_testkit::child;
use pinpool_testkit::fork::in_fork;

use super::*;
use crate::memory::{LockMode, Mlock, PageLock};

const PLAIN: MapOptions = MapOptions {
    fork: ForkPolicy::Deny,
    guarded: false,
    huge: HugePages::Off,
    nodes: NodeSet::NONE,
};
const GUARDED: MapOptions = MapOptions { guarded: true, ..PLAIN };
const INHERITED: MapOptions = MapOptions { fork: ForkPolicy::Inherit, ..PLAIN };

/// A region of host memory mapped in this way, of three pages.
fn region(options: MapOptions) -> (Mlock, Region) {
    let memory = Mlock::new(LockMode::Off).mapped(options);
    let bytes = 3 * page_size();
    (memory, Region { start: memory.reserve(bytes).unwrap(), bytes })
}

/// A stretch of the address space as the kernel lists it.
struct Line {
    start: usize,
    end: usize,
    rights: String,
}

/// The lines between two addresses.
fn lines(from: usize, to: usize) -> Vec<Line> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let lines = maps.lines().map(|line| {
        let (range, rest) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        Line { start: number(start), end: number(end), rights: rest[..4].to_owned() }
    });
    lines.filter(|line| line.start < to && line.end > from).collect()
}

#[test]
fn every_byte_of_a_guarded_region_is_usable() {
    let (memory, region) = region(GUARDED);
    assert_eq!(region.start.as_ptr() as usize % page_size(), 0);
    // SAFETY: the region is reserved and nobody uses it.
    unsafe { memory.populate(region) }.unwrap();
    // SAFETY: as above.
    let bytes = unsafe { std::slice::from_raw_parts_mut(region.start.as_ptr(), region.bytes) };
    assert!(bytes.iter().all(|byte| *byte == 0));
    bytes.fill(7);
    // SAFETY: reserved above, and not used any more.
    unsafe { memory.release(region) }.unwrap();
}

/// In a child, where no other thread maps anything meanwhile.
#[test]
fn guards_come_and_go_with_their_region() {
    const NAME: &str = "memory::mapping::tests::guards_come_and_go_with_their_region";
    if !child::in_child() {
        child::run(NAME, &[]);
        return;
    }
    let (memory, region) = region(GUARDED);
    let start = region.start.as_ptr() as usize;
    let (from, to) = (start - page_size(), start + region.bytes + page_size());
    let found = lines(from, to);
    let rights = |at: usize| {
        let line = found.iter().find(|line| (line.start..line.end).contains(&at));
        line.map(|line| line.rights.as_str())
    };
    assert_eq!(rights(from), Some("---p"), "a guard before it");
    assert_eq!(rights(start), Some("rw-p"));
    assert_eq!(rights(to - page_size()), Some("---p"), "a guard behind it");
    // SAFETY: reserved above, and used by nobody.
    unsafe { memory.release(region) }.unwrap();
    let left = lines(from, to).iter().map(|line| line.rights.clone()).collect::<Vec<_>>();
    assert_eq!(left, [""; 0], "the guards are given back, too");
}

/// Which byte a child touches, and whether that kills it.
#[test]
fn a_step_over_either_end_is_a_fault() {
    const NAME: &str = "memory::mapping::tests::a_step_over_either_end_is_a_fault";
    const AT: &str = "PINPOOL_TEST_TOUCH";
    if !child::in_child() {
        let fault = Some(libc::SIGSEGV);
        let ends = [("first", None), ("last", None), ("before", fault), ("behind", fault)];
        child::assert_ends(NAME, AT, &ends);
        return;
    }
    let (_, region) = region(GUARDED);
    let first = region.start.as_ptr();
    let touched = match std::env::var(AT).unwrap().as_str() {
        "first" => first,
        "last" => first.wrapping_add(region.bytes - 1),
        "before" => first.wrapping_sub(1),
        "behind" => first.wrapping_add(region.bytes),
        other => panic!("{AT}={other}"),
    };
    // SAFETY: within the region, or on a guard, which ends this process.
    unsafe { touched.write_volatile(1) };
}

#[test]
fn a_child_gets_nothing_of_denied_memory() {
    for options in [PLAIN, GUARDED] {
        let (memory, region) = region(options);
        let first = region.start.as_ptr();
        // SAFETY: the region is ours; in the child it is not there, and the system ends it.
        let read = in_fork(|| unsafe { first.read_volatile() } == 0);
        assert_eq!(read, Err(libc::SIGSEGV), "{options:?}");
        // SAFETY: reserved above, and used by nobody.
        unsafe { memory.release(region) }.unwrap();
    }
}

#[test]
fn a_child_gets_a_copy_of_inherited_memory() {
    for options in [INHERITED, MapOptions { guarded: true, ..INHERITED }] {
        let (memory, region) = region(options);
        let first = region.start.as_ptr();
        // SAFETY: the region is ours.
        let bytes = unsafe { std::slice::from_raw_parts_mut(first, region.bytes) };
        bytes.fill(5);
        let same = in_fork(|| {
            let same = bytes.iter().all(|byte| *byte == 5);
            bytes.fill(6);
            same && bytes.iter().all(|byte| *byte == 6)
        });
        assert_eq!(same, Ok(true), "{options:?}");
        assert!(bytes.iter().all(|byte| *byte == 5), "the child wrote to its own copy");
        if options.guarded {
            // SAFETY: in the child, which a guard ends.
            let behind =
                in_fork(|| unsafe { first.wrapping_add(region.bytes).read_volatile() } == 0);
            assert_eq!(behind, Err(libc::SIGSEGV), "the guards are inherited");
        }
        // SAFETY: reserved above, and used by nobody.
        unsafe { memory.release(region) }.unwrap();
    }
}

#[test]
fn a_size_without_room_for_its_guards_is_refused() {
    let bytes = usize::MAX - page_size() + 1;
    let refused = reserve(bytes, PageTier::Base, GUARDED).unwrap_err();
    assert_eq!((refused.step, refused.bytes), (MemoryStep::Reserve, bytes));
    assert!(refused.to_string().contains("address space"), "{refused}");
}

/// A region of 5 MiB and a page, backed, on such pages; `None` if this machine has none.
fn backed(tier: PageTier, options: MapOptions) -> Option<Region> {
    let bytes = (5 << 20) + page_size();
    let bytes = bytes.next_multiple_of(huge::granule(tier));
    let start = reserve(bytes, tier, options).inspect_err(|error| {
        let _ = writeln!(std::io::stderr(), "not run: {tier} pages with {options:?}: {error}");
    });
    let region = Region { start: start.ok()?, bytes };
    // SAFETY: reserved above, and nobody uses it.
    unsafe { populate(region) }.unwrap();
    Some(region)
}

#[test]
fn transparent_regions_begin_at_a_huge_page_between_their_guards() {
    const NAME: &str =
        "memory::mapping::tests::transparent_regions_begin_at_a_huge_page_between_their_guards";
    if !child::in_child() {
        child::run(NAME, &[]);
        return;
    }
    let huge = huge::Supply::read().transparent_bytes.unwrap_or(page_size());
    for options in [PLAIN, GUARDED, INHERITED] {
        for _ in 0..3 {
            let Some(region) = backed(PageTier::Transparent, options) else { return };
            let start = region.start.addr().get();
            assert_eq!(start % huge, 0, "{options:?}");
            let (from, to) = (start - page_size(), start + region.bytes + page_size());
            let found = lines(from, to);
            let rights = |at: usize| {
                let line = found.iter().find(|line| (line.start..line.end).contains(&at));
                line.map(|line| line.rights.as_str())
            };
            assert_eq!((rights(start), rights(to - page_size() - 1)), (Some("rw-p"), Some("rw-p")));
            if options.guarded {
                assert_eq!((rights(from), rights(to - 1)), (Some("---p"), Some("---p")));
            }
            let guard = options.guard();
            // SAFETY: reserved above, and used by nobody.
            unsafe { release(region, options) }.unwrap();
            let own = lines(start - guard, start + region.bytes + guard);
            assert!(own.is_empty(), "nothing of it is left: {options:?}");
        }
    }
}

/// Case fork-2: whatever the pages are, the policy holds.
#[test]
fn huge_pages_keep_the_fork_policy() {
    let Some(denied) = backed(PageTier::Transparent, PLAIN) else { return };
    let first = denied.start.as_ptr();
    // SAFETY: the region is ours; in the child it is not there, and the system ends it.
    let read = in_fork(|| unsafe { first.read_volatile() } == 0);
    assert_eq!(read, Err(libc::SIGSEGV));
    // SAFETY: reserved above, and used by nobody.
    unsafe { release(denied, PLAIN) }.unwrap();
    let Some(inherited) = backed(PageTier::Transparent, INHERITED) else { return };
    let first = inherited.start.as_ptr();
    // SAFETY: the region is ours.
    unsafe { first.write_volatile(5) };
    // SAFETY: as above; the child has a copy.
    let read = in_fork(|| unsafe { first.read_volatile() } == 5);
    assert_eq!(read, Ok(true));
    // SAFETY: reserved above, and used by nobody.
    unsafe { release(inherited, INHERITED) }.unwrap();
}

#[test]
fn reserved_pages_with_guards_are_refused() {
    let bytes = huge::granule(PageTier::Huge);
    let refused = reserve(bytes, PageTier::Huge, GUARDED).unwrap_err();
    assert_eq!((refused.step, refused.bytes), (MemoryStep::Reserve, bytes));
}

/// The longest sizes find no room, and leave nothing behind.
#[test]
fn a_size_without_room_for_its_edges_is_refused() {
    for bytes in [usize::MAX - page_size() + 1, usize::MAX / 2 + 1, 1 << 60] {
        for tier in [PageTier::Base, PageTier::Transparent] {
            let refused = reserve(bytes, tier, PLAIN).unwrap_err();
            assert_eq!((refused.step, refused.bytes), (MemoryStep::Reserve, bytes), "{tier}");
        }
    }
}
