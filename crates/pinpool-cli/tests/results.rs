//! Results as files: what the schema says of them, and what `pinpool bench compare` makes of two.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]
#![allow(clippy::panic, reason = "tests may fail loudly")]

mod common;
#[path = "common/schema.rs"]
mod schema;

use std::fs;
use std::path::{Path, PathBuf};

use common::{assert_refused, run};
use pinpool_bench::report::Report;
use schema::Schema;
use serde_json::{Value, json};

/// The committed results.
fn committed() -> Vec<PathBuf> {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results");
    let (mut found, mut folders) = (Vec::new(), vec![results]);
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "json") {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(found.len() >= 10, "{found:?}");
    found
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn every_committed_result_is_what_the_schema_says() {
    let schema = Schema::read();
    for path in committed() {
        let errors = schema.errors(&read(&path));
        assert!(errors.is_empty(), "{}: {errors:#?}", path.display());
    }
}

/// As it is without its fields of null, which older results leave out.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let there = fields.iter().filter(|(_, value)| !value.is_null());
            there.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

#[test]
fn every_committed_result_is_read_and_written_without_a_loss() {
    for path in committed() {
        let report = Report::parse(&fs::read_to_string(&path).unwrap()).unwrap();
        let written: Value = serde_json::from_str(&report.to_json().unwrap()).unwrap();
        assert_eq!(without_nulls(&written), without_nulls(&read(&path)), "{}", path.display());
    }
}

#[test]
fn the_schema_finds_what_is_missing_unknown_or_of_another_kind() {
    let schema = Schema::read();
    let path = committed().into_iter().find(|path| path.ends_with("h200/lease.json")).unwrap();
    let good = read(&path);
    let finds = |change: fn(&mut Value), words: &str| {
        let mut result = good.clone();
        change(&mut result);
        let errors = schema.errors(&result);
        assert!(errors.iter().any(|error| error.contains(words)), "{words}: {errors:?}");
    };
    finds(|result| drop(result.as_object_mut().unwrap().remove("rounds")), "no rounds");
    finds(|result| result["machine"]["hostname"] = json!("name"), "/machine/hostname: not in");
    finds(|result| result["ns_one_thread"] = json!("11"), "/ns_one_thread: \"11\"");
    finds(|result| result["rounds"] = json!(-1), "/rounds: -1 is less");
    finds(|result| result["rounds"] = json!(1.5), "/rounds: 1.5");
    finds(|result| result["threads"][0]["mops"] = Value::Null, "/threads/0/mops: null");
    finds(|result| result["scenario"] = json!("dance"), "/scenario: \"dance\"");
}

/// A result of `lease` with these ratios, in a file.
fn result(folder: &Path, name: &str, ratios: &Value) -> String {
    let path = folder.join(name);
    let result = json!({ "scenario": "lease", "quick": false, "ratios": ratios });
    fs::write(&path, result.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn compare_exits_with_1_past_the_limit_and_knows_which_way_is_better() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name, ratios| result(folder.path(), name, &ratios);
    // One is a time over a time, the other a rate over a rate.
    let (time, rate) = ("one_thread_over_mimalloc64", "mutex_vec_2_threads");
    let before = file("before.json", json!({ time: 2.0, rate: 10.0, "other": 1.0 }));
    let better = file("better.json", json!({ time: 1.0, rate: 20.0, "other": 1.0 }));
    let slower = file("slower.json", json!({ time: 2.3, rate: 10.0, "other": 1.0 }));
    let other = file("other.json", json!({ time: 2.0, rate: 10.0, "other": 0.5 }));
    let compare = |after: &str, limit: &str| {
        run(&["bench", "compare", &before, after, "--max-regression", limit])
    };
    let ran = compare(&better, "0");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.stdout.contains("-50.0 %") && ran.stdout.contains("+100.0 %"), "{ran:?}");
    let ran = compare(&slower, "10");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("worse by more than 10 %: one_thread_over_mimalloc64"), "{ran:?}");
    assert!(ran.stdout.contains("WORSE") && !ran.stderr.contains(rate), "{ran:?}");
    assert_eq!(compare(&slower, "20").code, Some(0));
    // Of a ratio that nobody knows, every change counts.
    let ran = compare(&other, "20");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.ends_with(": other (-50.0 %)\n"), "{ran:?}");
    assert!(ran.stdout.contains("better -: a ratio that this version does not know"), "{ran:?}");
    // Without a limit it only tells.
    assert_eq!(run(&["bench", "compare", &before, &slower]).code, Some(0));
}

