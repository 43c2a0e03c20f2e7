//! The ladder: reserved huge pages, else transparent ones, else ordinary pages; or an error by name.

use pinpool::{
    ClassConfig, Error, HugePages, LockMode, MemoryCause, MemoryStep, Mlock, OnEmpty, PageTier,
    Pool,
};
use pinpool_testkit::proc;
use pinpool_testkit::scripted::{Counted, Fault, Faulty};
use pinpool_testkit::soon::{HANG, until};

use crate::support::not_run;
use crate::{
    MIB, ODD, Reserved, alone, builder, give_up_transparent, huge_page, meminfo, own_huge_pages,
    readings,
};
use crate::{slab, transparent, used};

#[test]
fn transparent_pages_are_the_usual_ones() {
    const NAME: &str = "ladder::transparent_pages_are_the_usual_ones";
    alone(NAME, || {
        if !transparent() {
            return not_run(&format!("{NAME}: no transparent huge pages of 2 MiB here"));
        }
        for bytes in [2 * MIB, 3 * MIB + 4096, 64 * MIB, ODD] {
            let slab = used(builder(bytes), bytes);
            assert_eq!((slab.pages, slab.bytes), (PageTier::Transparent, bytes as u64));
            assert_eq!(slab.huge_bytes, (bytes / (2 * MIB) * 2 * MIB) as u64, "{slab:?}");
            assert_eq!(
                used(builder(bytes).huge_pages(HugePages::Require), bytes).pages,
                slab.pages
            );
        }
        let small = used(builder(2 * MIB - 4096).huge_pages(HugePages::Require), 2 * MIB - 4096);
        assert_eq!(small.pages, PageTier::Base, "smaller than a huge page: exempt");
        let off = used(builder(ODD).lock(LockMode::Off), ODD);
        assert_eq!((off.pages, off.bytes), (PageTier::Base, ODD as u64), "lock off is as it was");
    });
}

#[test]
fn without_huge_pages_ordinary_ones_do() {
    alone("ladder::without_huge_pages_ordinary_ones_do", || {
        give_up_transparent();
        for huge in [HugePages::Off, HugePages::Try] {
            let slab = used(builder(ODD).huge_pages(huge), ODD);
            assert_eq!((slab.pages, slab.huge_bytes), (PageTier::Base, 0), "{huge}");
        }
    });
}

/// Unmapping with the length that was asked for failed, and left the region behind at each close.
///
/// Case size-4.
#[test]
fn reserved_pages_come_back_at_every_close() {
    const NAME: &str = "ladder::reserved_pages_come_back_at_every_close";
    alone(NAME, || {
        let Some(_reserved) = Reserved::pages(60, NAME) else { return };
        for _ in 0..100 {
            let pool = builder(ODD).open().unwrap();
            let slab = slab(&pool);
            let whole = ODD.next_multiple_of(huge_page()) as u64;
            assert_eq!((slab.pages, slab.bytes), (PageTier::Huge, whole));
            assert_eq!((slab.huge_bytes, pool.stats().mapped_bytes), (whole, whole));
            let pinned = pool.stats().pinned_bytes;
            assert_eq!(pinned, if pool.is_pinned() { ODD as u64 } else { 0 });
            assert_eq!(own_huge_pages(), 54);
            drop(pool);
            assert_eq!(own_huge_pages(), 0);
        }
        until("all are free again", || meminfo("HugePages_Free") >= 60);
        assert_eq!(used(builder(ODD).huge_pages(HugePages::Require), ODD).pages, PageTier::Huge);
        assert_ne!(used(builder(ODD).huge_pages(HugePages::Off), ODD).pages, PageTier::Huge);
    });
}

/// A mapping of huge pages that are not there succeeded, and the first touch killed the process.
///
/// Case limits-5.
#[test]
fn too_few_reserved_pages_are_noticed_at_open() {
    const NAME: &str = "ladder::too_few_reserved_pages_are_noticed_at_open";
    alone(NAME, || {
        let Some(_reserved) = Reserved::pages(53, NAME) else { return };
        give_up_transparent();
        assert_eq!(used(builder(ODD), ODD).pages, PageTier::Base, "one page is missing");
        // The second class finds what the first has left.
        let builder = || builder(80 * MIB).class("d", 40 * MIB, 1);
        let pool = builder().open().unwrap();
        let tiers: Vec<_> = pool.startup().slabs.iter().map(|slab| slab.pages).collect();
        assert_eq!(tiers, [PageTier::Huge, PageTier::Base], "by rising slot size");
        drop(pool);
        let before = readings();
        let error = builder().huge_pages(HugePages::Require).open().unwrap_err();
        assert_eq!(readings(), before, "something is left of the pool");
        assert!(matches!(error, Error::HugePages { needed: 60, .. }), "{error}");
    });
}

#[test]
fn required_pages_that_are_missing_are_named_with_their_number() {
    const NAME: &str = "ladder::required_pages_that_are_missing_are_named_with_their_number";
    alone(NAME, || {
        give_up_transparent();
        let before = readings();
        let error = builder(ODD).huge_pages(HugePages::Require).open().unwrap_err();
        assert_eq!(readings(), before, "something is left of the pool");
        assert!(error.is_bad_input());
        let text = error.to_string();
        let Error::HugePages { class, needed, page_bytes, source, .. } = error else {
            panic!("{text}")
        };
        assert_eq!((class.as_str(), page_bytes), ("c", huge_page()));
        assert_eq!(needed, ODD.div_ceil(huge_page()) as u64);
        assert_eq!(source.cause, MemoryCause::NotHuge { huge: 0 });
        for word in [
            format!("reserve {needed} huge pages of {page_bytes} bytes"),
            "vm.nr_hugepages".into(),
            "/sys/kernel/mm/transparent_hugepage/enabled".into(),
            "huge_pages = \"try\"".into(),
        ] {
            assert!(text.contains(&word), "`{word}` is missing: {text}");
        }
    });
}

