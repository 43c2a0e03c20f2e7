//! **pinpool** is a pool of pinned (page-locked) host memory for real-time GPU pipelines.
//!
//! At start-up it pins memory once, in slabs. At run time it hands out [`Lease`]s of fixed-size
//! slots by size class in nanoseconds, and takes them back on drop. Without a GPU the same pool
//! stands on `mlock`ed memory, so that a pipeline can be developed and tested anywhere.
//!
//! ```
//! use pinpool::{FrameFormat, LockMode, Pool};
//!
//! let frame_bytes = FrameFormat::Rgb8.bytes(1280, 720)?;
//! let pool = Pool::builder().class("frame", frame_bytes, 8).lock(LockMode::Try).open()?;
//!
//! let mut frame = pool.lease(frame_bytes)?; // waits if all eight are out
//! frame.as_mut_slice().fill(42);
//! drop(frame); // the slot is free again: no system call, no lock
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! * [`Pool`] opens from a [`PoolBuilder`] or a TOML file and gives [`Lease`]s.
//! * Where every slot is out, [`Pool::lease_timeout`] and [`Pool::lease_async`] wait in one line, first come
//!   first served; [`Pool::lease_many`] is all or none; [`OnEmpty`] lets a class fail, grow or lend
//!   pageable memory instead, and [`Pool::trim`] gives back what is idle. [`Pool::holders`] says who has
//!   the slots, [`Pool::close`] ends it all and reports what is left.
//! * [`Scrub`] and [`ForkPolicy`] say what the next owner and a forked child see of a slot's bytes.
//! * `Lease::upload` and `Lease::download` copy to and from a GPU. They give an [`InFlight`]: wait for
//!   it, `.await` it, or drop it, which waits for nothing. The slot is handed out again when the host
//!   has seen the copy complete, and no earlier.
//! * [`Lease::retire_after`] and [`Fence`] do the same for work that the pool cannot see, as
//!   `Lease::record_use` does for other CUDA libraries; [`SharedLease`] is for several readers.
//! * [`PoolBuilder::open_async`] opens beside other work: an [`Opening`] tells how far it is, can be cancelled, and
//!   has the first classes ready while it makes the others. [`Pool::startup`] says what the pool got: pages, nodes,
//!   times, and classes that are smaller than configured.
//! * `Stager` copies what nobody pinned (vectors, files, streams of bytes) to the device and back, through slots.
//! * One pool serves several devices: [`Pool::on`] gives the handle of another one, with classes that lie near it.
//! * [`Plan`] says beforehand what a configuration pins.
//! * [`cuda`] holds what else touches the driver: graphs, what is tracked in cudarc's own calls, and the
//!   probe that decides the backend.
//! * [`PageLock`] is the contract for memory of your own.
//!
//! Features: `cuda` and `config` (TOML files), both on by default; `debug-checks`, which the option
//! `debug_checks` needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod attached;
mod backend;
mod barrier;
mod bell;
mod budget;
mod builder;
mod class;
mod clock;
mod config;
#[cfg(feature = "cuda")]
pub mod cuda;
mod error;
#[cfg(all(test, any(loom, shuttle)))]
mod explore;
mod fence;
mod foreign;
mod frame;
mod free_list;
mod in_flight;
mod keeper;
mod lease;
mod lifetime;
mod memory;
mod plan;
mod pool;
mod process;
mod reclaim;
mod report;
mod seeded;
mod shared;
mod shared_lease;
#[cfg(all(test, not(any(loom, shuttle))))]
mod sim;
mod size_class;
mod slab;
mod slot;
#[cfg(any(feature = "cuda", all(test, shuttle)))]
mod stager;
mod stats;
mod sync;
mod tag;
mod view;
mod waiters;
mod wakers;

#[cfg(feature = "cuda")]
pub use cudarc;

pub use builder::PoolBuilder;
pub use bytemuck::Pod;
pub use config::{
    ALIGN_DEFAULT, BackendChoice, ClassConfig, DURATION_MAX, GROWN_SLABS_MAX, IDLE_AFTER_DEFAULT,
    OnEmpty, OnPressure, PIN_CHUNK_DEFAULT, PIN_PAUSE_DEFAULT, PIN_PAUSE_MAX, PoolConfig,
    SPILL_MAX, STAGE_CHUNK_DEFAULT, STAGE_CHUNK_MIN, STAGE_SLOTS_EACH, STAGE_THREADS_MAX, Scrub,
    THREADS_MAX, Threads,
};
pub use error::{ClassName, ConfigError, Error, Exhausted, LeaseError, OldestHolder, Origin};
pub use fence::{Fence, FenceError, FenceStatus, ManualFence};
pub use frame::{FrameFormat, FrameSpec};
pub use in_flight::{InFlight, Landing, TryTakeError};
pub use lease::Lease;

pub use memory::{
    BackendKind, ForkPolicy, Heap, HugePages, KeepFree, LockMode, Memlock, MemoryCause,
    MemoryError, MemoryStep, Mlock, Numa, Obtained, PageLock, PageTier, Pinned, Region,
};
pub use plan::{ClassPlan, GrowPlan, Plan};
pub use pool::{LeaseFuture, OpenCanceller, OpenProgress, Opening, OpeningFuture, Pool};
pub use report::{CloseReport, CutClass, Holder, SlabReport, StartupReport, StuckSlot};
pub use shared_lease::SharedLease;
pub use size_class::ClassId;
pub use slab::StartupTimes;
#[cfg(feature = "cuda")]
pub use stager::{
    OwnedCopy, OwnedError, StageCause, StageError, StageFence, StageProgress, StageScope,
    StagedCopy, Stager, StagerBuilder,
};
pub use stats::{ClassStats, PoolStats};
pub use tag::Tag;
pub use view::{LeaseView, LeaseViewMut};

/// Where memory can lie: the system's huge pages, and the NUMA nodes with what is near them.
///
/// The functions take the folder that stands for `/sys`, [`Supply::under`](placement::Supply::under) that for `/`.
pub mod placement {
    pub use crate::memory::huge::Supply;
    pub use crate::memory::numa::{node_of, nodes_with_memory, numbers, processors_of};
}

/// What the system allows this process and has left: the facts that pools are admitted by.
///
/// ```
/// use pinpool::limits::{Facts, KeepFree};
///
/// if let Some(least) = Facts::read().binding(KeepFree::Auto, true) {
///     println!("{least}: room for {} bytes", least.room());
/// }
/// ```
pub mod limits {
    pub use crate::memory::limits::{
        Cgroup, CgroupLimit, CgroupVersion, Commit, Facts, Headroom, HugePages, KeepFree,
        LimitKind, MemInfo, Memlock, Pressure, Stall,
    };
}

/// The README's code, tested.
#[cfg(all(doctest, feature = "cuda", feature = "config"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
