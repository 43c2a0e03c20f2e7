//! What an empty class does, scrubbing, holders, fork and checks: their keys, their ranges, and
//! combinations that are refused by name.

use std::time::Duration;

use pinpool::{
    ClassConfig, DURATION_MAX, ForkPolicy, IDLE_AFTER_DEFAULT, OnEmpty, PIN_PAUSE_MAX, Plan,
    PoolBuilder, SPILL_MAX, Scrub,
};

use crate::{CLASS, assert_refused, builder, config, planned, refused};

pub(super) const SLOTS_MAX: usize = 4_194_302;

/// A text with one key of `[pool]`, in line 2.
fn pool_key(key: &str, value: &str) -> String {
    format!("[pool]\n{key} = {value}\n{CLASS}")
}

/// A text with one class of 40 slots that `policy` describes, and a key in line 7.
fn class_key(policy: &str, key: &str, value: &str) -> String {
    format!(
        "[[class]]\nname = \"a\"\nsize = 4096\ncount = 40\nalign = 64\non_empty = \"{policy}\"\n\
         {key} = {value}\n[pool]\nmax_pinned = \"1GiB\"\n"
    )
}

/// A builder with one class of 4 KiB slots and ample room to grow.
pub(super) fn with(class: ClassConfig) -> PoolBuilder {
    builder().class_config(class).max_pinned(1 << 40)
}

pub(super) fn class(count: usize) -> ClassConfig {
    ClassConfig::new("a", 4096, count)
}

pub(super) fn growing(count: usize) -> ClassConfig {
    class(count).on_empty(OnEmpty::Grow)
}

/// Asserts that a class is refused by its name, in words that contain all of `words`.
pub(super) fn assert_class_refused(class: ClassConfig, words: &[&str]) {
    let text = format!("{class:?}");
    let message = refused(&with(class)).to_string();
    assert!(message.contains("class 'a': ") && message.contains("; "), "{message}");
    for word in words {
        assert!(message.contains(word), "`{word}` is missing: {message}\n{text}");
    }
}

#[test]
fn the_defaults_are_the_documented_ones() {
    let plan = planned(CLASS);
    let config = &plan.config;
    assert_eq!((config.fork, ForkPolicy::default()), (ForkPolicy::Deny, ForkPolicy::Deny));
    assert_eq!((config.track_holders, config.leak_after), (false, None));
    assert!(!config.debug_checks);
    let configured = &config.classes[0];
    assert_eq!((configured.grow_max, configured.grow_by, configured.grow_at), (None, None, None));
    assert_eq!((configured.idle_after, configured.pageable_max), (None, None));
    let class = &plan.classes[0];
    assert_eq!((class.on_empty, class.scrub), (OnEmpty::Wait, Scrub::None));
    assert_eq!((class.reserve, class.max_spill, class.grow), (0, 1, None));
    assert_eq!((class.pageable_max, class.idle_after), (0, Duration::from_secs(10)));
    assert_eq!(class.stride_bytes, class.slot_bytes);
    assert_eq!(IDLE_AFTER_DEFAULT, Duration::from_secs(10));
}

