//! Data flows one way: a file imports only from files below it. ARCHITECTURE.md draws the same order.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::path::{Path, PathBuf};

/// The files of the crate, bottom to top. A folder name stands for all files in it.
const BOTTOM_TO_TOP: &[&str] = &[
    "seeded",
    "clock",
    "sync",
    "explore",
    "budget",
    "lifetime",
    "bell",
    "fence",
    "foreign",
    "barrier",
    "free_list",
    "waiters",
    "memory",
    "process",
    "size_class",
    "tag",
    "error",
    "cuda/exit",
    "cuda/context",
    "cuda/probe",
    "cuda/event",
    "attached",
    "slot",
    "reclaim",
    "wakers",
    "cuda/pages",
    "frame",
    "config",
    "plan",
    "shared",
    "slab",
    "class",
    "report",
    "view",
    "lease",
    "in_flight",
    "shared_lease",
    "class/models",
    "keeper",
    "cuda/stream",
    "cuda/transfer",
    "cuda/host_slice",
    "cuda/lane",
    "cuda/straight",
    "cuda/graph",
    "cuda/mod",
    "backend",
    "stats",
    "pool",
    "stager",
    "builder",
    "sim",
    "lib",
];

#[test]
fn no_file_imports_against_the_arrows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = Vec::new();
    let mut imports = 0;
    for path in sources(&root) {
        let file = path.strip_prefix(&root).unwrap().with_extension("");
        let file = file.to_str().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let height = height(file).unwrap_or_else(|| panic!("{file} has no place in the order"));
        for target in targets(&text) {
            imports += 1;
            let place = BOTTOM_TO_TOP
                .iter()
                .position(|name| *name == target || *name == format!("{target}/mod"));
            let place =
                place.unwrap_or_else(|| panic!("{file} imports {target}, which has no place"));
            if place > height {
                wrong.push(format!("{file} imports {target}, which stands above it"));
            }
        }
    }
    assert!(imports > 60, "only {imports} imports were seen: the reader is broken");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Which modules of the crate a text names: `file`, or `folder/file` where the order has that.
fn targets(text: &str) -> Vec<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.match_indices("crate::").map(|(at, _)| &line[at + 7..]))
        .map(|rest| {
            let mut names = rest.split("::").map(|part| {
                part.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect::<String>()
            });
            let module = names.next().unwrap_or_default();
            let inner = format!("{module}/{}", names.next().unwrap_or_default());
            if BOTTOM_TO_TOP.contains(&inner.as_str()) { inner } else { module }
        })
        .filter(|name: &String| !name.is_empty())
        .collect()
}

/// The place of the file itself, or else of the nearest folder around it that has one.
fn height(file: &str) -> Option<usize> {
    Path::new(file)
        .ancestors()
        .find_map(|around| BOTTOM_TO_TOP.iter().position(|name| Path::new(name) == around))
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The driver is called in `cuda`, the system in `memory`, atomics are named in `sync`.
#[test]
fn each_outside_world_has_one_door() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for path in sources(&root) {
        let file = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let names = |word: &str| {
            text.lines().any(|line| !line.trim_start().starts_with("//") && line.contains(word))
        };
        let driver = file.starts_with("cuda/");
        assert!(!names("sys::cu") && !names("result::") || driver, "{file} calls the driver");
        // The crate's root passes cudarc on, the pool names its context type, and staged copies take
        // cudarc's streams and slices.
        let names_cudarc = driver
            || file.starts_with("stager/")
            || ["lib.rs", "pool/devices.rs"].contains(&file.as_str());
        assert!(!names("cudarc") || names_cudarc, "{file} names cudarc");
        assert!(!names("sync::atomic") || file == "sync.rs", "{file} names atomics");
        assert!(!names("rustix::mm") || file.starts_with("memory/"), "{file} calls the system");
        // Its table of sleepers has locks that a forked child may find held for ever (I12).
        assert!(!names("parking_lot"), "{file} names parking_lot");
    }
}
