//! What the system allows this process and has left: facts, read and never changed.
//!
//! Each reader looks below a folder that stands for `/`, so that other systems can be laid out in one.
//! Whatever a system does not tell, or tells in an unknown form, is `None`: it is never an error.

pub(crate) mod admission;
mod cgroup;
mod headroom;
mod meminfo;
mod memlock;
mod mounts;
pub(crate) mod pressure;

pub use cgroup::{Cgroup, CgroupLimit, CgroupVersion};
pub use headroom::{Facts, Headroom, KeepFree, LimitKind};
pub use meminfo::{Commit, HugePages, MemInfo};
pub use memlock::Memlock;
pub use pressure::{Pressure, Stall};

pub(crate) use memlock::{locked_now, page_size};

use std::path::{Path, PathBuf};

/// The system itself.
const SYSTEM: &str = "/";

/// The folder that stands for `/`, which only tests of this crate change, each for its own thread.
pub(crate) fn root() -> PathBuf {
    #[cfg(all(test, not(any(loom, shuttle, miri))))]
    if let Some(root) = tests::root() {
        return root;
    }
    SYSTEM.into()
}

/// Where a path of the system lies below `root`.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// A small file's text.
fn text(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// A file that holds one number.
fn number(path: &Path) -> Option<u64> {
    text(path)?.trim().parse().ok()
}

/// The rest of the line that begins with `field`.
fn field<'a>(text: &'a str, field: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(field)).map(str::trim)
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
pub(crate) mod tests;
