//! Pageable memory to and from the device at the link's speed: a crew of threads copies it through slots of
//! a pool.

#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "the models use all that they can"))]
mod board;
#[cfg(feature = "cuda")]
mod copies;
#[cfg(feature = "cuda")]
mod crew;
mod error;
#[cfg(feature = "cuda")]
mod file;
#[cfg(feature = "cuda")]
mod job;
#[cfg(all(test, shuttle))]
mod models;
#[cfg(feature = "cuda")]
mod owned;
#[cfg(feature = "cuda")]
mod past_cache;
#[cfg(feature = "cuda")]
mod scope;
#[cfg(feature = "cuda")]
mod staged;
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "the models use all that they can"))]
mod tally;

#[cfg(feature = "cuda")]
mod open;

pub use error::{StageCause, StageError};
#[cfg(feature = "cuda")]
pub use open::{Stager, StagerBuilder};
#[cfg(feature = "cuda")]
pub use owned::{OwnedCopy, OwnedError};
#[cfg(feature = "cuda")]
pub use scope::StageScope;
#[cfg(feature = "cuda")]
pub use staged::{StageFence, StageProgress, StagedCopy};