#[test]
fn every_key_of_a_file_takes_effect() {
    let plan = planned(
        "[pool]\nfork = \"inherit\"\nleak_after = \"5s\"\nmax_pinned = \"1GiB\"\n\
         [[class]]\nname = \"g\"\nsize = 4096\ncount = 8\non_empty = \"grow\"\ngrow_max = 12\n\
         grow_by = 3\ngrow_at = 2\nidle_after = \"500ms\"\nreserve = 1\nmax_spill = 4\n\
         scrub = \"zero\"\n\
         [[class]]\nname = \"p\"\nsize = 8192\ncount = 8\non_empty = \"pageable\"\n\
         pageable_max = 5\nidle_after = \"2min\"\nscrub = \"poison\"\n\
         [[class]]\nname = \"f\"\nsize = 16384\ncount = 8\non_empty = \"fail\"\n",
    );
    assert_eq!(plan.config.fork, ForkPolicy::Inherit);
    assert_eq!(plan.config.leak_after, Some(Duration::from_secs(5)));
    assert!(plan.config.track_holders, "leak_after needs the holders");
    let [grows, pageable, fails] = &plan.classes[..] else { panic!("three classes: {plan}") };
    let grow = grows.grow.unwrap();
    assert_eq!((grow.by, grow.slabs, grow.at), (3, 4, 2));
    assert_eq!((grow.slab_bytes, grow.chunk_bytes), (3 * 4096, 3 * 4096));
    assert_eq!((grows.on_empty, grows.idle_after), (OnEmpty::Grow, Duration::from_millis(500)));
    assert_eq!((grows.reserve, grows.max_spill, grows.scrub), (1, 4, Scrub::Zero));
    assert_eq!((pageable.on_empty, pageable.pageable_max), (OnEmpty::Pageable, 5));
    assert_eq!((pageable.idle_after, pageable.scrub), (Duration::from_secs(120), Scrub::Poison));
    assert_eq!((fails.on_empty, fails.grow, fails.pageable_max), (OnEmpty::Fail, None, 0));
    // Only what is made at the start is in the sums.
    assert_eq!(plan.total_bytes, 8 * (4096 + 8192 + 16384));
}

#[test]
fn a_builder_sets_every_key_and_wins_over_the_file() {
    let file = "[pool]\nfork = \"inherit\"\ntrack_holders = true\nleak_after = \"1h\"\n\
                [[class]]\nname = \"a\"\nsize = 64\ncount = 9\nalign = 128\non_empty = \"grow\"\n\
                grow_by = 2\nscrub = \"poison\"\nreserve = 3\n";
    let mine = class(4).on_empty(OnEmpty::Pageable).pageable_max(7).max_spill(2);
    let held = Duration::from_millis(20);
    let build = || builder().fork(ForkPolicy::Deny).track_holders(false);
    let config = build().leak_after(held).class_config(mine.clone()).toml(file).config().unwrap();
    assert_eq!((config.fork, config.leak_after), (ForkPolicy::Deny, Some(held)));
    assert!(config.track_holders, "leak_after implies it");
    assert_eq!(config.classes, [mine], "the whole class is the builder's, not a mixture");
    assert!(builder().toml(file).config().unwrap().track_holders);
    // `class` changes size and count and nothing else.
    let config = build().class("a", 256, 5).toml(file).config().unwrap();
    let changed = ClassConfig::new("a", 256, 5).align(128).on_empty(OnEmpty::Grow).grow_by(2);
    assert_eq!(config.classes, [changed.scrub(Scrub::Poison).reserve(3)]);
}

#[test]
fn a_choice_is_one_of_its_names() {
    for (name, policy) in [("deny", ForkPolicy::Deny), ("inherit", ForkPolicy::Inherit)] {
        assert_eq!(config(&pool_key("fork", &format!("\"{name}\""))).fork, policy);
        assert_eq!(policy.to_string(), name);
    }
    let class = |key: &str, name: &str| {
        config(&format!("{CLASS}{key} = \"{name}\"\n")).classes.into_iter().next().unwrap()
    };
    for (name, policy) in [
        ("wait", OnEmpty::Wait),
        ("fail", OnEmpty::Fail),
        ("grow", OnEmpty::Grow),
        ("pageable", OnEmpty::Pageable),
    ] {
        assert_eq!(class("on_empty", name).on_empty, policy);
        assert_eq!(policy.to_string(), name);
    }
    for (name, scrub) in [("none", Scrub::None), ("zero", Scrub::Zero), ("poison", Scrub::Poison)] {
        assert_eq!(class("scrub", name).scrub, scrub);
        assert_eq!(scrub.to_string(), name);
    }
    assert_refused(&pool_key("fork", "\"denied\""), 2, &["'fork'", "did you mean 'deny'?"]);
    assert_refused(&pool_key("fork", "true"), 2, &["'fork'", "valid: deny, inherit"]);
    let wrong = |key: &str, value: &str, words: &[&str]| {
        assert_refused(&format!("{CLASS}{key} = {value}\n"), 5, words);
    };
    wrong("on_empty", "\"block\"", &["'on_empty'", "valid: wait, fail, grow, pageable"]);
    wrong("on_empty", "\"growing\"", &["'on_empty'", "did you mean 'grow'?"]);
    wrong("on_empty", "1", &["'on_empty'", "valid: wait"]);
    wrong("scrub", "\"zeros\"", &["'scrub'", "did you mean 'zero'?"]);
    wrong("scrub", "false", &["'scrub'", "valid: none, zero, poison"]);
}

