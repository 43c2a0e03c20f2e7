//! Waiting for what must come true soon: a wait without an end is a failure, not a hang.

use std::time::{Duration, Instant};

/// What takes longer hangs.
pub const HANG: Duration = Duration::from_secs(20);

/// Waits until `fact`.
///
/// # Panics
///
/// It does not come true within [`HANG`].
pub fn until(what: &str, fact: impl Fn() -> bool) {
    let start = Instant::now();
    while !fact() {
        assert!(start.elapsed() < HANG, "never: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}
