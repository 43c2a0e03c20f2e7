//! Systems laid out in folders: each version of control groups, nested limits, and what is missing.

#![allow(clippy::unwrap_used, clippy::panic, clippy::float_cmp, reason = "tests")]

use std::path::Path;
use std::time::Duration;

use super::*;

thread_local! {
    static ROOT: std::cell::RefCell<Option<PathBuf>> = const { std::cell::RefCell::new(None) };
}

/// The folder that stands for `/` on this thread.
pub(super) fn root() -> Option<PathBuf> {
    ROOT.with_borrow(Clone::clone)
}

/// A system in a folder of its own.
pub(crate) struct System(tempfile::TempDir);

impl System {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let system = Self(tempfile::tempdir().unwrap());
        for (path, text) in files {
            system.write(path, text);
        }
        system
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = below(self.root(), Path::new(path));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    /// Pools that this thread opens meanwhile find this system.
    pub(crate) fn around<R>(&self, body: impl FnOnce() -> R) -> R {
        ROOT.set(Some(self.root().to_path_buf()));
        let result = body();
        ROOT.set(None);
        result
    }

    fn cgroup(&self) -> Option<Cgroup> {
        Cgroup::read_at(self.root())
    }

    /// The binding limit: its file below the root, and its bytes, used and reclaimable.
    fn limit(&self) -> Option<(String, [u64; 3])> {
        let limit = self.cgroup()?.limit?;
        let file = limit.file.strip_prefix(self.root()).unwrap().to_str().unwrap().to_owned();
        Some((file, [limit.bytes, limit.used, limit.reclaimable]))
    }
}

const V2_MOUNT: &str =
    "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
const V1_MOUNT: &str = "30 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:14 - cgroup cgroup rw,memory\n";
const V2_STAT: &str = "anon 700\nfile 300\nactive_file 200\ninactive_file 100\nslab_reclaimable 50\n\
                       slab_unreclaimable 7\nworkingset_activate_file 9999\n";
const V1_STAT: &str = "cache 9\nactive_file 1\ntotal_cache 5\ntotal_inactive_file 100\n\
                       total_active_file 200\nhierarchical_memory_limit 9223372036854771712\n";

/// A group of version 2 in one that is around it, and each one's `memory.max`.
pub(crate) fn v2(inner: &str, outer: &str) -> System {
    System::new(&[
        ("/proc/self/cgroup", "0::/app.slice/pool.service\n"),
        ("/proc/self/mountinfo", V2_MOUNT),
        ("/sys/fs/cgroup/memory.stat", V2_STAT),
        ("/sys/fs/cgroup/app.slice/memory.max", outer),
        ("/sys/fs/cgroup/app.slice/memory.high", "max\n"),
        ("/sys/fs/cgroup/app.slice/memory.current", "6000\n"),
        ("/sys/fs/cgroup/app.slice/memory.stat", V2_STAT),
        ("/sys/fs/cgroup/app.slice/pool.service/memory.max", inner),
        ("/sys/fs/cgroup/app.slice/pool.service/memory.high", "max\n"),
        ("/sys/fs/cgroup/app.slice/pool.service/memory.current", "1000\n"),
        ("/sys/fs/cgroup/app.slice/pool.service/memory.stat", V2_STAT),
    ])
}

#[test]
fn the_limit_of_version_2_that_leaves_the_least_room_binds() {
    let inner = "sys/fs/cgroup/app.slice/pool.service/memory.max".to_owned();
    let outer = "sys/fs/cgroup/app.slice/memory.max".to_owned();
    assert_eq!(v2("8000\n", "max\n").limit(), Some((inner.clone(), [8000, 1000, 350])));
    // The outer limit is larger and leaves less room: its other groups use it.
    assert_eq!(v2("8000\n", "9000\n").limit(), Some((outer.clone(), [9000, 6000, 350])));
    assert_eq!(v2("max\n", "9000\n").limit(), Some((outer, [9000, 6000, 350])));
    assert_eq!(v2("4000\n", "9000\n").limit(), Some((inner.clone(), [4000, 1000, 350])));
    assert_eq!(v2("4000\n", "9000\n").cgroup().unwrap().limit.unwrap().room(), 3350);
    // Nothing is left, but nothing goes below that either.
    let full = v2("100\n", "max\n").cgroup().unwrap().limit.unwrap();
    assert_eq!((full.held(), full.room()), (650, 0));
}

#[test]
fn a_group_without_a_limit_is_a_group_all_the_same() {
    let system = v2("max\n", "max\n");
    let group = system.cgroup().unwrap();
    assert_eq!((group.version, &group.limit), (CgroupVersion::V2, &None));
    assert!(group.folder.ends_with("app.slice/pool.service"));
}

#[test]
fn the_soft_limit_of_version_2_binds_where_it_is_lower() {
    let system = v2("8000\n", "max\n");
    system.write("/sys/fs/cgroup/app.slice/pool.service/memory.high", "7000\n");
    let high = "sys/fs/cgroup/app.slice/pool.service/memory.high".to_owned();
    assert_eq!(system.limit(), Some((high, [7000, 1000, 350])));
}

