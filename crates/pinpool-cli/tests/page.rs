//! `pinpool bench all` and its page: every scenario is there, nothing is asked of a network, and a
//! browser, where there is one, has nothing to say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may fail loudly")]
#![allow(clippy::print_stderr, reason = "what was not run must be told")]

mod common;
#[path = "common/html.rs"]
mod html;
#[path = "common/schema.rs"]
mod schema;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Ran, assert_refused, pinpool, run};
use pinpool_bench::report::{Report, SCENARIOS};
use schema::Schema;

/// Runs the command where no device is seen.
fn on_the_host(arguments: &[&str]) -> Ran {
    pinpool(arguments).env("CUDA_VISIBLE_DEVICES", "").output().unwrap().into()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()))
}

/// The results of a folder, by the name of their files.
fn results(folder: &Path) -> Vec<(String, Report)> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<(String, Report)> = files
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, Report::parse(&read(&path)).unwrap())
        })
        .collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

/// Asserts what holds of every page, and returns it.
fn assert_page(folder: &Path) -> String {
    let page = read(&folder.join("index.html"));
    let tags = html::tags(&page);
    for word in ["http://", "https://", "url(", "@import", "javascript:"] {
        assert!(!page.contains(word), "the page asks for something else: {word}");
    }
    let ids: Vec<&str> = tags.iter().filter_map(|tag| tag.attribute("id")).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "an id is there twice");
    for tag in &tags {
        assert_ne!(tag.name, "script");
        assert!(tag.attribute("src").is_none(), "{tag:?}");
        match tag.attribute("href") {
            Some(link) if link.starts_with('#') => assert!(ids.contains(&&link[1..]), "{link}"),
            Some("data:,") | None => {}
            Some(file) => assert!(folder.join(file).is_file(), "{file}"),
        }
        assert!(tag.name != "svg" || tag.attribute("aria-label").is_some(), "{tag:?}");
    }
    page
}

/// The anchors of all scenarios, as the page has them from top to bottom.
fn sections(page: &str) -> Vec<&str> {
    let tags = html::tags(page);
    let sections = tags.into_iter().filter(|tag| tag.name == "section");
    let attributes = sections.flat_map(|tag| tag.attributes);
    let others = ["advice", "article"];
    let ids = attributes.filter(|&(name, value)| name == "id" && !others.contains(&value));
    ids.map(|(_, id)| id).collect()
}

/// Whether scenarios, several of which may be of one, stand in the order in which all are shown.
fn in_order(ids: &[&str]) -> bool {
    let place = |id: &&str| SCENARIOS.iter().position(|name| id.starts_with(name));
    let places: Option<Vec<usize>> = ids.iter().map(place).collect();
    places.expect("a known scenario of each section").is_sorted()
}

/// The rows of each table that stands open, and of each that does not.
fn rows(page: &str) -> [Vec<usize>; 2] {
    let (mut open, mut closed) = (Vec::new(), Vec::new());
    for (at, _) in page.match_indices("<table>") {
        let (before, table) = page.split_at(at);
        let rows = table.split("</table>").next().unwrap().matches("<tr>").count() - 1;
        let is_closed = before.matches("<details>").count() > before.matches("</details>").count();
        (if is_closed { &mut closed } else { &mut open }).push(rows);
    }
    [open, closed]
}

fn count(page: &str, name: &str) -> usize {
    html::tags(page).iter().filter(|tag| tag.name == name).count()
}

