//! `performance-page`: exit codes, and what it says about stale and missing files.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

use std::fs;
use std::path::Path;
use std::process::Command;

use pinpool::BackendChoice;
use pinpool_bench::copy::{self, CopyOptions};
use pinpool_bench::frames::{self, FRAMES_QUICK, FramesOptions};

/// As committed: the page must be able to read it.
const COUNTED: &str = include_str!("../../results/host/instructions.txt");

/// Runs the command in `root` and returns its exit code, standard output and standard error.
fn performance_page(root: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_performance-page"));
    let output = command.args(arguments).current_dir(root).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn check_fails_on_stale_pages_and_names_them_and_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let options = FramesOptions {
        backend: BackendChoice::Host,
        frame: "16x16:rgb8".parse().unwrap(),
        frames: FRAMES_QUICK + 1, // no quick run: those are not published
        depth: 1,
        rate: None,
        max_pinned: None,
    };
    let frames = frames::run(&options, "a command".to_owned(), &mut |_, _| ()).unwrap();
    let mut copy =
        copy::run(&CopyOptions::default(), "a command".to_owned(), &mut |_, _| ()).unwrap();
    copy.not_run = None;
    for group in ["h200", "host"] {
        fs::create_dir_all(root.join("results").join(group)).unwrap();
    }
    let put = |path: &str, text: String| fs::write(root.join(path), text).unwrap();
    put("results/h200/frames-1080p-rgb.json", frames.to_json().unwrap());
    put("results/h200/frames-4k-rgb.json", frames.to_json().unwrap());
    put("results/host/frames-1080p-rgb.json", frames.to_json().unwrap());
    put("results/host/instructions.txt", COUNTED.to_owned());
    put("README.md", "<!-- performance:begin -->\n<!-- performance:end -->\n".to_owned());

    let (code, _, stderr) = performance_page(root, &["--check"]);
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("error: results/h200/copy.json: "), "{stderr}");
    put("results/h200/copy.json", copy.to_json().unwrap());

    let (code, _, stderr) = performance_page(root, &["--check"]);
    assert_eq!(code, Some(1));
    let expected = "error: stale: docs/performance.md and README.md; run `cargo run -p \
                    pinpool-bench --bin performance-page` and commit\n";
    assert_eq!(stderr, expected);
    assert!(!root.join("docs").exists(), "--check must write nothing");

    let (code, stdout, _) = performance_page(root, &[]);
    assert_eq!((code, stdout.as_str()), (Some(0), "wrote docs/performance.md and README.md\n"));
    let (code, stdout, _) = performance_page(root, &["--check"]);
    assert_eq!((code, stdout.as_str()), (Some(0), "up to date\n"));
    put("docs/performance.md", "edited\n".to_owned());
    let (code, _, stderr) = performance_page(root, &["--check"]);
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("error: stale: docs/performance.md; run"), "{stderr}");
}

#[test]
fn unknown_arguments_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, stderr) = performance_page(folder.path(), &["--chekc"]);
    assert_eq!(code, Some(2));
    assert!(stderr.starts_with("error: unknown argument --chekc"), "{stderr}");
    let (code, stdout, _) = performance_page(folder.path(), &["--help"]);
    assert_eq!(code, Some(0));
    assert!(stdout.starts_with("Usage: performance-page"), "{stdout}");
}
