//! `pinpool doctor` as it is run: its exit codes, its JSON, what a configuration does to both.
//!
//! The software driver takes the place of a real one, or says that there is no device, so that the
//! answer is the same on every machine.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

mod common;

use std::fs;
use std::path::PathBuf;

use common::{Ran, assert_refused, pinpool, run};
use serde_json::Value;
use tempfile::TempDir;

/// Fits everywhere: a page, not locked.
const SMALL: &str = "\
[pool]
backend = \"host\"
lock = \"off\"

[[class]]
name = \"frame\"
size = 4096
count = 1
";

/// The same on a GPU.
fn on_gpu() -> String {
    SMALL.replace("\"host\"", "\"cuda\"").replace("lock = \"off\"\n", "")
}

/// A folder with a configuration file of this text.
fn config(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool.toml");
    fs::write(&path, text).unwrap();
    (folder, path)
}

/// Runs the command on the software driver with these variables.
fn doctor(variables: &[(&str, &str)], arguments: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let driver = fakecuda::install(folder.path()).unwrap();
    let mut command = pinpool(&[&["doctor"], arguments].concat());
    command.env_remove("CUDA_VISIBLE_DEVICES").env("LD_LIBRARY_PATH", driver);
    command.envs(variables.iter().copied()).output().unwrap().into()
}

fn doctor_with(text: &str, variables: &[(&str, &str)], arguments: &[&str]) -> Ran {
    let (_folder, path) = config(text);
    doctor(variables, &[&["--config", path.to_str().unwrap()], arguments].concat())
}

const NO_DEVICE: [(&str, &str); 1] = [("FAKECUDA_NO_DEVICE", "1")];

/// The lines of a JSON document, which must be whole.
fn lines(ran: &Ran) -> Vec<Value> {
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&json["version"], &json["pinpool"]),
        (&1.into(), &env!("CARGO_PKG_VERSION").into())
    );
    let lines = json["lines"].as_array().unwrap().clone();
    for line in &lines {
        for key in ["group", "name", "status", "value"] {
            assert!(line[key].as_str().is_some_and(|text| !text.is_empty()), "{key}: {line:#}");
        }
        let status = line["status"].as_str().unwrap();
        let needs = status == "warning" || status == "problem";
        assert!(needs || ["ok", "not_applicable"].contains(&status), "{line:#}");
        assert_eq!(line["remedy"].is_string(), needs, "{line:#}");
    }
    let any = |status: &str| lines.iter().any(|line| line["status"] == status);
    let worst = ["problem", "warning"].into_iter().find(|status| any(status)).unwrap_or("ok");
    assert_eq!(json["verdict"], worst, "{json:#}");
    lines
}

fn line<'a>(lines: &'a [Value], name: &str) -> &'a Value {
    let found: Vec<_> = lines.iter().filter(|line| line["name"] == name).collect();
    assert_eq!(found.len(), 1, "{name}: {lines:#?}");
    found[0]
}

fn names(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["name"].as_str().unwrap()).collect()
}

/// Of every machine.
const ALWAYS: [&str; 20] = [
    "CUDA driver",
    "kernel module",
    "available memory",
    "transparent huge pages",
    "huge page defrag",
    "overcommit",
    "memory pressure",
    "first touch",
    "locked memory",
    "CAP_IPC_LOCK",
    "control group",
    "least limit",
    "kernel",
    "membarrier",
    "virtual machine",
    "container",
    "WSL",
    "IOMMU",
    "open and pin",
    "copy to device",
];

