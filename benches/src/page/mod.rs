//! The performance page and the README's table: read the committed results, write or check.

mod in_flight;
mod instructions;
mod lease;
mod proof;
mod render;
mod staged;
mod startup;
mod waiting;

use std::fs;
use std::path::{Path, PathBuf};

use crate::output;
use crate::report::Report;

/// A committed result and where it lies.
#[derive(Debug, Clone, PartialEq)]
pub struct Committed {
    /// The path from the root of the repository, with `/`.
    pub path: String,
    /// What it says.
    pub report: Report,
}

/// A generated file: where it lies, what it must say, what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The path from the root of the repository.
    pub path: &'static str,
    /// The text that the results give.
    pub wanted: String,
    /// The text that is there; `None` where the file is not.
    pub found: Option<String>,
}

impl Page {
    /// Whether the committed text is not what the results give.
    pub fn is_stale(&self) -> bool {
        self.found.as_deref() != Some(self.wanted.as_str())
    }

    /// Writes the text, if it differs.
    ///
    /// # Errors
    /// The file and the system's reason.
    pub fn write(&self, root: &Path) -> Result<(), String> {
        if !self.is_stale() {
            return Ok(());
        }
        let path = root.join(self.path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|cause| format!("{}: {cause}", self.path))?;
        }
        output::write_atomically(&path, &self.wanted)
            .map_err(|cause| format!("{}: {cause}", self.path))
    }
}

/// Works out all generated files of the repository at `root`.
///
/// # Errors
/// The file that is missing or cannot be read, and why.
pub fn pages(root: &Path) -> Result<Vec<Page>, String> {
    let results = load(root)?;
    let readme = read(root, README)?;
    let wanted = splice(&readme, &render::readme_block(&results))?;
    let found = fs::read_to_string(root.join(PERFORMANCE)).ok();
    let counted = instructions::section(&read(root, instructions::PATH)?)?;
    Ok(vec![
        Page { path: PERFORMANCE, wanted: render::performance(&results) + &counted, found },
        Page { path: README, wanted, found: Some(readme) },
    ])
}

/// Reads the committed results: those the page needs, then any others that lie beside them.
fn load(root: &Path) -> Result<Vec<Committed>, String> {
    let mut results = Vec::new();
    for (folder, names) in REQUIRED {
        let mut paths: Vec<String> =
            names.iter().map(|name| format!("results/{folder}/{name}.json")).collect();
        for other in json_files(&root.join("results").join(folder)) {
            let path = format!("results/{folder}/{other}");
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        for path in paths {
            let text = read(root, &path)?;
            let report = Report::parse(&text).map_err(|cause| format!("{path}: {cause}"))?;
            if let Some(reason) = report.not_run() {
                return Err(format!("{path}: holds no measurement ({reason})"));
            }
            if report.is_quick() {
                return Err(format!("{path}: of a quick run, whose figures mean little"));
            }
            results.push(Committed { path, report });
        }
    }
    Ok(results)
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    fs::read_to_string(root.join(path)).map_err(|cause| format!("{path}: {cause}"))
}

/// The names of the JSON files in a folder, sorted; none where there is no folder.
fn json_files(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| Some(PathBuf::from(entry.ok()?.file_name())))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .filter_map(|path| Some(path.to_str()?.to_owned()))
        .collect();
    names.sort();
    names
}

/// Puts `block` between the markers of `text`.
fn splice(text: &str, block: &str) -> Result<String, String> {
    let once = |marker: &str| match text.matches(marker).count() {
        1 => Ok(()),
        count => Err(format!("{README}: the marker {marker} must appear once, not {count} times")),
    };
    once(BEGIN)?;
    once(END)?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let (before, after) = parts.ok_or_else(|| format!("{README}: {END} comes before {BEGIN}"))?;
    Ok(format!("{before}{BEGIN}\n{block}{END}{after}"))
}

