//! What makes two results hard to compare: other machines, software, commits or sizes.

use serde_json::Value;

/// What a reader must know before trusting the changes.
pub(super) fn of(before: &Value, after: &Value) -> Vec<String> {
    let sides = [before, after];
    let mut notes = Vec::new();
    if sides.iter().any(|json| json.get("quick") == Some(&Value::Bool(true))) {
        notes.push("a quick run is among the two: its figures mean little".to_owned());
    }
    let mut differ = |what: &str, paths: &[&str]| {
        let [one, other] = sides.map(|json| words(json, paths));
        if one != other {
            notes.push(format!("the two are of different {what}: {one}; {other}"));
        }
    };
    differ("machines", &["/machine/cpu", "/machine/cores", "/machine/gpu/name"]);
    differ("kernels and drivers", &["/machine/kernel", "/machine/gpu/driver", "/machine/gpu/cuda"]);
    differ("commits", &["/commit"]);
    for (what, path) in SIZES {
        differ(what, &[path]);
    }
    notes
}

/// What a result says at these places.
fn words(json: &Value, paths: &[&str]) -> String {
    let found = paths.iter().filter_map(|path| json.pointer(path));
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let found: Vec<String> = found.filter(|value| !value.is_null()).map(word).collect();
    if found.is_empty() { "not said".to_owned() } else { found.join(", ") }
}

/// What a run was told, or chose by itself, that its ratios depend on; rows of several sizes go by
/// their names.
const SIZES: &[(&str, &str)] = &[
    ("memory", "/backend"),
    ("frames", "/frame/spec"),
    ("depths", "/depth"),
    ("rates", "/rate_fps"),
    ("sizes", "/bytes"),
    ("sizes of their ratios", "/ratios_bytes"),
    ("sizes of a chunk", "/chunk_bytes"),
    ("numbers of slots", "/slots"),
    ("numbers of threads", "/mops_16_threads"),
    ("numbers of threads of the executor", "/executor_threads"),
    ("numbers of threads of a crew", "/default_threads"),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_differs_is_told_with_both_and_what_is_alike_is_not() {
        let machine = json!({ "cpu": "A", "cores": 2, "kernel": "Linux 6", "gpu": null });
        let before = json!({ "machine": machine, "commit": "1", "quick": false, "bytes": 10 });
        assert_eq!(of(&before, &before), Vec::<String>::new());
        let mut after = before.clone();
        after["machine"]["gpu"] = json!({ "name": "G", "driver": "580", "cuda": "13.0" });
        after["commit"] = json!("2");
        after["quick"] = json!(true);
        after["bytes"] = json!(20);
        let notes = of(&before, &after).join("\n");
        for words in [
            "a quick run is among the two",
            "different machines: A, 2; A, 2, G",
            "different kernels and drivers: Linux 6; Linux 6, 580, 13.0",
            "different commits: 1; 2",
            "different sizes: 10; 20",
        ] {
            assert!(notes.contains(words), "{words}: {notes}");
        }
        assert_eq!(notes.lines().count(), 5, "{notes}");
    }
}
