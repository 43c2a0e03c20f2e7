//! Writes result files whole: the old file stays until the new one is complete on the disk.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Replaces the file at `path` by `text`, by way of a temporary file beside it.
///
/// A device or pipe is written to directly, and a link keeps pointing to the file it names.
///
/// # Errors
/// The system's reason, with the file as it was.
pub fn write_atomically(path: &Path, text: &str) -> io::Result<()> {
    match target(path)? {
        Target::Stream(path) => File::options().write(true).open(path)?.write_all(text.as_bytes()),
        Target::File(path) => {
            let temporary = temporary_for(&path);
            let written = write_new(&temporary, text).and_then(|()| fs::rename(&temporary, &path));
            if written.is_err() {
                // The first error is the one to report; the temporary may not even exist.
                let _ = fs::remove_file(&temporary);
            }
            written
        }
    }
}

/// Checks that [`write_atomically`] will be able to write `path`, and leaves no trace.
///
/// # Errors
/// The system's reason why it would not.
pub fn check_writable(path: &Path) -> io::Result<()> {
    match target(path)? {
        Target::Stream(path) => File::options().write(true).open(path).map(drop),
        Target::File(path) => {
            let temporary = temporary_for(&path);
            File::options().write(true).create_new(true).open(&temporary)?;
            fs::remove_file(&temporary)
        }
    }
}

/// What a path leads to.
enum Target {
    /// A regular file, there or not yet.
    File(PathBuf),
    /// A device or pipe, which must not be replaced by a file.
    Stream(PathBuf),
}

fn target(path: &Path) -> io::Result<Target> {
    if path.as_os_str().is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the file name is empty"));
    }
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(found) if found.is_file() => Ok(Target::File(fs::canonicalize(path)?)),
        Ok(_) => Ok(Target::Stream(path.to_owned())),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            if path.file_name().is_none() {
                return Err(cause);
            }
            Ok(Target::File(path.to_owned()))
        }
        Err(cause) => Err(cause),
    }
}

/// A name in the same folder, since only there a rename is atomic.
fn temporary_for(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result.json");
        check_writable(&path).unwrap();
        assert!(!path.exists(), "the check must not create the file");
        write_atomically(&path, "one").unwrap();
        check_writable(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one", "the check must not touch the file");
        write_atomically(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_keeps_pointing_to_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_atomically(&link, "new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    }

    #[test]
    fn devices_are_written_to_and_impossible_targets_refused() {
        write_atomically(Path::new("/dev/null"), "text").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path(), &folder.path().join("no/such/folder.json"), Path::new("")] {
            assert!(check_writable(path).is_err(), "{}", path.display());
            assert!(write_atomically(path, "text").is_err(), "{}", path.display());
        }
    }
}
