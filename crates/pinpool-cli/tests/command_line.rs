//! `pinpool bench` on the command line: sizes with units, several scenarios, names of parts.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

mod common;

use std::fs;

use common::{Ran, assert_refused, pinpool, run};
use serde_json::Value;

/// Runs the command where no device is seen.
fn without_device(arguments: &[&str]) -> Ran {
    pinpool(arguments).env("CUDA_VISIBLE_DEVICES", "").output().unwrap().into()
}

#[test]
fn sizes_have_units_as_the_configuration_has() {
    let sizes = ["--size", "4KiB", "--size", "64 KiB", "--size", "1_000_000", "--size", "8192"];
    let ran = without_device(&[&["bench", "copy", "--json", "-"], &sizes[..]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["sizes"], serde_json::json!([4096, 8192, 65536, 1_000_000]));
    // What a pool's configuration takes, the command line takes for as many bytes.
    for size in ["64MiB", "1 GiB", "64kB", "64KB", "1_000_000", "6220800B", "4_096 KiB"] {
        let pool = "[pool]\nbackend = \"host\"\nmax_pinned = \"SIZE\"\n\
                    [[class]]\nname = \"a\"\nsize = 100\ncount = 1\n";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool.toml");
        fs::write(&path, pool.replace("SIZE", size)).unwrap();
        let ran = run(&["plan", path.to_str().unwrap(), "--json"]);
        let plan: Value = serde_json::from_str(&ran.stdout).unwrap();
        let ran = without_device(&["bench", "copy", "--size", size, "--json", "-"]);
        let json: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(json["sizes"][0], plan["pool"]["max_pinned"], "{size}: {ran:?}");
    }
}

#[test]
fn sizes_that_are_none_are_refused_with_the_option_and_what_it_takes() {
    let refused = |scenario: &str, option: &str, size: &str, words: &[&str]| {
        let ran = run(&["bench", scenario, option, size]);
        assert_refused(&ran, &[&[option], words].concat());
    };
    for scenario in ["copy", "alloc", "break-even", "staged", "startup"] {
        for option in ["--size", "--max-pinned"] {
            refused(scenario, option, "7x", &["'7x'", "unknown unit 'x'", "MiB"]);
            refused(scenario, option, "many", &["'many'", "64MiB"]);
            refused(scenario, option, "-1", &["'-1'", "64MiB"]);
            refused(scenario, option, "1.5", &["'1.5'", "whole number of bytes"]);
            refused(scenario, option, "16EiB", &["'16EiB'", "more than 18446744073709551615"]);
            refused(scenario, option, "0", &[&format!("{option} 0: ")]);
        }
    }
    refused("copy", "--size", "2GiB", &["--size 2147483648: ", "1 GiB"]);
    refused("alloc", "--size", "2TiB", &["--size 2199023255552: ", "1 TiB"]);
    refused("staged", "--size", "2TiB", &["--size 2199023255552: ", "1 TiB"]);
    refused("startup", "--size", "1GB", &["--size 1000000000: a multiple of 1 MiB", "1 TiB"]);
    refused("startup", "--neighbour-size", "1x", &["unknown unit 'x'"]);
    refused("startup", "--neighbour-size", "2TiB", &["--neighbour-size 2199023255552: "]);
    refused("startup", "--neighbour-size", "0", &["--neighbour-size 0: a multiple of 1 MiB"]);
}

#[test]
fn several_scenarios_are_pointed_to_one_command() {
    let tip = "pinpool bench all --only copy,alloc --quick'";
    assert_refused(&run(&["bench", "copy", "alloc", "--quick"]), &["'alloc'", tip]);
    assert_refused(&run(&["bench", "all", "lease"]), &["pinpool bench all --only lease'"]);
    let ran = run(&["bench", "copy", "dance"]);
    assert_refused(&ran, &["'dance'"]);
    assert!(!ran.stderr.contains("--only"), "{ran:?}");
}

#[test]
fn handoff_is_a_part_of_lease() {
    let help = run(&["bench", "--help"]);
    assert!(help.stdout.contains("[alias: handoff]"), "{help:?}");
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().to_str().unwrap();
    let only = ["--only", "handoff,lease", "--quick", "--json", results];
    let ran = run(&[&["bench", "all"], &only[..]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let names: Vec<_> =
        fs::read_dir(results).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names, ["lease.json"], "{ran:?}");
    let ran = run(&["bench", "handoff", "--quick", "--json", "-"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["scenario"], "lease");
    assert!(!json["handoff"].as_array().unwrap().is_empty(), "{json:#}");
}
