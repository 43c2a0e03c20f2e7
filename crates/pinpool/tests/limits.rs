//! The locked-memory limit: exact errors with the numbers and the remedy, and nothing left pinned.
//!
//! A limit belongs to a process, and root is not bound by it: each test runs in a child that gives
//! up its capabilities by becoming another user.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed unwrap is a failed test"
)]

#[path = "limits/groups.rs"]
mod groups;
#[path = "limits/kernel.rs"]
mod kernel;
mod support;

use pinpool::limits::LimitKind;
use pinpool::{
    BackendChoice, BackendKind, Error, Heap, LockMode, MemoryCause, MemoryError, MemoryStep, Pool,
    PoolBuilder,
};
use pinpool_testkit::{child, proc};
use rustix::process::{Resource, Rlimit};
use support::{alone, not_run};

const PAGE: u64 = 4096;
/// 1,000 is no multiple of a page, the slab of 40 is: 10 pages of 1,024-byte slots.
const SLAB: u64 = 10 * PAGE;

/// Runs `body` in a child of its own that the locked-memory limit binds; `test` is the caller's name.
fn bound(test: &str, body: impl FnOnce()) {
    alone(test, &[], || {
        give_up_privileges();
        if limit_binds() {
            body();
        } else {
            not_run(&format!("{test}: this process may lock memory whatever its limit"));
        }
    });
}

/// Root becomes nobody, and with that loses `CAP_IPC_LOCK`. Anybody else stays who they are.
fn give_up_privileges() {
    const NOBODY: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // SAFETY: changes the identity of this child only.
    let group = unsafe { libc::setresgid(NOBODY, NOBODY, NOBODY) };
    // SAFETY: as above.
    let user = unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) };
    assert_eq!((group, user), (0, 0), "root may become nobody");
}

/// False when this process locks a page although its limit is zero.
fn limit_binds() -> bool {
    let before = rustix::process::getrlimit(Resource::Memlock);
    set_soft(Some(0));
    let mode = proc::lock_mode_for(1);
    rustix::process::setrlimit(Resource::Memlock, before).expect("a soft limit can be restored");
    mode == LockMode::Try
}

/// Sets the soft limit, and returns the hard one.
fn set_soft(bytes: Option<u64>) -> Option<u64> {
    let hard = rustix::process::getrlimit(Resource::Memlock).maximum;
    let limit = Rlimit { current: bytes, maximum: hard };
    rustix::process::setrlimit(Resource::Memlock, limit).expect("a soft limit can be set");
    hard
}

/// A pool that reads nothing from outside, on host memory.
fn builder() -> PoolBuilder {
    Pool::builder().env(false).backend(BackendChoice::Host).prefault_threads(1)
}

/// One class with a slab of `SLAB` bytes.
fn small() -> PoolBuilder {
    builder().class("small", 1000, 40)
}

/// What must be as before after a pool has failed or gone.
fn readings() -> (u64, usize, u64) {
    (proc::locked_bytes(), proc::maps(), proc::threads())
}

/// Opens a pool that the limit forbids: it is refused before anything is mapped or locked, and every
/// number and word of the error is right.
fn assert_over_the_limit(builder: PoolBuilder, needed: u64, soft: u64) {
    let (error, source) = assert_refused(builder, needed, soft, 0);
    let MemoryCause::NoRoom(headroom) = &source.cause else { panic!("it was tried: {error}") };
    assert_eq!(headroom.limit, LimitKind::Memlock);
    assert_eq!((headroom.bytes, headroom.used, headroom.kept_free), (soft, 0, 0), "{error}");
    assert_eq!(source.bytes as u64, needed);
}

/// The same for a limit that is met when `already` bytes are locked, or before, where that is 0.
fn assert_refused(
    builder: PoolBuilder,
    needed: u64,
    soft: u64,
    already: u64,
) -> (String, MemoryError) {
    let hard = rustix::process::getrlimit(Resource::Memlock).maximum;
    let before = readings();
    let error = builder.open().expect_err("the limit forbids it");
    assert_eq!(readings(), before, "something is left of the failed pool");
    assert!(error.is_bad_input());
    let text = error.to_string();
    let Error::MemlockLimit { needed: n, already: a, elsewhere, soft: s, hard: h, source } = error
    else {
        panic!("needed {needed}, limit {soft}: {error}");
    };
    assert_eq!((n, s, h), (needed, Some(soft), hard), "{text}");
    assert_eq!((a, elsewhere), (already, 0), "already locked: {text}");
    assert_eq!(source.step, MemoryStep::Pin);
    let hard = hard.map_or("unlimited hard".into(), |hard| format!("{hard} bytes hard"));
    for word in [
        format!("{needed} bytes of host memory"),
        format!("{already} of them"),
        format!("RLIMIT_MEMLOCK is {soft} bytes soft"),
        format!("{hard}, for each process by itself"),
        "ulimit -l".into(),
        "LimitMEMLOCK=".into(),
        "--ulimit memlock=-1".into(),
        "CAP_IPC_LOCK".into(),
        "lock = \"try\"".into(),
    ] {
        assert!(text.contains(&word), "`{word}` is missing: {text}");
    }
    (text, *source)
}

