//! What pool the report is about: that of a file, or any of the default kind.

use std::path::PathBuf;

use pinpool::{BackendChoice, LockMode, Plan, Pool, PoolConfig};

use crate::cli::DoctorArgs;
use crate::failure::Failure;

/// A pool that somebody wants to open.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) config: PoolConfig,
    /// Its exact bytes, where a file names its classes.
    pub(super) plan: Option<Plan>,
    pub(super) file: Option<PathBuf>,
    /// The device was named on the command line.
    demands_device: bool,
}

impl Request {
    /// Reads the file, if there is one, and the environment.
    pub(super) fn read(arguments: &DoctorArgs) -> Result<Self, Failure> {
        let mut builder = Pool::builder();
        if let Some(file) = &arguments.config {
            builder = builder.file(file);
        }
        if let Some(device) = arguments.device {
            builder = builder.device(device);
        }
        let wrong = |cause: pinpool::Error| Failure::Input(cause.to_string());
        let (config, plan) = if arguments.config.is_some() {
            let plan = builder.plan().map_err(wrong)?;
            (plan.config.clone(), Some(plan))
        } else {
            (builder.config().map_err(wrong)?, None)
        };
        Ok(Self {
            config,
            plan,
            file: arguments.config.clone(),
            demands_device: arguments.device.is_some(),
        })
    }

    /// One of the default kind.
    #[cfg(test)]
    pub(super) fn of(config: PoolConfig, plan: Option<Plan>) -> Self {
        Self { config, plan, file: None, demands_device: false }
    }

    /// The device whose context pins.
    pub(super) fn device(&self) -> u32 {
        self.config.device
    }

    /// That device and the others that use the memory.
    pub(super) fn devices(&self) -> impl Iterator<Item = u32> {
        [self.config.device].into_iter().chain(self.config.other_devices.iter().copied())
    }

    pub(super) fn demands_device(&self) -> bool {
        self.demands_device
    }

    /// The pool does not open without CUDA.
    pub(super) fn needs_cuda(&self) -> bool {
        self.config.backend == BackendChoice::Cuda
    }

    /// The pool takes CUDA where it works.
    pub(super) fn may_use_cuda(&self) -> bool {
        self.config.backend != BackendChoice::Host && self.config.lock != LockMode::Off
    }

    /// Whether a pool that may open smaller than configured makes do with so many bytes.
    pub(super) fn makes_do_with(&self, bytes: u64) -> bool {
        self.config.min_bytes.is_some_and(|least| least <= bytes)
    }

    /// Bytes that are pinned at the opening; `None` where no classes are known.
    pub(super) fn pinned_bytes(&self) -> Option<u64> {
        self.plan.as_ref().map(|plan| plan.pinned_bytes)
    }
}
