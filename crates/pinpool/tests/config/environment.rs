//! `PINPOOL_*` variables: what they mean, what they win over, and how a wrong one is refused. Each
//! test runs in a process of its own, because the environment belongs to the whole process.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use pinpool::{
    BackendChoice, ClassConfig, ConfigError, Error, ForkPolicy, HugePages, LockMode, Numa, OnEmpty,
    Origin, Pool, PoolBuilder, Scrub, Threads,
};
use pinpool_testkit::child;

const FILE: &str = "[pool]\nbackend = \"cuda\"\ndevice = 1\nmax_pinned = \"1GiB\"\nlock = \"try\"\n\
                    prefault_threads = 2\npin_chunk = \"1MiB\"\n\
                    [[class]]\nname = \"frame\"\nsize = \"4KiB\"\ncount = 2\nalign = 128\n\
                    [[class]]\nname = \"cam-0.raw\"\nsize = 640\ncount = 3\n";

const ALL: [(&str, &str); 11] = [
    ("PINPOOL_BACKEND", "host"),
    ("PINPOOL_DEVICE", "7"),
    ("PINPOOL_MAX_PINNED", "3MiB"),
    ("PINPOOL_LOCK", "off"),
    ("PINPOOL_HUGE_PAGES", "off"),
    ("PINPOOL_NUMA", "0"),
    ("PINPOOL_PREFAULT_THREADS", "9"),
    ("PINPOOL_PIN_CHUNK", "64KiB"),
    ("PINPOOL_CLASS_FRAME_SIZE", "8KiB"),
    ("PINPOOL_CLASS_FRAME_COUNT", "5"),
    ("PINPOOL_CLASS_CAM_0_RAW_ALIGN", "256"),
];

/// Runs `body` in a child of its own that has no `PINPOOL_*` variable; `test` is the caller's name.
fn alone(test: &str, body: impl FnOnce()) {
    if !child::in_child() {
        child::run(&format!("environment::{test}"), &[]);
        return;
    }
    for (name, _) in std::env::vars_os() {
        if name.as_bytes().starts_with(b"PINPOOL_") {
            // SAFETY: the child runs this one test; its only other thread waits for it.
            unsafe { std::env::remove_var(name) };
        }
    }
    body();
}

/// What `check` returns while these variables are set.
fn with<T>(variables: &[(impl AsRef<OsStr>, impl AsRef<OsStr>)], check: impl FnOnce() -> T) -> T {
    for (name, value) in variables {
        // SAFETY: the child runs this one test; its only other thread waits for it.
        unsafe { std::env::set_var(name, value) };
    }
    let result = check();
    for (name, _) in variables {
        // SAFETY: as above.
        unsafe { std::env::remove_var(name) };
    }
    result
}

/// The refusal of one variable.
fn refused(name: &str, value: &str) -> ConfigError {
    let error = with(&[(name, value)], || Pool::builder().toml(FILE).config());
    match error {
        Err(Error::Config(error)) => error,
        Err(other) => panic!("{name}={value}: refused for another reason: {other}"),
        Ok(config) => panic!("{name}={value} was accepted: {config:?}"),
    }
}

/// Asserts that one variable is refused by its name, in words that contain all of `words`.
fn assert_refused(name: &str, value: &str, words: &[&str]) {
    let error = refused(name, value);
    let message = error.to_string();
    assert_eq!(error.origin(), &Origin::Environment(name.into()), "{message}");
    assert!(message.starts_with(&format!("environment variable {name}: ")), "{message}");
    for word in words {
        assert!(message.contains(word), "`{word}` is missing: {message}");
    }
}

#[test]
fn every_option_can_come_from_the_environment_and_wins_over_the_file() {
    alone("every_option_can_come_from_the_environment_and_wins_over_the_file", || {
        let config = with(&ALL, || Pool::builder().toml(FILE).config()).unwrap();
        assert_eq!(config.backend, BackendChoice::Host);
        assert_eq!(config.device, 7);
        assert_eq!(config.max_pinned, Some(3 << 20));
        assert_eq!(config.lock, LockMode::Off);
        assert_eq!((config.huge_pages, config.numa), (HugePages::Off, Numa::Node(0)));
        assert_eq!(config.prefault_threads, Threads::Count(9));
        assert_eq!(config.pin_chunk, 64 << 10);
        let frame = ClassConfig::new("frame", 8192, 5).align(128);
        let camera = ClassConfig::new("cam-0.raw", 640, 3).align(256);
        assert_eq!(config.classes, [frame, camera]);
    });
}

