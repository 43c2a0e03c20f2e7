//! Chooses the memory that a configuration asks for, and says why.

use std::sync::Arc;

use crate::config::{BackendChoice, PoolConfig};
use crate::error::Error;
use crate::memory::mapping::MapOptions;
use crate::memory::{BackendKind, LockMode, Mlock, PageLock};

/// The memory to stand on.
pub(crate) struct Chosen {
    pub(crate) memory: Arc<dyn PageLock>,
    pub(crate) reason: String,
}

pub(crate) fn choose(config: &PoolConfig) -> Result<Chosen, Error> {
    let options = MapOptions { fork: config.fork, guarded: config.debug_checks };
    let host = |reason: String| {
        let memory: Arc<dyn PageLock> = Arc::new(Mlock::new(config.lock).mapped(options));
        Ok(Chosen { memory, reason })
    };
    match config.backend {
        BackendChoice::Host => host("configured".into()),
        BackendChoice::Auto if config.lock == LockMode::Off => {
            host("lock is off, so nothing is registered with a GPU".into())
        }
        BackendChoice::Cuda => Ok(Chosen {
            memory: cuda(config.device, options).map_err(unavailable)?,
            reason: "configured".into(),
        }),
        BackendChoice::Auto => match cuda(config.device, options) {
            Ok(memory) => {
                Ok(Chosen { memory, reason: format!("CUDA device {} found", config.device) })
            }
            Err(reason) => host(format!("no CUDA: {reason}")),
        },
    }
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
fn cuda(device: u32, options: MapOptions) -> Result<Arc<dyn PageLock>, String> {
    let pages = crate::cuda::CudaPages::open(device)?;
    Ok(Arc::new(pages.mapped(options)))
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: u32, _: MapOptions) -> Result<Arc<dyn PageLock>, String> {
    Err("pinpool was built without its `cuda` feature".into())
}
