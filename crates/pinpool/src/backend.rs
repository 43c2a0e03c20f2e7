//! Chooses the memory that a configuration asks for, where it lies, and says why.

use std::path::Path;
use std::sync::Arc;

use crate::config::{BackendChoice, PoolConfig};
use crate::error::{ConfigError, Error, Origin};
use crate::memory::mapping::MapOptions;
use crate::memory::numa::{self, NodeSet};
use crate::memory::{BackendKind, HugePages, LockMode, Mlock, PageLock};

/// The memory to stand on.
pub(crate) struct Chosen {
    pub(crate) memory: Arc<dyn PageLock>,
    pub(crate) reason: String,
    /// What was asked for and cannot be had here.
    pub(crate) notes: Vec<String>,
}

impl Chosen {
    /// Memory that the caller brought.
    pub(crate) fn given(memory: Arc<dyn PageLock>) -> Self {
        Self { memory, reason: "given by the caller".into(), notes: Vec::new() }
    }
}

pub(crate) fn choose(config: &PoolConfig) -> Result<Chosen, Error> {
    match config.backend {
        BackendChoice::Host => host(config, "configured".into()),
        BackendChoice::Auto if config.lock == LockMode::Off => {
            host(config, "lock is off, so nothing is registered with a GPU".into())
        }
        BackendChoice::Cuda => {
            let found = cuda::open(config).map_err(unavailable)?;
            cuda::chosen(found, config, "configured".into())
        }
        BackendChoice::Auto => match cuda::open(config) {
            Ok(found) => {
                cuda::chosen(found, config, format!("CUDA device {} found", config.device))
            }
            Err(reason) => host(config, format!("no CUDA: {reason}")),
        },
    }
}

fn host(config: &PoolConfig, reason: String) -> Result<Chosen, Error> {
    let (options, notes) = mapped(config, &[])?;
    let memory = Arc::new(Mlock::new(config.lock).mapped(options));
    Ok(Chosen { memory, reason, notes })
}

/// How slabs are mapped for devices at these PCI addresses, and what of it cannot be had.
fn mapped(config: &PoolConfig, devices: &[String]) -> Result<(MapOptions, Vec<String>), Error> {
    let wanted = numa::placement(config.numa, devices, Path::new("/sys"))
        .map_err(|present| no_such_node(config, &present))?;
    // Once for the pool, so that it is said once.
    let refused = if wanted.is_empty() { None } else { numa::try_place(wanted).err() };
    let nodes = if refused.is_some() { NodeSet::NONE } else { wanted };
    let note = refused.map(|error| {
        format!("memory lies on any NUMA node, because it cannot be placed on {wanted:?}: {error}")
    });
    let huge = if config.lock == LockMode::Off { HugePages::Off } else { config.huge_pages };
    let options = MapOptions { fork: config.fork, guarded: config.debug_checks, huge, nodes };
    Ok((options, note.into_iter().collect()))
}

fn no_such_node(config: &PoolConfig, present: &[u32]) -> Error {
    let names: Vec<_> = present.iter().map(u32::to_string).collect();
    let names = names.join(", ");
    let problem = format!("numa is {}, but the nodes with memory here are: {names}", config.numa);
    ConfigError::new(Origin::Effective, problem)
        .help("set numa in [pool] to one of them, to \"auto\" or to \"off\"")
        .into()
}

fn unavailable(reason: String) -> Error {
    Error::BackendUnavailable {
        backend: BackendKind::Cuda,
        reason,
        remedy: "install the NVIDIA driver, make the device visible, or set backend = \"auto\" or \
                 \"host\" in [pool]",
    }
}

#[cfg(feature = "cuda")]
mod cuda {
    use super::{Arc, Chosen, Error, PoolConfig, mapped};
    use crate::cuda::CudaPages;

    /// The memory, and where on the PCI bus the devices are that use it.
    pub(super) struct Found {
        pages: CudaPages,
        addresses: Vec<String>,
    }

    pub(super) fn open(config: &PoolConfig) -> Result<Found, String> {
        let pages = CudaPages::open(config.device)?;
        let devices = [&[config.device][..], &config.other_devices].concat();
        let addresses = pages.pci_addresses(&devices)?;
        Ok(Found { pages, addresses })
    }

    pub(super) fn chosen(
        found: Found,
        config: &PoolConfig,
        reason: String,
    ) -> Result<Chosen, Error> {
        let (options, notes) = mapped(config, &found.addresses)?;
        Ok(Chosen { memory: Arc::new(found.pages.mapped(options)), reason, notes })
    }
}

#[cfg(not(feature = "cuda"))]
mod cuda {
    use super::{Chosen, Error, PoolConfig};

    /// There is none.
    #[derive(Clone, Copy)]
    pub(super) enum Found {}

    pub(super) fn open(_: &PoolConfig) -> Result<Found, String> {
        Err("pinpool was built without its `cuda` feature".into())
    }

    pub(super) fn chosen(found: Found, _: &PoolConfig, _: String) -> Result<Chosen, Error> {
        match found {}
    }
}
