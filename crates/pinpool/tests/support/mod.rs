//! What several test programs share: a test alone in a process of its own, and a loud "not run".
#![allow(dead_code, reason = "each test program uses a part of it")]

pub(crate) mod reserved;

use std::io::Write;
use std::process::{Command, Output};
use std::time::Duration;

use pinpool_testkit::child;

/// Runs `body` in a child of its own with these variables; `test` is the calling test's name.
pub(crate) fn alone(test: &str, variables: &[(&str, &str)], body: impl FnOnce()) {
    if child::in_child() {
        body();
    } else {
        finish(child::command(test, variables));
    }
}

/// Runs a command of [`child::command`] that must succeed, and repeats what it says was not run.
pub(crate) fn finish(command: Command) -> Output {
    let output = child::finish(command, Duration::from_secs(300));
    assert!(output.status.success(), "the child failed: {}", child::describe(&output));
    let errors = String::from_utf8_lossy(&output.stderr);
    for line in errors.lines().filter(|line| line.starts_with("not run")) {
        say(line);
    }
    output
}

/// Says that a check could not be made here, and why.
pub(crate) fn not_run(what: &str) {
    say(&format!("not run: {what}"));
}

/// Writes past the test harness, which hides what a passing test prints.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
