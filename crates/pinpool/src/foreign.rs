//! Calls of users' code, which may panic: that must cost the pool nothing (I7).

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What `call` gives, or `None` if it panicked.
pub(crate) fn caught<R>(call: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(call))
        // What was thrown may panic again when it is dropped.
        .map_err(std::mem::forget)
        .ok()
}
