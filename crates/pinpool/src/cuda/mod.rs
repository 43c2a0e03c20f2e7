//! Everything that calls the CUDA driver: the probe, pinning, copies. Nothing else in the crate does.
//!
//! The driver is loaded at run time. Without one, every entry answers with an error; nothing panics.
//!
//! # Leases in cudarc's own copies
//!
//! [`Lease`](crate::Lease), its views and [`SharedLease`](crate::SharedLease) implement cudarc's
//! `HostSlice`, so that its copy calls take them. Such a copy is tracked: the lease can be dropped at
//! once, and reading or writing it waits for the copy.
//!
//! ```no_run
//! # fn copies(pool: pinpool::Pool, stream: std::sync::Arc<pinpool::cudarc::driver::CudaStream>)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! let mut on_device = stream.alloc_zeros::<u8>(4096)?;
//! let mut lease = pool.lease(4096)?;
//! stream.memcpy_htod(&lease, &mut on_device)?; // tracked
//! stream.memcpy_htod(&lease.view(..100)?, &mut on_device)?; // tracked
//! stream.memcpy_dtoh(&on_device, &mut lease)?; // tracked: `lease.as_slice()` waits
//! # Ok(()) }
//! ```
//!
//! `upload` and `download` have no gaps. These have, because cudarc decides what follows its copy:
//!
//! * `stream.memcpy_htod(lease.as_slice(), ..)` and `&lease.as_slice()[a..b]` are plain slices to
//!   cudarc: it queues the copy and nobody waits for it. Give it the lease or a view.
//! * On a stream that is being captured the copy joins the graph and would run at each launch. It
//!   cannot be refused there, so that the slot is quarantined when the lease is dropped, and the log
//!   says why. Use [`Lease::hold_for_graph`](crate::Lease::hold_for_graph).
//! * With cudarc's event tracking off, or on a context whose only stream is the default one, cudarc
//!   waits for the stream behind the copy instead of recording an event. An error that another thread
//!   leaves in the context within that call (`CudaContext::record_err`) makes it skip the wait and
//!   return `Ok`; the copy is then not tracked.
//! * Where an event was to be recorded and cudarc skipped it, the pool finds out: reading or writing the
//!   lease waits for the whole context, and a lease that is dropped without costs its slot.

mod context;
pub(crate) mod event;
pub(crate) mod exit;
mod graph;
mod host_slice;
pub(crate) mod lane;
pub(crate) mod pages;
mod probe;
pub(crate) mod straight;
mod stream;
pub(crate) mod transfer;

pub(crate) use context::noted_failures;
pub use graph::{GraphHold, HeldGraph};
pub use pages::CudaPages;
pub use probe::{ComputeMode, DeviceInfo, DriverInfo, probe};
pub use transfer::{DeviceMemory, TransferError};
