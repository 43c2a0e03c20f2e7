//! What the system has in huge pages, and which kinds are worth a try; it reads and changes nothing.

use std::path::Path;
use std::sync::OnceLock;

use super::limits::{self, page_size};
use super::mapping::{MapOptions, populate_is_known};
use super::{ForkPolicy, HugePages, PageTier};

/// Huge pages as the system has them now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Supply {
    /// Bytes of a reserved huge page; 0 where there is no such thing.
    pub page_bytes: usize,
    /// Reserved pages that nobody has a claim on: those free, less those promised to mappings.
    pub free: u64,
    /// Bytes of a transparent huge page, if the kernel has them.
    pub transparent_bytes: Option<usize>,
    /// Who gets transparent ones: `always`, `madvise`, `never`, or nothing if the system does not tell.
    pub transparent: String,
}

impl Supply {
    /// As it is now.
    pub fn read() -> Self {
        Self::under(Path::new("/"))
    }

    /// As the files of a system say whose root is the folder `root`.
    pub fn under(root: &Path) -> Self {
        let text = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
        let reserved = limits::HugePages::read_at(root);
        // Anything else is no size of a page.
        let whole = |bytes: u64| {
            let bytes = usize::try_from(bytes).ok()?;
            (bytes.is_power_of_two() && bytes >= page_size()).then_some(bytes)
        };
        let enabled = text("sys/kernel/mm/transparent_hugepage/enabled");
        let chosen = enabled.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        let size = text("sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
        Self {
            page_bytes: reserved.and_then(|pages| whole(pages.page_bytes)).unwrap_or(0),
            // Of those free some are promised to mappings that have not touched them yet.
            free: reserved.map_or(0, |pages| pages.available()),
            transparent_bytes: size.trim().parse().ok().and_then(whole),
            transparent: chosen.map_or(String::new(), |(mode, _)| mode.to_owned()),
        }
    }

    /// Reserved huge pages that so many bytes need; 0 where there are none of any size.
    pub fn pages_for(&self, bytes: u64) -> u64 {
        bytes
            .checked_div(self.page_bytes as u64)
            .map_or(0, |whole| whole + u64::from(!bytes.is_multiple_of(self.page_bytes as u64)))
    }

    /// The kinds to try for a region, best first. The last one is the least that will do.
    fn tiers(&self, bytes: usize, options: MapOptions, populates: bool) -> Vec<PageTier> {
        let fits = |page: usize| page > 0 && bytes >= page;
        let transparent = self.transparent_bytes.is_some_and(fits);
        if options.huge == HugePages::Off || !(transparent || fits(self.page_bytes)) {
            return vec![PageTier::Base];
        }
        let required = options.huge == HugePages::Require;
        let mut tiers = Vec::with_capacity(3);
        // Without the populate advice a missing page would show as SIGBUS at the first touch. A child's
        // copy of a reserved page may find none left, which kills it. Guards are ordinary pages, which
        // cannot stand at the ends of such a mapping.
        let safe = populates && options.fork == ForkPolicy::Deny && !options.guarded;
        if safe && fits(self.page_bytes) && self.free >= self.pages_for(bytes as u64) {
            tiers.push(PageTier::Huge);
        }
        if required || (transparent && self.transparent != "never") {
            tiers.push(PageTier::Transparent);
        }
        if !required {
            tiers.push(PageTier::Base);
        }
        tiers
    }
}

/// The kinds of pages to try for a region of `bytes` that is mapped in this way, best first.
pub(crate) fn tiers(bytes: usize, options: MapOptions) -> Vec<PageTier> {
    if options.huge == HugePages::Off {
        return vec![PageTier::Base];
    }
    Supply::read().tiers(bytes, options, populate_is_known())
}

/// Lengths of regions on such pages are multiples of this.
pub(crate) fn granule(tier: PageTier) -> usize {
    match tier {
        PageTier::Huge => sizes().page_bytes.max(page_size()),
        _ => page_size(),
    }
}

/// Bytes of a transparent huge page, if the kernel has them.
pub(crate) fn transparent_bytes() -> Option<usize> {
    sizes().transparent_bytes
}

/// How large pages are never changes while a system runs, unlike how many there are: read once.
fn sizes() -> &'static Supply {
    static SIZES: OnceLock<Supply> = OnceLock::new();
    SIZES.get_or_init(Supply::read)
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const MIB: usize = 1 << 20;

