//! System calls that a sandbox or an old kernel refuses on the way to a slab.

use pinpool::{Error, HugePages, MemoryCause, MemoryStep, Numa, PageTier};
use pinpool_testkit::proc;
use pinpool_testkit::soon::until;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use crate::support::{finish, not_run};
use crate::{MIB, ODD, Reserved, alone, builder, readings, slab, transparent, turn, used};

/// A call, and the argument by which it is known: its place, the bits that count, and their value.
type Call = (i64, Option<(u8, u64, u64)>);

const ALL: u64 = 0xffff_ffff;
const HUGETLB: u64 = libc::MAP_HUGETLB as u64;
const POPULATE: Call = (libc::SYS_madvise, Some((2, ALL, libc::MADV_POPULATE_WRITE as u64)));
const DONTFORK: Call = (libc::SYS_madvise, Some((2, ALL, libc::MADV_DONTFORK as u64)));
const HUGEPAGE: Call = (libc::SYS_madvise, Some((2, ALL, libc::MADV_HUGEPAGE as u64)));
const MAP_HUGE: Call = (libc::SYS_mmap, Some((3, HUGETLB, HUGETLB)));

/// From now on the calling thread, and those that it starts, get this answer to the calls.
fn refuse(calls: &[Call], code: i32) {
    let rules = calls.iter().map(|(call, argument)| {
        let rules = argument.map(|(place, mask, value)| {
            let equal = SeccompCmpOp::MaskedEq(mask);
            let condition =
                SeccompCondition::new(place, SeccompCmpArgLen::Dword, equal, value).unwrap();
            SeccompRule::new(vec![condition]).unwrap()
        });
        (*call, rules.into_iter().collect())
    });
    let action = SeccompAction::Errno(code.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into().unwrap();
    // Rules of one call belong together.
    let mut merged = std::collections::BTreeMap::<i64, Vec<SeccompRule>>::new();
    rules.for_each(|(call, rules): (i64, Vec<_>)| merged.entry(call).or_default().extend(rules));
    let filter = SeccompFilter::new(merged, SeccompAction::Allow, action, arch).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

/// Containers forbid placement: the pool opens all the same, and says so once.
#[test]
fn a_sandbox_without_placement_gives_memory_anywhere() {
    alone("refused::a_sandbox_without_placement_gives_memory_anywhere", || {
        let placement = [
            libc::SYS_mbind,
            libc::SYS_move_pages,
            libc::SYS_get_mempolicy,
            libc::SYS_set_mempolicy,
        ];
        let calls = placement.map(|call| (call, None));
        let pool = |numa| builder(4 * MIB).class("d", 64, 9).numa(numa);
        for code in [libc::EPERM, libc::ENOSYS] {
            refuse(&calls, code);
            let open = pool(Numa::Node(0)).open().unwrap();
            let notes = &open.startup().notes;
            let [note] = &notes[..] else { panic!("said once: {notes:?}") };
            assert!(note.contains("any NUMA node") && note.contains("{0}"), "{note}");
            assert!(open.startup().slabs.iter().all(|slab| slab.node.is_none()));
            drop(open);
            for numa in [Numa::Auto, Numa::Off] {
                let open = pool(numa).open().unwrap();
                assert!(open.startup().notes.is_empty(), "nothing was asked for");
            }
            used(builder(ODD).numa(Numa::Node(0)), ODD);
        }
    });
}

#[test]
fn a_node_that_exists_is_taken_and_one_that_does_not_is_refused_by_name() {
    const NAME: &str =
        "refused::a_node_that_exists_is_taken_and_one_that_does_not_is_refused_by_name";
    alone(NAME, || {
        let pool = builder(ODD).numa(Numa::Node(0)).open().unwrap();
        match slab(&pool).node {
            Some(node) => assert_eq!(node, 0),
            None => not_run(&format!("{NAME}: the system does not tell a page's node")),
        }
        drop(pool);
        let before = readings();
        let error = builder(ODD).numa(Numa::Node(1000)).open().unwrap_err();
        assert_eq!(readings(), before);
        assert!(matches!(error, Error::Config(_)), "{error}");
        for word in ["numa is 1000", "nodes with memory here are: 0", "\"auto\""] {
            assert!(error.to_string().contains(word), "`{word}` is missing: {error}");
        }
    });
}

/// Kernels before 5.14 do not know the advice to populate: ordinary pages are touched, and reserved huge
/// pages, whose touch may kill, are left alone.
#[test]
fn an_old_kernel_touches_pages_and_uses_no_reserved_ones() {
    const NAME: &str = "refused::an_old_kernel_touches_pages_and_uses_no_reserved_ones";
    alone(NAME, || {
        refuse(&[POPULATE], libc::EINVAL);
        let slab = used(builder(ODD), ODD);
        assert_eq!(slab.pages == PageTier::Transparent, transparent(), "{slab:?}");
        let Some(_reserved) = Reserved::pages(60, NAME) else { return };
        assert_ne!(used(builder(ODD), ODD).pages, PageTier::Huge);
    });
}

/// What a refused call leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The pool opens on this kind of pages.
    Opens(PageTier),
    /// It does not, because of this step.
    Fails(MemoryStep),
}

/// Every call on the way to a slab is refused in turn, with reserved pages at hand and without. Nothing is
/// left, and nothing dies.
#[test]
fn every_refused_call_is_undone_or_done_without() {
    use End::{Fails, Opens};
    use PageTier::{Huge, Transparent};
    const NAME: &str = "refused::every_refused_call_is_undone_or_done_without";
    let lower = if transparent() { Transparent } else { PageTier::Base };
    let rows: &[(&str, &[Call], i32, End, End)] = &[
        ("nothing", &[], 0, Opens(Huge), Opens(lower)),
        ("map-huge", &[MAP_HUGE], libc::ENOMEM, Opens(lower), Opens(lower)),
        ("hugepage", &[HUGEPAGE], libc::EINVAL, Opens(Huge), Opens(PageTier::Base)),
        ("both", &[MAP_HUGE, HUGEPAGE], libc::EPERM, Opens(PageTier::Base), Opens(PageTier::Base)),
        (
            "dontfork",
            &[DONTFORK],
            libc::EINVAL,
            Fails(MemoryStep::Advise),
            Fails(MemoryStep::Advise),
        ),
        // As the kernel answers for pages that a touch would kill for, cannot have, or finds broken.
        (
            "fault",
            &[POPULATE],
            libc::EFAULT,
            Fails(MemoryStep::Populate),
            Fails(MemoryStep::Populate),
        ),
        (
            "memory",
            &[POPULATE],
            libc::ENOMEM,
            Fails(MemoryStep::Populate),
            Fails(MemoryStep::Populate),
        ),
        (
            "broken",
            &[POPULATE],
            libc::EHWPOISON,
            Fails(MemoryStep::Populate),
            Fails(MemoryStep::Populate),
        ),
        ("mbind", &[(libc::SYS_mbind, None)], libc::EINVAL, Opens(Huge), Opens(lower)),
        ("move", &[(libc::SYS_move_pages, None)], libc::EACCES, Opens(Huge), Opens(lower)),
    ];
    for (reserved, pages) in [(true, 60), (false, 0)] {
        for (name, calls, code, with, without) in rows {
            one_row(NAME, name, pages, calls, *code, if reserved { *with } else { *without });
        }
    }
}

/// A filter cannot be taken off: each row has a child of its own.
fn one_row(test: &str, name: &str, pages: u64, calls: &[Call], code: i32, end: End) {
    const ROW: &str = "PINPOOL_TEST_ROW";
    let row = format!("{name} with {pages}");
    if !pinpool_testkit::child::in_child() {
        let _turn = turn();
        finish(pinpool_testkit::child::command(test, &[(ROW, &row)]));
        return;
    }
    if std::env::var(ROW).as_deref() != Ok(&row) {
        return;
    }
    let Some(_reserved) = Reserved::pages(pages, &format!("{test}, {row}")) else { return };
    // Before the filter: it would be asked of the library, not of the pool.
    let pool = builder(ODD).numa(Numa::Node(0)).huge_pages(HugePages::Try);
    let before = readings();
    if !calls.is_empty() {
        refuse(calls, code);
    }
    match (pool.clone().open(), end) {
        (Ok(open), End::Opens(pages)) => {
            assert_eq!(slab(&open).pages, pages, "{row}");
            drop(open);
            used(pool, ODD);
        }
        (Err(Error::Memory { source, .. }), End::Fails(step)) => {
            assert_eq!((source.step, source.cause), (step, MemoryCause::Os(code)), "{row}");
        }
        (opened, end) => panic!("{row}: {opened:?}, expected {end:?}"),
    }
    assert_eq!(readings(), before, "something is left: {row}");
    until("no thread is left but the harness's", || proc::threads() == 2);
}
