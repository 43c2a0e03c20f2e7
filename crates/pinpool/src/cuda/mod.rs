//! Everything that calls the CUDA driver: the probe, pinning, copies. Nothing else in the crate does.
//!
//! The driver is loaded at run time. Without one, every entry answers with an error; nothing panics.

mod context;
mod event;
mod pages;
mod probe;
mod transfer;

pub use pages::CudaPages;
pub use probe::{DeviceInfo, DriverInfo, probe};
pub use transfer::{DeviceMemory, InFlight, TransferError};
