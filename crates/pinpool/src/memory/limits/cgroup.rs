//! The control group that this process's memory is counted in, and its tightest limit.

use std::fmt;
use std::path::{Path, PathBuf};

use super::mounts::{Kind, Mount};
use super::{SYSTEM, below, field, number, text};

/// The control group for memory of this process, as far up as it can see.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cgroup {
    /// Which interface the system has for it.
    pub version: CgroupVersion,
    /// Its folder in the file system.
    pub folder: PathBuf,
    /// Of the limits on this group and on those around it, the one that leaves the least room.
    pub limit: Option<CgroupLimit>,
    /// Folders from the group's up to the top of the mount.
    levels: Vec<PathBuf>,
    /// All limits, the nearest first.
    limits: Vec<CgroupLimit>,
}

/// The interface of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CgroupVersion {
    /// One hierarchy for each controller.
    V1,
    /// One hierarchy for all.
    V2,
}

/// A limit on a group's memory. All processes in the group share it, and it counts their page cache
/// as well; page cache goes before the limit binds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CgroupLimit {
    /// The file that sets it: `memory.max`, `memory.high` (above which the kernel slows the group down
    /// without an end, once nothing can be reclaimed) or `memory.limit_in_bytes`. `memory.stat` if it
    /// is that of a group around, which this process cannot see.
    pub file: PathBuf,
    /// The most bytes.
    pub bytes: u64,
    /// Bytes in use.
    pub used: u64,
    /// Bytes of it that the kernel takes back on demand: page cache, and caches of its own where it
    /// tells of them.
    pub reclaimable: u64,
}

impl Cgroup {
    /// The group now; `None` where the system has none for memory, or does not tell.
    pub fn read() -> Option<Self> {
        Self::read_at(Path::new(SYSTEM))
    }

    /// The group of a system whose root is the folder `root`, a fixture or another mount namespace.
    pub fn read_at(root: &Path) -> Option<Self> {
        let groups = text(&below(root, Path::new("/proc/self/cgroup")))?;
        let mounts = Mount::all(&text(&below(root, Path::new("/proc/self/mountinfo")))?);
        // Where both are there, a controller belongs to one hierarchy only.
        let (kind, group) = match group_of_memory(&groups) {
            Some(group) => (Kind::Memory, group),
            None => (Kind::Unified, group_of_all(&groups)?),
        };
        let mounts: Vec<_> = mounts.iter().filter(|mount| mount.kind == kind).collect();
        let group = Path::new(group);
        let shown = mounts.iter().find_map(|mount| {
            let folder = below(root, &mount.folder(group)?);
            folder.is_dir().then_some((folder, below(root, &mount.point)))
        });
        // A container may see its own group at the top of the mount, whatever the group is called.
        let top = || mounts.first().map(|mount| below(root, &mount.point));
        let (folder, top) = shown.or_else(|| top().map(|top| (top.clone(), top)))?;
        let version = if kind == Kind::Memory { CgroupVersion::V1 } else { CgroupVersion::V2 };
        let levels = folder.ancestors().take_while(|level| level.starts_with(&top));
        let levels = levels.map(Path::to_path_buf).collect();
        let mut group = Self { version, folder, limit: None, levels, limits: Vec::new() };
        group.refresh();
        Some(group)
    }

    /// Reads the limits and what is used of them again. The group is the one that was found before.
    pub fn refresh(&mut self) {
        let limits = self.levels.iter().flat_map(|level| limits(self.version, level));
        self.limits = limits.collect();
        // The nearest of those that leave the same room.
        self.limit = self.limits.iter().min_by_key(|limit| limit.room()).cloned();
    }

    /// Looks no more at groups that have no limit now.
    pub(crate) fn skip_unlimited(&mut self) {
        let limits = &self.limits;
        self.levels.retain(|level| limits.iter().any(|limit| limit.file.parent() == Some(level)));
    }

