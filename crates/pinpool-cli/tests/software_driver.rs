//! `pinpool bench` on the software driver: the CUDA paths run and check what they copy, on a
//! machine without a GPU too. Its figures mean nothing.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

mod common;

use std::fs;

use common::{Ran, assert_refused, pinpool};
use serde_json::Value;

/// Runs the command with the software driver in place of any real one.
fn run_on_software_driver(arguments: &[&str]) -> Ran {
    let ran = on_software_driver(arguments, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!ran.stderr.contains("fakecuda"), "the driver complains: {ran:?}");
    ran
}

fn on_software_driver(arguments: &[&str], settings: &[(&str, &str)]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let driver = fakecuda::install(folder.path()).unwrap();
    let mut command = pinpool(arguments);
    // The driver reports any use of host memory that a queued copy still needs.
    command.env("LD_LIBRARY_PATH", driver).envs(settings.iter().copied());
    command.output().unwrap().into()
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
fn copy_compares_all_kinds_of_memory_that_this_driver_has() {
    let ran = run_on_software_driver(&["bench", "copy", "--size", "4096", "--json", "-"]);
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    let kinds = &json["kinds"];
    let names = |direction: &str| -> Vec<&str> {
        let rows = kinds["rows"].as_array().unwrap().iter();
        rows.filter(|row| row["direction"] == direction)
            .map(|row| row["kind"].as_str().unwrap())
            .collect()
    };
    for direction in ["h2d", "d2h"] {
        assert_eq!(
            names(direction),
            ["pinned", "lease", "write-combined", "pageable"],
            "{kinds:#}"
        );
    }
    assert_eq!(kinds["staging"].as_array().map(Vec::len), Some(2), "{kinds:#}");
    assert!(kinds["link"]["h2d_gb_per_s"].as_f64().unwrap() > 0.0, "{kinds:#}");
    // It has no kernels and no managed memory, and the result says so.
    let notes = kinds["notes"].to_string();
    for words in ["read by a kernel was left out", "managed, prefetched was left out"] {
        assert!(notes.contains(words) && ran.stderr.contains(words), "{words}: {ran:?}");
    }
}

#[test]
fn a_quick_copy_with_little_to_pin_leaves_large_sizes_out() {
    let limited = ["bench", "copy", "--quick", "--max-pinned", "3MiB", "--json", "-"];
    let json: Value = serde_json::from_str(&run_on_software_driver(&limited).stdout).unwrap();
    assert_eq!(
        (&json["quick"], &json["sizes"]),
        (&true.into(), &serde_json::json!([4096, 1 << 20]))
    );
    let notes = json["kinds"]["notes"].to_string();
    assert!(
        notes.contains("16 MiB left out") && notes.contains("--max-pinned is 3 MiB"),
        "{notes}"
    );
}

#[test]
fn alloc_measures_the_drivers_ways_and_the_hosts() {
    let ran = run_on_software_driver(&["bench", "alloc", "--quick", "--json", "-"]);
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["backend"], "cuda");
    let ratios = json["ratios"].as_array().unwrap();
    assert_eq!(ratios.len(), 4, "{json:#}");
    for ratio in ratios {
        for key in ["pinned_over_malloc", "pinned_over_lease", "malloc_over_lease"] {
            assert!(ratio[key].as_f64().unwrap() > 0.0, "{key}: {ratio:#}");
        }
    }
    let ways =
        |way: &str| json["rows"].as_array().unwrap().iter().filter(|row| row["way"] == way).count();
    for way in ["lease", "malloc, touched", "cuMemHostAlloc", "mmap, register", "register in place"]
    {
        assert_eq!(ways(way), 4, "{way}: {json:#}");
    }
    assert!(ran.stderr.contains("cuMemHostAlloc costs"), "{ran:?}");
}

