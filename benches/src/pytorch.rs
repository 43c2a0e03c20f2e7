//! What the files that `scripts/pytorch` writes have in common.

use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::BenchError;

/// Reads such a file, written by `script`, and lets `check` say why it does not compare.
///
/// # Errors
/// [`BenchError::Input`] naming the file and what is wrong with it.
pub(crate) fn read<T: DeserializeOwned>(
    path: &Path,
    script: &str,
    check: impl FnOnce(&T) -> Result<(), String>,
) -> Result<T, BenchError> {
    let wrong = |what: String| BenchError::Input(format!("--pytorch {}: {what}", path.display()));
    let text = fs::read_to_string(path).map_err(|cause| wrong(cause.to_string()))?;
    let read: T = serde_json::from_str(&text)
        .map_err(|cause| wrong(format!("{cause}; not a file of {script}?")))?;
    check(&read).map_err(wrong)?;
    Ok(read)
}

/// Refuses figures of another GPU than `here`.
///
/// # Errors
/// [`BenchError::Input`] naming both.
pub(crate) fn check_device(theirs: &str, here: Option<&str>) -> Result<(), BenchError> {
    let here = match here {
        Some(here) if here == theirs => return Ok(()),
        Some(here) => format!("this is {here}"),
        None => "this machine has no GPU".to_owned(),
    };
    Err(BenchError::Input(format!(
        "--pytorch: measured on {theirs}, {here}; measure both on one machine"
    )))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
pub(crate) mod tests {
    use super::*;

    /// What `read` makes of a file with this text. What it refuses is bad input, and names the file.
    pub(crate) fn read_back<T>(
        text: &str,
        read: impl FnOnce(&Path) -> Result<T, BenchError>,
    ) -> Result<T, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pytorch.json");
        fs::write(&path, text).unwrap();
        read(&path).map_err(|error| {
            assert!(error.is_input() && error.to_string().contains("pytorch.json"), "{error}");
            error.to_string()
        })
    }
}
