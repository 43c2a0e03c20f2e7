//! Readings of this process and this system: locked and resident bytes, maps, threads, files, time.

use std::fs;
use std::time::Duration;

use pinpool::{LockMode, Mlock, PageLock, Region};

/// Bytes that this process has locked (`VmLck`).
pub fn locked_bytes() -> u64 {
    field("/proc/self/status", "VmLck:") * 1024
}

/// Bytes of this process in RAM (`VmRSS`).
pub fn resident_bytes() -> u64 {
    field("/proc/self/status", "VmRSS:") * 1024
}

/// Bytes locked in the whole system (`Mlocked`).
pub fn system_locked_bytes() -> u64 {
    field("/proc/meminfo", "Mlocked:") * 1024
}

/// Threads of this process.
pub fn threads() -> u64 {
    field("/proc/self/status", "Threads:")
}

/// Mappings of this process, without those that the C library keeps for threads: stacks, which have
/// a guard below, and heaps, which have a reserve above. It keeps some of threads that ended.
pub fn maps() -> usize {
    let text = read("/proc/self/maps");
    let maps: Vec<_> = text.lines().filter_map(Mapping::parse).collect();
    let beside = |a: &Mapping<'_>, b: &Mapping<'_>| a.end == b.start || b.end == a.start;
    let reserves = || maps.iter().filter(|map| map.access == "---p" && map.anonymous);
    let of_thread =
        |map: &Mapping<'_>| map.anonymous && reserves().any(|reserve| beside(map, reserve));
    maps.iter().filter(|map| map.access != "---p" && !of_thread(map)).count()
}

struct Mapping<'a> {
    start: u64,
    end: u64,
    access: &'a str,
    anonymous: bool,
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let access = words.next()?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        // Offset, device and inode lie between.
        let anonymous = words.nth(3).is_none();
        Some(Self { start: number(start)?, end: number(end)?, access, anonymous })
    }
}

/// Open files of this process, the one used to count them excepted.
pub fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").expect("the file list can be read").count() - 1
}

/// Processor time that the calling thread has used.
pub fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "the thread's clock can be read");
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// `Require` if this process may lock so many bytes more, else `Try`: found out by doing it.
pub fn lock_mode_for(bytes: usize) -> LockMode {
    let memory = Mlock::new(LockMode::Require);
    let bytes = bytes.next_multiple_of(rustix::param::page_size()).max(1);
    let Ok(start) = memory.reserve(bytes) else { return LockMode::Try };
    let region = Region { start, bytes };
    // SAFETY: the region was reserved above and is not pinned.
    let pinned = unsafe { memory.pin(region) };
    if pinned.is_ok() {
        // SAFETY: it was pinned above.
        let _ = unsafe { memory.unpin(region) };
    }
    // SAFETY: the region was reserved above, and nothing of it is pinned.
    let _ = unsafe { memory.release(region) };
    if pinned.is_ok() { LockMode::Require } else { LockMode::Try }
}

fn field(path: &str, name: &str) -> u64 {
    let text = read(path);
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or_else(|| panic!("{path} has no number {name}"))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}
