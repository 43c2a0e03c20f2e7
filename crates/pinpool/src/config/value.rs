//! One configured value: text or number into its type, the same for files and the environment.

use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;

use super::Threads;
use super::{BackendChoice, DURATION_MAX, DURATION_MAX_TEXT, OnEmpty, OnPressure, Scrub};
use crate::frame::FrameSpec;
use crate::memory::numa::NODES_MAX;
use crate::memory::{ForkPolicy, HugePages, KeepFree, LockMode, Numa};

/// A value as the user wrote it.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "config"), allow(dead_code, reason = "only files have types"))]
pub(super) enum Raw<'a> {
    /// A TOML string, or an environment variable.
    Text(&'a str),
    /// A TOML integer; `None` when it exceeds 128 bits.
    Integer(Option<i128>),
    /// A TOML boolean.
    Boolean(bool),
    /// Anything else, by its TOML name.
    Other(&'static str),
}

/// What is wrong with a value, and the valid names if it is a choice.
#[derive(Debug)]
pub(super) struct BadValue {
    pub(super) problem: String,
    pub(super) wrong: String,
    pub(super) valid: &'static [&'static str],
}

type Value<T> = Result<T, BadValue>;

/// A count of bytes: a bare number, or a number with a unit (`MB` is 10^6, `MiB` is 2^20).
pub(super) fn bytes(raw: Raw<'_>) -> Value<u64> {
    match raw {
        Raw::Text(text) => parse_bytes(text).map_err(bad),
        Raw::Integer(number) => {
            let number = number.and_then(|number| u64::try_from(number).ok());
            number.ok_or_else(|| bad(format!("a size is from 0 to {} bytes", u64::MAX)))
        }
        Raw::Boolean(_) => Err(expected("a size such as \"64MiB\" or 4096", "a boolean")),
        Raw::Other(found) => Err(expected("a size such as \"64MiB\" or 4096", found)),
    }
}

/// A whole number within `min..=max`.
pub(super) fn number(raw: Raw<'_>, min: u64, max: u64) -> Value<u64> {
    let number = match raw {
        Raw::Text(text) => i128::from_str(text.trim()).ok(),
        Raw::Integer(number) => number,
        Raw::Boolean(_) => return Err(expected("a whole number", "a boolean")),
        Raw::Other(found) => return Err(expected("a whole number", found)),
    };
    number
        .and_then(|number| u64::try_from(number).ok())
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| bad(format!("expected a whole number from {min} to {max}")))
}

/// A frame's name, as its size in bytes.
pub(super) fn frame(raw: Raw<'_>) -> Value<u64> {
    let Raw::Text(text) = raw else {
        return Err(bad("expected a frame such as \"1080p-rgb\" or \"1920x1080:nv12\""));
    };
    let bytes = text.parse::<FrameSpec>().and_then(|frame| frame.bytes());
    bytes.map(|bytes| bytes as u64).map_err(|error| {
        let problem = error.to_string();
        bad(problem.strip_prefix("frame: ").unwrap_or(&problem))
    })
}

/// A backend's name.
pub(super) fn backend(raw: Raw<'_>) -> Value<BackendChoice> {
    choice(
        raw,
        &[BackendChoice::Auto, BackendChoice::Cuda, BackendChoice::Host],
        &["auto", "cuda", "host"],
    )
}

/// A lock mode; a boolean means `require` or `off`.
pub(super) fn lock(raw: Raw<'_>) -> Value<LockMode> {
    match raw {
        Raw::Boolean(true) | Raw::Text("true") => Ok(LockMode::Require),
        Raw::Boolean(false) | Raw::Text("false") => Ok(LockMode::Off),
        _ => choice(
            raw,
            &[LockMode::Require, LockMode::Try, LockMode::Off],
            &["require", "try", "off"],
        ),
    }
}

/// Whether slabs lie on huge pages.
pub(super) fn huge_pages(raw: Raw<'_>) -> Value<HugePages> {
    choice(raw, &[HugePages::Off, HugePages::Try, HugePages::Require], &["off", "try", "require"])
}

/// `auto`, `off` or the number of a node.
pub(super) fn numa(raw: Raw<'_>) -> Value<Numa> {
    match raw {
        Raw::Text("auto") => return Ok(Numa::Auto),
        Raw::Text("off") => return Ok(Numa::Off),
        _ => {}
    }
    let node = number(raw, 0, u64::from(NODES_MAX - 1)).map_err(|wrong| BadValue {
        problem: format!("{}, \"auto\" or \"off\"", wrong.problem),
        ..wrong
    })?;
    Ok(Numa::Node(u32::try_from(node).unwrap_or(NODES_MAX)))
}