    /// What every limit leaves beside `keep` of its own, though nothing were reclaimed; `None` where the
    /// system does not tell. Cheaper than [`Self::refresh`]: the kernel need not sum up its counts.
    pub(crate) fn spare(&self, keep: impl Fn(u64) -> u64) -> Option<u64> {
        let mut least = u64::MAX;
        for level in &self.levels {
            let used = number(&level.join(usage_file(self.version)))?;
            let limits = self.limits.iter().filter(|limit| limit.file.parent() == Some(level));
            let left = |limit: &CgroupLimit| {
                limit.bytes.saturating_sub(used).saturating_sub(keep(limit.bytes))
            };
            least = least.min(limits.map(left).min().unwrap_or(u64::MAX));
        }
        Some(least)
    }

    /// The pressure on the group's memory, where the system counts it.
    pub fn pressure(&self) -> Option<super::Pressure> {
        super::Pressure::of(&self.pressure_file())
    }

    /// The file that tells of it.
    pub(crate) fn pressure_file(&self) -> PathBuf {
        self.folder.join("memory.pressure")
    }
}

impl CgroupLimit {
    /// Bytes that the group may take yet, what can be reclaimed counted as free.
    pub fn room(&self) -> u64 {
        self.bytes.saturating_sub(self.held())
    }

    /// Bytes in use that cannot be reclaimed.
    pub fn held(&self) -> u64 {
        self.used.saturating_sub(self.reclaimable)
    }
}

impl fmt::Display for CgroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        })
    }
}

impl fmt::Display for CgroupLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, bytes, used, reclaimable } = self;
        write!(
            f,
            "{} is {bytes} bytes, {used} are used and {reclaimable} of those can be reclaimed",
            file.display()
        )
    }
}

/// The group in the hierarchy of version 1 that has the memory controller.
fn group_of_memory(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == "memory").then_some(group)
    })
}

/// The group in the hierarchy of version 2.
fn group_of_all(groups: &str) -> Option<&str> {
    field(groups, "0::")
}

/// The limits on one group, none if it has none.
fn limits(version: CgroupVersion, level: &Path) -> Vec<CgroupLimit> {
    let (files, caches): (&[_], &[_]) = match version {
        CgroupVersion::V1 => (&["memory.limit_in_bytes"], &CACHES_V1),
        CgroupVersion::V2 => (&["memory.max", "memory.high"], &CACHES_V2),
    };
    let limits = files.iter().filter_map(|file| {
        let file = level.join(file);
        Some((number(&file).filter(|bytes| *bytes < UNLIMITED)?, file))
    });
    let mut limits: Vec<_> = limits.collect();
    let stat = level.join("memory.stat");
    if version == CgroupVersion::V2 && limits.is_empty() {
        return Vec::new();
    }
    let counts = text(&stat).unwrap_or_default();
    let count = |name: &&str| field(&counts, name).and_then(|count| count.parse::<u64>().ok());
    // Version 1 tells the least limit of all groups around, seen or not.
    let around = count(&"hierarchical_memory_limit ").filter(|bytes| *bytes < UNLIMITED);
    if let Some(bytes) = around.filter(|around| limits.iter().all(|(bytes, _)| around < bytes)) {
        limits.push((bytes, stat));
    }
    let Some(used) = number(&level.join(usage_file(version))) else { return Vec::new() };
    let reclaimable: u64 = caches.iter().filter_map(count).fold(0, u64::saturating_add);
    let reclaimable = reclaimable.min(used);
    let limits = limits.into_iter();
    limits.map(|(bytes, file)| CgroupLimit { file, bytes, used, reclaimable }).collect()
}

/// What a group uses, page cache included.
fn usage_file(version: CgroupVersion) -> &'static str {
    match version {
        CgroupVersion::V1 => "memory.usage_in_bytes",
        CgroupVersion::V2 => "memory.current",
    }
}

/// Counts of `memory.stat` that are reclaimed on demand. Locked page cache is in neither list.
const CACHES_V1: [&str; 2] = ["total_inactive_file ", "total_active_file "];
const CACHES_V2: [&str; 3] = ["inactive_file ", "active_file ", "slab_reclaimable "];
/// Version 1 says "no limit" as a number near the largest.
const UNLIMITED: u64 = 1 << 60;
