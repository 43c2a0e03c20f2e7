//! Configuration from TOML text, files, the environment and the builder: what is accepted, what it
//! means, and how everything else is refused.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed unwrap is a failed test"
)]

mod devices;
mod environment;
mod growth;
mod keys;
mod plan;
mod policies;
mod sources;
mod staging;
mod values;

use pinpool::{ConfigError, Error, Plan, Pool, PoolBuilder, PoolConfig};

/// A builder that the environment of the test run cannot disturb.
fn builder() -> PoolBuilder {
    Pool::builder().env(false)
}

/// One class, for texts whose point is elsewhere.
const CLASS: &str = "[[class]]\nname = \"frame\"\nsize = \"4KiB\"\ncount = 2\n";

/// The effective configuration of a text that is right.
fn config(text: &str) -> PoolConfig {
    builder().toml(text).config().unwrap_or_else(|error| panic!("{text}\n{error}"))
}

/// The plan of a text that is right.
fn planned(text: &str) -> Plan {
    builder().toml(text).plan().unwrap_or_else(|error| panic!("{text}\n{error}"))
}

/// The refusal of a builder that is wrong.
fn refused(builder: &PoolBuilder) -> ConfigError {
    match builder.plan() {
        Err(Error::Config(error)) => error,
        Err(other) => panic!("refused for another reason: {other}"),
        Ok(plan) => panic!("accepted:\n{plan}"),
    }
}

/// Asserts that a text is refused at a line, in words that contain all of `words`.
fn assert_refused(text: &str, line: usize, words: &[&str]) {
    let error = refused(&builder().toml(text));
    let message = error.to_string();
    assert_eq!(error.line(), Some(line), "{message}\n{text}");
    assert!(message.contains(&format!("line {line}")), "{message}");
    for word in words {
        assert!(message.contains(word), "`{word}` is missing: {message}\n{text}");
    }
}