#[test]
fn a_limit_that_changes_is_read_again() {
    let system = v2("8000\n", "max\n");
    let mut group = system.cgroup().unwrap();
    system.write("/sys/fs/cgroup/app.slice/pool.service/memory.max", "5000\n");
    system.write("/sys/fs/cgroup/app.slice/pool.service/memory.current", "2000\n");
    group.refresh();
    let limit = group.limit.unwrap();
    assert_eq!((limit.bytes, limit.used, limit.reclaimable), (5000, 2000, 350));
}

/// A container with a namespace of its own sees its group as the root, at the top of the mount.
#[test]
fn a_group_at_the_top_of_the_mount_is_found() {
    let file = "sys/fs/cgroup/memory.max".to_owned();
    for (group, root) in [("/", "/"), ("/docker/1f", "/docker/1f"), ("/../other", "/")] {
        let mount = V2_MOUNT.replace(" / /sys", &format!(" {root} /sys"));
        let system = System::new(&[
            ("/proc/self/cgroup", &format!("0::{group}\n")),
            ("/proc/self/mountinfo", &mount),
            ("/sys/fs/cgroup/memory.max", "8000"),
            ("/sys/fs/cgroup/memory.current", "1000"),
        ]);
        assert_eq!(system.limit(), Some((file.clone(), [8000, 1000, 0])), "{group} {root}");
    }
}

/// A file of pressure: the mean in percent, and all the time lost in microseconds.
pub(crate) fn pressure_text(avg10: f64, total: u64) -> String {
    format!("some avg10={avg10:.2} avg60=0.00 avg300=0.00 total={total}\n")
}

/// A file of a machine's memory, in bytes.
pub(crate) fn meminfo_text(total: u64, available: u64) -> String {
    format!("MemTotal: {} kB\nMemAvailable: {} kB\n", total >> 10, available >> 10)
}

fn v1(limit: &str, outer: &str, stat: &str) -> System {
    System::new(&[
        ("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/jobs/a b\n0::/\n"),
        ("/proc/self/mountinfo", &format!("{V2_MOUNT}{V1_MOUNT}")),
        ("/sys/fs/cgroup/memory.max", "1"),
        ("/sys/fs/cgroup/memory.current", "1"),
        ("/sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", outer),
        ("/sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", "6000\n"),
        ("/sys/fs/cgroup/memory/jobs/memory.stat", V1_STAT),
        ("/sys/fs/cgroup/memory/jobs/a b/memory.limit_in_bytes", limit),
        ("/sys/fs/cgroup/memory/jobs/a b/memory.usage_in_bytes", "1000\n"),
        ("/sys/fs/cgroup/memory/jobs/a b/memory.stat", stat),
    ])
}

/// Version 1 has the controller, though version 2 is mounted beside it and has a limit of its own.
#[test]
fn version_1_binds_on_a_system_with_both() {
    const NONE: &str = "9223372036854771712\n";
    let inner = "sys/fs/cgroup/memory/jobs/a b/memory.limit_in_bytes".to_owned();
    let outer = "sys/fs/cgroup/memory/jobs/memory.limit_in_bytes".to_owned();
    assert_eq!(v1("8000\n", NONE, V1_STAT).limit(), Some((inner, [8000, 1000, 300])));
    assert_eq!(v1("8000\n", "9000", V1_STAT).limit(), Some((outer, [9000, 6000, 300])));
    let group = v1(NONE, NONE, V1_STAT).cgroup().unwrap();
    assert_eq!((group.version, group.limit), (CgroupVersion::V1, None));
}

/// The limit of a group around, which a container does not see.
#[test]
fn version_1_tells_of_a_limit_that_cannot_be_seen() {
    let hidden = V1_STAT.replace("9223372036854771712", "5000");
    let file = "sys/fs/cgroup/memory/jobs/a b/memory.stat".to_owned();
    for own in ["8000", "9223372036854771712"] {
        let system = v1(own, "9223372036854771712", &hidden);
        assert_eq!(system.limit(), Some((file.clone(), [5000, 1000, 300])));
    }
}

#[test]
fn what_a_system_does_not_tell_is_none() {
    assert_eq!(System::new(&[]).cgroup(), None);
    assert_eq!(System::new(&[("/proc/self/cgroup", "0::/\n")]).cgroup(), None);
    let no_mount = [("/proc/self/cgroup", "0::/\n"), ("/proc/self/mountinfo", "\n")];
    assert_eq!(System::new(&no_mount).cgroup(), None);
    let system = System::new(&[]);
    assert_eq!(MemInfo::read_at(system.root()), None);
    assert_eq!(Pressure::read_at(system.root()), None);
    // The files of the group are missing, or one of them is.
    let system = v2("8000\n", "max\n");
    let group = system.root().join("sys/fs/cgroup/app.slice/pool.service");
    std::fs::remove_file(group.join("memory.stat")).unwrap();
    assert_eq!(system.limit().unwrap().1, [8000, 1000, 0]);
    std::fs::remove_file(group.join("memory.current")).unwrap();
    assert_eq!(system.limit(), None);
    std::fs::remove_dir_all(&group).unwrap();
    assert_eq!(system.limit(), None);
}