#[test]
fn break_even_advises_in_both_directions() {
    let ran = run_on_software_driver(&["bench", "break-even", "--quick", "--json", "-"]);
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["rows"].as_array().map(Vec::len), Some(2 * 4), "{json:#}");
    for (ratio, row) in
        json["ratios"].as_array().unwrap().iter().zip(json["rows"].as_array().unwrap())
    {
        let us = |key: &str| row[key].as_f64().unwrap();
        assert!((us("pageable_us") - us("pinned_us") - us("saved_us")).abs() < 0.01, "{row:#}");
        // Copies until it pays: what pinning costs over what a copy saves, or never.
        match ratio["reuses_pinned"].as_f64() {
            Some(reuses) => {
                assert!((reuses * us("saved_us") - us("pin_us")).abs() < 0.01 * us("saved_us"));
            }
            None => assert!(us("saved_us") <= 0.0501 * us("pageable_us"), "{row:#}"),
        }
    }
    let advice = json["advice"].as_array().unwrap();
    assert_eq!((&advice[0]["direction"], &advice[1]["direction"]), (&"h2d".into(), &"d2h".into()));
    assert!(ran.stderr.contains("For uploads, ") && ran.stderr.contains("For downloads, "));
}

#[test]
fn gigabyte_copies_pageable_and_pinned_memory_and_checks_it() {
    let small = ["--quick", "--max-pinned", "8MB", "--json", "-"];
    let ran = run_on_software_driver(&[&["bench", "gigabyte"], &small[..]].concat());
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(json.get("copies_not_measured").is_none(), "{json:#}");
    let copies = json["copies"].as_array().unwrap();
    let names: Vec<String> = copies
        .iter()
        .map(|row| format!("{} {}", row["memory"], row["direction"]).replace('"', ""))
        .collect();
    assert_eq!(names, ["pageable h2d", "pinned h2d", "pageable d2h", "pinned d2h"], "{json:#}");
    for row in copies {
        assert!(row["first_ms"]["median"].as_f64().unwrap() > 0.0, "{row:#}");
        assert_eq!(row["write_ms"].is_null(), row["direction"] == "d2h", "{row:#}");
    }
    for key in ["h2d_first", "h2d_later", "h2d_all", "d2h_first", "d2h_later", "d2h_all"] {
        assert!(json["ratios"][key]["median"].as_f64().unwrap() > 0.0, "{key}: {json:#}");
    }
    assert!(ran.stderr.contains("The first upload of 4.0 MB takes"), "{ran:?}");
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

#[test]
fn the_process_that_startup_starts_ends_with_its_orders() {
    // Standard input is at its end already.
    let ran = run_on_software_driver(&["bench", "startup-neighbour"]);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("ready\n", ""), "{ran:?}");
}

#[test]
fn staged_copies_in_every_way_and_checks_every_byte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pytorch.json");
    let row = |way: &str, ms: f64| serde_json::json!({ "way": way, "bytes": 16 << 20, "ms": [ms] });
    let pytorch = serde_json::json!({
        "pytorch_version": "2.11.0", "device": software_device(), "pins_anew": true,
        "rows": [row("to", 1e6), row("pin_memory", 1e7)],
    });
    fs::write(&path, pytorch.to_string()).unwrap();
    let places = ["--file-dir", folder.path().to_str().unwrap()];
    let file = ["--json", "-", "--pytorch", path.to_str().unwrap()];
    let ran =
        run_on_software_driver(&[&["bench", "staged", "--quick"], &places[..], &file].concat());
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(json.get("not_run").is_none(), "{json:#}");
    let threads = json["default_threads"].as_u64().unwrap();
    assert_eq!(json["ratios_bytes"], 16 << 20, "{json:#}");
    let rows = |part: &str| json[part].as_array().unwrap().clone();
    let sides = |bytes: u64, direction: &str| -> Vec<String> {
        let copies = rows("copies").into_iter();
        copies
            .filter(|row| row["bytes"] == bytes && row["direction"] == direction)
            .map(|row| format!("{} {}", row["side"], row["threads"]).replace('"', ""))
            .collect()
    };
    let staged = format!("staged {threads}");
    for direction in ["h2d", "d2h"] {
        let small = ["pageable null", "register in place null", "pinned null", &staged];
        assert_eq!(sides(64 << 10, direction), small, "{json:#}");
        let large = sides(16 << 20, direction);
        assert!(large.contains(&"staged 1".to_owned()) && large.contains(&staged), "{large:?}");
    }
    for row in rows("copies").iter().chain(&rows("chunks")).chain(&rows("file")) {
        assert!(row["gb_per_s"].as_f64().unwrap() > 0.0, "{row:#}");
    }
    assert_eq!(rows("chunks").len(), 2 * 4, "{json:#}");
    assert_eq!((rows("small").len(), rows("file").len()), (3, 2 * 3), "{json:#}");
    assert!(rows("file")[0]["cached_percent"].as_f64().unwrap() > 99.0, "{json:#}");
    let is_cold = rows("file")[3]["cached_percent"].as_f64().unwrap() < 1.0;
    assert!(is_cold || ran.stderr.contains("the cold file is not cold"), "{ran:?}");
    for (name, ratio) in json["ratios"].as_object().unwrap() {
        let has_four = name != "h2d_4_threads_over_pageable"
            || json["machine"]["cores"].as_u64().unwrap() >= 4
            || threads == 4;
        assert_eq!(ratio.as_f64().is_some_and(|ratio| ratio > 0.0), has_four, "{name}: {json:#}");
    }
    // The figures and nothing else.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    for words in ["H2D over pinned", "PyTorch 2.11.0's to(\"cuda\")", "D2H, GB/s\n  64 KiB"] {
        assert!(ran.stderr.contains(words), "{words}: {ran:?}");
    }
}

