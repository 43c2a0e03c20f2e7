//! `pinpool bench` on the software driver: the CUDA paths run and check what they copy, on a
//! machine without a GPU too. Its figures mean nothing.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

mod common;

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
