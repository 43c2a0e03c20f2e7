//! Without a usable CUDA driver: `auto` stands on host memory and says why, `cuda` is an error with a
//! remedy, and nothing ever panics, not even into a handler, because release builds abort on panic.
//!
//! Each kind of missing driver is a folder that the loader of a child process searches first.
#![cfg(feature = "cuda")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed unwrap is a failed test"
)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fakecuda::Control;
use pinpool::{BackendChoice, BackendKind, Error, LockMode, Pool, PoolBuilder, cuda};
use pinpool_testkit::{child, proc};
use tracing::field::{Field, Visit};
use tracing::span;

/// The names under which a driver is looked for.
const NAMES: [&str; 2] = ["libcuda.so", "libcuda.so.1"];

/// Runs `body` in a child whose loader looks into the folder that `fill` fills, with `variables`.
/// The child must not panic anywhere; `test` is the calling test's name.
fn with_folder(
    test: &str,
    variables: &[(&str, &str)],
    fill: impl FnOnce(&Path) -> std::io::Result<()>,
    body: impl FnOnce(),
) {
    if child::in_child() {
        return without_panic(body);
    }
    let dir = tempfile::tempdir().unwrap();
    if let Err(error) = fill(dir.path()) {
        support::not_run(&format!("{test}: {error}"));
        return;
    }
    let mut command = child::command(test, variables);
    command.env("LD_LIBRARY_PATH", dir.path());
    let output = support::finish(command);
    let printed = child::describe(&output);
    assert!(!printed.contains("panicked"), "a panic was printed: {printed}");
}

/// The same with the software driver in the folder.
fn with_software_driver(test: &str, variables: &[(&str, &str)], body: impl FnOnce()) {
    with_folder(test, variables, |dir| fakecuda::install(dir).map(|_| ()), body);
}

/// Runs `body` and counts panics as they begin, so that one that is caught counts too.
fn without_panic(body: impl FnOnce()) {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        before(info);
    }));
    body();
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "a panic was caught on the way");
}

fn builder() -> PoolBuilder {
    Pool::builder().env(false).class("frame", 4096, 4).lock(LockMode::Try)
}

/// No usable driver: what every entry says, with all of `reason` in the words.
fn assert_unusable(device: u32, reason: &[&str]) {
    let says_why = |text: &str| {
        for word in reason {
            assert!(text.contains(word), "`{word}` is missing: {text}");
        }
    };
    // `auto` takes the host and says which and why, in one line.
    let log = Log::default();
    let pool = tracing::subscriber::with_default(log.clone(), || builder().device(device).open());
    let pool = pool.unwrap();
    assert_eq!(pool.backend(), BackendKind::Host);
    assert!(!pool.is_device_accessible());
    assert!(pool.cuda_context().is_none());
    let mut lease = pool.try_lease(4096).unwrap();
    assert_eq!((lease.is_device_accessible(), lease.device_ptr()), (false, None));
    lease.as_mut_slice().fill(1);
    let why = &pool.startup().reason;
    assert!(why.starts_with("no CUDA: "), "{why}");
    says_why(why);
    let lines = log.lines();
    let opened: Vec<_> = lines.iter().filter(|line| line.contains("pool open")).collect();
    let [line] = opened[..] else { panic!("one line says it: {lines:#?}") };
    assert!(line.contains("backend=host"), "{line}");
    assert!(line.contains(why.as_str()), "{line}");
    drop((lease, pool));

    // `cuda` is an error with the reason and a remedy, and leaves nothing.
    for _ in 0..3 {
        let cuda = || builder().lock(LockMode::Require).backend(BackendChoice::Cuda).device(device);
        let maps = proc::maps();
        let error = cuda().open().expect_err("there is no driver");
        assert_eq!((proc::maps(), proc::locked_bytes()), (maps, 0));
        assert!(error.is_bad_input());
        let text = error.to_string();
        let Error::BackendUnavailable { backend: BackendKind::Cuda, reason, remedy, .. } = error
        else {
            panic!("another error: {text}");
        };
        says_why(&reason);
        for word in ["cuda backend is not available", &reason, remedy, "backend = \"auto\""] {
            assert!(text.contains(word), "`{word}` is missing: {text}");
        }
    }
}

/// The probe's own answer, the same each time.
fn assert_probe_says(words: &[&str]) {
    let first = cuda::probe().expect_err("there is no usable driver");
    assert_eq!(cuda::probe().as_ref(), Err(&first));
    for word in words {
        assert!(first.contains(word), "`{word}` is missing: {first}");
    }
}

/// The binding panics in its loader where there is no library.
///
/// Case limits-7.
#[test]
fn without_a_driver_library_auto_takes_the_host_and_cuda_is_an_error() {
    const NAME: &str = "without_a_driver_library_auto_takes_the_host_and_cuda_is_an_error";
    with_folder(
        NAME,
        &[],
        |_| Ok(()),
        || match cuda::probe() {
            Ok(driver) => {
                support::not_run(&format!("{NAME}: this machine has a driver, {driver:?}"));
            }
            Err(reason) if !reason.starts_with("no driver library") => {
                support::not_run(&format!("{NAME}: this machine has a driver library: {reason}"));
            }
            Err(_) => {
                assert_probe_says(&["no driver library libcuda.so.1", "cannot open shared object"]);
                assert_unusable(0, &["no driver library libcuda.so.1"]);
            }
        },
    );
}