#[test]
fn a_switch_is_true_or_false() {
    assert!(config(&pool_key("track_holders", "true")).track_holders);
    assert!(!config(&pool_key("track_holders", "false")).track_holders);
    assert!(config(&pool_key("debug_checks", "true")).debug_checks);
    for key in ["track_holders", "debug_checks"] {
        for value in ["1", "0", "\"yes\"", "\"on\"", "\"\"", "\"True\"", "1.0", "[true]"] {
            assert_refused(&pool_key(key, value), 2, &[&format!("'{key}'"), "true or false"]);
        }
    }
}

#[test]
fn a_duration_has_a_unit_and_is_more_than_zero() {
    for (value, held) in [
        ("500ms", Duration::from_millis(500)),
        ("5s", Duration::from_secs(5)),
        (" 5 s ", Duration::from_secs(5)),
        ("2min", Duration::from_secs(120)),
        ("1m 30s", Duration::from_secs(90)),
        ("1ns", Duration::from_nanos(1)),
        ("365days", DURATION_MAX),
    ] {
        let quoted = format!("\"{value}\"");
        assert_eq!(config(&pool_key("leak_after", &quoted)).leak_after, Some(held), "{value}");
        let class = &config(&class_key("grow", "idle_after", &quoted)).classes[0];
        assert_eq!(class.idle_after, Some(held), "{value}");
    }
    let wrong = |value: &str, words: &[&str]| {
        assert_refused(&pool_key("leak_after", value), 2, &[&["'leak_after'"], words].concat());
        let text = class_key("grow", "idle_after", value);
        assert_refused(&text, 7, &[&["'idle_after'"], words].concat());
    };
    for bare in ["5", "0", "-5", "\"5\"", "\"0\"", "\" 5 \"", "99999999999999999999"] {
        wrong(bare, &["without a unit", "\"5s\""]);
    }
    for zero in ["\"0s\"", "\"0ms\"", "\"366days\"", "\"2years\""] {
        wrong(zero, &["more than 0", "365days"]);
    }
    for text in ["\"s\"", "\"-5s\"", "\"5 parsec\"", "\"5s,\"", "\"99999999999999999999s\""] {
        wrong(text, &["cannot read", "\"500ms\""]);
    }
    for other in ["true", "1.5", "[1]", "1979-05-27", "\"\"", "\"  \""] {
        wrong(other, &["a duration such as"]);
    }
    // A builder's durations keep the same range.
    for held in [Duration::ZERO, DURATION_MAX + Duration::from_nanos(1), Duration::MAX] {
        let message = refused(&builder().class("a", 64, 1).leak_after(held)).to_string();
        assert!(message.contains("leak_after") && message.contains("365days"), "{message}");
        assert_class_refused(growing(8).idle_after(held), &["idle_after", "365days"]);
    }
    // A pause is slept through by whoever gives the pool's memory back.
    let pause = |pause| builder().class("a", 64, 1).pin_pause(pause);
    let message = refused(&pause(PIN_PAUSE_MAX + Duration::from_nanos(1))).to_string();
    assert!(message.contains("pin_pause") && message.contains("at most 1s"), "{message}");
    assert!(pause(PIN_PAUSE_MAX).plan().is_ok());
    for held in [Duration::from_nanos(1), DURATION_MAX] {
        assert!(with(growing(8).idle_after(held)).leak_after(held).plan().is_ok());
    }
}