#[test]
fn all_runs_every_scenario_and_shows_it_on_one_page() {
    let folder = tempfile::tempdir().unwrap();
    let started = std::time::Instant::now();
    let ran =
        on_the_host(&["bench", "all", "--quick", "--report", folder.path().to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(started.elapsed().as_secs() < 90, "{:?}", started.elapsed());

    let schema = Schema::read();
    let results = results(folder.path());
    let names: BTreeSet<String> =
        results.iter().map(|(file, _)| file.replace(".json", "")).collect();
    let scenarios = schema.scenarios().into_iter();
    // One of them is run with frames of another size as well.
    assert_eq!(names, scenarios.chain(["frames-4k"]).map(str::to_owned).collect());
    let page = assert_page(folder.path());
    let mut plots = 0;
    for (file, report) in &results {
        let errors =
            schema.errors(&serde_json::from_str(&read(&folder.path().join(file))).unwrap());
        assert!(errors.is_empty(), "{file}: {errors:#?}");
        let (section, origin) = (report.section(), report.origin());
        let name = file.replace(".json", "");
        assert!(name == section.id || name == "frames-4k" && section.id == "frames", "{file}");
        assert!(ran.stderr.contains(&format!("] {name}\n")), "{ran:?}");
        assert_eq!(origin.command, origin.command.replace(folder.path().to_str().unwrap(), ""));
        assert!(!section.conclusion.is_empty() && !section.method.is_empty(), "{section:?}");
        let length = section.headline.chars().count();
        assert!((1..=240).contains(&length) || section.not_run.is_some(), "{}", section.headline);
        match report.not_run() {
            Some(reason) => assert_eq!(section.not_run.as_deref(), Some(reason)),
            None => assert!(!section.tables.is_empty() && !section.plots.is_empty(), "{file}"),
        }
        plots += section.plots.len();
    }
    let run: Vec<&str> =
        ran.stderr.lines().filter_map(|line| line.split_once("] ")?.1.into()).collect();
    assert_eq!(sections(&page), run, "they are run and shown in one order");
    assert!(in_order(&run), "{run:?}");
    assert!(plots >= 8, "{plots}");
    assert_eq!(count(&page, "svg"), plots);
    assert_eq!(count(&page, "figcaption"), plots);
    assert!(
        page.contains("needs an NVIDIA GPU and its driver"),
        "what did not run says what it needs"
    );
    assert!(page.contains("Whether pinning pays here is not known"), "no advice without a GPU");
    assert!(page.contains("Quick runs: "), "figures that mean little must say so");
    in_a_browser(folder.path());
}

#[test]
fn what_needs_a_device_has_pictures_on_the_software_driver() {
    let (folder, driver) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = folder.path().to_str().unwrap();
    let only = "copy,break-even,in-flight,staged";
    let mut command = pinpool(&["bench", "all", "--quick", "--only", only, "--report", path]);
    command.env("LD_LIBRARY_PATH", fakecuda::install(driver.path()).unwrap());
    let ran: Ran = command.output().unwrap().into();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let results = results(folder.path());
    assert_eq!(results.len(), only.split(',').count());
    let schema = Schema::read();
    for (file, report) in results {
        let errors =
            schema.errors(&serde_json::from_str(&read(&folder.path().join(&file))).unwrap());
        assert!(errors.is_empty(), "{file}: {errors:#?}");
        let section = report.section();
        assert!(section.not_run.is_none() && section.tables.len() >= 2, "{file}: {section:?}");
        // Where pinning never pays, which this driver may say, there is nothing to draw of it.
        let least = if file == "break-even.json" { 0 } else { 2 };
        assert!(section.plots.len() >= least, "{file}: {section:?}");
    }
    assert_page(folder.path());
    in_a_browser(folder.path());
}

#[test]
fn every_committed_result_fits_on_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/h200");
    let files = fs::read_dir(results).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    files.sort();
    let files: Vec<&str> = files.iter().map(|path| path.to_str().unwrap()).collect();
    let report = ["--report", folder.path().to_str().unwrap()];
    let ran = run(&[&["bench", "page"], &files[..], &report].concat());
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{ran:?}");
    let page = assert_page(folder.path());
    assert_eq!(self::results(folder.path()).len(), files.len());
    assert_eq!(sections(&page).len(), files.len());
    assert!(in_order(&sections(&page)), "in their own order, not in that of the files");
    let [open, closed] = rows(&page);
    assert!(open.iter().all(|rows| *rows <= 12) && open.len() > files.len(), "{open:?}");
    assert!(closed.iter().all(|rows| *rows > 12) && !closed.is_empty(), "{closed:?}");
    one_colour_each(&page);
    assert!(folder.path().join("lease-busy-host.json").is_file(), "under its own name");
    assert!(count(&page, "svg") >= files.len(), "every one of these has figures");
    // What is said of pinned memory, and this GPU's figures.
    for words in ["The article's figures", "12\u{a0}GB/s", "NVIDIA H200"] {
        assert!(page.contains(words), "{words}");
    }
    in_a_browser(folder.path());
}

#[test]
fn a_page_beside_its_results_writes_over_none_of_them() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/h200");
    let copied = |name: &str, folder: &Path, to: &str| {
        let path = folder.join(to);
        fs::copy(results.join(name), &path).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let files = [
        copied("lease-busy-host.json", there.path(), "lease.json"),
        copied("lease-idle-host.json", here.path(), "old.json"),
        copied("lease.json", here.path(), "lease.json"),
    ];
    let report = ["--report", here.path().to_str().unwrap()];
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let ran = run(&[&["bench", "page"], &files[..], &report].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for (file, name) in [
        ("old.json", "lease-idle-host.json"),
        ("lease.json", "lease.json"),
        ("lease-2.json", "lease-busy-host.json"),
    ] {
        assert_eq!(read(&here.path().join(file)), read(&results.join(name)), "{file}");
    }
    assert_page(here.path());
}

#[test]
fn a_single_scenario_makes_a_page_too() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("new/folder");
    let tiny = ["bench", "frames", "--frame", "64x32:rgb8", "--frames", "12", "--json", "-"];
    let ran = on_the_host(&[&tiny[..], &["--report", report.to_str().unwrap()]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.stdout, read(&report.join("frames.json")), "both are the same result");
    let page = assert_page(&report);
    assert!(page.contains("<section id=\"frames\">") && count(&page, "svg") >= 1, "{page}");
}

#[test]
fn a_scenario_that_fails_does_not_stop_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    // A second of a processor is enough for two of them, which find no device, and not for the third.
    let limited = ["prlimit", "--cpu=1:2", "--core=0", env!("CARGO_BIN_EXE_pinpool")];
    let all = ["bench", "all", "--quick", "--only", "staged,lease,in-flight", "--report", path];
    let mut command = Command::new(limited[0]);
    command.args(&limited[1..]).args(all).env("CUDA_VISIBLE_DEVICES", "");
    let ran: Ran = command.output().unwrap().into();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("lease FAILED after "), "{ran:?}");
    assert!(ran.stderr.ends_with("error: 1 of 3 scenarios failed: lease\n"), "{ran:?}");
    for name in ["staged", "in-flight"] {
        assert!(folder.path().join(format!("{name}.json")).is_file(), "{ran:?}");
    }
    let page = assert_page(folder.path());
    assert!(page.contains("class=\"failed\"") && page.contains("FAILED: it ended with"), "{page}");
}

