//! Where control groups are mounted: it reads the kernel's list of mounts and knows no limits.

use std::path::{Path, PathBuf};

/// One mount of a hierarchy of control groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// The group that the mount shows at its top.
    pub(super) root: PathBuf,
    /// Where it is mounted.
    pub(super) point: PathBuf,
    pub(super) kind: Kind,
}

/// Which hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Version 1, with the memory controller.
    Memory,
    /// Version 2.
    Unified,
}

impl Mount {
    /// The hierarchies of control groups in a text such as `/proc/self/mountinfo`.
    pub(super) fn all(mountinfo: &str) -> Vec<Self> {
        mountinfo.lines().filter_map(Self::parse).collect()
    }

    /// One line: number, parent, device, root, mount point, options, any number of optional fields,
    /// a hyphen, type, source, options of the file system.
    fn parse(line: &str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (unescaped(mount.next()?), unescaped(mount.next()?));
        let mut system = system.split(' ');
        let (name, options) = (system.next()?, system.nth(1)?);
        let kind = match name {
            "cgroup" if options.split(',').any(|option| option == "memory") => Kind::Memory,
            "cgroup2" => Kind::Unified,
            _ => return None,
        };
        Some(Self { root, point, kind })
    }

    /// The folder of `group` below this mount, if the mount shows that group.
    pub(super) fn folder(&self, group: &Path) -> Option<PathBuf> {
        let inside = group.strip_prefix(&self.root).ok()?;
        // A group outside of the reader's namespace is told as a path that climbs.
        let climbs = inside.components().any(|part| part.as_os_str() == "..");
        (!climbs).then(|| self.point.join(inside))
    }
}

/// A path in which spaces, tabs, line ends and backslashes are written as three octal digits.
fn unescaped(text: &str) -> PathBuf {
    let mut parts = text.split('\\');
    let mut path = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) if code.is_ascii() => {
                path.push(char::from(code));
                path.push_str(&part[3..]);
            }
            _ => {
                path.push('\\');
                path.push_str(part);
            }
        }
    }
    path.into()
}
