//! `pinpool bench` on the software driver: the CUDA paths run and check what they copy, on a
//! machine without a GPU too. Its figures mean nothing.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

mod common;

use std::fs;

use common::{Ran, pinpool};
use serde_json::Value;

/// Runs the command with the software driver in place of any real one.
fn run_on_software_driver(arguments: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let driver = fakecuda::install(folder.path()).unwrap();
    let mut command = pinpool(arguments);
    // The driver reports any use of host memory that a queued copy still needs.
    let ran: Ran = command.env("LD_LIBRARY_PATH", driver).output().unwrap().into();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!ran.stderr.contains("fakecuda"), "the driver complains: {ran:?}");
    ran
}

#[test]
fn frames_run_through_device_memory() {
    let size = ["--frame", "64x32:rgb8", "--frames", "9", "--depth", "2", "--json", "-"];
    for backend in ["cuda", "auto"] {
        let arguments = [&["bench", "frames", "--backend", backend], &size[..]].concat();
        let json: Value = serde_json::from_str(&run_on_software_driver(&arguments).stdout).unwrap();
        assert_eq!((&json["backend"], &json["locked"]), (&"cuda".into(), &true.into()), "{json:#}");
        assert_eq!(json["rows"].as_array().map(Vec::len), Some(4));
        assert!(json["rows"][0]["fps"].as_f64().unwrap() > 0.0, "{json:#}");
        assert!(json["machine"]["gpu"]["name"].as_str().unwrap().contains("Fake"), "{json:#}");
        assert_eq!(json["notes"].as_array().map(Vec::len), Some(0), "{json:#}");
    }
}

#[test]
fn copy_measures_every_source_in_both_directions() {
    let sizes = ["bench", "copy", "--size", "8192", "--size", "4096", "--json", "-"];
    let json: Value = serde_json::from_str(&run_on_software_driver(&sizes).stdout).unwrap();
    assert!(json.get("not_run").is_none(), "{json:#}");
    assert_eq!(json["sizes"], serde_json::json!([4096, 8192]));
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 2 * 4, "{json:#}");
    for row in rows {
        assert!(row["gb_per_s"].as_f64().unwrap() > 0.0, "{row:#}");
    }
    let ratios = json["ratios"].as_array().unwrap();
    assert_eq!(ratios.len(), 2 * 2, "{json:#}");
    for ratio in ratios {
        for key in ["lease_over_raw", "lease_memory_over_raw", "pageable_over_raw"] {
            assert!(ratio[key].as_f64().unwrap() > 0.0, "{key}: {ratio:#}");
        }
    }
}

#[test]
fn in_flight_runs_every_part_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pytorch.json");
    // Figures as scripts/pytorch writes them, of the device that this run will name.
    let spread = serde_json::json!({ "median": 1000.0, "p90": 1500.0, "p99": 2000.0 });
    let device = software_device();
    let pytorch = serde_json::json!({
        "pytorch_version": "2.11.0", "device": device, "bytes": 65536, "rounds_per_batch": 8,
        "batches": 10, "round_ns": spread, "copy_call_ns": spread,
        "allocate_record_free_ns": spread, "pending": [],
    });
    fs::write(&path, pytorch.to_string()).unwrap();
    let arguments =
        ["bench", "in-flight", "--quick", "--json", "-", "--pytorch", path.to_str().unwrap()];
    let ran = run_on_software_driver(&arguments);
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(json.get("not_run").is_none(), "{json:#}");
    assert_eq!((&json["mismatches"], &json["leaks"]), (&0.into(), &0.into()), "{json:#}");
    assert_eq!(json["storm"]["rounds"], 20_000, "{json:#}");
    for ratio in [
        "ours_over_pytorch",
        "p99_512_over_8",
        "p99_512_over_8_one_thread",
        "p99_512_over_8_manual",
        "p99_512_over_8_manual_one_thread",
    ] {
        assert!(json["ratios"][ratio].as_f64().is_some(), "{ratio}: {json:#}");
    }
    let rows = |part: &str, count: usize| {
        let rows = json[part].as_array().unwrap();
        assert_eq!(rows.len(), count, "{part}: {json:#}");
        rows.clone()
    };
    let tracking: Vec<_> =
        rows("round", 2).iter().map(|row| row["event_tracking"].clone()).collect();
    assert_eq!(tracking, [false, true]);
    for row in rows("pending", 12) {
        assert!(row["p99_ns"].as_f64().unwrap() > 0.0, "{row:#}");
        assert_eq!(row["rounds"].as_u64(), row["threads"].as_u64().map(|n| n * 3 * 80), "{row:#}");
    }
    assert!(rows("reclaim", 4).iter().all(|row| row["rounds"] == 20), "{json:#}");
    let keeper = rows("keeper", 3);
    assert_eq!(keeper[0]["frames"], 0, "{json:#}");
    assert!(keeper[1..].iter().all(|row| row["frames"].as_u64().unwrap() > 0), "{json:#}");
    assert!(ran.stderr.contains("0 arrived wrong, and 0 slots did not come home"), "{ran:?}");
    assert!(ran.stderr.contains("PyTorch 2.11.0"), "{ran:?}");
}

