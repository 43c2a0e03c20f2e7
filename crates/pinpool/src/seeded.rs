//! Planted faults: proof that the tests can fail. An ordinary build contains none of them.
//!
//! With `--cfg seeded_bug` the environment variable `SEEDED_BUG` names one fault to switch on;
//! `scripts/canaries` does so for each and demands that the test named beside it fails.

/// True when the named fault is planted.
#[cfg(not(seeded_bug))]
#[inline]
pub(crate) const fn bug(_name: &str) -> bool {
    false
}

/// True when the named fault is planted.
#[cfg(seeded_bug)]
pub(crate) fn bug(name: &str) -> bool {
    static PLANTED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    PLANTED.get_or_init(|| std::env::var("SEEDED_BUG").ok()).as_deref() == Some(name)
}
