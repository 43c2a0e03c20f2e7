//! Files and the order of the sources without the environment: builder over file over default.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pinpool::{BackendChoice, ClassConfig, Error, LockMode, Origin, Pool, Threads};

use crate::{builder, refused};

const FILE: &str = "[pool]\nbackend = \"cuda\"\ndevice = 1\nmax_pinned = \"1GiB\"\nlock = \"try\"\n\
                    prefault_threads = 2\npin_chunk = \"1MiB\"\n\n\
                    [[class]]\nname = \"frame\"\nsize = \"4KiB\"\ncount = 2\nalign = 128\n\n\
                    [[class]]\nname = \"audio\"\nsize = 640\ncount = 3\n";

fn written(dir: &Path, name: &str, content: impl AsRef<[u8]>) -> std::path::PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

#[test]
fn every_option_of_a_file_takes_effect() {
    let dir = tempfile::tempdir().unwrap();
    let config = builder().file(written(dir.path(), "pool.toml", FILE)).config().unwrap();
    assert_eq!(config.backend, BackendChoice::Cuda);
    assert_eq!(config.device, 1);
    assert_eq!(config.max_pinned, Some(1 << 30));
    assert_eq!(config.lock, LockMode::Try);
    assert_eq!(config.prefault_threads, Threads::Count(2));
    assert_eq!(config.pin_chunk, 1 << 20);
    let frame = ClassConfig::new("frame", 4096, 2).align(128);
    assert_eq!(config.classes, [frame, ClassConfig::new("audio", 640, 3)]);
}

#[test]
fn a_builder_call_wins_over_the_file_whatever_the_order() {
    let first = builder().toml(FILE);
    let calls = |builder: pinpool::PoolBuilder| {
        builder
            .backend(BackendChoice::Host)
            .device(0)
            .max_pinned(1 << 20)
            .lock(LockMode::Off)
            .prefault_threads(1)
            .pin_chunk(4096)
            .class("frame", 8192, 5)
            .class_config(ClassConfig::new("audio", 700, 4).align(256))
            .class("new", 64, 1)
    };
    let before = calls(first).config().unwrap();
    let after = calls(builder()).toml(FILE).config().unwrap();
    assert_eq!(before, after);
    assert_eq!(before.backend, BackendChoice::Host);
    assert_eq!(before.device, 0);
    assert_eq!(before.max_pinned, Some(1 << 20));
    assert_eq!(before.lock, LockMode::Off);
    assert_eq!(before.prefault_threads, Threads::Count(1));
    assert_eq!(before.pin_chunk, 4096);
    // `class` says nothing of the alignment, so the file's stays.
    let frame = ClassConfig::new("frame", 8192, 5).align(128);
    let audio = ClassConfig::new("audio", 700, 4).align(256);
    assert_eq!(before.classes, [frame, audio, ClassConfig::new("new", 64, 1)]);
}

#[test]
fn the_later_of_file_and_text_holds() {
    let text = "[pool]\ndevice = 9\n[[class]]\nname = \"t\"\nsize = 64\ncount = 1\n";
    let dir = tempfile::tempdir().unwrap();
    let path = written(dir.path(), "pool.toml", FILE);
    assert_eq!(builder().file(&path).toml(text).config().unwrap().device, 9);
    assert_eq!(builder().toml(text).file(&path).config().unwrap().device, 1);
}

#[test]
fn a_refusal_names_the_file_and_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(dir.path(), "rig.toml", format!("{FILE}cout = 1\n"));
    let error = refused(&builder().file(&path));
    assert_eq!(error.origin(), &Origin::File { path: Some(path.clone()), line: 19 });
    let expected = format!("{}, line 19: unknown key 'cout'", path.display());
    assert!(error.to_string().starts_with(&expected), "{error}");
}

/// An unreadable file is an error that names the file and the cause: never the defaults instead.
#[test]
fn a_file_that_cannot_be_read_is_refused_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing.toml");
    let binary = written(dir.path(), "binary.toml", b"[pool]\nlock = \"\xff\xfe\"\n");
    let no_folder = missing.join("below.toml");
    for (path, cause) in [
        (missing.as_path(), "No such file"),
        (dir.path(), "directory"),
        (binary.as_path(), "UTF-8"),
        (no_folder.as_path(), "No such file"),
        (Path::new(""), "No such file"),
        (Path::new(OsStr::from_bytes(b"/nowhere/\xff.toml")), "No such file"),
    ] {
        let error = refused(&builder().file(path));
        let message = error.to_string();
        assert!(message.contains(&*path.to_string_lossy()), "{message}");
        assert!(message.contains("cannot read the configuration"), "{message}");
        assert!(message.contains(cause), "`{cause}` is missing: {message}");
        assert_eq!(error.line(), None, "{message}");
        assert!(matches!(Pool::open(path), Err(Error::Config(_))));
    }
}

/// The file is read when the pool opens, not when it is named.
#[test]
fn a_file_is_read_when_the_pool_opens() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool.toml");
    let builder = builder().file(&path).backend(BackendChoice::Host).lock(LockMode::Off);
    assert!(builder.plan().is_err());
    written(dir.path(), "pool.toml", FILE);
    let pool = builder.open().unwrap();
    assert_eq!(pool.plan().classes.len(), 2);
    assert_eq!(pool.try_lease(4096).unwrap().capacity(), 4096);
}

/// Wrong configuration is bad input, which a command line tool answers with code 2.
#[test]
fn a_configuration_error_is_bad_input() {
    assert!(builder().toml("[pol]\n").plan().unwrap_err().is_bad_input());
    assert!(builder().plan().unwrap_err().is_bad_input());
    assert!(builder().class("a", 64, 1).max_pinned(1).plan().unwrap_err().is_bad_input());
}

/// A device or a wrong path must not be read for ever.
#[test]
fn a_file_that_never_ends_is_refused() {
    let error = Pool::builder().env(false).file("/dev/zero").config().unwrap_err();
    assert!(error.is_bad_input());
    assert!(error.to_string().contains("longer than"), "{error}");
}
