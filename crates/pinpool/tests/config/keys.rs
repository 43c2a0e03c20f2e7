//! Keys of configuration text: misspelled, misplaced, missing and repeated ones are refused with the
//! key, its line and the nearest valid name.

use crate::{CLASS, assert_refused, builder, config, refused};

/// A misspelled key that is ignored leaves its option at the default for months.
///
/// Case config-1.
#[test]
fn a_misspelled_key_is_refused_with_its_line_and_the_nearest_name() {
    assert_refused(
        "[pool]\nbackend = \"host\"\n\n[[clas]]\nname = \"a\"\nsize = 1\ncount = 1\n",
        4,
        &["unknown key 'clas'", "did you mean 'class'?"],
    );
    for (key, nearest) in [
        ("siz", "size"),
        ("cout", "count"),
        ("nam", "name"),
        ("algn", "align"),
        ("onempty", "on_empty"),
        ("reserved", "reserve"),
        ("max_spil", "max_spill"),
        ("scrubs", "scrub"),
        ("growmax", "grow_max"),
        ("grow_bye", "grow_by"),
        ("grow_att", "grow_at"),
        ("idle-after", "idle_after"),
        ("pageablemax", "pageable_max"),
    ] {
        assert_refused(
            &format!("# a comment\n{CLASS}{key} = \"1MiB\"\n"),
            6,
            &[&format!("unknown key '{key}'"), &format!("did you mean '{nearest}'?")],
        );
    }
    for (key, nearest) in [
        ("bakend", "backend"),
        ("devices", "device"),
        ("max-pinned", "max_pinned"),
        ("max_pined", "max_pinned"),
        ("locks", "lock"),
        ("huge_page", "huge_pages"),
        ("nuna", "numa"),
        ("prefault_thread", "prefault_threads"),
        ("pin_chunks", "pin_chunk"),
        ("forks", "fork"),
        ("track_holder", "track_holders"),
        ("leak-after", "leak_after"),
        ("keep-free", "keep_free"),
        ("on_presure", "on_pressure"),
        ("debug_check", "debug_checks"),
    ] {
        assert_refused(
            &format!("{CLASS}\n[pool]\nlock = \"off\"\n\n{key} = 1\n"),
            9,
            &[&format!("unknown key '{key}'"), &format!("did you mean '{nearest}'?")],
        );
    }
    // Nothing resembles it: all names are listed.
    assert_refused(
        &format!("{CLASS}zzz = 1\n"),
        5,
        &["unknown key 'zzz'", "valid: name, size, frame, count, align"],
    );
}

#[test]
fn keys_are_case_sensitive() {
    assert_refused(&format!("[Pool]\n{CLASS}"), 1, &["unknown key 'Pool'", "'pool'"]);
    assert_refused(&format!("[pool]\nBackend = \"host\"\n{CLASS}"), 2, &["'Backend'", "'backend'"]);
    assert_refused(&format!("{CLASS}Size = 1\n"), 5, &["unknown key 'Size'", "'size'"]);
}

/// Case config-1.
#[test]
fn a_key_at_the_wrong_level_is_refused_with_the_level_it_belongs_to() {
    let of_class = ["name", "size", "count", "align", "on_empty", "reserve", "max_spill", "scrub"];
    let of_growth = ["grow_max", "grow_by", "grow_at", "idle_after", "pageable_max"];
    for key in of_class.into_iter().chain(of_growth) {
        assert_refused(
            &format!("[pool]\n{key} = 64\n{CLASS}"),
            2,
            &[&format!("'{key}' does not belong in [pool]"), "[[class]]"],
        );
        assert_refused(
            &format!("\n{key} = 64\n{CLASS}"),
            2,
            &[&format!("'{key}' stands outside any table"), "[[class]]"],
        );
    }
    let first = ["backend", "max_pinned", "lock", "prefault_threads", "pin_chunk"];
    let more = ["pin_pause", "open_timeout", "min_bytes", "huge_pages", "numa"];
    let rest = ["fork", "track_holders", "leak_after", "keep_free", "on_pressure", "debug_checks"];
    for key in first.into_iter().chain(more).chain(rest) {
        assert_refused(
            &format!("{CLASS}{key} = 1\n"),
            5,
            &[&format!("'{key}' does not belong in [[class]]"), "[pool]"],
        );
        assert_refused(
            &format!("{key} = 1\n{CLASS}"),
            1,
            &[&format!("'{key}' stands outside any table"), "[pool]"],
        );
    }
}

