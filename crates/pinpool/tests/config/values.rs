//! Values: exact units, the range of every numeric option on both sides, types, names.

use std::time::Duration;

use pinpool::{
    ALIGN_DEFAULT, BackendChoice, ClassConfig, HugePages, KeepFree, LockMode, Numa, OnPressure,
    PIN_CHUNK_DEFAULT, PIN_PAUSE_DEFAULT, Plan, Pool, PoolBuilder, PoolConfig, THREADS_MAX,
    Threads,
};

use crate::{CLASS, assert_refused, builder, config, refused};

/// A text with one key of `[pool]`, in line 2.
fn pool_key(key: &str, value: &str) -> String {
    format!("[pool]\n{key} = {value}\n{CLASS}")
}

/// A text with one class, whose key in question is in line 5.
fn class_key(key: &str, value: &str) -> String {
    let others = [("name", "\"a\""), ("size", "64"), ("count", "1"), ("align", "64")];
    let lines = others.into_iter().filter(|(other, _)| *other != key).chain([(key, value)]);
    lines.fold("[[class]]\n".into(), |text, (key, value)| format!("{text}{key} = {value}\n"))
}

#[test]
fn what_stays_free_is_a_size_a_rule_or_nothing() {
    let kept = |value: &str| config(&pool_key("keep_free", value)).keep_free;
    assert_eq!(config(CLASS).keep_free, KeepFree::Auto);
    assert_eq!(kept("\"auto\""), KeepFree::Auto);
    assert_eq!(kept("\"off\""), KeepFree::Off);
    assert_eq!(kept("0"), KeepFree::Bytes(0));
    assert_eq!(kept("\"64MiB\""), KeepFree::Bytes(64 << 20));
    for wrong in ["\"Auto\"", "\"5%\"", "true", "-1", "1.5"] {
        let words = ["'keep_free'", "\"auto\" or \"off\""];
        assert_refused(&pool_key("keep_free", wrong), 2, &words);
    }
    // Code, and what the table says of it.
    let plan = builder().toml(CLASS).keep_free(KeepFree::Bytes(7)).plan().unwrap();
    assert!(plan.to_string().contains("keep_free 7 bytes, on_pressure trim"), "{plan}");
    let plan = builder().toml(CLASS).on_pressure(OnPressure::Ignore).plan().unwrap();
    assert!(plan.to_string().contains("keep_free auto, on_pressure ignore"), "{plan}");
}

#[test]
fn pressure_is_heeded_or_not() {
    let policy = |value: &str| config(&pool_key("on_pressure", value)).on_pressure;
    assert_eq!(config(CLASS).on_pressure, OnPressure::Trim);
    assert_eq!(policy("\"trim\""), OnPressure::Trim);
    assert_eq!(policy("\"ignore\""), OnPressure::Ignore);
    assert_refused(&pool_key("on_pressure", "\"trimm\""), 2, &["'trimm'", "'trim'"]);
    assert_refused(&pool_key("on_pressure", "true"), 2, &["name in quotes"]);
}

/// A plan for a machine with more memory is a plan; the table says that it does not fit here.
#[test]
fn a_plan_that_does_not_fit_says_so() {
    let huge = || builder().class("huge", 1 << 40, 4096);
    let text = huge().plan().unwrap().to_string();
    assert!(text.contains("does not fit on this machine now"), "{text}");
    let text = huge().keep_free(KeepFree::Off).plan().unwrap().to_string();
    assert!(!text.contains("does not fit"), "{text}");
    assert!(!builder().toml(CLASS).plan().unwrap().to_string().contains("does not fit"));
}