/// Opens a pool, checks what it says it is against the kernel, uses it and closes it.
fn assert_opens(builder: PoolBuilder, locked: bool, slab: u64) {
    let before = readings();
    let pool = builder.open().unwrap();
    assert_eq!(pool.backend(), BackendKind::Host);
    assert_eq!(pool.is_pinned(), locked);
    assert_eq!(pool.startup().pinned, locked);
    let expected = if locked { slab } else { 0 };
    assert_eq!(proc::locked_bytes() - before.0, expected, "as the kernel counts it");
    let stats = pool.stats();
    assert_eq!((stats.pinned, stats.pinned_bytes), (locked, expected));
    assert_eq!(stats.mapped_bytes, slab);
    let named = if locked { "pinned" } else { "not pinned" };
    assert!(stats.to_string().contains(&format!("backend host, {named},")), "{stats}");
    let mut lease = pool.try_lease(1000).unwrap();
    assert_eq!((lease.is_pinned(), lease.is_device_accessible()), (locked, false));
    lease.as_mut_slice().fill(7);
    drop(lease);
    drop(pool);
    assert_eq!(readings(), before, "something is left of the pool");
}

/// Limits around the slab, each with every lock mode: it opens exactly when the limit allows, and
/// else the error has the numbers, or the pool says that it is not locked.
///
/// RELIABILITY R24.
#[test]
fn a_limit_around_the_slab_is_kept_to_the_page_in_every_mode() {
    bound("a_limit_around_the_slab_is_kept_to_the_page_in_every_mode", || {
        assert_eq!(small().plan().unwrap().pinned_bytes, SLAB);
        let hard = rustix::process::getrlimit(Resource::Memlock).maximum;
        let around = [0, 1, PAGE, SLAB - PAGE, SLAB - 1, SLAB, SLAB + 1, SLAB + PAGE];
        let limits = around.map(Some).into_iter().chain([hard]);
        for soft in limits {
            set_soft(soft);
            let enough = soft.is_none_or(|soft| soft >= SLAB);
            if enough {
                assert_opens(small().lock(LockMode::Require), true, SLAB);
            } else {
                let soft = soft.unwrap();
                assert_over_the_limit(small().lock(LockMode::Require), SLAB, soft);
                assert_over_the_limit(small(), SLAB, soft);
            }
            assert_opens(small().lock(LockMode::Try), enough, SLAB);
            assert_opens(small().lock(LockMode::Off), false, SLAB);
        }
    });
}

/// The same with no limit at all, which only a raised hard limit gives.
#[test]
fn without_a_limit_everything_is_locked() {
    const NAME: &str = "without_a_limit_everything_is_locked";
    if child::in_child() {
        let unlimited = Rlimit { current: None, maximum: None };
        if rustix::process::setrlimit(Resource::Memlock, unlimited).is_err() {
            not_run(&format!("{NAME}: the hard limit cannot be raised"));
            return;
        }
    }
    bound(NAME, || {
        assert_opens(small(), true, SLAB);
        assert_opens(small().lock(LockMode::Try), true, SLAB);
        assert_opens(small().lock(LockMode::Off), false, SLAB);
        set_soft(Some(PAGE));
        let error = small().open().unwrap_err().to_string();
        assert!(error.contains("4096 bytes soft and unlimited hard"), "{error}");
    });
}

/// `CAP_IPC_LOCK` lifts the limit: what the kernel allows is not refused by us.
#[test]
fn a_process_with_the_capability_is_not_bound_by_its_limit() {
    const NAME: &str = "a_process_with_the_capability_is_not_bound_by_its_limit";
    alone(NAME, &[], || {
        if limit_binds() {
            return not_run(&format!("{NAME}: this process lacks CAP_IPC_LOCK"));
        }
        for soft in [0, PAGE, SLAB - PAGE] {
            set_soft(Some(soft));
            assert_opens(small().lock(LockMode::Require), true, SLAB);
            assert_opens(small().lock(LockMode::Try), true, SLAB);
            assert_opens(small().lock(LockMode::Off), false, SLAB);
        }
    });
}