#[test]
fn staged_leaves_out_what_does_not_fit_and_refuses_a_folder_that_is_none() {
    let staged = ["bench", "staged", "--quick"];
    let sizes = ["--size", "1048576", "--size", "1073741824", "--json", "-"];
    let small_device = [("FAKECUDA_MEMORY", "268435456")];
    let ran = on_software_driver(&[&staged[..], &sizes].concat(), &small_device);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    let notes = json["notes"].to_string();
    assert!(notes.contains("1 GiB left out: the device has 256 MiB free"), "{notes}");
    assert!(notes.contains("ratios, chunks and the file are of 1 MiB"), "{notes}");
    assert_eq!(json["ratios_bytes"], 1 << 20, "{json:#}");
    let ran = on_software_driver(&[&staged[..], &sizes[2..]].concat(), &small_device);
    assert_refused(&ran, &["1 GiB left out", "256 MiB free"]);

    let size = ["--size", "65536", "--file-dir", "/no/such/folder"];
    let ran = on_software_driver(&[&staged[..], &size].concat(), &[]);
    assert_refused(&ran, &["--file-dir /no/such/folder", "No such file"]);
}

#[test]
fn neighbours_copies_beside_every_way_to_pin_and_launches_nothing() {
    let ran = run_on_software_driver(&["bench", "neighbours", "--quick", "--json", "-"]);
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&json["backend"], &json["locked"]), (&"cuda".into(), &true.into()), "{json:#}");
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 7, "{json:#}");
    for row in rows {
        let felt = row["felt"].as_array().unwrap();
        assert_eq!((felt.len(), &felt[0]["work"]), (1, &"copy of 1 MiB".into()), "{row:#}");
        assert!(felt[0]["turns"].as_u64().unwrap() > 0, "{row:#}");
        assert_eq!(row["frames"].as_u64().unwrap() > 0, row["case"] != "alone", "{row:#}");
    }
    assert!(ran.stderr.contains("no kernel is launched: the driver runs no kernels"), "{ran:?}");
}

#[test]
fn overlap_says_that_the_driver_runs_no_kernels() {
    let ran = run_on_software_driver(&["bench", "overlap", "--quick", "--json", "-"]);
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["not_run"], "the driver runs no kernels", "{json:#}");
    assert!(ran.stderr.starts_with("not run: the driver runs no kernels\n"), "{ran:?}");
}

/// The name of the software driver's device.
fn software_device() -> Value {
    let ran = run_on_software_driver(&["bench", "copy", "--size", "4096", "--json", "-"]);
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    json["machine"]["gpu"]["name"].clone()
}
