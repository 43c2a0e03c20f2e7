//! Two results of one scenario side by side, ratio by ratio; knows which way each is better, and
//! nothing of how they were measured.

mod better;
mod notes;
mod table;

use serde_json::Value;

use crate::{text, timing};
pub use better::Better;
use better::change_percent;

/// A figure over a figure, as a result's JSON names it.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratio {
    /// Its keys below `ratios`, with the names of its row where there are rows.
    pub name: String,
    /// The ratio, or the median of those of the rounds.
    pub value: f64,
    /// The lowest round, where the result says.
    pub low: Option<f64>,
    /// The highest round, where the result says.
    pub high: Option<f64>,
}

impl Ratio {
    /// All that were measured below a value of JSON.
    pub fn all(ratios: &Value) -> Vec<Self> {
        let mut all = Vec::new();
        collect("", ratios, &mut all);
        all
    }
}

/// A result's text, and what people call it.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// The name of the file.
    pub name: &'a str,
    /// Its JSON.
    pub json: &'a str,
}

/// What two results come to.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Their scenario.
    pub scenario: String,
    /// Every ratio that both have.
    pub changes: Vec<Change>,
    /// Ratios that only one of them has, with which.
    pub only_in_one: Vec<String>,
    /// What makes them hard to compare.
    pub notes: Vec<String>,
}

/// One ratio in two results.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// In the first.
    pub before: Ratio,
    /// In the second.
    pub after: Ratio,
    /// Which way it is better.
    pub better: Better,
}

/// What is asked of the second result, in percent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limits {
    /// The most by which a ratio may be worse.
    pub max_regression: Option<f64>,
    /// The most by which any ratio may differ, whichever way is better.
    pub within: Option<f64>,
}

impl Change {
    /// How much was added, in percent of the first.
    pub fn percent(&self) -> f64 {
        change_percent(self.before.value, self.after.value)
    }

    /// The same for people: of nothing there are no percent.
    pub fn percent_words(&self) -> String {
        let percent = self.percent();
        if percent.is_finite() { format!("{percent:+.1} %") } else { "from nothing".to_owned() }
    }

    /// How much worse the second is, in percent; negative where it is better.
    pub fn worse_percent(&self) -> f64 {
        self.better.worse_percent(self.before.value, self.after.value)
    }

    /// Whether it is worse by more than so much. Of ratios with rounds these are the medians.
    pub fn is_worse(&self, limit_percent: f64) -> bool {
        !self.is_last_digit() && self.worse_percent() > limit_percent
    }

    /// Whether it differs by more than so much, either way.
    pub fn differs(&self, limit_percent: f64) -> bool {
        !self.is_last_digit() && self.percent().abs() > limit_percent
    }

    /// Whether both have rounds, and some of one lie among those of the other.
    pub fn is_within_spread(&self) -> bool {
        let ends = |ratio: &Ratio| ratio.low.zip(ratio.high);
        let (Some(before), Some(after)) = (ends(&self.before), ends(&self.after)) else {
            return false;
        };
        before.0 <= after.1 && after.0 <= before.1
    }

    /// Whether they differ by no more than one in the last digit that results have.
    fn is_last_digit(&self) -> bool {
        let (before, after) = (self.before.value, self.after.value);
        // Figures without rounds have three decimals, however small they are.
        let is_of_three = |value: f64| (value * 1e3 - (value * 1e3).round()).abs() < 1e-6;
        let last = if is_of_three(before) && is_of_three(after) {
            1e-3
        } else {
            timing::last_digit(before.abs().max(after.abs()))
        };
        // Half a digit more, for what binary numbers make of it.
        (after - before).abs() < 1.5 * last
    }
}

impl Comparison {
    /// Reads two results.
    ///
    /// # Errors
    /// That one is no result, that they are of different scenarios, or that no ratio is in both.
    pub fn of(before: Side<'_>, after: Side<'_>) -> Result<Self, String> {
        let ((first, one), (second, other)) = (read(before)?, read(after)?);
        if first != second {
            return Err(format!(
                "{} is of the scenario \"{first}\" and {} of \"{second}\": give two results of one",
                before.name, after.name,
            ));
        }
        let ratios = |value: &Value| Ratio::all(value.get("ratios").unwrap_or(&Value::Null));
        let (ours, mut theirs) = (ratios(&one), ratios(&other));
        let (mut changes, mut only_in_one) = (Vec::new(), Vec::new());
        for before_ratio in ours {
            match theirs.iter().position(|ratio| ratio.name == before_ratio.name) {
                Some(at) => changes.push(Change {
                    better: Better::of(&first, &before_ratio.name),
                    after: theirs.remove(at),
                    before: before_ratio,
                }),
                None => only_in_one.push(format!("{} (in {})", before_ratio.name, before.name)),
            }
        }
        only_in_one
            .extend(theirs.iter().map(|ratio| format!("{} (in {})", ratio.name, after.name)));
        if changes.is_empty() {
            let (before, after) = (before.name, after.name);
            return Err(format!(
                "no ratio of \"{first}\" was measured in both {before} and {after}"
            ));
        }
        Ok(Self { scenario: first, changes, only_in_one, notes: notes::of(&one, &other) })
    }