    fn supply(free: u64) -> Supply {
        Supply {
            page_bytes: 2 * MIB,
            free,
            transparent_bytes: Some(2 * MIB),
            transparent: "madvise".into(),
        }
    }

    fn options(huge: HugePages) -> MapOptions {
        MapOptions { huge, ..MapOptions::default() }
    }

    #[test]
    fn the_system_s_files_are_read() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/kernel/mm/transparent_hugepage");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        let meminfo = "MemTotal: 9 kB\nAnonHugePages: 77 kB\nHugePages_Total: 70\n\
                       HugePages_Free:      64\nHugePages_Rsvd:  10\nHugePages_Surp:   0\n\
                       Hugepagesize:       2048 kB\nHugetlb: 5 kB\n";
        std::fs::write(root.path().join("proc/meminfo"), meminfo).unwrap();
        std::fs::write(folder.join("enabled"), "always [madvise] never\n").unwrap();
        std::fs::write(folder.join("hpage_pmd_size"), "2097152\n").unwrap();
        assert_eq!(Supply::under(root.path()), supply(54));
        // What a stranger's file system tells is not believed.
        for (pages, size) in [("18446744073709551615", "1"), ("3", "4095"), ("1", "6291456")] {
            let meminfo = format!("Hugepagesize: {pages} kB\nHugePages_Free: 9\n");
            std::fs::write(root.path().join("proc/meminfo"), meminfo).unwrap();
            std::fs::write(folder.join("hpage_pmd_size"), size).unwrap();
            let Supply { page_bytes, transparent_bytes, .. } = Supply::under(root.path());
            assert_eq!((page_bytes, transparent_bytes), (0, None));
        }
        let nothing = tempfile::tempdir().unwrap();
        assert_eq!(Supply::under(nothing.path()), Supply::default());
    }

    #[test]
    fn reserved_pages_are_tried_only_if_enough_are_free() {
        use PageTier::{Base, Huge, Transparent};
        let whole = 112_721_920;
        assert_eq!(supply(0).pages_for(whole as u64), 54);
        let tiers = |free, huge| supply(free).tiers(whole, options(huge), true);
        assert_eq!(tiers(54, HugePages::Try), [Huge, Transparent, Base]);
        assert_eq!(tiers(53, HugePages::Try), [Transparent, Base]);
        assert_eq!(tiers(0, HugePages::Try), [Transparent, Base]);
        assert_eq!(tiers(54, HugePages::Require), [Huge, Transparent]);
        assert_eq!(tiers(53, HugePages::Require), [Transparent]);
        assert_eq!(tiers(54, HugePages::Off), [Base]);
    }

    #[test]
    fn reserved_pages_are_not_used_where_they_could_kill() {
        use PageTier::{Base, Transparent};
        let tiers = |options, populates| supply(999).tiers(8 * MIB, options, populates);
        let usual = options(HugePages::Try);
        assert_eq!(tiers(usual, false), [Transparent, Base], "no populate");
        let inherited = MapOptions { fork: ForkPolicy::Inherit, ..usual };
        assert_eq!(tiers(inherited, true), [Transparent, Base]);
        assert_eq!(tiers(MapOptions { guarded: true, ..usual }, true), [Transparent, Base]);
    }

    #[test]
    fn less_than_a_huge_page_lies_on_ordinary_ones() {
        for huge in [HugePages::Off, HugePages::Try, HugePages::Require] {
            assert_eq!(supply(999).tiers(2 * MIB - 1, options(huge), true), [PageTier::Base]);
        }
        let none = Supply::default();
        assert_eq!(none.tiers(999 * MIB, options(HugePages::Try), true), [PageTier::Base]);
        assert_eq!(none.pages_for(999), 0, "there are no pages to count in");
    }

    #[test]
    fn who_switched_transparent_ones_off_gets_none() {
        let never = Supply { transparent: "never".into(), ..supply(0) };
        assert_eq!(never.tiers(8 * MIB, options(HugePages::Try), true), [PageTier::Base]);
        let required = never.tiers(8 * MIB, options(HugePages::Require), true);
        assert_eq!(required, [PageTier::Transparent], "it fails there, by name");
    }
}