#[test]
fn the_environment_wins_over_the_defaults() {
    alone("the_environment_wins_over_the_defaults", || {
        let without = || Pool::builder().class("frame", 64, 1).config().unwrap();
        let defaults = without();
        let config = with(&ALL[..8], without);
        assert_eq!((defaults.backend, config.backend), (BackendChoice::Auto, BackendChoice::Host));
        assert_eq!((defaults.device, config.device), (0, 7));
        assert_eq!((defaults.max_pinned, config.max_pinned), (None, Some(3 << 20)));
        assert_eq!((defaults.lock, config.lock), (LockMode::Require, LockMode::Off));
        assert_eq!((defaults.huge_pages, defaults.numa), (HugePages::Try, Numa::Auto));
        assert_eq!((config.huge_pages, config.numa), (HugePages::Off, Numa::Node(0)));
        assert_eq!(defaults.prefault_threads, Threads::Auto);
        assert_eq!(config.prefault_threads, Threads::Count(9));
        assert_eq!((defaults.pin_chunk, config.pin_chunk), (64 << 20, 64 << 10));
        // A builder's class has no alignment of its own here, so the variable beats the default.
        let config = with(&[("PINPOOL_CLASS_FRAME_ALIGN", "512")], without);
        assert_eq!((defaults.classes[0].align, config.classes[0].align), (64, 512));
    });
}

#[test]
fn a_builder_call_wins_over_the_environment() {
    alone("a_builder_call_wins_over_the_environment", || {
        let frame = ClassConfig::new("frame", 100, 8).align(1024);
        let camera = ClassConfig::new("cam-0.raw", 200, 9).align(64);
        let builder = Pool::builder()
            .backend(BackendChoice::Auto)
            .device(2)
            .max_pinned(1 << 22)
            .lock(LockMode::Require)
            .huge_pages(HugePages::Require)
            .numa(Numa::Off)
            .prefault_threads(3)
            .pin_chunk(4096)
            .class_config(frame.clone())
            .class_config(camera.clone())
            .toml(FILE);
        let config = with(&ALL, || builder.config()).unwrap();
        assert_eq!(config.backend, BackendChoice::Auto);
        assert_eq!(config.device, 2);
        assert_eq!(config.max_pinned, Some(1 << 22));
        assert_eq!(config.lock, LockMode::Require);
        assert_eq!((config.huge_pages, config.numa), (HugePages::Require, Numa::Off));
        assert_eq!(config.prefault_threads, Threads::Count(3));
        assert_eq!(config.pin_chunk, 4096);
        assert_eq!(config.classes, [frame, camera]);
    });
}

#[test]
fn the_environment_is_read_unless_it_was_switched_off() {
    alone("the_environment_is_read_unless_it_was_switched_off", || {
        let builder = || Pool::builder().toml(FILE);
        let file = builder().config().unwrap();
        with(&ALL, || {
            assert_ne!(builder().config().unwrap(), file);
            assert_eq!(builder().env(false).config().unwrap(), file);
            assert_ne!(builder().env(false).env(true).config().unwrap(), file);
        });
        // Nor is a wrong variable an error then.
        with(&[("PINPOOL_BAKEND", "host")], || {
            assert!(builder().config().is_err());
            assert_eq!(builder().env(false).config().unwrap(), file);
        });
    });
}

#[test]
fn a_pool_opens_from_a_file_and_the_environment() {
    alone("a_pool_opens_from_a_file_and_the_environment", || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool.toml");
        std::fs::write(&path, FILE).unwrap();
        let pool = with(&ALL, || Pool::open(&path)).unwrap();
        assert_eq!(pool.backend(), pinpool::BackendKind::Host);
        assert_eq!(pool.plan().config.max_pinned, Some(3 << 20));
        let frame = pool.try_lease(8192).unwrap();
        assert_eq!(pool.stats().classes[frame.class().index()].slots, 5);
    });
}

