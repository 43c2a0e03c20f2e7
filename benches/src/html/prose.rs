//! Text in HTML: shown as it is, and cut into lines only where it reads well.

/// Text that HTML shows as it is.
pub(super) fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            other => html.push(other),
        }
    }
    html
}

/// The same for people: no line ends between a number and its unit.
pub(super) fn prose(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    let mut before = "";
    for (at, word) in text.split(' ').enumerate() {
        if at > 0 {
            let is_bound = before.ends_with(|last: char| last.is_ascii_digit()) && is_unit(word);
            html.push(if is_bound { NO_BREAK } else { ' ' });
        }
        html.push_str(&escaped(word));
        before = word;
    }
    html
}

/// Whether a word is a unit, with whatever ends a sentence or a bracket behind it.
fn is_unit(word: &str) -> bool {
    UNITS.contains(&word.trim_end_matches(['.', ',', ';', ':', ')']))
}

/// A space at which no line ends.
const NO_BREAK: char = '\u{a0}';
const UNITS: &[&str] = &[
    "%", "ns", "us", "ms", "s", "B", "KiB", "MiB", "GiB", "kB", "MB", "GB", "GB/s", "GiB/s",
    "GT/s", "GHz", "MHz", "fps", "frames/s", "leases/s", "bytes", "cores", "threads", "copies",
    "million",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_its_unit_stay_on_one_line() {
        for (text, html) in [
            ("87 % of 63.0 GB/s up", "87\u{a0}% of 63.0\u{a0}GB/s up"),
            ("a copy of 1 GiB.", "a copy of 1\u{a0}GiB."),
            ("(p50 0.03 ms), then", "(p50 0.03\u{a0}ms), then"),
            ("in 4 streams, s & ms", "in 4 streams, s &amp; ms"),
            ("10  %", "10  %"),
            ("", ""),
        ] {
            assert_eq!(prose(text), html);
        }
        assert_eq!(escaped("--frame 1 s <\"&\">"), "--frame 1 s &lt;&quot;&amp;&quot;&gt;");
    }
}
