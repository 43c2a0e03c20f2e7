//! The handles of a pool, one kind for each of its devices: which classes they lease from. It leases nothing.

use std::sync::Arc;
#[cfg(feature = "cuda")]
use std::sync::OnceLock;

use super::{Core, Pool};
use crate::class::{ClassRef, Roster};
#[cfg(feature = "cuda")]
use crate::cuda::{CudaPages, pages::PrimaryContext};
use crate::error::{Error, LeaseError};
use crate::process::Home;
use crate::size_class::SizeTable;

/// What all clones of a device's handle share.
pub(super) struct Handle {
    /// Beside what every lease reads.
    pub(super) home: Home,
    pub(super) sizes: SizeTable,
    /// The classes that it leases from, at the places that `sizes` knows them by. That of the first device is
    /// the pool's own, in which classes of other devices come behind them.
    pub(super) roster: Arc<Roster>,
    pub(super) device: u32,
    /// How many classes it leases from.
    classes: usize,
    /// That of another device than the pool's first, once somebody asked.
    #[cfg(feature = "cuda")]
    context: OnceLock<Option<PrimaryContext>>,
    /// Keeps the classes, and the pool open.
    pub(super) core: Arc<Core>,
}

impl Handle {
    /// That of the pool's first device, which has it while the classes are still to come.
    pub(super) fn first(core: Arc<Core>) -> Self {
        let roster = Arc::clone(&core.roster);
        Self::new(core.plan.config.device, roster, core)
    }

    /// That of another device, once all its classes are there.
    fn other(device: u32, core: Arc<Core>) -> Result<Self, LeaseError> {
        let classes = core.plan.of_device(device).into_iter();
        let classes = classes.map(|(id, _)| core.roster.look(id));
        let classes: Vec<ClassRef> = classes.collect::<Result<_, _>>()?;
        Ok(Self::new(device, Arc::new(Roster::of_classes(&classes)), core))
    }

    fn new(device: u32, roster: Arc<Roster>, core: Arc<Core>) -> Self {
        let classes = core.plan.of_device(device);
        let sizes: Vec<_> = classes.iter().map(|(_, class)| class.slot_bytes).collect();
        Self {
            home: core.home,
            sizes: SizeTable::new(&sizes),
            roster,
            device,
            classes: sizes.len(),
            #[cfg(feature = "cuda")]
            context: OnceLock::new(),
            core,
        }
    }

    /// The classes that are there and that it leases from, by rising size.
    pub(super) fn classes(&self) -> impl Iterator<Item = ClassRef> + '_ {
        self.roster.first(self.classes)
    }
}

impl Pool {
    /// A handle to the same pool for another of its devices: whatever is leased from it comes from the classes of
    /// that device (`device` of `[[class]]`) and from those without one, by the same rules. The pool that an opening
    /// gives is the handle of its first device.
    ///
    /// Everything else speaks of the whole pool, whichever handle is asked: [`Self::stats`], [`Self::holders`],
    /// [`Self::trim`], [`Self::close`] and so on; and the pool closes when the last handle of whatever device
    /// goes. The memory is registered for all devices of the process, so that a lease can be used on each of them.
    ///
    /// A handle is made in microseconds and takes some kilobytes: make one for each thread or stage, or clone it.
    ///
    /// ```
    /// use pinpool::{ClassConfig, LockMode, Pool};
    ///
    /// let frame = |name, device| ClassConfig::new(name, 6_220_800, 2).device(device);
    /// let pool = Pool::builder()
    ///     .devices(0, [1])
    ///     .class_config(frame("frame-0", 0))
    ///     .class_config(frame("frame-1", 1))
    ///     .class("result", 4096, 16)
    ///     .lock(LockMode::Try)
    ///     # .env(false).backend(pinpool::BackendChoice::Host)
    ///     .open()?;
    /// let other = pool.on(1)?;
    /// let frame = other.lease(6_220_800)?; // of "frame-1", which lies near device 1
    /// let result = other.lease(4096)?; // of "result", which both handles lease from
    /// assert_eq!(pool.stats().class("frame-0").map(|class| class.leased), Some(0));
    /// # drop((frame, result));
    /// # Ok::<(), pinpool::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::UnknownDevice`]; [`LeaseError::Forked`], [`LeaseError::Closed`], and [`LeaseError::NotReady`] while
    /// the pool opens and some class of the device is not there yet, as [`Error::Lease`]. The first device's handle
    /// is there from the beginning.
    pub fn on(&self, device: u32) -> Result<Self, Error> {
        let core = &self.handle.core;
        if !core.home.is_here() {
            return Err(LeaseError::Forked.into());
        }
        let config = &core.plan.config;
        if !config.devices().any(|own| own == device) {
            let devices = config.devices().collect();
            return Err(Error::UnknownDevice { device, devices });
        }
        if core.roster.is_closed() {
            return Err(LeaseError::Closed.into());
        }
        if device == self.handle.device {
            return Ok(self.clone());
        }
        let core = Arc::clone(core);
        let handle = if device == config.device {
            Handle::first(core)
        } else {
            Handle::other(device, core)?
        };
        Ok(Self { handle: Arc::new(handle) })
    }

    /// The CUDA context of this handle's device, on the cuda backend: the device's primary one, which cudarc's
    /// `CudaContext::new` gives as well. `None` also where another device than the first gives none.
    #[cfg(feature = "cuda")]
    pub fn cuda_context(&self) -> Option<&Arc<cudarc::driver::CudaContext>> {
        let handle = &self.handle;
        let pages = CudaPages::of(&*handle.core.shared.memory)?;
        if handle.device == handle.core.plan.config.device {
            return Some(pages.context());
        }
        if !handle.home.is_here() {
            return None;
        }
        Some(handle.context.get_or_init(|| PrimaryContext::of(handle.device).ok()).as_ref()?.get())
    }

    /// The device whose classes this handle leases from: the first of the pool's, or the one given to [`Self::on`].
    pub fn device(&self) -> u32 {
        self.handle.device
    }
}
