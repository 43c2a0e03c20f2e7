//! Calls of users' code, which may panic: that must cost the pool nothing (I7). A subscriber of the log
//! is such code.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What `call` gives, or `None` if it panicked.
pub(crate) fn caught<R>(call: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(call))
        // What was thrown may panic again when it is dropped.
        .map_err(std::mem::forget)
        .ok()
}

/// Logs, as `tracing::$level!` does, whatever the subscriber does.
macro_rules! tell {
    ($level:ident, $($line:tt)+) => {{
        let _ = $crate::foreign::caught(|| tracing::$level!($($line)+));
    }};
}
pub(crate) use tell;