/// A step that fails on one kind of pages is undone, and the next kind is taken: fault by fault, on the
/// real ladder of this machine.
#[test]
fn a_failure_on_one_kind_of_pages_takes_the_next() {
    const NAME: &str = "ladder::a_failure_on_one_kind_of_pages_takes_the_next";
    alone(NAME, || {
        let Some(_reserved) = Reserved::pages(60, NAME) else { return };
        if !transparent() {
            return not_run(&format!("{NAME}: no transparent huge pages of 2 MiB here"));
        }
        let kinds = [PageTier::Huge, PageTier::Transparent, PageTier::Base];
        let before = readings();
        for step in [MemoryStep::Reserve, MemoryStep::Populate] {
            for (failing, expected) in kinds.into_iter().map(Some).chain([None]).enumerate() {
                let memory = Mlock::new(proc::lock_mode_for(ODD)).huge_pages(HugePages::Try);
                let (memory, ledger) = Counted::new(memory);
                let fault = Fault::nth(1).of(step).os(libc::EFAULT).persistent();
                let (memory, log) = Faulty::new(memory, fault.clone());
                let memory = FirstTiers { inner: memory, log, failing, fault };
                let opened = pool(memory);
                match (opened, expected) {
                    (Ok(pool), Some(expected)) => {
                        assert_eq!(slab(&pool).pages, expected, "{failing} fail to {step}");
                        drop(pool);
                    }
                    (Err(Error::Memory { source, .. }), None) => {
                        assert_eq!(
                            (source.step, source.cause),
                            (step, MemoryCause::Os(libc::EFAULT))
                        );
                    }
                    (opened, expected) => {
                        panic!("{failing} fail to {step}: {opened:?}, {expected:?}")
                    }
                }
                ledger.assert_clean();
                assert_eq!(readings(), before, "{failing} fail to {step}");
            }
        }
    });
}

fn pool(memory: impl pinpool::PageLock + 'static) -> Result<Pool, Error> {
    Pool::builder().env(false).prefault_threads(2).class("c", ODD, 1).memory(memory).open()
}

/// Grown slabs climb the same ladder, and what they took comes back.
#[test]
fn a_class_grows_on_huge_pages_too() {
    const NAME: &str = "ladder::a_class_grows_on_huge_pages_too";
    alone(NAME, || {
        let Some(_reserved) = Reserved::pages(8, NAME) else { return };
        let class =
            ClassConfig::new("g", 4 * MIB, 2).on_empty(OnEmpty::Grow).grow_by(1).grow_max(1);
        let pool = builder(4096).class_config(class).max_pinned(64 << 20).open().unwrap();
        assert_eq!(own_huge_pages(), 4, "the first slab");
        let leases: Vec<_> = (0..3).map(|_| pool.lease(4 * MIB).unwrap()).collect();
        assert_eq!(own_huge_pages(), 6, "and the grown one");
        drop(leases);
        assert!(pool.close(HANG).is_complete());
        assert_eq!(own_huge_pages(), 0);
    });
}

/// Memory in which every call of a step fails until so many kinds of pages were tried.
#[derive(Debug)]
struct FirstTiers<M> {
    inner: M,
    log: pinpool_testkit::scripted::FaultLog,
    failing: usize,
    fault: Fault,
}

// SAFETY: every duty is the inner memory's; this only switches its faults between the calls.
unsafe impl<M: pinpool::PageLock> pinpool::PageLock for FirstTiers<M> {
    fn kind(&self) -> pinpool::BackendKind {
        self.inner.kind()
    }

    fn tiers(&self, bytes: usize) -> Vec<PageTier> {
        self.inner.tiers(bytes)
    }

    fn reserve(&self, bytes: usize) -> Result<std::ptr::NonNull<u8>, pinpool::MemoryError> {
        self.reserve_as(bytes, PageTier::Base)
    }

    fn reserve_as(
        &self,
        bytes: usize,
        tier: PageTier,
    ) -> Result<std::ptr::NonNull<u8>, pinpool::MemoryError> {
        let place = [PageTier::Huge, PageTier::Transparent].iter().position(|kind| *kind == tier);
        let fails = place.unwrap_or(2) < self.failing;
        self.log.arm(fails.then(|| self.fault.clone()));
        self.inner.reserve_as(bytes, tier)
    }

    unsafe fn obtained(&self, region: pinpool::Region) -> pinpool::Obtained {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.obtained(region) }
    }

    unsafe fn populate(&self, part: pinpool::Region) -> Result<(), pinpool::MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.populate(part) }
    }

    unsafe fn pin(&self, chunk: pinpool::Region) -> Result<pinpool::Pinned, pinpool::MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.pin(chunk) }
    }

    unsafe fn unpin(&self, chunk: pinpool::Region) -> Result<(), pinpool::MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.unpin(chunk) }
    }

    unsafe fn release(&self, region: pinpool::Region) -> Result<(), pinpool::MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.release(region) }
    }
}