/// Every key of a class has its variable, and none is taken for another.
#[test]
fn the_policies_can_come_from_the_environment() {
    alone("the_policies_can_come_from_the_environment", || {
        let variables = [
            ("PINPOOL_FORK", "inherit"),
            ("PINPOOL_TRACK_HOLDERS", "true"),
            ("PINPOOL_LEAK_AFTER", "5s"),
            ("PINPOOL_DEBUG_CHECKS", "false"),
            ("PINPOOL_CLASS_FRAME_ON_EMPTY", "grow"),
            ("PINPOOL_CLASS_FRAME_RESERVE", "1"),
            ("PINPOOL_CLASS_FRAME_MAX_SPILL", "3"),
            ("PINPOOL_CLASS_FRAME_SCRUB", "zero"),
            ("PINPOOL_CLASS_FRAME_GROW_MAX", "12"),
            ("PINPOOL_CLASS_FRAME_GROW_BY", "4"),
            ("PINPOOL_CLASS_FRAME_GROW_AT", "0"),
            ("PINPOOL_CLASS_FRAME_IDLE_AFTER", "2min"),
            ("PINPOOL_CLASS_CAM_0_RAW_ON_EMPTY", "pageable"),
            ("PINPOOL_CLASS_CAM_0_RAW_PAGEABLE_MAX", "6"),
        ];
        let builder = || Pool::builder().toml(FILE);
        let config = with(&variables, || builder().config()).unwrap();
        let held = Some(Duration::from_secs(5));
        assert_eq!((config.fork, config.leak_after), (ForkPolicy::Inherit, held));
        assert_eq!((config.track_holders, config.debug_checks), (true, false));
        let frame = ClassConfig::new("frame", 4096, 2).align(128).on_empty(OnEmpty::Grow);
        let frame = frame.reserve(1).max_spill(3).scrub(Scrub::Zero).grow_max(12).grow_by(4);
        let frame = frame.grow_at(0).idle_after(Duration::from_secs(120));
        let camera = ClassConfig::new("cam-0.raw", 640, 3).on_empty(OnEmpty::Pageable);
        assert_eq!(config.classes, [frame, camera.pageable_max(6)]);
        // A builder's class is wholly the builder's.
        let mine = ClassConfig::new("frame", 64, 1);
        let config = with(&variables, || builder().class_config(mine.clone()).config()).unwrap();
        assert_eq!(config.classes[0], mine);
    });
}

/// A variable may give a class to another device, as it may name the pool's devices.
#[test]
fn a_class_can_be_given_to_a_device_by_a_variable() {
    alone("a_class_can_be_given_to_a_device_by_a_variable", || {
        let variables = [("PINPOOL_DEVICE", "4,5"), ("PINPOOL_CLASS_FRAME_DEVICE", "5")];
        let plan = with(&variables, || Pool::builder().toml(FILE).plan()).unwrap();
        assert_eq!(plan.config.devices().collect::<Vec<_>>(), [4, 5]);
        let classes: Vec<_> =
            plan.classes.iter().map(|class| (&*class.name, class.device)).collect();
        assert_eq!(classes, [("cam-0.raw", None), ("frame", Some(5))]);
        assert_refused("PINPOOL_CLASS_FRAME_DEVICE", "one", &["whole number", "0 to 2147483647"]);
    });
}

#[test]
fn a_wrong_policy_is_refused_by_the_name_of_its_variable() {
    alone("a_wrong_policy_is_refused_by_the_name_of_its_variable", || {
        for (name, value, words) in [
            ("PINPOOL_FORK", "denied", ["unknown value 'denied'", "did you mean 'deny'?"]),
            ("PINPOOL_TRACK_HOLDERS", "1", ["true or false", "'1'"]),
            ("PINPOOL_DEBUG_CHECKS", "", ["true or false", "''"]),
            ("PINPOOL_LEAK_AFTER", "5", ["without a unit", "\"5s\""]),
            ("PINPOOL_LEAK_AFTER", "0s", ["more than 0", "365days"]),
            ("PINPOOL_LEAK_AFTER", "", ["a duration such as", "nothing"]),
            ("PINPOOL_CLASS_FRAME_IDLE_AFTER", "10", ["without a unit", "\"5s\""]),
            ("PINPOOL_CLASS_FRAME_ON_EMPTY", "gro", ["unknown value", "did you mean 'grow'?"]),
            ("PINPOOL_CLASS_FRAME_SCRUB", "x", ["unknown value", "valid: none, zero, poison"]),
            ("PINPOOL_CLASS_FRAME_MAX_SPILL", "0", ["whole number", "1 to 1024"]),
            ("PINPOOL_CLASS_FRAME_GROW_MAX", "0", ["whole number", "1 to 4194302"]),
            ("PINPOOL_CLASS_FRAME_GROW_BY", "-1", ["whole number", "1 to 4194302"]),
            ("PINPOOL_CLASS_FRAME_GROW_AT", "x", ["whole number", "0 to 4194302"]),
            ("PINPOOL_CLASS_FRAME_RESERVE", "-1", ["whole number", "0 to 4194302"]),
            ("PINPOOL_CLASS_FRAME_PAGEABLE_MAX", "0", ["whole number", "1 to 4194302"]),
        ] {
            assert_refused(name, value, &words);
        }
        for (wrong, nearest) in [
            ("PINPOOL_FORKS", "PINPOOL_FORK"),
            ("PINPOOL_LEAKAFTER", "PINPOOL_LEAK_AFTER"),
            ("PINPOOL_DEBUG_CHECK", "PINPOOL_DEBUG_CHECKS"),
        ] {
            assert_refused(
                wrong,
                "1",
                &["unknown variable", &format!("did you mean '{nearest}'?")],
            );
        }
        assert_refused("PINPOOL_CLASS_FRAME_GROW", "1", &["unknown variable", "CLASS_<NAME>_GROW"]);
    });
}