#[test]
fn results_of_nonsense_end_in_a_page_or_in_a_refusal() {
    use serde_json::{Value, json};
    type Change = fn(&Value) -> Option<Value>;
    fn changed(value: &Value, change: Change) -> Value {
        match value {
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| (key.clone(), changed(value, change))).collect()
            }
            Value::Array(all) => all.iter().map(|value| changed(value, change)).collect(),
            other => change(other).unwrap_or_else(|| other.clone()),
        }
    }
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/h200");
    let nonsense: [Change; 4] = [
        |value| value.is_u64().then(|| json!(u64::MAX)),
        |value| value.is_f64().then(|| json!(f64::MAX)),
        |value| value.is_number().then(|| json!(0)),
        |value| Some(json!(format!("<script>\0\u{1b}\"'&{}", value.as_str()?))),
    ];
    let paths = fs::read_dir(results).unwrap().map(|entry| entry.unwrap().path());
    for path in paths.filter(|path| path.extension().is_some_and(|end| end == "json")) {
        let result: Value = serde_json::from_str(&read(&path)).unwrap();
        for change in nonsense {
            let scenario = result["scenario"].clone();
            let mut result = changed(&result, change);
            result["scenario"] = scenario;
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("result.json");
            fs::write(&file, result.to_string()).unwrap();
            let words = [file.to_str().unwrap(), "--report", folder.path().to_str().unwrap()];
            let ran = run(&[&["bench", "page"], &words[..]].concat());
            assert!(matches!(ran.code, Some(0 | 2)), "{}: {ran:?}", path.display());
            if ran.code == Some(0) {
                let page = read(&folder.path().join("index.html"));
                let is_bad = |c: char| c.is_control() && !c.is_whitespace();
                assert!(!page.contains("<script") && !page.contains(is_bad), "{}", path.display());
            }
        }
    }
}

#[test]
fn nothing_runs_on_when_the_command_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let mut command = pinpool(&["bench", "all", "--only", "pressure", "--max-pinned", "64MiB"]);
    command.args(["--json", path]).stderr(std::process::Stdio::null());
    let mut all = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    // The scenario and its neighbour: theirs is the only command line with this folder, or a parent
    // with it.
    let started = std::time::Instant::now();
    let wait_for = |what: &str, is_so: &dyn Fn(&[u32]) -> bool, of: &dyn Fn() -> Vec<u32>| {
        let mut found = of();
        while !is_so(&found) {
            assert!(started.elapsed().as_secs() < 60, "{what}: {found:?}");
            std::thread::sleep(std::time::Duration::from_millis(5));
            found = of();
        }
        found
    };
    let scenario = wait_for("no scenario", &|found| !found.is_empty(), &|| children(all.id()));
    let beside = wait_for("no neighbour", &|found| !found.is_empty(), &|| children(scenario[0]));
    all.kill().unwrap();
    all.wait().unwrap();
    let left = || {
        let mut left = [&scenario[..], &beside[..]].concat();
        left.retain(|&id| is_running(id));
        left
    };
    wait_for("left behind", &|left| left.is_empty(), &left);
}

/// The processes that one has started.
fn children(id: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    text.split_whitespace().map(|id| id.parse().unwrap()).collect()
}

