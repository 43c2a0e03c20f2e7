//! Records the commit that the benchmarks are built from, so that every result names it.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=SOURCE_COMMIT");
    for watched in ["build.rs", "src", "../crates/pinpool/src", "../crates/pinpool-cli/src"] {
        println!("cargo::rerun-if-changed={watched}");
    }
    // The reflog changes with every commit, also where HEAD keeps naming the same branch; before
    // the first commit there is only the index. A path that does not exist would make cargo run
    // this script each time.
    let watched = ["logs/HEAD", "index"].map(|name| git(&["rev-parse", "--git-path", name]));
    if let Some(path) = watched.iter().flatten().find(|path| Path::new(path).exists()) {
        println!("cargo::rerun-if-changed={path}");
    }
    println!("cargo::rustc-env=BENCH_SOURCE_COMMIT={}", commit());
}

/// The commit as git tells it, else the one the environment names, else "unknown".
fn commit() -> String {
    let Some(hash) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return env::var("SOURCE_COMMIT").unwrap_or_else(|_| "unknown".to_owned());
    };
    let status = ["status", "--porcelain", "--untracked-files=no", "--", "src", "../crates"];
    match git(&status) {
        Some(changes) if changes.is_empty() => hash,
        _ => format!("{hash}-dirty"),
    }
}

/// What one git command prints, or `None` where git or the repository is missing.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
