//! Sizes in bytes on the command line, spelled as a pool's configuration spells them.

use bytesize::ByteSize;

/// A number of bytes, with a unit or without: what `max_pinned` and `size` of a pool take, and
/// fractions of a unit.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(is_of_a_number).len();
    let (number, unit) = (text[..digits].replace('_', ""), text[digits..].trim());
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!("a number of bytes expected, {EXAMPLES}"));
    }
    // `Mb` could be megabits, `m` anything.
    if !unit.is_empty() && !UNITS.contains(&unit) {
        return Err(format!("unknown unit '{unit}': {}, or none for bytes", UNITS.join(", ")));
    }
    let factor = if unit.is_empty() { 1 } else { bytes_of(&format!("1{unit}"))? };
    if number.contains('.') {
        return if factor > 1 { bytes_of(&format!("{number}{unit}")) } else { Err(whole()) };
    }
    let too_large = || format!("more than {} bytes", u64::MAX);
    let number: u64 = number.parse().map_err(|_| too_large())?;
    number.checked_mul(factor).ok_or_else(too_large)
}

/// The same, of a size that memory on this machine can have.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    usize::try_from(count(text)?).map_err(|_| format!("more than {} bytes", usize::MAX))
}

fn is_of_a_number(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, '_' | '.')
}

fn bytes_of(text: &str) -> Result<u64, String> {
    text.parse::<ByteSize>().map(|size| size.as_u64())
}

fn whole() -> String {
    format!("a whole number of bytes expected, {EXAMPLES}")
}

const EXAMPLES: &str = "4096, 64MiB or 1GiB for example";
const UNITS: [&str; 14] =
    ["B", "kB", "KB", "KiB", "MB", "MiB", "GB", "GiB", "TB", "TiB", "PB", "PiB", "EB", "EiB"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_may_have_a_unit() {
        for (text, wanted) in [
            ("4096", 4096),
            ("0", 0),
            ("1GiB", 1 << 30),
            ("64 MiB", 64 << 20),
            ("3kB", 3000),
            ("1_000_000", 1_000_000),
            ("9007199254740993B", 9_007_199_254_740_993),
            ("18446744073709551615", u64::MAX),
            ("1.5 MB", 1_500_000),
        ] {
            assert_eq!(count(text), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_what_is_one() {
        for (text, words) in [
            ("many", EXAMPLES),
            ("", EXAMPLES),
            ("-1", EXAMPLES),
            ("MiB", EXAMPLES),
            ("1.5", "whole number"),
            ("1.5B", "whole number"),
            ("1Mb", "unknown unit 'Mb'"),
            ("1e6", "unknown unit 'e6'"),
            ("0x10", "unknown unit 'x10'"),
            ("1 2MB", "unknown unit '2MB'"),
            ("16EiB", "more than 18446744073709551615 bytes"),
            ("18446744073709551616", "more than 18446744073709551615 bytes"),
        ] {
            let error = count(text).err().unwrap_or_default();
            assert!(error.contains(words), "{text}: {error}");
        }
        assert!(count("1.2.3MB").is_err());
    }
}