/// Any text in any of the files gives an answer or none, and never ends the process.
#[test]
fn nonsense_is_none() {
    let words =
        ["", "\n", " ", ":", "0::", "- - -", "max", "-1", "18446744073709551616", "1e9", "ä\\"];
    let files =
        ["/proc/self/cgroup", "/proc/self/mountinfo", "/proc/meminfo", "/proc/pressure/memory"];
    for word in words {
        let system = v2(word, word);
        assert_eq!(system.limit(), None, "{word:?}");
        for file in files {
            system.write(file, word);
            assert_eq!(system.limit(), None, "{word:?}");
            assert_eq!(MemInfo::read_at(system.root()), None, "{word:?}");
            assert_eq!(Pressure::read_at(system.root()), None, "{word:?}");
        }
        let system = v2("8000\n", "max\n");
        system.write("/sys/fs/cgroup/app.slice/pool.service/memory.current", word);
        assert_eq!(system.limit(), None, "{word:?}");
    }
    // Not text at all.
    let system = v2("8000\n", "max\n");
    let file = below(system.root(), Path::new("/proc/self/mountinfo"));
    std::fs::write(file, [0xFF, 0xFE, 0]).unwrap();
    assert_eq!(system.cgroup(), None);
}

#[test]
fn the_machine_is_read_in_bytes() {
    let text = "MemTotal:       24684092 kB\nMemFree: 1 kB\nMemAvailable:   24071732 kB\n\
                SwapFree: 2 kB\nCommitLimit: 10 kB\nCommitted_AS: 12 kB\nUnevictable:  8 kB\nMlocked:  4 kB\n\
                HugePages_Total:      10\nHugePages_Free:        7\nHugePages_Rsvd:        3\n\
                Hugepagesize:       2048 kB\n";
    let system = System::new(&[("/proc/meminfo", text)]);
    let info = MemInfo::read_at(system.root()).unwrap();
    assert_eq!((info.total, info.available), (24_684_092 << 10, 24_071_732 << 10));
    assert_eq!(
        (info.locked, info.unevictable, info.swap_free),
        (Some(4096), Some(8192), Some(2048))
    );
    let commit = info.commit.unwrap();
    assert_eq!((commit.limit, commit.used, commit.room()), (10 << 10, 12 << 10, 0));
    let pages = info.huge_pages.unwrap();
    assert_eq!((pages.page_bytes, pages.total, pages.free), (2 << 20, 10, 7));
    assert_eq!((pages.reserved, pages.available()), (3, 4));
    // Before Linux 3.14 there was no such estimate.
    system.write("/proc/meminfo", "MemTotal: 1 kB\nMemFree: 1 kB\n");
    assert_eq!(MemInfo::read_at(system.root()), None);
    system.write("/proc/meminfo", "MemTotal: 1 kB\nMemAvailable: 1 kB\n");
    assert_eq!(MemInfo::read_at(system.root()).unwrap().huge_pages, None);
}

#[test]
fn pressure_is_read_of_the_group_and_of_the_system() {
    let text = "some avg10=12.50 avg60=1.00 avg300=0.00 total=1500000\n\
                full avg10=0.25 avg60=0.00 avg300=0.00 total=20\n";
    let system = v2("max\n", "max\n");
    assert_eq!(system.cgroup().unwrap().pressure(), None);
    system.write("/proc/pressure/memory", text);
    system.write("/sys/fs/cgroup/app.slice/pool.service/memory.pressure", text);
    for pressure in [Pressure::read_at(system.root()), system.cgroup().unwrap().pressure()] {
        let pressure = pressure.unwrap();
        assert_eq!((pressure.some.avg10, pressure.some.total), (12.5, Duration::from_millis(1500)));
        assert_eq!(pressure.full.unwrap().avg10, 0.25);
    }
    system.write("/proc/pressure/memory", "some avg10=1.00 avg60=1.00 avg300=0.00 total=1\n");
    assert_eq!(Pressure::read_at(system.root()).unwrap().full, None);
    system.write("/proc/pressure/memory", "some avg10=NaN total=1\n");
    assert_eq!(Pressure::read_at(system.root()), None);
}

/// Whatever machine this is, the facts agree with each other.
#[test]
fn this_machine_is_read() {
    let info = MemInfo::read().unwrap();
    assert!(info.available <= info.total && info.total > 1 << 20, "{info:?}");
    assert!(info.locked.unwrap() <= info.unevictable.unwrap(), "{info:?}");
    if let Some(limit) = Cgroup::read().and_then(|group| group.limit) {
        assert!(limit.reclaimable <= limit.used && limit.file.is_file(), "{limit:?}");
    }
}
