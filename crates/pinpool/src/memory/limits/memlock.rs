//! How much memory this process may lock, and has locked.

use std::fmt;
use std::path::Path;

/// `RLIMIT_MEMLOCK` in bytes, `None` for unlimited, or where a sandbox hides it. It binds each process for itself.
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
        let mut limit =
            libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // Not rustix's, which panics where a sandbox refuses the call.
        // SAFETY: the call writes to the two fields, or to none.
        let _ = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
        let bytes = |limit| (limit != libc::RLIM_INFINITY).then_some(limit);
        Self { soft: bytes(limit.rlim_cur), hard: bytes(limit.rlim_max) }
    }

    /// True when this process has `CAP_IPC_LOCK`: the limit does not bind it.
    pub fn is_exempt() -> bool {
        Self::exemption().unwrap_or(false)
    }

    /// The same; `None` where the system does not tell.
    pub(super) fn exemption() -> Option<bool> {
        const CAP_IPC_LOCK: u32 = 14;
        let capabilities = status("CapEff:").and_then(|set| u64::from_str_radix(&set, 16).ok());
        capabilities.map(|set| set >> CAP_IPC_LOCK & 1 == 1)
    }

    /// Bytes that this process has locked, as the kernel counts them (`VmLck`); 0 where it does not
    /// tell. Memory that a driver holds is not among them.
    pub fn locked_bytes() -> u64 {
        locked_now()
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
    let kibibytes = status("VmLck:").and_then(|size| size.strip_suffix("kB")?.trim().parse().ok());
    kibibytes.map_or(0, |kibibytes: u64| kibibytes.saturating_mul(1024))
}

/// One field of what the kernel says of this process.
fn status(name: &str) -> Option<String> {
    let status = super::text(Path::new("/proc/self/status"))?;
    Some(super::field(&status, name)?.to_owned())
}

/// Bytes in a page of this system.
pub(crate) fn page_size() -> usize {
    // Not rustix's, which reads the auxiliary vector itself and crashes under valgrind.
    // SAFETY: sysconf reads a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}