/// A misspelled variable is like a misspelled key: ignored, it would stay without effect for months.
///
/// Case config-1.
#[test]
fn a_misspelled_variable_is_refused_with_the_nearest_name() {
    alone("a_misspelled_variable_is_refused_with_the_nearest_name", || {
        for (wrong, nearest) in [
            ("PINPOOL_BAKEND", "PINPOOL_BACKEND"),
            ("PINPOOL_DEVICES", "PINPOOL_DEVICE"),
            ("PINPOOL_MAXPINNED", "PINPOOL_MAX_PINNED"),
            ("PINPOOL_LOCKS", "PINPOOL_LOCK"),
            ("PINPOOL_PREFAULT_THREAD", "PINPOOL_PREFAULT_THREADS"),
            ("PINPOOL_PIN_CHUNKS", "PINPOOL_PIN_CHUNK"),
        ] {
            let expected = format!("did you mean '{nearest}'?");
            assert_refused(wrong, "1", &["unknown variable", &expected]);
        }
        // No key of a class at its end, none of the pool's at its start.
        for wrong in ["PINPOOL_CLASS_FRAME_SIZ", "PINPOOL_CLASS_FRAME", "PINPOOL_CLASS_SIZE"] {
            assert_refused(wrong, "1", &["unknown variable", "PINPOOL_CLASS_<NAME>_"]);
        }
        for wrong in ["PINPOOL_", "PINPOOL_CLASS_", "PINPOOL_FRAME_SIZE", "PINPOOL_POOL_LOCK"] {
            assert_refused(wrong, "1", &["unknown variable"]);
        }
        // A class cannot be renamed.
        assert_refused("PINPOOL_CLASS_FRAME_NAME", "x", &["unknown variable"]);
        // Other programs' variables are theirs.
        let theirs = [("PINPOOLS_LOCK", "1"), ("XPINPOOL_LOCK", "1"), ("PINPOOL", "1")];
        assert!(with(&theirs, || Pool::builder().toml(FILE).config()).is_ok());
    });
}

#[test]
fn a_variable_for_a_class_that_does_not_exist_is_refused() {
    alone("a_variable_for_a_class_that_does_not_exist_is_refused", || {
        assert_refused(
            "PINPOOL_CLASS_FRAMES_SIZE",
            "1MiB",
            &["there is no class 'FRAMES'", "did you mean 'FRAME'?"],
        );
        assert_refused("PINPOOL_CLASS_CAM_0_RAV_COUNT", "1", &["did you mean 'CAM_0_RAW'?"]);
        // A variable never makes a class.
        let alone = [("PINPOOL_CLASS_NEW_SIZE", "1MiB")];
        let error = with(&alone, || Pool::builder().config()).unwrap_err().to_string();
        assert!(error.contains("there is no class 'NEW'"), "{error}");
        assert!(error.contains("the file or the builder defines"), "{error}");
    });
}

/// Two names that a variable spells alike cannot be told apart: neither is guessed.
#[test]
fn a_variable_that_means_two_classes_is_refused_with_both() {
    alone("a_variable_that_means_two_classes_is_refused_with_both", || {
        let names = |one: &str, two: &str| Pool::builder().class(one, 64, 1).class(two, 128, 1);
        for (one, two) in [("cam-0", "cam_0"), ("cam.0", "CAM-0"), ("cam", "Cam")] {
            let spelled = one.to_ascii_uppercase().replace(['-', '.'], "_");
            let variable = format!("PINPOOL_CLASS_{spelled}_SIZE");
            let error = with(&[(&variable, "256")], || names(one, two).config());
            let message = error.unwrap_err().to_string();
            for word in [&variable, &format!("'{one}'"), &format!("'{two}'"), "rename"] {
                assert!(message.contains(word), "`{word}` is missing: {message}");
            }
            // Without the variable nothing is in doubt.
            assert!(names(one, two).config().is_ok());
        }
        // A name that ends like a key is no riddle.
        let builder = names("a", "a_size");
        let config = with(&[("PINPOOL_CLASS_A_SIZE_COUNT", "9")], || {
            Pool::builder()
                .toml(
                    "class = [{ name = 'a', size = 64, count = 1 }, \
                     { name = 'a_size', size = 128, count = 1 }]",
                )
                .config()
        })
        .unwrap();
        assert_eq!((config.classes[0].count, config.classes[1].count), (1, 9));
        assert!(builder.config().is_ok());
    });
}

