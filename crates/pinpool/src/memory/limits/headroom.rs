//! What each limit leaves for memory that is to be taken, and which of them binds: a function of facts.

use std::fmt;
use std::path::PathBuf;

use super::cgroup::CgroupLimit;
use super::meminfo::MemInfo;
use super::{Cgroup, Memlock};

/// What a pool leaves of a limit that it shares with others: the machine's RAM, its group's limit.
/// `RLIMIT_MEMLOCK` is used to its last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeepFree {
    /// A thirty-second of the whole, at most 1 GiB: 32 MiB of 1 GiB, 768 MiB of 24 GiB. A process needs
    /// memory beside its pools, page tables take a five-hundredth, and several processes that start at
    /// once each see the same room for a moment; none of that grows with the machine for ever.
    #[default]
    Auto,
    /// So many bytes, of each of the two. With 0 a pool may take all that there is.
    Bytes(u64),
    /// Neither is looked at: for systems whose figures are wrong, such as those whose file system keeps
    /// a cache that the kernel does not count as reclaimable.
    Off,
}

/// A limit on memory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitKind {
    /// `RLIMIT_MEMLOCK` of this process.
    Memlock,
    /// That of a control group, by the file that sets it.
    Cgroup(PathBuf),
    /// The machine's RAM.
    Ram,
}

/// What one limit leaves. Its `Display` names the limit with its figures.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Headroom {
    /// The limit.
    pub limit: LimitKind,
    /// Its value in bytes.
    pub bytes: u64,
    /// Bytes of it in use, without what the kernel takes back on demand.
    pub used: u64,
    /// Bytes of it that pools leave free.
    pub kept_free: u64,
}

/// What limits this process, as far as the system tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// The soft limit on locked memory, unless it does not bind, and what is locked already.
    pub memlock: Option<(u64, u64)>,
    /// The limit of the control group that leaves the least room.
    pub cgroup: Option<CgroupLimit>,
    /// The machine's memory.
    pub ram: Option<MemInfo>,
}

impl KeepFree {
    /// Bytes that stay free of a whole.
    pub(super) fn of(self, whole: u64) -> u64 {
        match self {
            Self::Auto => (whole / AUTO_SHARE).min(AUTO_MAX),
            Self::Bytes(bytes) => bytes,
            Self::Off => 0,
        }
    }
}

impl fmt::Display for KeepFree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Bytes(bytes) => write!(f, "{bytes} bytes"),
            Self::Off => f.pad("off"),
        }
    }
}

impl Facts {
    /// The facts now.
    pub fn read() -> Self {
        let cgroup = Cgroup::read().and_then(|group| group.limit);
        Self { memlock: memlock(), cgroup, ram: MemInfo::read() }
    }

    /// What each limit leaves: memory that is not locked is not bound by the first.
    pub fn headrooms(&self, keep: KeepFree, locked: bool) -> impl Iterator<Item = Headroom> {
        let memlock = self.memlock.filter(|_| locked).map(|(soft, locked)| Headroom {
            limit: LimitKind::Memlock,
            bytes: soft,
            used: locked,
            kept_free: 0,
        });
        let shared = keep != KeepFree::Off;
        let cgroup = self.cgroup.as_ref().filter(|_| shared).map(|limit| Headroom {
            limit: LimitKind::Cgroup(limit.file.clone()),
            bytes: limit.bytes,
            used: limit.held(),
            kept_free: keep.of(limit.bytes),
        });
        let ram = self.ram.as_ref().filter(|_| shared).map(|ram| Headroom {
            limit: LimitKind::Ram,
            bytes: ram.total,
            used: ram.total.saturating_sub(ram.available),
            kept_free: keep.of(ram.total),
        });
        memlock.into_iter().chain(cgroup).chain(ram)
    }

    /// The limit that binds: the one that leaves the least. `None` if none is known.
    pub fn binding(&self, keep: KeepFree, locked: bool) -> Option<Headroom> {
        self.headrooms(keep, locked).min_by_key(Headroom::room)
    }
}

impl Headroom {
    /// Bytes that may be taken yet.
    pub fn room(&self) -> u64 {
        self.bytes.saturating_sub(self.used).saturating_sub(self.kept_free)
    }

    pub(crate) fn is_memlock(&self) -> bool {
        self.limit == LimitKind::Memlock
    }

    /// What raises the limit, or makes do with it.
    pub fn remedy(&self) -> &'static str {
        match &self.limit {
            LimitKind::Memlock => {
                "it counts for each process by itself: raise it with `ulimit -l` (KiB), \
                 `LimitMEMLOCK=` in the systemd unit, `--ulimit memlock=-1` for a container, or give \
                 the process CAP_IPC_LOCK; or set `lock = \"try\"` in [pool] to run unlocked"
            }
            LimitKind::Cgroup(_) => {
                "all processes of the group share it: raise it with `--memory` for a container, \
                 `resources.limits.memory` in Kubernetes, `MemoryMax=` and `MemoryHigh=` in the systemd \
                 unit; or lower `count` or `size` of a [[class]], or `keep_free` in [pool]"
            }
            LimitKind::Ram => {
                "this is host memory, not GPU memory, and all processes share it: free some; or lower \
                 `count` or `size` of a [[class]], or `keep_free` in [pool]"
            }
        }
    }
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memlock => f.write_str("RLIMIT_MEMLOCK"),
            Self::Cgroup(file) => write!(f, "the control group's {}", file.display()),
            Self::Ram => f.write_str("the RAM of this machine (MemAvailable)"),
        }
    }
}

impl fmt::Display for Headroom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, bytes, used, kept_free } = self;
        let room = self.room();
        write!(f, "{limit} leaves {room} bytes: of {bytes} {used} are in use")?;
        match kept_free {
            0 => Ok(()),
            kept => write!(f, " and {kept} stay free (`keep_free`)"),
        }
    }
}

/// The soft limit on locked memory and what counts against it; `None` if it does not bind, or if nobody
/// tells: locking itself shows it then.
pub(super) fn memlock() -> Option<(u64, u64)> {
    let soft = Memlock::read().soft.filter(|_| Memlock::exemption() == Some(false))?;
    Some((soft, Memlock::locked_bytes()))
}

const AUTO_SHARE: u64 = 32;
const AUTO_MAX: u64 = 1 << 30;
