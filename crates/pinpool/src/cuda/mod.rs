//! Everything that calls the CUDA driver: the probe, pinning, copies. Nothing else in the crate does.
//!
//! The driver is loaded at run time. Without one, every entry answers with an error; nothing panics.

mod context;
pub(crate) mod event;
mod graph;
mod host_slice;
pub(crate) mod pages;
mod probe;
mod stream;
mod transfer;

pub(crate) use context::noted_failures;
pub use graph::{GraphHold, HeldGraph};
pub use pages::CudaPages;
pub use probe::{DeviceInfo, DriverInfo, probe};
pub use transfer::{DeviceMemory, TransferError};