/// What a forked child gets.
pub(super) fn fork(raw: Raw<'_>) -> Value<ForkPolicy> {
    choice(raw, &[ForkPolicy::Deny, ForkPolicy::Inherit], &["deny", "inherit"])
}

/// What an empty class does.
pub(super) fn on_empty(raw: Raw<'_>) -> Value<OnEmpty> {
    choice(
        raw,
        &[OnEmpty::Wait, OnEmpty::Fail, OnEmpty::Grow, OnEmpty::Pageable],
        &["wait", "fail", "grow", "pageable"],
    )
}

/// What classes do under memory pressure.
pub(super) fn on_pressure(raw: Raw<'_>) -> Value<OnPressure> {
    choice(raw, &[OnPressure::Trim, OnPressure::Ignore], &["trim", "ignore"])
}

/// `auto`, `off` or a count of bytes.
pub(super) fn keep_free(raw: Raw<'_>) -> Value<KeepFree> {
    match raw {
        Raw::Text("auto") => Ok(KeepFree::Auto),
        Raw::Text("off") => Ok(KeepFree::Off),
        _ => bytes(raw).map(KeepFree::Bytes).map_err(|wrong| BadValue {
            problem: format!("{}, or \"auto\" or \"off\"", wrong.problem),
            ..wrong
        }),
    }
}

/// What happens to a slot between two owners.
pub(super) fn scrub(raw: Raw<'_>) -> Value<Scrub> {
    choice(raw, &[Scrub::None, Scrub::Zero, Scrub::Poison], &["none", "zero", "poison"])
}

/// A boolean; a variable spells it as a file does.
pub(super) fn boolean(raw: Raw<'_>) -> Value<bool> {
    match raw {
        Raw::Boolean(value) => Ok(value),
        Raw::Text("true") => Ok(true),
        Raw::Text("false") => Ok(false),
        Raw::Text(text) => Err(bad(format!("expected true or false, found '{text}'"))),
        Raw::Integer(_) => Err(expected("true or false", "a number")),
        Raw::Other(found) => Err(expected("true or false", found)),
    }
}

/// A duration with its unit, more than zero and at most [`DURATION_MAX`].
pub(super) fn duration(raw: Raw<'_>) -> Value<Duration> {
    const BARE: &str = "a number without a unit";
    const EXAMPLES: &str = "a duration such as \"500ms\", \"5s\" or \"2min\"";
    let found = match raw {
        Raw::Text(text) if text.trim().is_empty() => "nothing",
        Raw::Text(text) if text.trim().bytes().all(|byte| byte.is_ascii_digit()) => BARE,
        Raw::Text(text) => return parse_duration(text.trim(), EXAMPLES),
        Raw::Integer(_) => BARE,
        Raw::Boolean(_) => "a boolean",
        Raw::Other(found) => found,
    };
    Err(expected(EXAMPLES, found))
}

fn parse_duration(text: &str, examples: &str) -> Value<Duration> {
    let duration = humantime::parse_duration(text)
        .map_err(|error| bad(format!("cannot read '{text}' as {examples}: {error}")))?;
    if duration.is_zero() || duration > DURATION_MAX {
        let range = format!("more than 0 and at most {DURATION_MAX_TEXT}");
        return Err(bad(format!("'{text}' is out of range: {range}")));
    }
    Ok(duration)
}

/// A duration, or `off` for none.
pub(super) fn pause(raw: Raw<'_>) -> Value<Duration> {
    if let Raw::Text("off") = raw {
        return Ok(Duration::ZERO);
    }
    duration(raw)
        .map_err(|wrong| BadValue { problem: format!("{}, or \"off\"", wrong.problem), ..wrong })
}

/// `auto` or a number of threads.
pub(super) fn threads(raw: Raw<'_>, most: usize) -> Value<Threads> {
    if let Raw::Text("auto") = raw {
        return Ok(Threads::Auto);
    }
    let or_auto = |wrong: BadValue| {
        let problem = match wrong.problem.split_once(", found ") {
            Some((wanted, found)) => format!("{wanted} or \"auto\", found {found}"),
            None => format!("{} or \"auto\"", wrong.problem),
        };
        BadValue { problem, ..wrong }
    };
    let count = number(raw, 1, most as u64).map_err(or_auto)?;
    Ok(Threads::Count(usize::try_from(count).unwrap_or(most)))
}