/// A package that left an empty file behind.
#[test]
fn an_empty_driver_library_is_no_driver() {
    with_folder(
        "an_empty_driver_library_is_no_driver",
        &[],
        |dir| NAMES.iter().try_for_each(|name| fs::write(dir.join(name), "")),
        || {
            assert_probe_says(&["no driver library libcuda.so.1", "file too short"]);
            assert_unusable(0, &["no driver library libcuda.so.1"]);
        },
    );
}

/// A library that loads but has none of the driver's functions: the binding panics at its first call.
#[test]
fn a_library_without_the_drivers_functions_is_no_driver() {
    let copy = |names: &'static [&'static str]| {
        move |dir: &Path| {
            let library = some_library()?;
            names.iter().try_for_each(|name| fs::copy(&library, dir.join(name)).map(|_| ()))
        }
    };
    with_folder("a_library_without_the_drivers_functions_is_no_driver", &[], copy(&NAMES), || {
        assert_probe_says(&["lacks cu", "no driver"]);
        assert_unusable(0, &["lacks cu"]);
    });
}

/// The same under the plain name only, which the binding tries first.
#[test]
fn a_foreign_library_under_the_plain_name_is_no_driver() {
    with_folder(
        "a_foreign_library_under_the_plain_name_is_no_driver",
        &[],
        |dir| fs::copy(some_library()?, dir.join("libcuda.so")).map(|_| ()),
        || assert_unusable(0, &["lacks cu"]),
    );
}

/// A small shared library that is safe to load twice: the compiler's run-time library, which this
/// program has loaded already.
fn some_library() -> std::io::Result<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let path = maps.lines().find_map(|line| {
        let path = line.split_whitespace().nth(5)?;
        path.contains("/libgcc_s.so").then(|| PathBuf::from(path))
    });
    path.ok_or_else(|| std::io::Error::other("this program has no libgcc_s.so to copy"))
}

/// Case limits-7, with a driver that sees no device, as with an empty `CUDA_VISIBLE_DEVICES`.
#[test]
fn a_driver_that_sees_no_device_is_said_so() {
    let name = "a_driver_that_sees_no_device_is_said_so";
    with_software_driver(name, &[("FAKECUDA_NO_DEVICE", "1")], || {
        assert_probe_says(&["the driver sees no device"]);
        assert_unusable(0, &["the driver sees no device"]);
    });
}

#[test]
fn a_driver_that_counts_zero_devices_is_said_so() {
    let name = "a_driver_that_counts_zero_devices_is_said_so";
    with_software_driver(name, &[("FAKECUDA_DEVICES", "0")], || {
        assert_probe_says(&["the driver sees no device"]);
        assert_unusable(0, &["the driver sees no device"]);
    });
}

#[test]
fn the_toolkits_stub_is_said_to_be_one() {
    with_software_driver("the_toolkits_stub_is_said_to_be_one", &[("FAKECUDA_STUB", "1")], || {
        assert_probe_says(&["stub, not a driver"]);
        assert_unusable(0, &["stub, not a driver"]);
    });
}

#[test]
fn a_device_that_does_not_exist_is_named_with_those_that_do() {
    let name = "a_device_that_does_not_exist_is_named_with_those_that_do";
    with_software_driver(name, &[("FAKECUDA_DEVICES", "2")], || {
        assert_eq!(cuda::probe().unwrap().devices.len(), 2);
        for device in [2, 7, i32::MAX as u32] {
            let wrong = format!("device {device} does not exist");
            assert_unusable(device, &[&wrong, "sees 2", "device 0 to 1"]);
        }
    });
}

/// Each driver call on the way to a context fails in turn.
#[test]
fn a_driver_that_fails_on_the_way_to_a_context_is_quoted() {
    let name = "a_driver_that_fails_on_the_way_to_a_context_is_quoted";
    with_software_driver(name, &[], || {
        let control = Control::open().unwrap();
        for call in [
            "cuInit",
            "cuDeviceGetCount",
            "cuDeviceGet",
            "cuDeviceTotalMem_v2",
            "cuDeviceGetAttribute",
            "cuDeviceGetName",
            "cuCtxGetCurrent",
            "cuDevicePrimaryCtxRetain",
        ] {
            control.fail(&format!("{call}:1+:999")).unwrap();
            assert_unusable(0, &["CUDA_ERROR_UNKNOWN"]);
            control.clear_faults();
            let pool = builder().backend(BackendChoice::Cuda).open();
            assert_eq!(pool.map(|pool| pool.backend()).ok(), Some(BackendKind::Cuda), "{call}");
        }
    });
}

/// The check of the checks above: with a usable driver `auto` takes it, and with `lock = "off"` it
/// does not even ask.
#[test]
fn a_usable_driver_is_taken_unless_nothing_is_to_be_pinned() {
    let name = "a_usable_driver_is_taken_unless_nothing_is_to_be_pinned";
    with_software_driver(name, &[], || {
        let control = Control::open().unwrap();
        let pool = builder().lock(LockMode::Off).open().unwrap();
        assert_eq!(pool.backend(), BackendKind::Host);
        assert!(pool.startup().reason.contains("lock is off"), "{}", pool.startup().reason);
        let pool = builder().backend(BackendChoice::Host).open().unwrap();
        assert_eq!(pool.backend(), BackendKind::Host);
        assert_eq!(control.all_calls(), 0, "the driver was asked for nothing");
        let pool = builder().open().unwrap();
        assert_eq!(pool.backend(), BackendKind::Cuda);
        assert_eq!(pool.startup().reason, "CUDA device 0 found");
        assert!(pool.try_lease(1).unwrap().is_device_accessible());
    });
}

/// Keeps what is logged, one text an event.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        use std::fmt::Write;
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}