#[test]
fn every_number_keeps_its_range_in_a_file_and_in_a_builder() {
    let max = SLOTS_MAX.to_string();
    for (policy, key, good, bad, range) in [
        ("wait", "reserve", ["0", "39"], ["-1", "4194303"], format!("0 to {max}")),
        ("wait", "max_spill", ["1", "1024"], ["0", "1025"], format!("1 to {SPILL_MAX}")),
        ("grow", "grow_max", ["10", "640"], ["0", "4194303"], format!("1 to {max}")),
        ("grow", "grow_by", ["1", "40"], ["0", "4194303"], format!("1 to {max}")),
        ("grow", "grow_at", ["0", "39"], ["-1", "4194303"], format!("0 to {max}")),
        ("pageable", "pageable_max", ["1", "4194262"], ["0", "4194303"], format!("1 to {max}")),
    ] {
        for value in good {
            planned(&class_key(policy, key, value));
        }
        for value in bad.into_iter().chain(["18446744073709551616"]) {
            let words = [&format!("'{key}'"), range.as_str()];
            assert_refused(&class_key(policy, key, value), 7, &words);
        }
        for value in ["true", "1.5", "\"x\"", "[1]"] {
            let words = [&format!("'{key}'"), "whole number"];
            assert_refused(&class_key(policy, key, value), 7, &words);
        }
    }
    assert_class_refused(class(8).reserve(usize::MAX), &["reserve is", "use 0 to 7"]);
    assert_class_refused(class(8).max_spill(0), &["max_spill is 0", "1 to 1024"]);
    assert_class_refused(class(8).max_spill(1025), &["max_spill is 1025", "1 to 1024"]);
    for wrong in [0, SLOTS_MAX + 1, usize::MAX] {
        assert_class_refused(growing(8).grow_max(wrong), &["grow_max is", "1 to 4194302"]);
        assert_class_refused(growing(8).grow_by(wrong), &["grow_by is", "1 to 4194302"]);
        let pageable = class(8).on_empty(OnEmpty::Pageable).pageable_max(wrong);
        assert_class_refused(pageable, &["pageable_max is", "1 to 4194302"]);
    }
    assert_class_refused(growing(8).grow_at(usize::MAX), &["grow_at is", "0 to 4194302"]);
}

#[test]
fn a_reserve_leaves_a_slot_for_everybody() {
    for (count, reserve) in [(1, 0), (2, 1), (40, 39)] {
        let plan = with(class(count).reserve(reserve)).plan().unwrap();
        assert_eq!(plan.classes[0].reserve as usize, reserve);
    }
    assert_class_refused(class(1).reserve(1), &["reserve is 1", "raise count", "use 0 to 0"]);
    assert_class_refused(class(40).reserve(40), &["reserve is 40", "raise count", "use 0 to 39"]);
}

#[test]
fn a_key_of_another_policy_is_refused_with_the_policy_it_belongs_to() {
    type Set = fn(ClassConfig) -> ClassConfig;
    let keys: [(&str, Set, &[OnEmpty]); 5] = [
        ("grow_max", |class| class.grow_max(8), &[OnEmpty::Grow]),
        ("grow_by", |class| class.grow_by(1), &[OnEmpty::Grow]),
        ("grow_at", |class| class.grow_at(1), &[OnEmpty::Grow]),
        ("pageable_max", |class| class.pageable_max(1), &[OnEmpty::Pageable]),
        (
            "idle_after",
            |class| class.idle_after(Duration::from_secs(1)),
            &[OnEmpty::Grow, OnEmpty::Pageable],
        ),
    ];
    for (key, set, belongs) in keys {
        for policy in [OnEmpty::Wait, OnEmpty::Fail, OnEmpty::Grow, OnEmpty::Pageable] {
            let class = set(class(8).on_empty(policy));
            if belongs.contains(&policy) {
                assert!(with(class).plan().is_ok(), "{key} with {policy}");
                continue;
            }
            let set_to: Vec<_> = belongs.iter().map(|policy| format!("\"{policy}\"")).collect();
            let remedy = format!("set on_empty = {}, or remove {key}", set_to.join(" or "));
            let problem = format!("{key} is set, but on_empty is '{policy}'");
            assert_class_refused(class, &[&problem, &remedy]);
        }
    }
}

