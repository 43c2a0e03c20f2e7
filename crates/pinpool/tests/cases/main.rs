//! Faults that users of other pools met in the field, turned into tests of the right behaviour.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed unwrap is a failed test"
)]

#[path = "../support/mod.rs"]
mod support;

mod growth_fails;
mod in_flight;
mod memory;
mod reports;
mod sizes;
mod slots;

use pinpool::{BackendChoice, Pool, PoolBuilder};

/// A pool on host memory that the environment of the test run cannot disturb.
fn builder() -> PoolBuilder {
    Pool::builder().env(false).backend(BackendChoice::Host)
}