#[test]
fn startup_opens_in_every_way_and_watches_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pytorch.json");
    // Figures as scripts/pytorch writes them, of the device that this run will name.
    let row = |mode: &str, ms: f64| {
        serde_json::json!({
            "mode": mode, "settings": "", "bytes": 64 << 20, "empty_ms": [ms],
            "pin_memory_ms": [ms], "mapping": "rw-p",
        })
    };
    let pytorch = serde_json::json!({
        "pytorch_version": "2.11.0", "device": software_device(),
        "rows": [row("default", 1e6), row("register16", 1e5)],
    });
    fs::write(&path, pytorch.to_string()).unwrap();
    let sizes = ["--size", "67108864", "--neighbour-size", "33554432"];
    let file = ["--json", "-", "--pytorch", path.to_str().unwrap()];
    let ran =
        run_on_software_driver(&[&["bench", "startup", "--quick"], &sizes[..], &file].concat());
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&json["backend"], &json["notes"]), (&"cuda".into(), &serde_json::json!([])));
    let opens = json["opens"].as_array().unwrap();
    assert_eq!(opens.len(), 7, "{json:#}");
    assert_eq!(opens[5]["strategy"], "cuMemHostAlloc", "{json:#}");
    let size = &json["sizes"][0];
    // That driver registers and allocates in no time.
    for key in ["open_over_bare", "speedup_over_hostalloc", "speedup_over_untouched"] {
        assert!(size[key].as_f64().is_some(), "{key}: {json:#}");
    }
    for key in ["speedup_over_pytorch", "speedup_over_pytorch16"] {
        assert!(size[key].as_f64().unwrap() > 1.0, "{key}: {json:#}");
    }
    let ratios = &json["ratios"];
    for key in ["neighbour_process_stall_ms", "neighbour_process_stall_hostalloc_ms"]
        .into_iter()
        .chain(["neighbour_process_idle_ms", "own_copy_idle_ms"])
        .chain(["own_copy_stall_ms", "own_copy_stall_hostalloc_ms"])
    {
        assert!(ratios[key].as_f64().unwrap() > 0.0, "{key}: {json:#}");
    }
    // Eight gigabytes were not measured.
    assert!(ratios["speedup_over_hostalloc_8g"].is_null(), "{json:#}");
    let neighbours = json["neighbours"].as_array().unwrap();
    assert_eq!(neighbours.len(), 5, "{json:#}");
    for row in neighbours {
        assert!(row["process"]["count"].as_u64().unwrap() > 0, "{row:#}");
        assert_eq!(row["process_closing"].is_null(), row["case"] == "nothing", "{row:#}");
    }
    assert!(ran.stderr.contains("another process's calls take"), "{ran:?}");
    assert!(ran.stderr.contains("PyTorch 2.11.0 takes"), "{ran:?}");
}

/// The name of the software driver's device.
fn software_device() -> Value {
    let ran = run_on_software_driver(&["bench", "copy", "--size", "4096", "--json", "-"]);
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    json["machine"]["gpu"]["name"].clone()
}
