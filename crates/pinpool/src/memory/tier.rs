//! Kinds of pages: what may be asked for, and what a region really lies on. Nothing here asks the system.

use std::fmt;

/// A kind of page that memory may lie on. The order is that of their worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum PageTier {
    /// The system's ordinary pages, of 4 KiB on most.
    #[default]
    Base,
    /// Ordinary memory that the kernel backs with huge pages (transparent huge pages).
    Transparent,
    /// Huge pages that the administrator has reserved (hugetlb).
    Huge,
}

/// What a region really lies on, as the system tells after it was backed with memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Obtained {
    /// The kind of its pages: huge only if every whole huge page of the region is one.
    pub pages: PageTier,
    /// Bytes on huge pages of either kind; a lower bound where the system tells no more.
    pub huge_bytes: u64,
    /// The NUMA node, if all of it that was looked at lies on one, and the system tells.
    pub node: Option<u32>,
}

/// Whether slabs are to lie on huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HugePages {
    /// None are asked for. A system that gives transparent ones to everybody still does.
    Off,
    /// Reserved huge pages if enough are free, else transparent ones, else ordinary pages.
    #[default]
    Try,
    /// Reserved or transparent ones, or the pool does not open. A slab that is smaller than a huge
    /// page is exempt.
    Require,
}

impl fmt::Display for PageTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Base => "base",
            Self::Transparent => "transparent",
            Self::Huge => "hugetlb",
        })
    }
}

impl fmt::Display for HugePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Off => "off",
            Self::Try => "try",
            Self::Require => "require",
        })
    }
}
