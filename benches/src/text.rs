//! Plain text and Markdown: aligned tables, byte counts, numbers with a fixed width of meaning.

use std::fmt::Write as _;

use crate::timing::Range;

/// A table with aligned columns: the first one to the left, the others to the right.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let header: Vec<String> = header.iter().map(|&cell| cell.to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&header).chain(rows) {
        let mut line = String::new();
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let written = if column == 0 {
                write!(line, "{cell:<width$}")
            } else {
                write!(line, "  {cell:>width$}")
            };
            // Writing to a `String` cannot fail.
            let _ = written;
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The same as a Markdown table.
pub fn markdown_table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!("| {} |\n|---|", header.join(" | "));
    text.push_str(&"---:|".repeat(header.len().saturating_sub(1)));
    text.push('\n');
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

/// A Markdown table behind an empty line; nothing where it has no row.
pub fn markdown_section(header: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() { String::new() } else { format!("\n{}", markdown_table(header, rows)) }
}

/// A byte count in the binary unit in which it is a short whole number, else in decimal ones.
pub fn bytes(count: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    for (unit, name) in UNITS {
        if count.is_multiple_of(unit) && (1..1024).contains(&(count / unit)) {
            return format!("{} {name}", count / unit);
        }
    }
    match count {
        0..1_000_000 => format!("{count} B"),
        1_000_000..1_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.1} GB", count as f64 / 1e9),
    }
}

/// A ratio for people, with as many digits as [`number`].
pub fn ratio(value: f64) -> String {
    number(value) + "x"
}

/// A ratio with its lowest and highest round, where they read as others.
pub(crate) fn ratio_range(Range { median, low, high }: Range) -> String {
    let [median, low, high] = [median, low, high].map(ratio);
    if low == high { median } else { format!("{median} ({low} to {high})") }
}

/// A count for people: a comma between thousands from 10,000 up.
pub fn count(count: u64) -> String {
    grouped(count.to_string())
}

/// Whole digits with a comma between thousands; four digits read well without.
fn grouped(digits: String) -> String {
    let is_whole = digits.bytes().all(|digit| digit.is_ascii_digit());
    if digits.len() < 5 || !is_whole {
        return digits;
    }
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate or time for people: whole numbers from a hundred up, with a comma between thousands from
/// 10,000 up, one decimal below, two below ten.
pub fn number(value: f64) -> String {
    if value >= 100.0 {
        grouped(format!("{value:.0}"))
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = vec![vec!["lease".into(), "1100".into()], vec!["ring".into(), "9.5".into()]];
        assert_eq!(table(&["name", "fps"], &rows), "name    fps\nlease  1100\nring    9.5\n");
        assert_eq!(
            markdown_table(&["name", "fps"], &rows),
            "| name | fps |\n|---|---:|\n| lease | 1100 |\n| ring | 9.5 |\n"
        );
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(bytes(4096), "4 KiB");
        assert_eq!(bytes(6_220_800), "6.2 MB");
        assert_eq!(bytes(4_294_967_297), "4.3 GB");
        assert_eq!(bytes(1 << 40), "1 TiB");
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(64 << 20), "64 MiB");
        assert_eq!(bytes(3_110_401), "3.1 MB");
        assert_eq!(bytes(100), "100 B");
        assert_eq!(ratio(3.904), "3.90x");
        assert_eq!(ratio(12.34), "12.3x");
        assert_eq!(ratio(4_773_756.2), "4,773,756x");
        let range = |low| ratio_range(Range { median: 2.0, low, high: 2.5 });
        assert_eq!((range(1.9), range(2.499)), ("2.00x (1.90x to 2.50x)".into(), "2.00x".into()));
        assert_eq!(number(1100.4), "1100");
        assert_eq!((number(9999.4), number(9999.6)), ("9999".into(), "10,000".into()));
        assert_eq!((number(123_456.0), number(f64::INFINITY)), ("123,456".into(), "inf".into()));
        assert_eq!([0, 9999, 10_000, 1_234_567].map(count), ["0", "9999", "10,000", "1,234,567"]);
        assert_eq!(number(55.04), "55.0");
        assert_eq!(number(0.487), "0.49");
    }
}