/// The value whose name, at the same place of `valid`, is given.
fn choice<T: Copy>(raw: Raw<'_>, values: &[T], valid: &'static [&'static str]) -> Value<T> {
    let Raw::Text(text) = raw else {
        let problem = "expected a name in quotes".into();
        return Err(BadValue { problem, wrong: String::new(), valid });
    };
    let named = values.iter().zip(valid).find(|(_, name)| **name == text);
    named.map(|(value, _)| *value).ok_or_else(|| {
        let problem = format!("unknown value '{text}'");
        BadValue { problem, wrong: text.into(), valid }
    })
}

/// Exact units, whole numbers and checked arithmetic; the units themselves are bytesize's.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits =
        text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_').len();
    let (number, unit) = (text[..digits].replace('_', ""), text[digits..].trim());
    if unit.starts_with('.') {
        return Err(format!(
            "'{text}' is not a whole number: use a smaller unit (1.5GiB is 1536MiB)"
        ));
    }
    // Exactly these spellings: `Mb` could be megabits, `m` anything.
    if !unit.is_empty() && !UNITS.contains(&unit) {
        return Err(format!("unknown unit '{unit}' in '{text}': {}", units()));
    }
    let number: u64 = number.parse().map_err(|_| {
        format!("cannot read '{text}' as a size: write a whole number; {}", units())
    })?;
    if unit.is_empty() {
        return Ok(number);
    }
    let factor = ByteSize::from_str(&format!("1{unit}"))
        .map_err(|_| format!("unknown unit '{unit}' in '{text}': {}", units()))?;
    number
        .checked_mul(factor.as_u64())
        .ok_or_else(|| format!("'{text}' exceeds {} bytes", u64::MAX))
}

fn units() -> String {
    format!("use {}, or nothing for bytes", UNITS.join(", "))
}

const UNITS: [&str; 14] =
    ["B", "kB", "KB", "KiB", "MB", "MiB", "GB", "GiB", "TB", "TiB", "PB", "PiB", "EB", "EiB"];

fn bad(problem: impl Into<String>) -> BadValue {
    BadValue { problem: problem.into(), wrong: String::new(), valid: &[] }
}

fn expected(what: &str, found: &str) -> BadValue {
    bad(format!("expected {what}, found {found}"))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn units_are_exact() {
        let ok = |text: &str| parse_bytes(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(ok("4096"), 4096);
        assert_eq!(ok("0"), 0);
        assert_eq!(ok("6220800B"), 6_220_800);
        assert_eq!(ok("1MB"), 1_000_000);
        assert_eq!(ok("1MiB"), 1 << 20);
        assert_eq!(ok("2 GiB"), 2 << 30);
        assert_eq!(ok("3kB"), 3000);
        assert_eq!(ok("3KiB"), 3072);
        assert_eq!(ok("9007199254740993B"), 9_007_199_254_740_993);
        assert_eq!(ok("18446744073709551615"), u64::MAX);
        assert_eq!(ok("1_000_000"), 1_000_000);
    }

    #[test]
    fn what_is_not_a_size_is_refused() {
        for text in [
            "",
            "MiB",
            "-1",
            "1.5GiB",
            "1e6",
            "64 MebiBytes?",
            "5QB",
            "1Mb",
            "1mb",
            "1m",
            "1kb",
            "1Gib",
            "0x10",
            "18446744073709551616",
            "16EiB",
            "99999999999TiB",
            "1 2MB",
            "١MB",
        ] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_keep_their_range() {
        assert_eq!(number(Raw::Text("7"), 1, 10).ok(), Some(7));
        assert_eq!(number(Raw::Integer(Some(10)), 1, 10).ok(), Some(10));
        for wrong in [
            Raw::Integer(Some(0)),
            Raw::Integer(Some(11)),
            Raw::Integer(Some(-1)),
            Raw::Integer(None),
            Raw::Text("x"),
            Raw::Text("1.0"),
            Raw::Boolean(true),
            Raw::Other("a float"),
        ] {
            assert!(number(wrong, 1, 10).is_err(), "{wrong:?}");
        }
    }
}
