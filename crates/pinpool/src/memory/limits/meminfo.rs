//! The memory of the whole machine, as `/proc/meminfo` tells it.

use std::path::Path;

use super::{SYSTEM, below, field, text};

/// The machine's memory in bytes. A container sees the machine's figures, not its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemInfo {
    /// RAM that the kernel manages.
    pub total: u64,
    /// What can be had without swapping, by the kernel's estimate: free memory and page cache that is
    /// easily dropped, less what the kernel keeps for itself.
    pub available: u64,
    /// Memory that is locked in RAM by any process (`Mlocked`).
    pub locked: Option<u64>,
    /// Memory that no process may take out of RAM (`Unevictable`), locked memory included.
    pub unevictable: Option<u64>,
    /// Swap space that is free. It does not help memory that is to be locked.
    pub swap_free: Option<u64>,
    /// The most that may be mapped, and what is, where the kernel accounts strictly
    /// (`vm.overcommit_memory = 2`); elsewhere neither binds.
    pub commit: Option<Commit>,
    /// The machine's huge pages, where it has any kind of them.
    pub huge_pages: Option<HugePages>,
}

/// The kernel's account of what processes may map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Commit {
    /// The most bytes.
    pub limit: u64,
    /// Bytes mapped and not given back.
    pub used: u64,
}

/// Huge pages of the default size that were set aside (`vm.nr_hugepages`); not the option of pools, which is
/// [`pinpool::HugePages`](crate::HugePages).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HugePages {
    /// Bytes in one.
    pub page_bytes: u64,
    /// Pages set aside.
    pub total: u64,
    /// Pages of it that nobody has mapped.
    pub free: u64,
    /// Pages of the free ones that are promised to mappings already.
    pub reserved: u64,
}

impl MemInfo {
    /// The figures now; `None` where the system does not tell.
    pub fn read() -> Option<Self> {
        Self::read_at(Path::new(SYSTEM))
    }

    /// The figures of a system whose root is the folder `root`.
    pub fn read_at(root: &Path) -> Option<Self> {
        Self::parse(&file_of(root)?)
    }

    fn parse(text: &str) -> Option<Self> {
        Some(Self {
            total: bytes(text, "MemTotal:")?,
            available: bytes(text, "MemAvailable:")?,
            locked: bytes(text, "Mlocked:"),
            unevictable: bytes(text, "Unevictable:"),
            swap_free: bytes(text, "SwapFree:"),
            commit: Commit::parse(text),
            huge_pages: HugePages::parse(text),
        })
    }
}

impl Commit {
    fn parse(text: &str) -> Option<Self> {
        Some(Self { limit: bytes(text, "CommitLimit:")?, used: bytes(text, "Committed_AS:")? })
    }

    /// Bytes that may be mapped yet.
    pub fn room(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

impl HugePages {
    /// Those of a system whose root is the folder `root`.
    pub(crate) fn read_at(root: &Path) -> Option<Self> {
        Self::parse(&file_of(root)?)
    }

    fn parse(text: &str) -> Option<Self> {
        let count = |name| field(text, name)?.parse().ok();
        Some(Self {
            page_bytes: bytes(text, "Hugepagesize:")?,
            total: count("HugePages_Total:")?,
            free: count("HugePages_Free:")?,
            reserved: count("HugePages_Rsvd:").unwrap_or(0),
        })
    }

    /// Pages that can be had now.
    pub fn available(&self) -> u64 {
        self.free.saturating_sub(self.reserved)
    }
}

fn file_of(root: &Path) -> Option<String> {
    text(&below(root, Path::new(FILE)))
}

/// A field in kibibytes, in bytes.
fn bytes(text: &str, name: &str) -> Option<u64> {
    let kibibytes: u64 = field(text, name)?.strip_suffix("kB")?.trim_end().parse().ok()?;
    kibibytes.checked_mul(1024)
}

const FILE: &str = "/proc/meminfo";