/// Case config-1.
#[test]
fn the_line_is_right_in_every_way_to_write_a_table() {
    let siz = ["unknown key 'siz'", "did you mean 'size'?"];
    // The second of several tables.
    assert_refused(&format!("{CLASS}\n[[class]]\nname = \"b\"\nsiz = 1\ncount = 1\n"), 8, &siz);
    // Inline tables, on one line and on several.
    assert_refused("class = [{ name = \"a\", siz = 1, count = 1 }]\n", 1, &siz);
    assert_refused(
        "class = [\n  { name = \"a\", size = 1, count = 1 },\n  { name = \"b\", siz = 1, count = 1 },\n]\n",
        3,
        &siz,
    );
    assert_refused(&format!("pool = {{ bakend = \"host\" }}\n{CLASS}"), 1, &["'bakend'"]);
    // Dotted keys.
    assert_refused(
        &format!("# first\npool.lock = \"off\"\npool.bakend = \"host\"\n{CLASS}"),
        3,
        &["unknown key 'bakend'", "did you mean 'backend'?"],
    );
    assert_refused(&format!("pol.backend = \"host\"\n{CLASS}"), 1, &["'pol'", "'pool'"]);
    assert_refused(&format!("[pool]\nlock.mode = \"off\"\n{CLASS}"), 2, &["lock"]);
    assert_refused(&format!("{CLASS}size.bytes = 1\n"), 5, &["dotted key"]);
    // Quoted keys, sub-tables and sub-lists.
    assert_refused(&format!("[pool]\n\"bakend\" = \"host\"\n{CLASS}"), 2, &["'bakend'"]);
    assert_refused(&format!("[pool]\n[pool.extra]\na = 1\n{CLASS}"), 2, &["unknown key 'extra'"]);
    assert_refused(&format!("{CLASS}[class.extra]\na = 1\n"), 5, &["unknown key 'extra'"]);
    // Lines that end as on Windows.
    let windows = format!("{CLASS}siz = 1\n").replace('\n', "\r\n");
    assert_refused(&windows, 5, &siz);
}

#[test]
fn a_table_of_the_wrong_kind_is_refused() {
    assert_refused("[class]\nname = \"a\"\nsize = 1\ncount = 1\n", 1, &["[[class]]"]);
    assert_refused("\nclass = 3\n", 2, &["[[class]]"]);
    assert_refused("class = [\n  1,\n]\n", 2, &["[[class]]"]);
    assert_refused(&format!("\npool = \"host\"\n{CLASS}"), 2, &["[pool]"]);
    assert_refused(&format!("[[pool]]\nbackend = \"host\"\n{CLASS}"), 1, &["[pool]"]);
}

#[test]
fn a_class_without_name_size_or_count_is_refused() {
    assert_refused("\n[[class]]\nsize = 1\ncount = 1\n", 2, &["missing name"]);
    assert_refused("[[class]]\nname = \"a\"\ncount = 1\n", 1, &["class a", "missing size"]);
    assert_refused("[[class]]\nname = \"a\"\nsize = 1\n", 1, &["class a", "missing count"]);
    assert_refused("[[class]]\n", 1, &["missing name and size (or frame) and count"]);
    assert_refused("[[class]]\nname = \"\"\nsize = 1\ncount = 1\n", 1, &["missing name"]);
}

#[test]
fn a_key_or_class_that_is_given_twice_is_refused() {
    assert_refused(&format!("{CLASS}count = 3\n"), 5, &["duplicate key"]);
    assert_refused(
        &format!("[pool]\nlock = \"off\"\n{CLASS}\n[pool]\ndevice = 0\n"),
        8,
        &["duplicate key"],
    );
    assert_refused(
        &format!("{CLASS}\n[[class]]\nname = \"frame\"\nsize = 1\ncount = 1\n"),
        6,
        &["'frame'", "line 1", "line 6"],
    );
    let twice = builder().class("a", 64, 1).class("b", 128, 1).class("a", 256, 1);
    let message = refused(&twice).to_string();
    assert!(message.contains("'a' was given twice"), "{message}");
}

#[test]
fn text_that_is_no_toml_is_refused_with_its_line() {
    assert_refused("[pool]\nlock = \n", 2, &[]);
    assert_refused("[pool\n", 1, &[]);
    assert_refused("[pool]\n\n\nlock = \"off\n", 4, &[]);
    assert_refused("[pool]\nlock = 'off' 3\n", 2, &[]);
    assert_refused("[[class]]\nname = \"a\"\nsize = 1MiB\n", 3, &[]);
    assert_refused("[[class]]\nname = \"a\"\nsize = 010\n", 3, &[]);
}

#[test]
fn every_way_to_write_the_same_configuration_means_the_same() {
    let usual = config(&format!("[pool]\nlock = \"off\"\npin_chunk = \"1MiB\"\n{CLASS}"));
    for text in [
        format!("{CLASS}\n[pool]\npin_chunk = \"1MiB\"\nlock = \"off\"\n"),
        format!("pool = {{ lock = \"off\", pin_chunk = \"1MiB\" }}\n{CLASS}"),
        format!("pool.lock = false\npool.pin_chunk = 1_048_576\n{CLASS}"),
        "pool.lock = 'off'\npool.pin_chunk = 0x100000\n\
         class = [{ name = 'frame', size = 4096, count = 2, align = 64 }]\n"
            .into(),
        format!("[pool]\nlock = \"off\"\npin_chunk = \"1024 KiB\"\n{CLASS}").replace('\n', "\r\n"),
    ] {
        assert_eq!(config(&text), usual, "{text}");
    }
}