    /// The ratios that are worse by more than so much.
    pub fn regressions(&self, limit_percent: f64) -> Vec<&Change> {
        self.changes.iter().filter(|change| change.is_worse(limit_percent)).collect()
    }

    /// The ratios that differ by more than so much, either way.
    pub fn differences(&self, limit_percent: f64) -> Vec<&Change> {
        self.changes.iter().filter(|change| change.differs(limit_percent)).collect()
    }
}

/// The scenario of a result, and all of it.
fn read(side: Side<'_>) -> Result<(String, Value), String> {
    let no_result = |cause: &str| format!("{} is no result of `pinpool bench`: {cause}", side.name);
    let json: Value =
        serde_json::from_str(side.json).map_err(|cause| no_result(&cause.to_string()))?;
    let Some(scenario) = json.get("scenario").and_then(Value::as_str) else {
        return Err(no_result("it names no scenario"));
    };
    if let Some(reason) = json.get("not_run").and_then(Value::as_str) {
        return Err(format!("{} holds no figures: {reason}", side.name));
    }
    Ok((scenario.to_owned(), json))
}

/// Numbers and ranges below a value; the names of a row are its texts and whole numbers.
fn collect(path: &str, value: &Value, all: &mut Vec<Ratio>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}: {key}") };
    match value {
        Value::Number(number) => {
            let value = number.as_f64().unwrap_or(f64::NAN);
            all.push(Ratio { name: path.to_owned(), value, low: None, high: None });
        }
        Value::Object(fields) => {
            let number = |key: &str| fields.get(key).and_then(Value::as_f64);
            if let (Some(value), low, high) = (number("median"), number("low"), number("high")) {
                return all.push(Ratio { name: path.to_owned(), value, low, high });
            }
            for (key, value) in fields {
                if !value.is_u64() && !value.is_string() {
                    collect(&below(key), value, all);
                }
            }
        }
        Value::Array(rows) => {
            for row in rows {
                collect(&below(&row_name(row)), row, all);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// What tells a row from the others.
fn row_name(row: &Value) -> String {
    let fields = row.as_object().into_iter().flatten();
    let names = fields.filter_map(|(key, value)| match value {
        Value::String(name) => Some(name.clone()),
        Value::Number(number) => {
            let count = number.as_u64()?;
            Some(if key.contains("bytes") { text::bytes(count) } else { format!("{count} {key}") })
        }
        _ => None,
    });
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ratios_are_found_by_field_and_by_row_with_their_rounds() {
        let ratios = Ratio::all(&json!({
            "none": null,
            "plain": 1.5,
            "range": { "median": 2.0, "low": 1.0, "high": 3.0 },
            "rows": [{ "direction": "h2d", "bytes": 4096, "over": 0.5, "repeats": 7 }],
        }));
        let found = |name: &str| ratios.iter().find(|ratio| ratio.name == name);
        assert_eq!(ratios.len(), 3, "{ratios:?}");
        assert_eq!(found("plain").map(|ratio| (ratio.value, ratio.low)), Some((1.5, None)));
        let range = found("range").map(|ratio| (ratio.value, ratio.low, ratio.high));
        assert_eq!(range, Some((2.0, Some(1.0), Some(3.0))));
        assert!(found("rows: 4 KiB, h2d, 7 repeats: over").is_some(), "{ratios:?}");
    }

    #[test]
    fn one_in_the_last_digit_is_no_difference_however_small_the_ratio() {
        let change = |before, after| {
            let ratio = |value| Ratio { name: "over".into(), value, low: None, high: None };
            let (before, after, better) = (ratio(before), ratio(after), Better::Smaller);
            Change { before, after, better }
        };
        for (before, after) in [(1.0, 1.001), (0.0, 0.001), (0.012, 0.0121), (0.000_12, 0.000_121)]
        {
            assert!(!change(before, after).differs(0.0), "{before} {after}");
            assert!(!change(before, after).is_worse(0.0), "{before} {after}");
        }
        for (before, after) in [(1.0, 1.002), (0.0, 0.002), (0.012, 0.0122), (0.000_12, 0.000_16)] {
            assert!(change(before, after).differs(0.0), "{before} {after}");
            assert!(change(before, after).is_worse(0.0), "{before} {after}");
        }
    }
}