#[test]
fn without_a_gpu_every_check_has_a_line_and_copies_are_not_run() {
    let ran = doctor_with(SMALL, &NO_DEVICE, &["--json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let lines = lines(&ran);
    for name in ALWAYS {
        line(&lines, name);
    }
    assert_eq!(line(&lines, "CUDA driver")["status"], "not_applicable");
    let copy = line(&lines, "copy from device");
    assert_eq!(copy["status"], "not_applicable");
    assert!(copy["value"].as_str().unwrap().starts_with("not run: "), "{copy:#}");
    let opened = line(&lines, "open and pin")["value"].as_str().unwrap();
    for words in
        ["on the host backend, ordinary pages", ": touched in", "not pinned, as lock is 'off'"]
    {
        assert!(opened.contains(words), "{words}: {opened}");
    }
    assert_eq!(line(&lines, "bytes at opening")["status"], "ok");
}

#[test]
fn without_a_configuration_a_missing_gpu_is_a_warning() {
    let tries = [("FAKECUDA_NO_DEVICE", "1"), ("PINPOOL_LOCK", "try")];
    let ran = doctor(&tries, &["--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(json["config"].is_null(), "{json:#}");
    let lines = lines(&ran);
    let driver = line(&lines, "CUDA driver");
    assert_eq!(driver["status"], "warning", "{driver:#}");
    assert!(driver["value"].as_str().unwrap().contains("the driver sees no device"), "{driver:#}");
    assert!(!names(&lines).contains(&"bytes at opening"), "{lines:#?}");
}

#[test]
fn text_is_of_a_hundred_columns_and_says_each_status_in_words() {
    let ran = doctor_with(SMALL, &NO_DEVICE, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for group in ["driver", "devices", "memory", "limits", "kernel", "test", "config"] {
        assert!(ran.stdout.lines().any(|row| row == group), "{group}: {}", ran.stdout);
    }
    for text in ["  OK              ", "  not applicable  ", "pool.toml can open here: no problem"]
    {
        assert!(ran.stdout.contains(text), "{text}: {}", ran.stdout);
    }
    // The file's own path may be longer, and the last row names it.
    let rows: Vec<_> = ran.stdout.lines().collect();
    let report = &rows[..rows.len() - 1];
    assert!(report.iter().all(|row| row.chars().count() <= 100), "{}", ran.stdout);
}

#[test]
fn on_a_device_the_copies_run_and_every_byte_is_checked() {
    let two = [("FAKECUDA_DEVICES", "2")];
    for device in ["0", "1"] {
        let ran = doctor_with(&on_gpu(), &two, &["--json", "--device", device]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        let lines = lines(&ran);
        for number in ["0", "1"] {
            for what in ["", " compute mode", " registration"] {
                assert_eq!(line(&lines, &format!("device {number}{what}"))["status"], "ok");
            }
            line(&lines, &format!("device {number} link"));
        }
        for name in ["copy to device", "copy from device"] {
            let value = line(&lines, name)["value"].as_str().unwrap();
            assert!(value.contains("GB/s pageable; every byte arrived"), "{value}");
        }
        let backend = line(&lines, "backend")["value"].as_str().unwrap();
        assert!(
            backend.contains(&format!("device {device}, Fake CUDA device {device}")),
            "{backend}"
        );
    }
}

/// Asserts exit code 1, a report whose problems are these, and an error that names them.
fn assert_problems(ran: &Ran, names: &[&str]) {
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let found: Vec<_> = lines(ran).into_iter().filter(|line| line["status"] == "problem").collect();
    let found: Vec<_> = found.iter().map(|line| line["name"].as_str().unwrap()).collect();
    assert_eq!(found, names, "{ran:?}");
    assert!(ran.stderr.starts_with("error: "), "{ran:?}");
    assert!(ran.stderr.contains(&names.join(", ")), "{ran:?}");
}

#[test]
fn a_configuration_that_does_not_fit_is_a_problem_with_the_key() {
    let large = SMALL.replace("size = 4096", "size = \"1024TiB\"");
    let ran = doctor_with(&large, &NO_DEVICE, &["--json"]);
    let mut expected = vec!["bytes at opening"];
    // Where the kernel accounts strictly, that is a problem of its own.
    let strict = fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap().trim() == "2";
    if strict {
        expected.insert(0, "overcommit");
    }
    assert_problems(&ran, &expected);
    let lines = lines(&ran);
    let remedy = line(&lines, "bytes at opening")["remedy"].as_str().unwrap();
    assert!(remedy.contains("[[class]] 'frame'") && remedy.contains("lower `size`"), "{remedy}");
    let ran = doctor_with(&large, &NO_DEVICE, &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("  problem         bytes at opening"), "{ran:?}");
}

#[test]
fn a_pool_that_needs_a_gpu_cannot_open_without() {
    let ran = doctor_with(&on_gpu(), &NO_DEVICE, &["--json"]);
    assert_problems(&ran, &["CUDA driver", "open and pin", "backend"]);
    let ran = doctor_with(&on_gpu(), &[], &["--json", "--device", "3"]);
    assert_problems(&ran, &["device 3", "open and pin", "backend"]);
    // Named on the command line, a device is wanted; in a file of backend auto it is not.
    let auto = on_gpu().replace("\"cuda\"", "\"auto\"\nlock = \"try\"");
    assert_problems(&doctor_with(&auto, &[], &["--json", "--device", "3"]), &["device 3"]);
    let ran = doctor_with(&auto.replace("[pool]", "[pool]\ndevice = 3"), &[], &["--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(line(&lines(&ran), "device 3")["status"], "warning");
}

#[test]
fn a_device_that_nobody_may_use_is_named_by_its_mode() {
    let ran = doctor_with(&on_gpu(), &[("FAKECUDA_COMPUTE_MODE", "2")], &["--json"]);
    assert_problems(&ran, &["device 0 compute mode", "open and pin"]);
    let ran = doctor_with(&on_gpu(), &[("FAKECUDA_COMPUTE_MODE", "3")], &["--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(line(&lines(&ran), "device 0 compute mode")["status"], "warning");
}

#[test]
fn a_driver_that_fails_in_the_test_is_a_problem() {
    // Registration is out of memory; then a copy fails.
    let ran =
        doctor_with(&on_gpu(), &[("FAKECUDA_FAIL", "cuMemHostRegister_v2:1+:2")], &["--json"]);
    assert_problems(&ran, &["open and pin"]);
    let opened = lines(&ran);
    let value = line(&opened, "open and pin")["value"].as_str().unwrap();
    assert!(value.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{value}");
    let ran =
        doctor_with(&on_gpu(), &[("FAKECUDA_FAIL", "cuMemcpyDtoHAsync_v2:2+:700")], &["--json"]);
    assert_problems(&ran, &["copy to device", "copy from device"]);
    // Without registration the driver allocates, which works and is told.
    let ran = doctor_with(&on_gpu(), &[("FAKECUDA_REGISTER", "unsupported")], &["--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(line(&lines(&ran), "device 0 registration")["status"], "warning");
}

#[test]
fn what_is_wrong_with_the_request_is_refused() {
    assert_refused(&run(&["doctor", "--config", "no-such-file.toml"]), &["no-such-file.toml"]);
    let refused = |from: &str, to: &str, words: &[&str]| {
        assert_refused(&doctor_with(&SMALL.replace(from, to), &NO_DEVICE, &[]), words);
    };
    refused("size = 4096", "siz = 4096", &["siz", "size", "line 7"]);
    refused("count = 1", "count = 0", &["count", "from 1"]);
    refused("[pool]", "[pool]\nmax_pinned = \"huge\"", &["max_pinned"]);
    assert_refused(&doctor(&[("PINPOOL_BACKEN", "host")], &[]), &["PINPOOL_BACKEN"]);
    for wrong in [&["--device", "-1"][..], &["--device", "x"], &["--config"], &["extra"]] {
        let ran = run(&[&["doctor"], wrong].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let (_folder, path) = config(SMALL);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = pinpool(&["doctor", "--config", path.to_str().unwrap()]);
    let ran: Ran = command.stdout(writer).output().unwrap().into();
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
}
