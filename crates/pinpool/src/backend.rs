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
            let pages = cuda::open(config.device).map_err(unavailable)?;
            cuda::chosen(pages, config, "configured".into())
        }
        BackendChoice::Auto => match cuda::open(config.device) {
            Ok(pages) => {
                cuda::chosen(pages, config, format!("CUDA device {} found", config.device))
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
fn mapped(config: &PoolConfig, devices: &[&str]) -> Result<(MapOptions, Vec<String>), Error> {
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

    pub(super) fn open(device: u32) -> Result<CudaPages, String> {
        CudaPages::open(device)
    }

    pub(super) fn chosen(
        pages: CudaPages,
        config: &PoolConfig,
        reason: String,
    ) -> Result<Chosen, Error> {
        let devices: Vec<_> = pages.pci_address().into_iter().collect();
        let (options, notes) = mapped(config, &devices)?;
        Ok(Chosen { memory: Arc::new(pages.mapped(options)), reason, notes })
    }
}

#[cfg(not(feature = "cuda"))]
mod cuda {
    use super::{Chosen, Error, PoolConfig};

    /// There is none.
    pub(super) enum Never {}

    pub(super) fn open(_: u32) -> Result<Never, String> {
        Err("pinpool was built without its `cuda` feature".into())
    }

    pub(super) fn chosen(pages: Never, _: &PoolConfig, _: String) -> Result<Chosen, Error> {
        match pages {}
    }
}
