//! Small text files of the system under a root folder, which is `/` but in tests; it gives them no
//! meaning.

use std::fs;
use std::path::{Path, PathBuf};

/// Where `proc`, `sys` and the rest are looked for.
#[derive(Debug, Clone)]
pub(super) struct Root(PathBuf);

impl Root {
    pub(super) fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The folder itself, for readers of the library.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The folder `sys`, for those that take that.
    pub(super) fn sys(&self) -> PathBuf {
        self.0.join("sys")
    }

    /// A file without the white space around it; `None` where it cannot be read.
    pub(super) fn read(&self, file: &str) -> Option<String> {
        Some(fs::read_to_string(self.0.join(file)).ok()?.trim().to_owned())
    }

    pub(super) fn exists(&self, file: &str) -> bool {
        self.0.join(file).exists()
    }

    /// The names in a folder in order; none where it cannot be read.
    pub(super) fn names(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.0.join(folder)) else { return Vec::new() };
        let mut names: Vec<_> = entries
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
            .collect();
        names.sort_unstable();
        names
    }

    /// The folder around what a link of `sys` leads to.
    pub(super) fn parent_of(&self, link: &str) -> Option<Self> {
        Some(Self(self.0.join(link).canonicalize().ok()?.parent()?.to_owned()))
    }
}