#[test]
fn compare_shows_rounds_where_both_results_have_them() {
    let folder = tempfile::tempdir().unwrap();
    let range = |median, low, high| json!({ "r": { "median": median, "low": low, "high": high } });
    let before = result(folder.path(), "before.json", &range(1.0, 0.8, 1.2));
    let after = result(folder.path(), "after.json", &range(1.1, 1.0, 1.3));
    let apart = result(folder.path(), "apart.json", &range(2.0, 1.9, 2.1));
    let ran = run(&["bench", "compare", &before, &after]);
    assert!(ran.stdout.contains("0.800 to 1.200"), "{ran:?}");
    assert!(ran.stdout.contains("within the spread: some rounds"), "{ran:?}");
    let ran = run(&["bench", "compare", &before, &apart]);
    assert!(!ran.stdout.contains("within the spread"), "{ran:?}");
    // The limit is of the medians: the spread is told, and changes nothing.
    let ran = run(&["bench", "compare", &before, &after, "--max-regression", "5"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("WORSE, within the spread"), "{ran:?}");
    let last = "1 of 1 ratios are worse by more than 5 %, 1 of them within the spread\n";
    assert!(ran.stdout.ends_with(last), "{ran:?}");
}

#[test]
fn within_counts_changes_either_way_and_names_what_does_not_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name, ratios| result(folder.path(), name, &ratios);
    let (time, rate) = ("one_thread_over_mimalloc64", "mutex_vec_2_threads");
    let before = file("before.json", json!({ time: 2.0, rate: 10.0, "tail_65536_over_64": 0.001 }));
    let again = file("again.json", json!({ time: 2.2, rate: 9.0, "tail_65536_over_64": 0.002 }));
    let better = file("better.json", json!({ time: 1.0, rate: 10.1, "tail_65536_over_64": 0.001 }));
    let ran = run(&["bench", "compare", &before, &again, "--within", "15"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    // One more in the last of three decimals is what rounding does.
    assert!(ran.stdout.ends_with("\n3 of 3 ratios within 15 %\n"), "{ran:?}");
    let ran = run(&["bench", "compare", &before, &better, "--within", "15"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("DIFFERS"), "{ran:?}");
    assert!(ran.stdout.ends_with("\n2 of 3 ratios within 15 %\n"), "{ran:?}");
    let error = format!("error: not within 15 %: {time} (-50.0 %)\n");
    assert_eq!(ran.stderr, error);
    // What is better is no regression, and both limits may be asked for.
    let both = ["--within", "15", "--max-regression", "0"];
    let ran = run(&[&["bench", "compare", &before, &better], &both[..]].concat());
    assert_eq!((ran.code, ran.stderr), (Some(1), error), "{}", ran.stdout);
}

#[test]
fn compare_never_calls_the_machine_a_regression_and_tells_of_other_machines() {
    let folder = tempfile::tempdir().unwrap();
    let path = committed().into_iter().find(|path| path.ends_with("h200/copy.json")).unwrap();
    let mut other = read(&path);
    for ratio in other["ratios"].as_array_mut().unwrap() {
        ratio["pageable_over_raw"] = json!(0.01);
    }
    other["machine"]["cpu"] = json!("Another");
    other["commit"] = json!("fedcba987654");
    let after = folder.path().join("after.json");
    fs::write(&after, other.to_string()).unwrap();
    let compare = |limit: [&str; 2]| {
        let files = ["bench", "compare", path.to_str().unwrap(), after.to_str().unwrap()];
        run(&[&files[..], &limit].concat())
    };
    let ran = compare(["--max-regression", "0"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for words in [
        "better neither: how the machine or a rival does",
        "different machines: ",
        "; Another",
        "different commits: ",
        "; fedcba987654",
    ] {
        assert!(ran.stdout.contains(words), "{words}: {ran:?}");
    }
    // Whether a second run says the same is asked of every ratio.
    let ran = compare(["--within", "15"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.ends_with("\n20 of 30 ratios within 15 %\n"), "{ran:?}");
}

#[test]
fn compare_refuses_what_does_not_compare() {
    let folder = tempfile::tempdir().unwrap();
    let lease = result(folder.path(), "lease.json", &json!({ "r": 1.0 }));
    let none = result(folder.path(), "none.json", &json!({ "r": null }));
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let refused = |other: &str, words: &[&str]| {
        assert_refused(&run(&["bench", "compare", &lease, other]), words);
    };
    refused("no/such/file.json", &["cannot read no/such/file.json"]);
    refused(&write("text", "not JSON"), &["no result of `pinpool bench`"]);
    refused(&write("object", "{}"), &["it names no scenario"]);
    refused(&write("copy", "{\"scenario\": \"copy\"}"), &["\"lease\"", "\"copy\""]);
    let not_run = "{\"scenario\": \"lease\", \"not_run\": \"no CUDA device\"}";
    refused(&write("not_run", not_run), &["holds no figures: no CUDA device"]);
    refused(&none, &["no ratio of \"lease\" was measured in both"]);
    for wrong in ["-1", "NaN", "inf", "x"] {
        for option in ["--max-regression", "--within"] {
            let limit = format!("{option}={wrong}");
            assert_refused(&run(&["bench", "compare", &lease, &lease, &limit]), &[option]);
        }
    }
    assert_refused(&run(&["bench", "compare", &lease]), &["B.json"]);
}

#[test]
fn every_committed_result_compares_with_itself() {
    for path in committed() {
        let path = path.to_str().unwrap();
        let limits = ["--max-regression", "0", "--within", "0"];
        let ran = run(&[&["bench", "compare", path, path], &limits[..]].concat());
        assert_eq!(ran.code, Some(0), "{path}: {ran:?}");
        assert!(ran.stdout.contains("+0.0 %"), "{path}: {ran:?}");
    }
}
