//! `pinpool bench page`, and the folder that every `--report` writes: a page, and the results that
//! it shows.

use std::fs;
use std::path::{Path, PathBuf};

use pinpool_bench::html::{self, Outcome};
use pinpool_bench::output;
use pinpool_bench::report::Report;

use crate::cli::PageArgs;
use crate::failure::Failure;
use crate::out;

pub(crate) fn run(arguments: &PageArgs) -> Result<(), Failure> {
    let reports: Result<Vec<Box<Report>>, Failure> =
        arguments.files.iter().map(|path| read(path)).collect();
    let reports = reports?;
    let folder = Folder::check(&arguments.report)?;
    let found = reports.into_iter().zip(&arguments.files);
    folder.write(found.map(|(report, path)| folder.found(report, path)).collect())
}

/// Reads a result that was written before.
pub(super) fn read(path: &Path) -> Result<Box<Report>, Failure> {
    let wrong = |cause: String| Failure::Input(format!("{}: {cause}", path.display()));
    let json =
        fs::read_to_string(path).map_err(|cause| wrong(format!("cannot read it: {cause}")))?;
    let report = Report::parse(&json);
    report.map(Box::new).map_err(|cause| {
        wrong(format!("no result of `pinpool bench`, or one of another version: {cause}"))
    })
}

/// What a page is to show.
pub(super) enum Found {
    /// A result, and what its file is to be called, without the ending.
    Ran(Box<Report>, String),
    /// A result that is in the folder of the page already, under this name.
    There(Box<Report>, String),
    /// A scenario that gave none, and why.
    Failed(&'static str, String),
}

/// Where a page goes.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes the folder, and checks that a page can be written into it.
    pub(super) fn check(path: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(path).map_err(|cause| Failure::cannot_write(path, &cause))?;
        let page = path.join(PAGE);
        output::check_writable(&page).map_err(|cause| Failure::cannot_write(&page, &cause))?;
        Ok(Self(path.to_owned()))
    }

    /// A result that was read from this file.
    pub(super) fn found(&self, report: Box<Report>, path: &Path) -> Found {
        if let Some(name) = self.name_within(path) {
            return Found::There(report, name);
        }
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let stem = html::name_of(report.origin().scenario, file).to_owned();
        Found::Ran(report, stem)
    }

    /// Whether the page itself has this path.
    pub(super) fn is_page(&self, path: &Path) -> bool {
        let folder = |path: &Path| {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            fs::canonicalize(parent.unwrap_or(Path::new("."))).ok()
        };
        path.file_name() == Some(PAGE.as_ref()) && folder(path) == folder(&self.0.join(PAGE))
    }

    /// The name of a file that lies in this folder.
    fn name_within(&self, path: &Path) -> Option<String> {
        let path = fs::canonicalize(path).ok()?;
        let is_within = path.parent() == fs::canonicalize(&self.0).ok().as_deref();
        is_within.then(|| path.file_name()?.to_str().map(str::to_owned))?
    }

    /// Writes the page and, beside it, each result; says where on standard error.
    pub(super) fn write(&self, found: Vec<Found>) -> Result<(), Failure> {
        // No result may be written over one that the page shows.
        let mut used: Vec<String> = found.iter().filter_map(Found::name).collect();
        let mut outcomes: Vec<Outcome> = Vec::new();
        for found in found {
            let (report, stem) = match found {
                Found::Failed(scenario, reason) => {
                    outcomes.push(Outcome::Failed { scenario, reason });
                    continue;
                }
                Found::There(report, file) => {
                    outcomes.push(Outcome::Ran { report, file });
                    continue;
                }
                Found::Ran(report, stem) => (report, stem),
            };
            let is_free =
                |name: &str| !used.iter().any(|used| used == name) && !self.0.join(name).is_dir();
            let file = unused_name(&stem, is_free);
            self.write_file(&file, &report.to_json()?)?;
            used.push(file.clone());
            outcomes.push(Outcome::Ran { report, file });
        }
        self.write_file(PAGE, &html::page(&outcomes)?)?;
        out::print_to_stderr(&format!("The page is {}\n", self.0.join(PAGE).display()));
        Ok(())
    }

    fn write_file(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.0.join(name);
        output::write_atomically(&path, text)
            .map_err(|cause| Failure::Run(format!("cannot write {}: {cause}", path.display())))
    }
}

impl Found {
    fn name(&self) -> Option<String> {
        match self {
            Self::There(_, name) => Some(name.clone()),
            Self::Ran(..) | Self::Failed(..) => None,
        }
    }
}

/// `stem.json`, or with a number where that is another result's, or a folder.
fn unused_name(stem: &str, is_free: impl Fn(&str) -> bool) -> String {
    let numbered = (2..).map(|number: u32| format!("{stem}-{number}.json"));
    let mut names = std::iter::once(format!("{stem}.json")).chain(numbered);
    names.find(|name| is_free(name)).unwrap_or_default()
}

const PAGE: &str = "index.html";
