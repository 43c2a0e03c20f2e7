//! Real cudarc code on the fake driver, each test in a fresh process of its own.
//!
//! A test that finds itself in the parent starts itself again with the fake driver in the loader's
//! path, and passes if the child does.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_imports,
    reason = "a failed unwrap is a failed test; the modules share one small set of names"
)]

mod capture;
mod copies;
mod faults;
mod machine;
mod order;
mod support;
