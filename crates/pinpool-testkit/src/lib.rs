//! The test kit of pinpool: memory that counts, fails, refuses or delays, owner stamps, a sampler of
//! statistics, the contract suite, the operation model, child processes, forks and readings of this process.
//!
//! Everything here is for tests: a broken expectation is a panic with the numbers in it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test kit reports by panicking"
)]

pub mod child;
pub mod contract;
pub mod fork;
pub mod model;
pub mod proc;
pub mod sampler;
pub mod scripted;
pub mod soon;
pub mod stamp;