#[test]
fn units_are_exact() {
    let sizes: [(&str, usize); 17] = [
        ("1", 1),
        ("\"1\"", 1),
        ("\"7B\"", 7),
        ("\"1kB\"", 1000),
        ("\"1KB\"", 1000),
        ("\"1KiB\"", 1024),
        ("\"1MB\"", 1_000_000),
        ("\"1MiB\"", 1 << 20),
        ("\"1GB\"", 1_000_000_000),
        ("\"1GiB\"", 1 << 30),
        ("\"3 TB\"", 3_000_000_000_000),
        ("\"3 TiB\"", 3 << 40),
        ("\" 12 MiB \"", 12 << 20),
        ("\"6_220_800\"", 6_220_800),
        ("6_220_800", 6_220_800),
        ("0x1000", 4096),
        // Beyond the whole numbers that a float can hold.
        ("\"9007199254740993B\"", 9_007_199_254_740_993),
    ];
    for (value, bytes) in sizes {
        assert_eq!(config(&class_key("size", value)).classes[0].size, bytes, "size = {value}");
        let cap = config(&pool_key("max_pinned", value)).max_pinned;
        assert_eq!(cap, Some(bytes as u64), "max_pinned = {value}");
        let chunk = config(&pool_key("pin_chunk", value)).pin_chunk;
        assert_eq!(chunk, bytes as u64, "pin_chunk = {value}");
    }
    for value in ["256", "\"256B\"", "\"256\"", "0x100"] {
        assert_eq!(config(&class_key("align", value)).classes[0].align, 256, "{value}");
    }
}

#[test]
fn what_is_no_size_is_refused() {
    let overflow = ["\"18446744073709551616\"", "\"16EiB\"", "\"18446744073709552kB\""];
    let unknown = [
        "\"5QB\"",
        "\"1mib\"",
        "\"1Mb\"",
        "\"64 MebiBytes\"",
        "\"1MiBs\"",
        "\"1 2MB\"",
        "\"0x10\"",
        "\"1e6\"",
    ];
    let unreadable = ["\"\"", "\"MiB\"", "\"-1\"", "\"1.5GiB\"", "\"ten\"", "\"١MB\""];
    for value in overflow.into_iter().chain(unknown).chain(unreadable) {
        for key in ["max_pinned", "pin_chunk"] {
            assert_refused(&pool_key(key, value), 2, &[key]);
        }
        for key in ["size", "align"] {
            assert_refused(&class_key(key, value), 5, &[key]);
        }
    }
    assert_refused(&class_key("size", "\"5QB\""), 5, &["unknown unit 'QB'", "MiB"]);
    assert_refused(&class_key("size", "\"1.5GiB\""), 5, &["1536MiB"]);
    assert_refused(&class_key("size", "\"16EiB\""), 5, &[&u64::MAX.to_string()]);
}

/// A key of a file at both edges of its range and beyond them.
fn assert_range(text: impl Fn(&str) -> String, line: usize, good: &[&str], bad: &[&str]) {
    for value in good {
        config(&text(value));
    }
    for value in bad {
        assert_refused(&text(value), line, &[]);
    }
}

/// Numbers past 64 and past 128 bits, in both signs.
const HUGE: [&str; 4] = [
    "18446744073709551616",
    "-9223372036854775809",
    "340282366920938463463374607431768211456",
    "99999999999999999999999999999999999999999999999999",
];

