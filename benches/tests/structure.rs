//! What depends on what in this package: the results of all scenarios on top, each scenario below.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

use std::fs;
use std::path::Path;

/// The files that may name [`pinpool_bench::report::Report`], which knows every scenario.
const ABOVE: [&str; 6] = ["report.rs", "origin.rs", "lib.rs", "html", "page", "bin"];

#[test]
fn no_scenario_knows_the_results_of_all() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut files, mut folders) = (Vec::new(), vec![source.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    let is_above = |path: &Path| ABOVE.iter().any(|above| path.starts_with(source.join(above)));
    files.retain(|path| path.extension().is_some_and(|end| end == "rs"));
    let (above, below): (Vec<_>, Vec<_>) = files.into_iter().partition(|path| is_above(path));
    assert!(above.len() > 10 && below.len() > 100, "{above:?}");
    for path in below {
        let text = fs::read_to_string(&path).unwrap();
        // Comments may name it.
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let named: Vec<&str> = code.filter(|line| line.contains("crate::report")).collect();
        assert!(named.is_empty(), "{}: {named:?}", path.display());
    }
}