/// Whether a process is there and no zombie.
fn is_running(id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

#[test]
fn the_page_and_the_json_may_share_a_folder_but_not_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("new");
    let (file, page) = (report.join("frames.json"), report.join("index.html"));
    let tiny = ["bench", "frames", "--frame", "64x32:rgb8", "--frames", "12", "--report"];
    let to = |json: &Path| {
        let words = [report.to_str().unwrap(), "--json", json.to_str().unwrap()];
        on_the_host(&[&tiny[..], &words].concat())
    };
    let ran = to(&file);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_page(&report);
    assert!(Report::parse(&read(&file)).is_ok());
    assert_refused(&to(&page), &["--json", "the page is written there"]);
    // A folder that has the name of the result: the measurement must not be lost.
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let ran = on_the_host(&[&tiny[..], &[report.to_str().unwrap()]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(Report::parse(&read(&report.join("frames-2.json"))).is_ok());
}

#[test]
fn a_folder_whose_name_begins_with_a_dash_is_no_option() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = pinpool(&["bench", "all", "--quick", "--only", "copy", "--json=-x"]);
    command.env("CUDA_VISIBLE_DEVICES", "").current_dir(folder.path());
    let ran: Ran = command.output().unwrap().into();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(results(&folder.path().join("-x")).len(), 1);
}

#[test]
fn requests_that_make_no_sense_are_refused_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "text").unwrap();
    let file = file.to_str().unwrap();
    let started = std::time::Instant::now();
    assert_refused(&run(&["bench", "all", "--only", "dance"]), &["dance", "lease"]);
    assert_refused(&run(&["bench", "all", "--quick", "--full"]), &["--quick", "--full"]);
    for option in ["--report", "--json"] {
        assert_refused(&run(&["bench", "all", option, file]), &["cannot write", file]);
    }
    assert_refused(&run(&["bench", "frames", "--report", file]), &["cannot write", file]);
    assert_refused(&run(&["bench", "page", "--report", file]), &["FILE"]);
    let report = folder.path().join("page");
    let page = |file: &str| run(&["bench", "page", file, "--report", report.to_str().unwrap()]);
    assert_refused(&page("no/such.json"), &["no/such.json: cannot read it"]);
    assert_refused(&page(file), &["no result of `pinpool bench`"]);
    assert!(!report.exists());
    assert!(started.elapsed().as_secs() < 30);
}

/// Asserts that a name in legends of one section has the same colour in all of them.
fn one_colour_each(page: &str) {
    let mut seen_twice = 0;
    for section in page.split("<section ").skip(1) {
        let mut colours = BTreeMap::new();
        for item in section.split("data-colour=\"").skip(1) {
            let (colour, rest) = item.split_once("\"></i>").unwrap();
            let (name, _) = rest.split_once("</li>").unwrap();
            let before = colours.insert(name, colour);
            assert!(before.is_none_or(|before| before == colour), "{name}: {before:?}, {colour}");
            seen_twice += usize::from(before.is_some());
        }
    }
    assert!(seen_twice > 0, "no name is in two pictures");
}

/// Opens the page in a browser, where one is installed, and asserts that it has nothing to say and
/// that the page is no wider than a phone.
fn in_a_browser(folder: &Path) {
    let Some(browser) = browser() else {
        eprintln!(
            "NOT RUN: no Chromium is installed, and CHROME names none; the page was not opened"
        );
        return;
    };
    let page = read(&folder.join("index.html"));
    let probe = "<script>document.documentElement.style.width = '390px'; \
                 console.log('probe ' + document.querySelectorAll('svg').length + ' ' + \
                 document.querySelector('main').scrollWidth);</script></body>";
    let opened = folder.join("opened.html");
    fs::write(&opened, page.replace("</body>", probe)).unwrap();
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("timeout")
        .args(["60", browser.to_str().unwrap()])
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(["--dump-dom", &format!("file://{}", opened.display())])
        .output()
        .unwrap();
    fs::remove_file(&opened).unwrap();
    let ran = Ran::from(output);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let said: Vec<&str> = ran.stderr.lines().filter(|line| line.contains("CONSOLE")).collect();
    let wanted = format!("probe {} 390", count(&page, "svg"));
    assert!(said.len() == 1 && said[0].contains(&wanted), "{wanted}: {said:#?}");
    assert!(ran.stdout.trim_end().ends_with("</html>"), "{}", ran.stdout);
}

fn browser() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("CHROME") {
        return Some(named.into());
    }
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let candidates = folders.iter().flat_map(|folder| names.map(|name| folder.join(name)));
    candidates.into_iter().find(|path| path.is_file())
}
