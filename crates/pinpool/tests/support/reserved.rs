//! Reserved huge pages of the machine, for tests that need some: they are its own, and are given back.

use std::fs::File;
use std::os::fd::AsRawFd;

/// A number of `/proc/meminfo`, in its unit.
pub(crate) fn meminfo(name: &str) -> u64 {
    field("/proc/meminfo", name)
}

/// Reserved huge pages that this process has, whatever others do meanwhile.
pub(crate) fn own_huge_pages() -> u64 {
    field("/proc/self/smaps_rollup", "Private_Hugetlb") * 1024 / huge_page().max(1) as u64
}

fn field(path: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Bytes of a reserved huge page.
pub(crate) fn huge_page() -> usize {
    usize::try_from(meminfo("Hugepagesize")).unwrap() * 1024
}

/// So many free reserved huge pages, as long as this lives.
pub(crate) struct Reserved {
    before: String,
    /// Locked: others of these tests may run at the same time, of another build perhaps.
    _turn: File,
}

const RESERVED: &str = "/proc/sys/vm/nr_hugepages";

impl Reserved {
    /// Says that `test` was not run where they cannot be had.
    pub(crate) fn pages(count: u64, test: &str) -> Option<Self> {
        let turn = File::create(std::env::temp_dir().join("pinpool-reserved-pages.lock")).unwrap();
        // SAFETY: waits for a lock on an open file, which goes when the file is closed.
        let locked = unsafe { libc::flock(turn.as_raw_fd(), libc::LOCK_EX) };
        assert_eq!(locked, 0);
        let before = std::fs::read_to_string(RESERVED).unwrap_or_default();
        let reserved = Self { before, _turn: turn };
        let used = meminfo("HugePages_Total") - meminfo("HugePages_Free");
        let asked = std::fs::write(RESERVED, (used + count).to_string());
        let free = meminfo("HugePages_Free") - meminfo("HugePages_Rsvd");
        if asked.is_err() || free != count || huge_page() != 2 << 20 {
            super::not_run(&format!(
                "{test}: {count} huge pages of 2 MiB cannot be reserved here ({free} are free: {asked:?})"
            ));
            return None;
        }
        Some(reserved)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let _ = std::fs::write(RESERVED, &self.before);
    }
}