/// The checks cost memory and time, so that only a build that asks for them has them.
#[test]
fn debug_checks_need_the_cargo_feature() {
    let class = || builder().class("a", 4096, 4).class("b", 192, 4).debug_checks(true);
    if cfg!(feature = "debug-checks") {
        let plan = class().plan().unwrap();
        let [small, page] = &plan.classes[..] else { panic!("two classes: {plan}") };
        assert_eq!((small.slot_bytes, small.stride_bytes), (192, 256));
        assert_eq!((page.slot_bytes, page.stride_bytes), (4096, 8192));
        assert_eq!((page.slab_bytes, page.waste_bytes), (4 * 8192, 4 * 4096));
        assert_eq!(page.chunk_bytes % 8192, 0);
        assert!(plan.to_string().contains("class 'b': 64 bytes of canary"), "{plan}");
    } else {
        let message = refused(&class()).to_string();
        for word in ["debug_checks", "Cargo feature `debug-checks`", "remove debug_checks"] {
            assert!(message.contains(word), "`{word}` is missing: {message}");
        }
    }
    assert!(class().debug_checks(false).plan().is_ok());
}

/// The plan says what differs from the defaults, and nothing where nothing does.
#[test]
fn the_printed_plan_shows_the_policies() {
    let policies = |class: ClassConfig| -> Vec<String> {
        let text = with(class).plan().unwrap().to_string();
        let lines = text.lines().filter_map(|line| line.strip_prefix("class 'a': "));
        lines.map(str::to_owned).collect()
    };
    assert!(policies(class(8)).is_empty());
    assert_eq!(
        policies(growing(32).idle_after(Duration::from_millis(500))),
        [
            "grows by 8 slots (32768 bytes) when 4 or fewer are free, to at most 64 slots, idle slabs \
          go after 500ms"
        ]
    );
    assert_eq!(
        policies(class(8).on_empty(OnEmpty::Pageable).reserve(2).scrub(Scrub::Zero)),
        [
            "gives up to 8 pageable buffers when empty, idle ones go after 10s",
            "the last slots, 2 of them, go to leases with priority",
            "slots are zeroed between two owners"
        ]
    );
    assert_eq!(
        policies(class(8).on_empty(OnEmpty::Fail).max_spill(4).scrub(Scrub::Poison)),
        [
            "fails when empty",
            "takes slots of up to 16384 bytes when empty",
            "slots are poisoned between two owners"
        ]
    );
    let usual = planned(CLASS).to_string();
    let line = "fork deny, track_holders false, leak_after not set, debug_checks false";
    assert!(usual.contains(line), "{usual}");
    let text = builder().toml(CLASS).fork(ForkPolicy::Inherit).leak_after(Duration::from_secs(5));
    let text = text.plan().unwrap().to_string();
    assert!(text.contains("fork inherit, track_holders true, leak_after 5s"), "{text}");
}

/// An edited configuration is held to the same rules, and its holders follow `leak_after`.
#[test]
fn a_plan_checks_a_configuration_that_was_edited() {
    let mut edited = config(CLASS);
    edited.leak_after = Some(Duration::from_secs(1));
    assert!(!edited.track_holders);
    assert!(Plan::new(edited.clone()).unwrap().config.track_holders);
    edited.classes[0].grow_by = Some(1);
    let message = Plan::new(edited).unwrap_err().to_string();
    assert!(message.contains("class 'frame': grow_by is set"), "{message}");
}