#[test]
fn a_value_out_of_range_or_of_the_wrong_kind_is_refused_by_name() {
    alone("a_value_out_of_range_or_of_the_wrong_kind_is_refused_by_name", || {
        let wrong: [(&str, &[&str], &str); 9] = [
            ("PINPOOL_DEVICE", &["-1", "2147483648", "x", "", "0.5", "0x1"], "0 to 2147483647"),
            ("PINPOOL_PREFAULT_THREADS", &["0", "1025", "Auto", ""], "1 to 1024 or \"auto\""),
            ("PINPOOL_CLASS_FRAME_COUNT", &["0", "4194303", "two", "1KiB"], "1 to 4194302"),
            ("PINPOOL_MAX_PINNED", &["0", "0MiB"], "at least 1 byte"),
            ("PINPOOL_PIN_CHUNK", &["0"], "at least 1 byte"),
            ("PINPOOL_CLASS_FRAME_SIZE", &["0B"], "at least 1 byte"),
            ("PINPOOL_CLASS_FRAME_ALIGN", &["0"], "at least 1 byte"),
            ("PINPOOL_BACKEND", &["gpu", "", "HOST"], "valid: auto, cuda, host"),
            ("PINPOOL_LOCK", &["1", "", "no"], "valid: require, try, off"),
        ];
        for (name, values, range) in wrong {
            for value in values {
                assert_refused(name, value, &[range]);
            }
        }
        for name in ["PINPOOL_MAX_PINNED", "PINPOOL_PIN_CHUNK", "PINPOOL_CLASS_FRAME_SIZE"] {
            for value in ["", "MiB", "-1", "1.5GiB", "1e6", "18446744073709551616", "16EiB"] {
                assert_refused(name, value, &[]);
            }
        }
        assert_refused("PINPOOL_BACKEND", "hosts", &["did you mean 'host'?"]);
        // Spaces around a value are no part of it.
        let spaced = [("PINPOOL_MAX_PINNED", " 2 GiB "), ("PINPOOL_LOCK", " off\n")];
        let config = with(&spaced, || Pool::builder().toml(FILE).config()).unwrap();
        assert_eq!((config.max_pinned, config.lock), (Some(2 << 30), LockMode::Off));
    });
}

/// A wrong variable is wrong even where a builder call would win over it.
#[test]
fn a_wrong_variable_is_refused_even_when_it_would_not_take_effect() {
    alone("a_wrong_variable_is_refused_even_when_it_would_not_take_effect", || {
        let builder: PoolBuilder = Pool::builder().class("a", 64, 1).lock(LockMode::Off);
        let error = with(&[("PINPOOL_LOCK", "of")], || builder.config()).unwrap_err();
        assert!(error.is_bad_input());
        assert!(error.to_string().contains("PINPOOL_LOCK"), "{error}");
    });
}

/// Bytes that are no text, in a value and in a name, are refused like any other wrong value or name.
#[test]
fn a_variable_that_is_no_text_is_refused() {
    alone("a_variable_that_is_no_text_is_refused", || {
        let no_text = OsStr::from_bytes(b"h\xffst");
        let value = [(OsString::from("PINPOOL_BACKEND"), no_text.to_owned())];
        let error = with(&value, || Pool::builder().toml(FILE).config()).unwrap_err().to_string();
        assert!(error.contains("PINPOOL_BACKEND"), "{error}");
        let name = [(OsStr::from_bytes(b"PINPOOL_BACK\xffND").to_owned(), OsString::from("host"))];
        let error = with(&name, || Pool::builder().toml(FILE).config());
        let error = error.expect_err("a name that is no text was ignored").to_string();
        assert!(error.contains("PINPOOL_BACK"), "{error}");
        // A value of another program is none of our business.
        let theirs = [(OsString::from("OTHER"), no_text.to_owned())];
        assert!(with(&theirs, || Pool::builder().toml(FILE).config()).is_ok());
    });
}
