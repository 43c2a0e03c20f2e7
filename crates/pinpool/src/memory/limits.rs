//! What the system allows this process to lock; it reads limits and changes none.

use std::fmt;

use rustix::process::{Resource, getrlimit};

/// `RLIMIT_MEMLOCK` in bytes, `None` for unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memlock {
    /// What counts.
    pub soft: Option<u64>,
    /// How far this process may raise it by itself.
    pub hard: Option<u64>,
}

impl Memlock {
    /// The limit now. A process with `CAP_IPC_LOCK` is not bound by it.
    pub fn read() -> Self {
        let limit = getrlimit(Resource::Memlock);
        Self { soft: limit.current, hard: limit.maximum }
    }
}

impl fmt::Display for Memlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            |limit: Option<u64>| limit.map_or("unlimited".into(), |bytes| format!("{bytes} bytes"));
        write!(f, "RLIMIT_MEMLOCK {} soft, {} hard", name(self.soft), name(self.hard))
    }
}

/// Bytes that this process has locked, as the kernel counts them; zero where it does not tell.
pub(crate) fn locked_now() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
    let kibibytes =
        line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

/// Bytes in a page of this system.
pub(crate) fn page_size() -> usize {
    rustix::param::page_size()
}
