//! Two results side by side, for people.

use std::fmt::Write as _;

use super::{Better, Change, Comparison, Limits, Ratio};
use crate::text;

impl Comparison {
    /// The table for people.
    pub fn to_text(&self, limits: Limits) -> String {
        let rows: Vec<Vec<String>> =
            self.changes.iter().map(|change| row(change, limits)).collect();
        let header =
            ["ratio", "before", "rounds", "after", "rounds", "change", "better", "verdict"];
        let mut text = format!("{}\n\n{}", self.scenario, text::table(&header, &rows));
        let has = |better| self.changes.iter().any(|change| change.better == better);
        // Writing to a `String` cannot fail.
        if has(Better::Neither) {
            let _ = write!(text, "\n{NEITHER}");
        }
        if has(Better::Unknown) {
            let _ = write!(text, "\n{UNKNOWN}");
        }
        if self.changes.iter().any(Change::is_within_spread) {
            let _ = write!(text, "\n{SPREAD}");
        }
        for note in &self.notes {
            let _ = write!(text, "\nNote: {note}");
        }
        if !self.only_in_one.is_empty() {
            let _ = write!(text, "\nNot in both: {}", self.only_in_one.join(", "));
        }
        let all = self.changes.len();
        if let Some(limit) = limits.max_regression {
            let worse = self.regressions(limit);
            let spread = worse.iter().filter(|change| change.is_within_spread()).count();
            let _ = write!(
                text,
                "\n{} of {all} ratios are worse by more than {limit} %, {spread} of them within the \
                 spread",
                worse.len(),
            );
        }
        if let Some(limit) = limits.within {
            let within = all - self.differences(limit).len();
            let _ = write!(text, "\n{within} of {all} ratios within {limit} %");
        }
        text.push('\n');
        text
    }
}

fn row(change: &Change, limits: Limits) -> Vec<String> {
    let spread = |ratio: &Ratio| {
        let ends = ratio.low.zip(ratio.high);
        ends.map_or_else(
            || "-".to_owned(),
            |(low, high)| format!("{} to {}", digits(low), digits(high)),
        )
    };
    let (before, after) = (&change.before, &change.after);
    vec![
        before.name.clone(),
        digits(before.value),
        spread(before),
        digits(after.value),
        spread(after),
        change.percent_words(),
        change.better.words().to_owned(),
        verdict(change, limits),
    ]
}

/// A ratio with digits that say something, however small it is.
fn digits(value: f64) -> String {
    let size = value.abs();
    let decimals = [0.1, 0.01, 1e-3, 1e-4, 1e-5].iter().take_while(|least| size < **least).count();
    let decimals = if size > 0.0 { 3 + decimals } else { 3 };
    format!("{value:.decimals$}")
}

/// In capitals what is past a limit; where rounds overlap, that they do.
fn verdict(change: &Change, limits: Limits) -> String {
    let is_past = limits.max_regression.is_some_and(|limit| change.is_worse(limit));
    let differs = limits.within.is_some_and(|limit| change.differs(limit));
    let verdict = match (is_past, differs) {
        (true, _) => "WORSE",
        (false, true) => "DIFFERS",
        (false, false) if change.is_within_spread() => return "within the spread".to_owned(),
        (false, false) if change.better == Better::Neither => "-",
        (false, false) if change.is_worse(0.0) => "worse",
        (false, false) => "no worse",
    };
    let overlap = if change.is_within_spread() { ", within the spread" } else { "" };
    format!("{verdict}{overlap}")
}

const NEITHER: &str = "better neither: how the machine or a rival does, pageable over pinned memory \
                       for one; shown, and never a regression";
const UNKNOWN: &str = "better -: a ratio that this version does not know; every change is worse";
const SPREAD: &str = "within the spread: some rounds of one result lie among those of the other; \
                      limits are of the medians all the same";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_ratios_keep_digits_that_tell_them_apart() {
        for (value, shown) in [
            (0.000_012_34, "0.0000123"),
            (0.012, "0.0120"),
            (0.001, "0.00100"),
            (0.5, "0.500"),
            (65_672.818, "65672.818"),
            (0.0, "0.000"),
            (1e-30, "0.00000000"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(digits(value), shown);
        }
    }
}