#[test]
fn every_numeric_key_keeps_its_range() {
    let with_huge = |values: &[&'static str]| [values, &HUGE].concat();
    assert_range(
        |value| pool_key("device", value),
        2,
        &["0", "1", "2147483647", "[0]", "[3, 0, 1]", "\"3,0\"", "[\"1\"]"],
        &with_huge(&[
            "-1",
            "2147483648",
            "4294967296",
            "[]",
            "[0, -1]",
            "[[0]]",
            "\"0,\"",
            "[true]",
        ]),
    );
    for key in ["max_pinned", "pin_chunk"] {
        assert_range(
            |value| pool_key(key, value),
            2,
            &["1", "9223372036854775807", "\"18446744073709551615\""],
            &with_huge(&["0", "\"0B\"", "-1"]),
        );
    }
    assert_range(
        |value| pool_key("prefault_threads", value),
        2,
        &["1", "1024", "\"auto\"", "\"7\""],
        &with_huge(&["0", "-1", "1025", "\"Auto\""]),
    );
    assert_range(
        |value| pool_key("stage_threads", value),
        2,
        &["1", "64", "\"auto\"", "\"7\""],
        &with_huge(&["0", "-1", "65", "\"Auto\""]),
    );
    assert_range(
        |value| pool_key("stage_chunk", value),
        2,
        &["4096", "\"4KiB\"", "9223372036854775807"],
        &with_huge(&["0", "-1"]),
    );
    assert_range(
        |value| pool_key("numa", value),
        2,
        &["0", "1023", "\"auto\"", "\"off\"", "\"3\""],
        &with_huge(&["-1", "1024", "\"on\"", "\"Auto\"", "\"\""]),
    );
    assert_range(
        |value| class_key("size", value),
        5,
        &["1", "9223372036854775807"],
        &with_huge(&["0", "\"0MiB\"", "-1"]),
    );
    assert_range(
        |value| class_key("count", value),
        5,
        &["1", "4194302"],
        &with_huge(&["0", "-1", "4194303", "4294967297"]),
    );
    assert_range(|value| class_key("align", value), 5, &["64", "4096"], &with_huge(&["0", "-1"]));
}

/// The messages name the range.
#[test]
fn a_number_out_of_range_is_refused_with_the_range() {
    assert_refused(&pool_key("device", "-1"), 2, &["key 'device'", "from 0 to 2147483647"]);
    assert_refused(
        &pool_key("prefault_threads", "0"),
        2,
        &["key 'prefault_threads'", &format!("from 1 to {THREADS_MAX}"), "\"auto\""],
    );
    assert_refused(
        &pool_key("numa", "1024"),
        2,
        &["key 'numa'", "from 0 to 1023", "\"auto\" or \"off\""],
    );
    assert_refused(&class_key("count", "0"), 5, &["key 'count'", "from 1 to"]);
    assert_refused(&class_key("size", "0"), 5, &["key 'size'", "at least 1 byte"]);
    assert_refused(&pool_key("max_pinned", "0"), 2, &["key 'max_pinned'", "at least 1 byte"]);
    assert_refused(&pool_key("pin_chunk", "0"), 2, &["key 'pin_chunk'", "at least 1 byte"]);
}

/// The builder takes numbers without parsing them, and is held to the same ranges.
#[test]
fn a_builder_keeps_the_ranges_of_a_file() {
    let base = || builder().class("frame", 4096, 2);
    let accepted: [PoolBuilder; 13] = [
        base().device(0),
        base().device(i32::MAX as u32),
        base().max_pinned(8192),
        base().max_pinned(u64::MAX),
        base().prefault_threads(1),
        base().prefault_threads(THREADS_MAX),
        base().pin_chunk(1),
        base().pin_chunk(u64::MAX),
        base().stage_threads(64),
        base().stage_chunk(4096),
        builder().class("frame", 1, 1),
        builder().class_config(ClassConfig::new("a", 1, 1).align(64)),
        builder().class_config(ClassConfig::new("a", 1, 1).align(4096)),
    ];
    for builder in accepted {
        assert!(builder.plan().is_ok(), "{builder:?}");
    }
    let aligned = |align| ClassConfig::new("a", 64, 1).align(align);
    let wrong: [(&str, PoolBuilder); 23] = [
        ("device", base().devices(0, [u32::MAX])),
        ("device 3 is named twice", base().devices(3, [1, 3])),
        ("device", base().device(i32::MAX as u32 + 1)),
        ("device", base().device(u32::MAX)),
        ("max_pinned", base().max_pinned(0)),
        ("max_pinned", base().max_pinned(1)),
        ("max_pinned", base().max_pinned(8191)),
        ("prefault_threads", base().prefault_threads(0)),
        ("prefault_threads", base().prefault_threads(THREADS_MAX + 1)),
        ("prefault_threads", base().prefault_threads(usize::MAX)),
        ("pin_chunk", base().pin_chunk(0)),
        ("stage_threads", base().stage_threads(0)),
        ("stage_threads", base().stage_threads(65)),
        ("stage_chunk", base().stage_chunk(4095)),
        ("size", builder().class("a", 0, 1)),
        ("address space", builder().class("a", usize::MAX, 1)),
        ("count", builder().class("a", 64, 0)),
        ("count", builder().class("a", 64, 4_194_303)),
        ("count", builder().class("a", 64, usize::MAX)),
        ("align", builder().class_config(aligned(0))),
        ("align", builder().class_config(aligned(1))),
        ("align", builder().class_config(aligned(96))),
        ("align", builder().class_config(aligned(usize::MAX))),
    ];
    let mut ignored = Vec::new();
    for (option, builder) in wrong {
        if builder.plan().is_ok() {
            ignored.push(format!("{option}: {builder:?}"));
            continue;
        }
        let message = refused(&builder).to_string();
        assert!(message.contains(option), "{message} does not name {option}");
    }
    assert!(ignored.is_empty(), "accepted although out of range:\n{}", ignored.join("\n"));
}

/// A configuration can be edited before it is planned; it is checked then.
#[test]
fn a_plan_checks_a_configuration_that_was_edited() {
    type Edit = fn(&mut PoolConfig);
    let good = config(CLASS);
    assert!(Plan::new(good.clone()).is_ok());
    let edits: [(&str, Edit); 8] = [
        ("device", |config| config.device = u32::MAX),
        ("max_pinned", |config| config.max_pinned = Some(0)),
        ("prefault_threads", |config| config.prefault_threads = Threads::Count(0)),
        ("pin_chunk", |config| config.pin_chunk = 0),
        ("stage_threads", |config| config.stage_threads = Threads::Count(65)),
        ("stage_chunk", |config| config.stage_chunk = 4095),
        ("count", |config| config.classes[0].count = 0),
        ("size", |config| config.classes[0].size = 0),
    ];
    let mut ignored = Vec::new();
    for (option, edit) in edits {
        let mut edited = good.clone();
        edit(&mut edited);
        match Plan::new(edited) {
            Ok(_) => ignored.push(option),
            Err(error) => assert!(error.to_string().contains(option), "{option}: {error}"),
        }
    }
    assert!(ignored.is_empty(), "accepted although out of range: {ignored:?}");
}

#[test]
fn a_value_of_the_wrong_type_is_refused() {
    let number = ["true", "1.5", "1979-05-27", "[1]", "{ a = 1 }", "inf", "nan", "\"x\""];
    for value in number {
        if value != "[1]" {
            assert_refused(&pool_key("device", value), 2, &["'device'"]);
        }
        for key in ["numa", "max_pinned", "prefault_threads", "pin_chunk"] {
            assert_refused(&pool_key(key, value), 2, &[&format!("'{key}'")]);
        }
        for key in ["size", "count", "align"] {
            assert_refused(&class_key(key, value), 5, &[&format!("'{key}'")]);
        }
    }
    for value in ["1", "1.5", "1979-05-27", "[\"host\"]", "{ a = 1 }"] {
        assert_refused(&pool_key("backend", value), 2, &["'backend'", "auto, cuda, host"]);
        assert_refused(&pool_key("lock", value), 2, &["'lock'", "require, try, off"]);
        assert_refused(&pool_key("huge_pages", value), 2, &["'huge_pages'", "off, try, require"]);
        assert_refused(&class_key("name", value), 5, &["'name'", "text in quotes"]);
    }
}

#[test]
fn a_choice_is_one_of_its_names() {
    for (name, choice) in [
        ("auto", BackendChoice::Auto),
        ("cuda", BackendChoice::Cuda),
        ("host", BackendChoice::Host),
    ] {
        let text = pool_key("backend", &format!("\"{name}\""));
        assert_eq!(config(&text).backend, choice);
        assert_eq!(choice.to_string(), name);
    }
    for (name, mode) in [
        ("\"require\"", LockMode::Require),
        ("\"try\"", LockMode::Try),
        ("\"off\"", LockMode::Off),
        ("true", LockMode::Require),
        ("false", LockMode::Off),
    ] {
        assert_eq!(config(&pool_key("lock", name)).lock, mode, "{name}");
    }
    for (name, huge) in
        [("off", HugePages::Off), ("try", HugePages::Try), ("require", HugePages::Require)]
    {
        assert_eq!(config(&pool_key("huge_pages", &format!("\"{name}\""))).huge_pages, huge);
        assert_eq!(huge.to_string(), name);
    }
    for (text, numa) in [
        ("\"auto\"", Numa::Auto),
        ("\"off\"", Numa::Off),
        ("2", Numa::Node(2)),
        ("\"2\"", Numa::Node(2)),
    ] {
        assert_eq!(config(&pool_key("numa", text)).numa, numa);
        assert_eq!(numa.to_string(), text.trim_matches('"'));
    }
    assert_refused(&pool_key("huge_pages", "\"on\""), 2, &["'on'", "valid: off, try, require"]);
    assert_refused(&pool_key("backend", "\"hosts\""), 2, &["'hosts'", "did you mean 'host'?"]);
    assert_refused(&pool_key("backend", "\"CUDA\""), 2, &["'CUDA'"]);
    assert_refused(&pool_key("lock", "\"required\""), 2, &["did you mean 'require'?"]);
    assert_refused(&pool_key("lock", "\"\""), 2, &["valid: require, try, off"]);
}

/// The first device's context is used, and a layer on top replaces the whole list.
#[test]
fn devices_are_a_number_or_a_list() {
    let devices = |config: PoolConfig| (config.device, config.other_devices);
    assert_eq!(devices(config(&pool_key("device", "[2, 0, 1]"))), (2, vec![0, 1]));
    assert_eq!(devices(config(&pool_key("device", "7"))), (7, vec![]));
    let file = pool_key("device", "[2, 0, 1]");
    let over = |builder: PoolBuilder| devices(builder.toml(file.as_str()).config().unwrap());
    assert_eq!(over(builder().device(5)), (5, vec![]));
    assert_eq!(over(builder().devices(5, [6])), (5, vec![6]));
    assert_refused(&pool_key("device", "[]"), 2, &["'device'", "at least one device"]);
    assert_refused(&pool_key("device", "[0, -1]"), 2, &["'device'", "from 0 to 2147483647"]);
    let plan = builder().class("a", 64, 1).devices(2, [0]).plan().unwrap();
    assert!(plan.to_string().contains("device 2 0,"), "{plan}");
}

#[test]
fn defaults_are_the_documented_ones() {
    let config = config(CLASS);
    assert_eq!(config.backend, BackendChoice::Auto);
    assert_eq!(config.device, 0);
    assert_eq!(config.max_pinned, None);
    assert_eq!(config.lock, LockMode::Require);
    assert_eq!((config.huge_pages, config.numa), (HugePages::Try, Numa::Auto));
    assert_eq!(config.prefault_threads, Threads::Auto);
    assert_eq!((config.pin_chunk, PIN_CHUNK_DEFAULT), (64 << 20, 64 << 20));
    let pause = Duration::from_micros(200);
    assert_eq!((config.pin_pause, PIN_PAUSE_DEFAULT), (pause, pause));
    assert_eq!((config.open_timeout, config.min_bytes), (None, None));
    assert_eq!((config.classes[0].align, ALIGN_DEFAULT), (64, 64));
}

#[test]
fn a_class_name_is_short_and_plain() {
    let longest = "x".repeat(31);
    for name in ["a", "A-b_c.9", "-", "0", longest.as_str()] {
        let plan = builder().class(name, 64, 1).plan().unwrap();
        assert_eq!(plan.classes[0].name, name);
    }
    let too_long = "x".repeat(32);
    for name in ["", "a b", "a/b", "é", "a\nb", "a\0", "名", "a'b", too_long.as_str()] {
        let message = refused(&builder().class(name, 64, 1)).to_string();
        assert!(message.contains("is no class name") && message.contains("1 to 31"), "{message}");
    }
    // 31 bytes count, not letters.
    let message = refused(&builder().toml(class_key("name", "\"é\"").as_str())).to_string();
    assert!(message.contains("'é' is no class name"), "{message}");
    let pool = Pool::builder().env(false).class(&longest, 64, 1).lock(LockMode::Off).open();
    assert_eq!(pool.unwrap().stats().classes[0].name.as_str(), longest);
}

#[test]
fn a_class_may_name_its_frame_instead_of_its_size() {
    let class = |lines: &str| format!("[[class]]\nname = \"a\"\ncount = 1\n{lines}\n");
    let size = |lines: &str| config(&class(lines)).classes[0].size;
    assert_eq!(size("frame = \"1080p-rgb\""), 6_220_800);
    assert_eq!(size("frame = \"1920x1080:nv12\""), 3_110_400);
    for (both, line) in [("frame = \"4k-nv12\"\nsize = 1", 5), ("size = 1\nframe = \"4k-nv12\"", 4)]
    {
        assert_refused(&class(both), line, &["give `size` or `frame`, not both"]);
    }
    assert_refused(&class("frame = \"1080p-nv\""), 4, &["key 'frame'", "did you mean 'nv12'?"]);
    assert_refused(&class("frame = \"full-hd\""), 4, &["key 'frame'", "1920x1080:nv12"]);
    assert_refused(&class("frame = 5"), 4, &["key 'frame'"]);
}
