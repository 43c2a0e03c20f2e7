//! Runs the built `pinpool` command in a clean environment.

#![allow(dead_code, reason = "each test program uses its part")]

use std::process::{Command, Output, Stdio};

/// The command, without any variable that would change what it does.
pub(crate) fn pinpool(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pinpool"));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("PINPOOL_") || name == "RUST_LOG") {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs the command to its end.
pub(crate) fn run(arguments: &[&str]) -> Ran {
    pinpool(arguments).output().unwrap().into()
}

/// Asserts that a run was refused with exit code 2, nothing on standard output, and an error that
/// names every one of `words` and is no panic.
pub(crate) fn assert_refused(ran: &Ran, words: &[&str]) {
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert_eq!(ran.stdout, "", "{ran:?}");
    assert!(ran.stderr.starts_with("error: "), "{ran:?}");
    assert!(!ran.stderr.contains("panicked"), "{ran:?}");
    for word in words {
        assert!(ran.stderr.contains(word), "{word} is missing: {ran:?}");
    }
}
