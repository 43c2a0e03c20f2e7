//! `pinpool plan`: what it prints, what overrides it, what it refuses.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

mod common;

use std::fs;
use std::path::PathBuf;

use common::{Ran, assert_refused, pinpool, run};
use serde_json::{Value, json};
use tempfile::TempDir;

const CONFIG: &str = "\
[pool]
backend = \"host\"
max_pinned = \"64MiB\"

[[class]]
name = \"frame\"
size = \"6220800B\"
count = 4

[[class]]
name = \"small\"
size = 100
count = 10
";

/// A folder with a configuration file of this text.
fn config(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool.toml");
    fs::write(&path, text).unwrap();
    (folder, path)
}

fn plan(text: &str, more: &[&str]) -> Ran {
    let (_folder, path) = config(text);
    run(&[&["plan", path.to_str().unwrap()], more].concat())
}

#[test]
fn the_table_names_classes_bytes_waste_and_limits() {
    let ran = plan(CONFIG, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // 4 x 6220800 bytes end on a page boundary after 3072 more; 10 slots of 128 fill 1 page.
    let page_rounding = (4 * 6_220_800_u64).next_multiple_of(4096) - 4 * 6_220_800;
    for text in ["frame", "small", "6220800", "24883200", "max_pinned 67108864", "RLIMIT_MEMLOCK"] {
        assert!(ran.stdout.contains(text), "{text} is missing: {ran:?}");
    }
    let waste = page_rounding + 4096 - 1000;
    assert!(ran.stdout.contains(&format!("waste {waste} bytes")), "{ran:?}");
    assert!(ran.stdout.contains("note: class 'small': size 100 is rounded up to 128"), "{ran:?}");
}

#[test]
fn json_holds_the_same_as_exact_numbers() {
    let ran = plan(CONFIG, &["--json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["pool"]["backend"], "host");
    assert_eq!(json["pool"]["max_pinned"], 64 << 20);
    let frame = json["classes"].as_array().unwrap().iter().find(|class| class["name"] == "frame");
    let frame = frame.unwrap();
    assert_eq!((&frame["size"], &frame["count"]), (&json!(6_220_800), &json!(4)));
    let pinned = json["pinned_bytes"].as_u64().unwrap();
    let waste = json["waste_bytes"].as_u64().unwrap();
    assert_eq!(pinned, 4 * 6_220_800 + 1000 + waste);
    assert!(json["notes"].as_array().unwrap().len() == 1 && json["limits"].is_object(), "{json}");
}

#[test]
fn policies_are_in_the_table_and_in_the_json() {
    let text = CONFIG.replace("count = 10", "count = 10\non_empty = \"grow\"\nscrub = \"zero\"");
    let text = text.replace("[pool]", "[pool]\nleak_after = \"1500ms\"");
    let ran = plan(&text, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for line in [
        "fork deny, track_holders true, leak_after 1s 500ms, debug_checks false\n",
        "class 'small': grows by 3 slots (4096 bytes) when 1 or fewer are free, to at most 22 slots",
        "class 'small': slots are zeroed between two owners\n",
    ] {
        assert!(ran.stdout.contains(line), "{line} is missing: {ran:?}");
    }
    let ran = plan(&text, &["--json"]);
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["pool"]["leak_after"], "1s 500ms");
    assert_eq!(
        (&json["pool"]["track_holders"], &json["pool"]["fork"]),
        (&json!(true), &json!("deny"))
    );
    let classes = json["classes"].as_array().unwrap();
    let class = |name: &str| classes.iter().find(|class| class["name"] == name).unwrap();
    let grow = json!({ "by": 3, "slabs": 4, "at": 1, "slab_bytes": 4096, "chunk_bytes": 4096 });
    assert_eq!((&class("small")["grow"], &class("small")["scrub"]), (&grow, &json!("zero")));
    assert_eq!(class("small")["idle_after"], "10s");
    assert_eq!(
        (&class("frame")["grow"], &class("frame")["on_empty"]),
        (&json!(null), &json!("wait"))
    );
}

#[test]
fn a_devices_class_is_in_the_table_and_in_the_json() {
    let text = CONFIG.replace("count = 10", "count = 10\ndevice = 1");
    let text = text.replace("[pool]", "[pool]\ndevice = [0, 1]");
    let ran = plan(&text, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ends = |name: &str, end: &str| {
        ran.stdout.lines().any(|line| line.starts_with(name) && line.ends_with(end))
    };
    assert!(ends("small ", " 1") && ends("frame ", " all") && ends("class ", " device"), "{ran:?}");
    let ran = plan(&text, &["--json"]);
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    let devices = json["classes"].as_array().unwrap().iter().map(|class| &class["device"]);
    assert_eq!(devices.collect::<Vec<_>>(), [&json!(null), &json!(1)]);
}

#[test]
fn the_environment_overrides_the_file() {
    let (_folder, path) = config(CONFIG);
    let mut command = pinpool(&["plan", path.to_str().unwrap(), "--json"]);
    let ran: Ran = command.env("PINPOOL_MAX_PINNED", "1GiB").output().unwrap().into();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["pool"]["max_pinned"], 1 << 30);

    let mut command = pinpool(&["plan", path.to_str().unwrap()]);
    let ran: Ran = command.env("PINPOOL_MAX_PINNED", "1MiB").output().unwrap().into();
    assert_refused(&ran, &["max_pinned"]);
    let mut command = pinpool(&["plan", path.to_str().unwrap()]);
    let ran: Ran = command.env("PINPOOL_MAX_PINED", "1GiB").output().unwrap().into();
    assert_refused(&ran, &["PINPOOL_MAX_PINED", "PINPOOL_MAX_PINNED"]);
}

#[test]
fn mistakes_are_refused_with_the_key_and_the_line() {
    let wrong = |from: &str, to: &str, words: &[&str]| {
        assert!(CONFIG.contains(from), "{from}");
        assert_refused(&plan(&CONFIG.replace(from, to), &[]), words);
    };
    wrong("size = \"6220800B\"", "siz = \"6220800B\"", &["siz", "size", "line 7"]);
    wrong("count = 10", "cout = 10", &["cout", "count"]);
    wrong("count = 10", "count = 0", &["line 13", "count", "from 1"]);
    wrong("size = 100", "size = \"100 parsec\"", &["100 parsec", "size"]);
    wrong("\"64MiB\"", "\"1MiB\"", &["max_pinned"]);
    wrong("count = 4", "count = 1048577000000", &["count"]);
    assert_refused(&plan("", &[]), &["class"]);
    assert_refused(&plan("[[[", &[]), &["pool.toml", "line 1"]);
}

#[test]
fn a_file_that_cannot_be_read_is_refused_by_name() {
    assert_refused(&run(&["plan", "no-such-file.toml"]), &["no-such-file.toml"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    assert_refused(&run(&["plan", path]), &[path, "cannot read"]);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let (_folder, path) = config(CONFIG);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = pinpool(&["plan", path.to_str().unwrap()]);
    let ran: Ran = command.stdout(writer).output().unwrap().into();
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
}