/// The command that writes the generated files.
pub const COMMAND: &str = "cargo run -p pinpool-bench --bin performance-page";
const README: &str = "README.md";
const PERFORMANCE: &str = "docs/performance.md";
const BEGIN: &str = "<!-- performance:begin -->";
const END: &str = "<!-- performance:end -->";
/// The results that the page cannot do without.
const REQUIRED: [(&str, &[&str]); 2] =
    [("h200", &["frames-1080p-rgb", "frames-4k-rgb", "copy"]), ("host", &["frames-1080p-rgb"])];

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    /// A repository with every required result and a README with markers.
    fn repository() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for folder in ["results/h200", "results/host"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let put = |path: &str, json: &str| fs::write(root.path().join(path), json).unwrap();
        let frames = serde_json::to_string(&render::tests::frames("cuda", 4.0)).unwrap();
        let copy = serde_json::to_string(&render::tests::copy()).unwrap();
        put("results/h200/frames-1080p-rgb.json", &frames);
        put("results/h200/frames-4k-rgb.json", &frames);
        put("results/h200/copy.json", &copy);
        put("results/host/frames-1080p-rgb.json", &frames);
        put(instructions::PATH, instructions::tests::COUNTED);
        put("README.md", &format!("# x\n\n{BEGIN}\nold\n{END}\n\nrest\n"));
        root
    }

    #[test]
    fn written_pages_are_not_stale_and_an_edit_makes_them_so() {
        let root = repository();
        let stale = |root: &Path| {
            let pages = pages(root).unwrap();
            pages.iter().filter(|page| page.is_stale()).map(|page| page.path).collect::<Vec<_>>()
        };
        assert_eq!(stale(root.path()), [PERFORMANCE, README]);
        for page in pages(root.path()).unwrap() {
            page.write(root.path()).unwrap();
        }
        assert_eq!(stale(root.path()), [""; 0]);

        let readme = fs::read_to_string(root.path().join(README)).unwrap();
        assert!(readme.starts_with("# x\n\n<!-- performance:begin -->\n| "), "{readme}");
        assert!(readme.ends_with("<!-- performance:end -->\n\nrest\n"), "{readme}");
        assert!(!readme.contains("old"), "{readme}");

        // The lead's own text may change freely; the block may not.
        fs::write(root.path().join(README), readme.replace("rest", "other words")).unwrap();
        assert_eq!(stale(root.path()), [""; 0]);
        fs::write(root.path().join(README), readme.replace("4.00x", "9.00x")).unwrap();
        assert_eq!(stale(root.path()), [README]);
    }

    #[test]
    fn a_missing_or_broken_result_is_an_error_that_names_the_file() {
        let root = repository();
        let copy = root.path().join("results/h200/copy.json");
        let error = |root: &Path| pages(root).unwrap_err();
        let json = fs::read_to_string(&copy).unwrap();
        fs::remove_file(&copy).unwrap();
        assert!(error(root.path()).starts_with("results/h200/copy.json: No such file"));
        fs::write(&copy, "{\"scenario\": \"dance\"}").unwrap();
        assert!(error(root.path()).contains("copy.json: unknown scenario \"dance\""));
        fs::write(&copy, json.replacen('{', "{\"not_run\": \"no GPU\",", 1)).unwrap();
        assert!(error(root.path()).contains("copy.json: holds no measurement (no GPU)"));
        fs::write(&copy, json).unwrap();
        let extra = root.path().join("results/host/frames-extra.json");
        fs::write(extra, "{").unwrap();
        assert!(error(root.path()).starts_with("results/host/frames-extra.json: EOF"));
    }

    #[test]
    fn a_result_of_a_quick_run_is_refused() {
        let root = repository();
        let path = root.path().join("results/host/lease.json");
        let put = |quick| {
            let mut report = lease::tests::report();
            report.header.quick = quick;
            fs::write(&path, report.to_json().unwrap()).unwrap();
        };
        put(false);
        assert!(pages(root.path()).is_ok());
        put(true);
        let error = pages(root.path()).unwrap_err();
        assert!(error.starts_with("results/host/lease.json: of a quick run"), "{error}");
    }

    #[test]
    fn markers_must_be_there_once_and_in_order() {
        assert_eq!(
            splice(&format!("a{BEGIN}b{END}c"), "new\n").unwrap(),
            format!("a{BEGIN}\nnew\n{END}c")
        );
        for wrong in ["a", &format!("{END}{BEGIN}"), &format!("{BEGIN}{END}{BEGIN}{END}"), BEGIN] {
            assert!(splice(wrong, "new").unwrap_err().starts_with("README.md: "), "{wrong}");
        }
    }
}
