//! `pinpool bench`: its JSON, where it goes, what is refused before anything is measured.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

mod common;

use std::fs;
use std::process::Command;

use common::{Ran, assert_refused, pinpool, run};
use serde_json::Value;

/// The scenario `frames` in a size that takes no time.
const TINY: [&str; 10] = [
    "bench",
    "frames",
    "--backend",
    "host",
    "--frame",
    "64x32:rgb8",
    "--frames",
    "12",
    "--depth",
    "2",
];

fn tiny(more: &[&str]) -> Ran {
    run(&[&TINY, more].concat())
}

fn assert_frames_json(json: &str) -> Value {
    let json: Value = serde_json::from_str(json).unwrap();
    assert_eq!(json["scenario"], "frames");
    assert_eq!(json["backend"], "host");
    assert!(json["locked"].is_boolean());
    assert!(json["machine"]["cores"].as_u64().unwrap() >= 1);
    assert!(json["command"].as_str().unwrap().starts_with("pinpool bench frames"), "{json:#}");
    assert_eq!(json["frame"]["bytes"], 64 * 32 * 3);
    assert_eq!((json["frames"].as_u64(), json["depth"].as_u64()), (Some(12), Some(2)));
    let rows = json["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["lease", "pinned-per-frame", "malloc-per-frame", "fixed-ring"]);
    for row in rows {
        for key in ["fps", "p50_us", "p99_us", "max_us"] {
            assert!(row[key].as_f64().unwrap() > 0.0, "{key}: {json:#}");
        }
    }
    for key in
        ["lease_over_pinned_per_frame", "lease_over_malloc_per_frame", "lease_over_fixed_ring"]
    {
        assert!(json["ratios"][key].as_f64().unwrap() > 0.0, "{key}: {json:#}");
    }
    json
}

#[test]
fn frames_prints_a_table_and_what_follows_from_it() {
    let ran = tiny(&[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.stdout.contains("frames/s"), "{ran:?}");
    assert!(
        ran.stdout.contains("as many frames per second of busy time as pinning each frame"),
        "{ran:?}"
    );
    assert!(!ran.stdout.contains("missed"), "{ran:?}");
}

#[test]
fn frames_writes_json_to_standard_output_and_the_table_to_standard_error() {
    let ran = tiny(&["--json", "-"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json = assert_frames_json(&ran.stdout);
    assert!(json["rows"][0].get("missed").is_none(), "{json:#}");
    assert!(ran.stderr.contains("frames/s"), "{ran:?}");
}

#[test]
fn frames_writes_json_to_a_file_without_naming_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("result.json");
    fs::write(&path, "old").unwrap();
    let ran = tiny(&["--json", path.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("frames/s"), "{ran:?}");
    let text = fs::read_to_string(&path).unwrap();
    let json = assert_frames_json(&text);
    assert!(json["command"].as_str().unwrap().ends_with("--json result.json"), "{json:#}");
    assert!(!text.contains(folder.path().to_str().unwrap()), "{text}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary file is left");
}

#[test]
fn a_paced_run_reports_missed_deadlines() {
    let ran = tiny(&["--rate", "2000", "--json", "-"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json = assert_frames_json(&ran.stdout);
    assert_eq!(json["rate_fps"].as_f64(), Some(2000.0));
    let rows = json["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["missed"].as_u64().unwrap() <= 12), "{json:#}");
    assert!(ran.stderr.contains("missed"), "{ran:?}");
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    assert_refused(&tiny(&["--frames", "0"]), &["--frames"]);
    let frames = |option: &str, value: &str, words: &[&str]| {
        assert_refused(&run(&["bench", "frames", option, value]), words);
    };
    frames("--frames", "0", &["--frames 0"]);
    frames("--frames", "-1", &["-1"]);
    frames("--frames", "18446744073709551615", &["--frames"]);
    frames("--depth", "0", &["--depth 0"]);
    frames("--depth", "18446744073709551615", &["--depth"]);
    frames("--depth", "99999999999999999999999", &["--depth"]);
    frames("--rate", "0", &["--rate"]);
    frames("--rate", "NaN", &["--rate"]);
    frames("--rate", "inf", &["--rate"]);
    frames("--frame", "1080p-yuvy", &["yuvy", "yuyv"]);
    frames("--frame", "0x10:rgb8", &["0x10"]);
    frames("--frame", "18446744073709551615x2:rgb8", &["--frame"]);
    frames("--frame", "262144x262144:rgba8", &["available"]);
    frames("--backend", "vulkan", &["vulkan", "host"]);
    frames("--jsno", "x", &["--jsno", "--json"]);
    assert_refused(&run(&["bench", "copy", "--size", "0"]), &["--size 0"]);
    assert_refused(&run(&["bench", "copy", "--size", "9999999999999"]), &["--size"]);
    for option in ["--size", "--neighbour-size"] {
        for wrong in ["0", "1048577", "9999999999999"] {
            assert_refused(&run(&["bench", "startup", option, wrong]), &[option, wrong]);
        }
    }
    for wrong in ["0", "9999999999999"] {
        assert_refused(&run(&["bench", "staged", "--size", wrong]), &["--size", wrong]);
    }
    for scenario in ["alloc", "break-even", "copy"] {
        assert_refused(&run(&["bench", scenario, "--size", "0"]), &["--size 0"]);
    }
    for scenario in ["alloc", "break-even", "copy", "gigabyte"] {
        let limited = |most: &str| run(&["bench", scenario, "--max-pinned", most]);
        assert_refused(&limited("4095"), &["--max-pinned 4095", "4096"]);
        assert_refused(&limited("a lot"), &["--max-pinned"]);
    }
    assert_refused(&run(&["bench", "copy", "--full", "--quick"]), &["--full", "--quick"]);
    assert_refused(&run(&["bench", "dance"]), &["dance"]);
}

#[test]
fn a_result_that_cannot_be_written_after_the_run_is_still_printed() {
    let ran = tiny(&["--json", "/dev/full"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.starts_with("error: cannot write /dev/full: No space left"), "{ran:?}");
    assert!(ran.stdout.contains("frames/s"), "{ran:?}");
}

#[test]
fn a_result_that_cannot_be_written_is_refused_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no/such/folder/result.json");
    // A million frames would take minutes: the refusal comes first.
    let started = std::time::Instant::now();
    for path in [missing.to_str().unwrap(), folder.path().to_str().unwrap()] {
        let ran = run(&["bench", "frames", "--frames", "1000000", "--json", path]);
        assert_refused(&ran, &["cannot write"]);
        assert_refused(&run(&["bench", "copy", "--json", path]), &["cannot write"]);
        assert_refused(&run(&["bench", "in-flight", "--json", path]), &["cannot write"]);
        assert_refused(&run(&["bench", "lease", "--json", path]), &["cannot write"]);
        assert_refused(&run(&["bench", "startup", "--json", path]), &["cannot write"]);
        assert_refused(&run(&["bench", "staged", "--json", path]), &["cannot write"]);
        assert_refused(&run(&["bench", "alloc", "--json", path]), &["cannot write"]);
        assert_refused(&run(&["bench", "break-even", "--json", path]), &["cannot write"]);
        assert_refused(&run(&["bench", "gigabyte", "--json", path]), &["cannot write"]);
    }
    assert!(started.elapsed().as_secs() < 30);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn cuda_without_a_device_is_refused_and_auto_falls_back() {
    // An empty list hides every device, so this holds on a machine with a GPU too.
    let hidden = |arguments: &[&str]| -> Ran {
        pinpool(arguments).env("CUDA_VISIBLE_DEVICES", "").output().unwrap().into()
    };
    let ran = hidden(&["bench", "frames", "--backend", "cuda", "--frames", "3"]);
    assert_refused(&ran, &["no CUDA device"]);
    let mut auto = TINY.to_vec();
    auto[3] = "auto";
    auto.extend(["--json", "-"]);
    let ran = hidden(&auto);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json = assert_frames_json(&ran.stdout);
    assert!(json["notes"].to_string().contains("no CUDA device"), "{json:#}");
}

/// Runs the command where so many bytes may be locked, and no device is seen.
fn limited(bytes: u64, arguments: &[&str]) -> Ran {
    let limit = format!("--memlock={bytes}:{bytes}");
    // Root's capability would lift the limit.
    let unprivileged = ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"];
    let root = pinpool_bench::machine::memlock().cap_ipc_lock;
    let limited = ["prlimit", &limit, env!("CARGO_BIN_EXE_pinpool")];
    let words = [if root { &unprivileged[..] } else { &[] }, &limited, arguments].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("CUDA_VISIBLE_DEVICES", "").output().unwrap().into()
}

#[test]
fn a_small_memory_lock_limit_leaves_every_source_unlocked_and_says_so() {
    let ran = limited(16384, &[&TINY[..], &["--json", "-"]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json = assert_frames_json(&ran.stdout);
    assert_eq!(json["locked"], false, "{json:#}");
    assert_eq!(json["machine"]["memlock"]["soft_bytes"], 16384, "{json:#}");
    assert!(json["notes"].to_string().contains("RLIMIT_MEMLOCK is 16 KiB"), "{json:#}");
    assert!(ran.stderr.contains("NOT locked") && ran.stderr.contains("Note: "), "{ran:?}");
}

/// Runs the command where no device is seen, and reads its JSON.
fn without_device(arguments: &[&str]) -> (Value, Ran) {
    let ran: Ran = pinpool(&[arguments, &["--json", "-"]].concat())
        .env("CUDA_VISIBLE_DEVICES", "")
        .output()
        .unwrap()
        .into();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!ran.stderr.contains("panicked"), "{ran:?}");
    (serde_json::from_str(&ran.stdout).unwrap(), ran)
}

#[test]
fn frames_say_which_rates_each_source_holds() {
    let ran = tiny(&["--json", "-"]);
    let json = assert_frames_json(&ran.stdout);
    let rates = json["rates"].as_array().unwrap();
    assert_eq!(rates.len(), 4 * 3, "{json:#}");
    for row in rates {
        let count = |key: &str| row[key].as_u64().unwrap();
        assert_eq!(count("arrived"), 12 + count("dropped"), "{row:#}");
        assert!((0.0..=100.0).contains(&row["in_time_percent"].as_f64().unwrap()), "{row:#}");
    }
    for words in ["120 frames/s, fixed-ring", "in time", "each keeps up with: lease "] {
        assert!(ran.stderr.contains(words), "{words}: {ran:?}");
    }
}

#[test]
fn alloc_without_a_device_measures_the_hosts_ways() {
    let (json, ran) = without_device(&["bench", "alloc", "--quick", "--max-pinned", "4MiB"]);
    assert_eq!((&json["scenario"], &json["backend"]), (&"alloc".into(), &"host".into()));
    assert_eq!((&json["quick"], &json["max_pinned_bytes"]), (&true.into(), &(4 << 20).into()));
    let sizes: Vec<u64> = json["ratios"]
        .as_array()
        .unwrap()
        .iter()
        .map(|ratio| ratio["bytes"].as_u64().unwrap())
        .collect();
    assert_eq!(sizes, [4 << 10, 64 << 10, 1 << 20], "{json:#}");
    for row in json["rows"].as_array().unwrap() {
        assert!(row["us"]["median"].as_f64().unwrap() >= 0.0 && row["rounds"] == 3, "{row:#}");
    }
    for words in ["16 MiB left out", "--max-pinned is 4 MiB", "no CUDA device", "A quick run"] {
        assert!(ran.stderr.contains(words), "{words}: {ran:?}");
    }
}

#[test]
fn alloc_says_where_nothing_may_be_locked() {
    let small = ["--size", "4096", "--json", "-"];
    let ran = limited(16384, &[&["bench", "alloc", "--quick"], &small[..]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(json["max_pinned_bytes"].as_u64().unwrap() <= 16384, "{json:#}");
    let ran = limited(0, &[&["bench", "alloc", "--quick"], &small[..]].concat());
    assert_refused(&ran, &["RLIMIT_MEMLOCK"]);
}

#[test]
fn gigabyte_without_a_device_measures_the_hosts_part() {
    let (json, ran) = without_device(&["bench", "gigabyte", "--quick", "--max-pinned", "20MB"]);
    assert_eq!((&json["scenario"], &json["bytes"]), (&"gigabyte".into(), &10_000_000.into()));
    let why = json["copies_not_measured"].as_str().unwrap();
    assert!(why.starts_with("no CUDA device: "), "{json:#}");
    assert_eq!(json["copies"].as_array().map(Vec::len), Some(0), "{json:#}");
    assert_eq!(json["host"].as_array().map(Vec::len), Some(5), "{json:#}");
    assert!(json["ratios"]["h2d_first"].is_null(), "{json:#}");
    assert!(json["ratios"]["host_fresh_over_touched"].as_f64().unwrap() > 0.0, "{json:#}");
    for words in ["Only the host's part of a copy of 10.0 MB", "10.0 MB instead of 100.0 MB"] {
        assert!(ran.stderr.contains(words), "{words}: {ran:?}");
    }
}

#[test]
fn break_even_without_a_device_says_that_there_is_nothing_to_gain() {
    let (json, ran) = without_device(&["bench", "break-even", "--quick"]);
    assert_eq!(json["scenario"], "break-even");
    assert!(json["not_run"].as_str().unwrap().starts_with("no CUDA device: "), "{json:#}");
    for part in ["ratios", "advice", "rows"] {
        assert_eq!(json[part].as_array().map(Vec::len), Some(0), "{json:#}");
    }
    assert!(ran.stderr.starts_with("not run: no CUDA device: "), "{ran:?}");
    assert!(ran.stderr.contains("pinning gains nothing"), "{ran:?}");
}

#[test]
fn results_of_memory_are_shown_on_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().to_str().unwrap();
    let small = ["--quick", "--max-pinned", "20MB", "--report", page];
    for scenario in ["alloc", "gigabyte", "break-even"] {
        let ran = run(&[&["bench", scenario], &small[..]].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let html = fs::read_to_string(folder.path().join("index.html")).unwrap();
        assert!(html.contains(&format!("id=\"{scenario}\"")), "{scenario}");
        assert!(folder.path().join(format!("{scenario}.json")).is_file(), "{scenario}");
    }
}

#[test]
fn copy_without_a_device_says_so_and_succeeds() {
    let mut command = pinpool(&["bench", "copy", "--json", "-"]);
    let ran: Ran = command.env("CUDA_VISIBLE_DEVICES", "").output().unwrap().into();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["scenario"], "copy");
    assert!(json["not_run"].as_str().unwrap().starts_with("no CUDA device: "), "{json:#}");
    assert_eq!(json["rows"].as_array().map(Vec::len), Some(0));
    assert!(ran.stderr.starts_with("not run: no CUDA device: "), "{ran:?}");
    assert!(ran.stderr.contains("cuMemHostAlloc") && !ran.stderr.contains("panicked"), "{ran:?}");
}

#[test]
fn in_flight_without_a_device_says_so_and_succeeds() {
    let mut command = pinpool(&["bench", "in-flight", "--quick", "--json", "-"]);
    let ran: Ran = command.env("CUDA_VISIBLE_DEVICES", "").output().unwrap().into();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["scenario"], "in-flight");
    assert!(json["not_run"].as_str().unwrap().starts_with("no CUDA device: "), "{json:#}");
    // A result without a measurement must not look like one without a fault.
    assert_eq!((&json["mismatches"], &json["leaks"]), (&Value::Null, &Value::Null), "{json:#}");
    assert!(json["ratios"].get("ours_over_pytorch").is_none(), "{json:#}");
    assert!(ran.stderr.starts_with("not run: no CUDA device: "), "{ran:?}");
    assert!(ran.stderr.contains("in flight") && !ran.stderr.contains("panicked"), "{ran:?}");
}

#[test]
fn staged_without_a_device_says_so_and_succeeds() {
    let mut command = pinpool(&["bench", "staged", "--quick", "--json", "-"]);
    let ran: Ran = command.env("CUDA_VISIBLE_DEVICES", "").output().unwrap().into();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["scenario"], "staged");
    assert!(json["not_run"].as_str().unwrap().starts_with("no CUDA device: "), "{json:#}");
    for part in ["copies", "chunks", "small", "file"] {
        assert_eq!(json[part].as_array().map(Vec::len), Some(0), "{json:#}");
    }
    // A result without a measurement must not look like one.
    let ratios = json["ratios"].as_object().unwrap();
    assert!(ratios.len() >= 10 && ratios.values().all(Value::is_null), "{json:#}");
    assert!(ran.stderr.starts_with("not run: no CUDA device: "), "{ran:?}");
    assert!(ran.stderr.contains("stager") && !ran.stderr.contains("panicked"), "{ran:?}");
}

#[test]
fn staged_refuses_figures_that_do_not_compare_before_it_looks_for_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pytorch.json");
    let refused = |words: &[&str]| {
        let ran = run(&["bench", "staged", "--quick", "--pytorch", path.to_str().unwrap()]);
        assert_refused(&ran, &[&["--pytorch", "pytorch.json"], words].concat());
    };
    refused(&["No such file"]);
    fs::write(&path, "{}").unwrap();
    refused(&["missing field", "not a file of scripts/pytorch/staged.py?"]);
}

#[test]
fn waiting_runs_every_part_and_loses_nothing() {
    let ran = run(&["bench", "waiting", "--quick", "--json", "-"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&json["scenario"], &json["quick"]), (&"waiting".into(), &true.into()), "{json:#}");
    assert_eq!(json["lost"], 0, "{json:#}");
    let names = |part: &str| -> Vec<String> {
        let rows = json[part].as_array().unwrap().iter();
        rows.map(|row| format!("{} {}", row["pool"], row["case"]).replace('"', "")).collect()
    };
    let tasks = names("tasks");
    assert_eq!(tasks[..3], ["lease waiting", "semaphore waiting", "channel waiting"], "{tasks:?}");
    assert_eq!(tasks[6..], ["lease giving up", "semaphore giving up", "channel giving up"]);
    let threads = ["lease waiting", "condvar waiting", "lease free", "condvar free"];
    assert_eq!(names("threads"), threads);
    assert_eq!(names("short").len(), 4);
    for row in ["tasks", "threads"].iter().flat_map(|part| json[part].as_array().unwrap()) {
        assert!(row["leases_per_s"]["median"].as_f64().unwrap() > 0.0, "{row:#}");
        assert!(row["waits"].as_u64().unwrap() > 0, "{row:#}");
        let in_line = row.get("in_line_percent").map_or(-1.0, |share| share.as_f64().unwrap());
        match (row["pool"].as_str().unwrap(), row["case"].as_str().unwrap()) {
            ("lease", "free") => assert!(in_line.abs() < 1e-9, "{row:#}"),
            ("lease", _) => assert!(in_line > 0.0, "{row:#}"),
            _ => assert!(in_line < 0.0, "{row:#}"),
        }
        let gave_up = row["cancelled"].as_u64().unwrap() > 0;
        assert_eq!(gave_up, row["case"] == "giving up", "{row:#}");
    }
    let handed = json["handover"].as_array().unwrap();
    assert!(handed.iter().all(|row| row["count"].as_u64().unwrap() > 0), "{json:#}");
    assert_eq!(handed.len(), 6);
    assert!(json["ratios"]["tail_tasks"]["median"].as_f64().unwrap() >= 1.0, "{json:#}");
    assert!(ran.stderr.contains("0 buffers did not come back"), "{ran:?}");
    assert!(ran.stderr.contains("A quick run"), "{ran:?}");
}

#[test]
fn lease_runs_every_part_and_says_what_it_did_not_measure() {
    let ran = run(&["bench", "lease", "--quick", "--json", "-"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&json["scenario"], &json["quick"]), (&"lease".into(), &true.into()), "{json:#}");
    for key in ["ns_one_thread", "mops_16", "p9999_ns"] {
        assert!(json[key].as_f64().unwrap() > 0.0, "{key}: {json:#}");
    }
    let cores = usize::try_from(json["machine"]["cores"].as_u64().unwrap()).unwrap();
    let counts: Vec<usize> = [1, 2, 4, 8, 16].into_iter().filter(|&count| count <= cores).collect();
    assert_eq!(json["mops_16_threads"].as_u64(), counts.last().map(|&count| count as u64));
    let ratios = &json["ratios"];
    for key in ["one_thread_over_mimalloc64", "array_queue_1_thread", "total16_over_one_thread"]
        .into_iter()
        .chain(["handoff_1_over_integers", "handoff_1_over_same_size"])
        .chain(["tail_65536_over_64", "growth_median", "growth_p99"])
    {
        // Beside many other tests a side of a short round may come to next to nothing: rounded, zero.
        assert!(ratios[key].as_f64().unwrap() >= 0.0, "{key}: {json:#}");
    }
    assert_eq!(ratios["mutex_vec_2_threads"].is_null(), cores < 2, "{json:#}");
    for key in ["handoff_8_over_integers", "handoff_8_over_same_size"] {
        assert_eq!(ratios[key].is_null(), cores < 16, "{key}: {json:#}");
    }
    for key in ["one_thread_over_pytorch", "total16_over_pytorch"] {
        assert!(ratios[key].is_null(), "{key}: {json:#}");
    }
    assert!(json["pytorch_not_measured"].as_str().unwrap().contains("--pytorch"), "{json:#}");

    let rows = |part: &str| json[part].as_array().unwrap().clone();
    // Four pools and ten rivals; the pool and three rivals; with and without a fence; six goods.
    assert_eq!(rows("threads").len(), 14 * counts.len(), "{json:#}");
    assert_eq!(rows("exhausted").len(), 4 * counts.len(), "{json:#}");
    assert_eq!(rows("after_fence").len(), 2 * counts.len(), "{json:#}");
    assert_eq!(rows("handoff").len(), 6 * (counts.len() - 1).max(1), "{json:#}");
    for row in ["threads", "exhausted", "after_fence"].iter().flat_map(|part| rows(part)) {
        assert_eq!(row["missed"], 0, "{row:#}");
    }
    assert_eq!((rows("tail").len(), rows("growth").len()), (13, 4), "{json:#}");
    assert!(ran.stderr.contains("PyTorch NOT RUN: "), "{ran:?}");
    assert!(ran.stderr.contains("A quick run"), "{ran:?}");
}

#[test]
fn lease_refuses_figures_that_do_not_compare_before_it_measures() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pytorch.json");
    let arguments = ["bench", "lease", "--quick", "--pytorch", path.to_str().unwrap()];
    let refused = |words: &[&str]| {
        let mut command = pinpool(&arguments);
        let ran: Ran = command.env("CUDA_VISIBLE_DEVICES", "").output().unwrap().into();
        assert_refused(&ran, &[&["--pytorch"], words].concat());
    };
    refused(&["pytorch.json", "No such file"]);
    fs::write(&path, "not JSON").unwrap();
    refused(&["line 1", "not a file of scripts/pytorch/lease.py?"]);
    let figures = |rows: &str| {
        let json = format!(
            "{{\"pytorch_version\": \"2\", \"device\": \"some GPU\", \"bytes\": 1, \"rounds\": 1, \
             \"rows\": [{rows}]}}"
        );
        fs::write(&path, json).unwrap();
    };
    figures("");
    refused(&["no figures of one thread"]);
    // Whatever is measured without a GPU was not measured where PyTorch was.
    figures("{\"threads\": 1, \"mops\": 5.0, \"ns\": 200.0}");
    refused(&["some GPU", "this machine has no GPU", "one machine"]);
}

#[test]
fn startup_opens_in_every_way_and_leaves_nothing_behind() {
    let mut command = pinpool(&["bench", "startup", "--quick", "--json", "-"]);
    let ran: Ran = command.env("CUDA_VISIBLE_DEVICES", "").output().unwrap().into();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&json["scenario"], &json["quick"]), (&"startup".into(), &true.into()), "{json:#}");
    assert_eq!((&json["backend"], &json["left"]["locked_bytes"]), (&"host".into(), &0.into()));
    let sizes: Vec<u64> = sizes_of(&json);
    let ways = [
        "pool",
        "pool, 1 prefault thread",
        "pool, no pauses",
        "pool, no huge pages",
        "no pool",
        "untouched memory",
    ];
    let opens = json["opens"].as_array().unwrap();
    assert_eq!(opens.len(), ways.len() * sizes.len(), "{json:#}");
    for (row, (size, way)) in opens.iter().zip(product(&sizes, &ways)) {
        assert_eq!((&row["bytes"], &row["strategy"]), (&size.into(), &way.into()), "{row:#}");
        assert_eq!(row["rounds"].as_array().map(Vec::len), Some(2), "{row:#}");
        for key in ["ms", "close_ms"] {
            assert!(row[key]["median"].as_f64().unwrap() > 0.0, "{key}: {row:#}");
        }
        let phases = row["phases"].as_array().unwrap();
        assert_eq!(phases.len(), 4, "{row:#}");
        let steps: f64 = phases[..3].iter().map(shortest).sum();
        assert!(steps > 0.0 && steps <= row["ms"]["high"].as_f64().unwrap() + 0.01, "{row:#}");
    }
    for size in json["sizes"].as_array().unwrap() {
        assert!(size["open_over_bare"].as_f64().unwrap() > 0.0, "{json:#}");
        assert!(size["speedup_over_hostalloc"].is_null(), "{json:#}");
    }
    let cases = ["nothing", "pool", "pool, no pauses", "no pool"];
    let neighbours = json["neighbours"].as_array().unwrap();
    assert_eq!(neighbours.len(), cases.len(), "{json:#}");
    for (row, case) in neighbours.iter().zip(cases) {
        assert_eq!(row["case"], case, "{row:#}");
        assert!(row["own"]["longest_ms"].as_f64().unwrap() > 0.0, "{row:#}");
        assert!(row["process"].is_null(), "{row:#}");
    }
    // What has no meaning without a device is not made up.
    let ratios = json["ratios"].as_object().unwrap();
    assert!(ratios.len() >= 12 && ratios.values().all(Value::is_null), "{json:#}");
    for words in ["NOT WATCHED: ", "PyTorch NOT RUN: ", "A quick run", "Note: no CUDA device"] {
        assert!(ran.stderr.contains(words), "{words}: {ran:?}");
    }
}

/// 64 and 256 MiB, or what a limit leaves of them, which a note must say.
fn sizes_of(json: &Value) -> Vec<u64> {
    let sizes: Vec<u64> = json["sizes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|size| size["bytes"].as_u64().unwrap())
        .collect();
    assert!(sizes == [64 << 20, 256 << 20] || json["notes"].to_string().contains("do not fit"));
    sizes
}

fn product<'a>(sizes: &'a [u64], ways: &'a [&str]) -> impl Iterator<Item = (u64, &'a str)> {
    sizes.iter().flat_map(|&size| ways.iter().map(move |&way| (size, way)))
}

/// The shortest time of a step, in milliseconds: together they are no longer than the longest opening.
fn shortest(phase: &Value) -> f64 {
    phase["ms"]["low"].as_f64().unwrap()
}

#[test]
fn the_process_that_startup_starts_is_nobody_elses_command() {
    assert!(!run(&["bench", "--help"]).stdout.contains("startup-neighbour"));
    let mut command = pinpool(&["bench", "startup-neighbour"]);
    let ran: Ran = command.env("CUDA_VISIBLE_DEVICES", "").output().unwrap().into();
    assert_refused(&ran, &["no CUDA device"]);
}

#[test]
fn startup_fits_what_it_opens_into_a_memory_lock_limit() {
    let ran = limited(5_000_000, &["bench", "startup", "--quick", "--json", "-"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["sizes"].as_array().map(Vec::len), Some(1), "{json:#}");
    assert_eq!(json["sizes"][0]["bytes"], 4 << 20, "{json:#}");
    assert!(
        ran.stderr.contains("64 MiB do not fit, 4 MiB do: RLIMIT_MEMLOCK is 5.0 MB"),
        "{ran:?}"
    );
}

#[test]
fn neighbours_has_every_case_without_a_gpu_and_says_what_stands_for_what() {
    let mut command = pinpool(&["bench", "neighbours", "--quick", "--json", "-"]);
    let ran: Ran = command.env("CUDA_VISIBLE_DEVICES", "").output().unwrap().into();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&json["scenario"], &json["backend"]), (&"neighbours".into(), &"host".into()));
    let rows = json["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["case"]), (7, &"alone".into()), "{json:#}");
    for row in rows {
        let works: Vec<&str> = row["felt"]
            .as_array()
            .unwrap()
            .iter()
            .map(|felt| felt["work"].as_str().unwrap())
            .collect();
        assert_eq!(works, ["copy of 1 MiB", "mapping of a page"], "{row:#}");
        for felt in row["felt"].as_array().unwrap() {
            let us = |key: &str, which: &str| felt[key][which].as_f64().unwrap();
            assert!(us("p50_us", "low") > 0.0 && felt["turns"].as_u64().unwrap() > 0, "{felt:#}");
            assert!(us("p50_us", "median") <= us("p99_us", "median"), "{felt:#}");
            assert!(us("p99_us", "high") <= us("max_us", "high"), "{felt:#}");
        }
        // The pace is kept or fallen behind, and never exceeded by more than the frame at the start.
        if let Some(rate) = row["rate_fps"].as_f64() {
            assert!(row["frames"].as_f64().unwrap() <= (rate * 0.2).ceil() * 2.0 + 2.0, "{row:#}");
        }
    }
    assert_eq!(json["ratios"].as_array().map(Vec::len), Some(6 * 2), "{json:#}");
    assert!(ran.stderr.contains("instead of allocated by the driver"), "{ran:?}");
    assert!(ran.stderr.contains("from the pool up to"), "{ran:?}");
}

#[test]
fn neighbours_locks_nothing_where_that_is_refused_and_leaves_out_what_is_too_large() {
    let arguments = ["bench", "neighbours", "--quick", "--max-pinned", "20MiB", "--json", "-"];
    let ran = limited(5_000_000, &arguments);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&json["locked"], json["rows"].as_array().unwrap().len()), (&false.into(), 5));
    for words in ["RLIMIT_MEMLOCK is 5.0 MB", "--max-pinned are left out"] {
        assert!(ran.stderr.contains(words), "{words}: {ran:?}");
    }
    let refused = run(&["bench", "neighbours", "--max-pinned", "1MiB"]);
    assert_refused(&refused, &["--max-pinned 1048576"]);
}

#[test]
fn overlap_says_that_it_needs_a_gpu_and_refuses_less_than_chunks_need() {
    let mut command = pinpool(&["bench", "overlap", "--quick", "--json", "-"]);
    let ran: Ran = command.env("CUDA_VISIBLE_DEVICES", "").output().unwrap().into();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(json["not_run"].as_str().unwrap().starts_with("no CUDA device"), "{json:#}");
    assert_eq!(json["rows"], serde_json::json!([]));
    assert!(ran.stderr.starts_with("not run: no CUDA device"), "{ran:?}");
    assert_refused(&run(&["bench", "overlap", "--max-pinned", "64KiB"]), &["--max-pinned 65536"]);
}

#[test]
fn pressure_pins_no_more_than_it_may_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let place = ["--file-dir", folder.path().to_str().unwrap()];
    let limit = ["--max-pinned", "16MiB", "--json", "-"];
    let ran = run(&[&["bench", "pressure", "--quick"], &place[..], &limit].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    if let Some(reason) = json["not_run"].as_str() {
        println!("pressure not tested: {reason}");
        assert!(ran.stderr.contains("not run: "), "{ran:?}");
        return;
    }
    let rows = json["rows"].as_array().unwrap();
    let pinned: Vec<u64> = rows.iter().map(|row| row["pinned_bytes"].as_u64().unwrap()).collect();
    let limited = json["notes"].to_string().contains("RLIMIT_MEMLOCK");
    assert!(limited || pinned == [0, 3 << 20, 8 << 20, 16 << 20], "{json:#}");
    assert_eq!(json["ratios"].as_array().map(Vec::len), Some(rows.len() - 1), "{json:#}");
    for row in rows {
        for key in ["map_ms", "stream_ms"] {
            assert!(row[key]["median"].as_f64().unwrap() > 0.0, "{key}: {row:#}");
        }
        assert_eq!(row["read_ms"].is_null(), json["file_bytes"].is_null(), "{row:#}");
    }
    assert!(json["kept_free_bytes"].as_u64().unwrap() >= 512 << 20, "{json:#}");
    assert!(ran.stderr.contains("memory is not short in this run"), "{ran:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "a file is left");
}

#[test]
fn pressure_refuses_a_folder_that_is_none_and_its_neighbour_an_order_that_is_none() {
    let ran = run(&["bench", "pressure", "--quick", "--file-dir", "/no/such/folder"]);
    assert_refused(&ran, &["--file-dir /no/such/folder"]);
    assert!(!run(&["bench", "--help"]).stdout.contains("pressure-neighbour"));
    // Standard input is at its end already.
    let ran = run(&["bench", "pressure-neighbour", "/tmp"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "ready\n"), "{ran:?}");
}

#[test]
fn waiting_refuses_a_time_that_makes_no_sense() {
    for wrong in ["0", "601", "x"] {
        assert_refused(&run(&["bench", "waiting", "--seconds", wrong]), &["--seconds"]);
    }
}

#[test]
fn in_flight_refuses_figures_that_do_not_compare_before_it_looks_for_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pytorch.json");
    let refused = |words: &[&str]| {
        let ran = run(&["bench", "in-flight", "--quick", "--pytorch", path.to_str().unwrap()]);
        assert_refused(&ran, &[&["--pytorch"], words].concat());
    };
    refused(&["pytorch.json", "No such file"]);
    fs::write(&path, "{\"pytorch_version\": \"2.11.0\"}").unwrap();
    refused(&["missing field"]);
    fs::write(&path, "not JSON").unwrap();
    refused(&["line 1"]);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    for more in [&[][..], &["--json", "-"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = pinpool(&[&TINY, more].concat());
        let ran: Ran = command.stdout(writer).output().unwrap().into();
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(!ran.stderr.contains("panicked"), "{ran:?}");
    }
}

#[test]
fn help_and_version_succeed_and_no_command_is_refused() {
    for arguments in [&["--help"][..], &["bench", "frames", "--help"], &["--version"]] {
        let ran = run(arguments);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        assert!(ran.stdout.contains("pinpool"), "{ran:?}");
    }
    assert_eq!(run(&[]).code, Some(2));
    assert_eq!(run(&["bench"]).code, Some(2));
}
