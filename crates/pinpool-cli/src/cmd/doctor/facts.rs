//! What the library's readers find on a machine, together and at one moment.

use pinpool::limits::{Cgroup, MemInfo, Memlock, Pressure};

use super::root::Root;

/// The facts that several checks judge by.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) memory: Option<MemInfo>,
    pub(super) cgroup: Option<Cgroup>,
    pub(super) pressure: Option<Pressure>,
    /// This process's limit, which no file of another root tells.
    pub(super) memlock: Memlock,
    /// The limit does not bind this process.
    pub(super) exempt: bool,
}

impl Facts {
    pub(super) fn read(root: &Root) -> Self {
        Self {
            memory: MemInfo::read_at(root.path()),
            cgroup: Cgroup::read_at(root.path()),
            pressure: Pressure::read_at(root.path()),
            memlock: Memlock::read(),
            exempt: Memlock::is_exempt(),
        }
    }

    /// As another process would find it.
    #[cfg(test)]
    pub(super) fn set_memlock(&mut self, memlock: Memlock) {
        (self.memlock, self.exempt) = (memlock, false);
    }
}
