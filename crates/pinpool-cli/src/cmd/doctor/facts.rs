//! What the library's readers find on a machine, together and at one moment.

use pinpool::LockMode;
use pinpool::limits::{self, Cgroup, Headroom, MemInfo, Memlock, Pressure};

use super::request::Request;
use super::root::Root;

/// The facts that several checks judge by.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// Those that pools are admitted by.
    pub(super) limits: limits::Facts,
    pub(super) cgroup: Option<Cgroup>,
    pub(super) pressure: Option<Pressure>,
    /// This process's limit, which no file of another root tells.
    pub(super) memlock: Memlock,
    /// The limit does not bind this process.
    pub(super) exempt: bool,
}

impl Facts {
    pub(super) fn read(root: &Root) -> Self {
        let cgroup = Cgroup::read_at(root.path());
        let mut limits = limits::Facts::read();
        limits.cgroup = cgroup.as_ref().and_then(|group| group.limit.clone());
        limits.ram = MemInfo::read_at(root.path());
        Self {
            limits,
            cgroup,
            pressure: Pressure::read_at(root.path()),
            memlock: Memlock::read(),
            exempt: Memlock::is_exempt(),
        }
    }

    /// The machine's memory.
    pub(super) fn memory(&self) -> Option<MemInfo> {
        self.limits.ram
    }

    /// The limit that leaves the pool the least, as its opening will find it.
    pub(super) fn binding(&self, request: &Request, on_host: bool) -> Option<Headroom> {
        let locked = on_host && request.config.lock == LockMode::Require;
        self.limits.binding(request.config.keep_free, locked)
    }

    /// As another process would find it.
    #[cfg(test)]
    pub(super) fn set_memlock(&mut self, memlock: Memlock) {
        (self.memlock, self.exempt) = (memlock, false);
        self.limits.memlock = memlock.soft.map(|soft| (soft, 0));
    }
}