/// Containers allow 64 KiB or 8 MiB, and 'cannot allocate memory' said nothing about why.
///
/// Case limits-1.
#[test]
fn the_default_limit_of_a_container_is_named_with_its_remedy() {
    bound("the_default_limit_of_a_container_is_named_with_its_remedy", || {
        let wanted = 64 << 20;
        let pool = || builder().class("frame", 4 << 20, 16);
        for soft in [64 << 10, 8 << 20] {
            set_soft(Some(soft));
            assert_over_the_limit(pool(), wanted, soft);
            assert_opens(pool().lock(LockMode::Try), false, wanted);
        }
    });
}

/// A pool beside another one that fits alone: the limit is the cause all the same, and is named.
#[test]
fn what_the_process_has_locked_already_counts() {
    bound("what_the_process_has_locked_already_counts", || {
        set_soft(Some(SLAB + PAGE));
        let first = small().open().unwrap();
        assert_eq!(proc::locked_bytes(), SLAB);
        let before = readings();
        let error = small().open().expect_err("two slabs exceed the limit");
        assert_eq!(readings(), before, "the first pool keeps its memory, the second leaves none");
        let text = error.to_string();
        let Error::MemlockLimit { needed, already, elsewhere, soft, .. } = error else {
            panic!("the limit is not named: {text}");
        };
        assert_eq!((needed, already, elsewhere, soft), (SLAB, 0, SLAB, Some(SLAB + PAGE)));
        assert!(text.contains("40960 bytes are locked by the rest of this process"), "{text}");
        assert!(first.try_lease(1000).unwrap().is_pinned());
        drop(first);
        assert_opens(small(), true, SLAB);
    });
}

/// `max_pinned` holds before anything is asked of the system, whatever the limit.
#[test]
fn more_than_max_pinned_is_refused_before_anything_is_mapped() {
    let before = readings();
    let error = small().max_pinned(SLAB - 1).open().unwrap_err();
    assert!(matches!(error, Error::Config(_)), "{error}");
    for word in [SLAB.to_string(), format!("max_pinned is {}", SLAB - 1)] {
        assert!(error.to_string().contains(&word), "`{word}` is missing: {error}");
    }
    let pool = small().max_pinned(SLAB).memory(Heap::claiming_locked()).open().unwrap();
    assert_eq!((pool.stats().pinned_bytes, pool.stats().cap_bytes), (SLAB, SLAB));
    drop(pool);
    assert_eq!(proc::locked_bytes(), before.0);
}

/// Locked bytes as the kernel counts them exceed the configured bytes by less than a page per slab.
#[test]
fn locked_bytes_are_the_configured_bytes_to_the_page() {
    const NAME: &str = "locked_bytes_are_the_configured_bytes_to_the_page";
    alone(NAME, &[], || {
        let classes: [&[(usize, usize)]; 7] = [
            &[(6_220_800, 32)],
            &[(3_110_400, 7)],
            &[(24_883_200, 3)],
            &[(64, 1)],
            &[(4096, 1), (8192, 3)],
            &[(64, 65), (192, 333), (6_220_800, 2), (12_441_600, 1)],
            &[(1_000_000, 5), (1_000_064, 5), (46_489_728, 1)],
        ];
        for classes in classes {
            let pool = classes.iter().fold(builder(), |builder, (size, count)| {
                builder.class(&format!("c{size}"), *size, *count)
            });
            let configured: usize = classes.iter().map(|(size, count)| size * count).sum();
            let planned = pool.plan().unwrap();
            if proc::lock_mode_for(usize::try_from(planned.pinned_bytes).unwrap()) == LockMode::Try
            {
                not_run(&format!("{NAME}: {configured} bytes exceed the locked-memory limit"));
                continue;
            }
            let before = proc::locked_bytes();
            let pool = pool.open().unwrap();
            let locked = proc::locked_bytes() - before;
            assert_eq!(locked, planned.pinned_bytes, "{classes:?}");
            assert_eq!(locked, pool.stats().pinned_bytes);
            let excess = locked - configured as u64;
            assert!(
                excess < PAGE * classes.len() as u64,
                "{excess} bytes too many for {classes:?}"
            );
            drop(pool);
            assert_eq!(proc::locked_bytes(), before);
        }
    });
}
