//! Two results of one scenario side by side, ratio by ratio; knows which way each is better, and
//! nothing of how they were measured.

use std::fmt::Write as _;

use serde_json::Value;

use crate::text;

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

/// Which way a ratio is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// A rate over a rate, or a speed-up.
    Larger,
    /// A time over a time.
    Smaller,
    /// Not known: every change counts.
    Unknown,
}

impl Better {
    /// Of a ratio of a scenario.
    pub fn of(scenario: &str, name: &str) -> Self {
        let Some((_, smaller, larger)) = DIRECTIONS.iter().find(|(of, ..)| *of == scenario) else {
            return Self::Unknown;
        };
        // The name may stand behind those of a row.
        let key = name.rsplit(' ').next().unwrap_or(name);
        let is_in = |keys: &[&str]| keys.iter().any(|known| *known == "*" || key == *known);
        match (is_in(smaller), is_in(larger)) {
            (true, _) => Self::Smaller,
            (false, true) => Self::Larger,
            (false, false) => Self::Unknown,
        }
    }

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Larger => "larger",
            Self::Smaller => "smaller",
            Self::Unknown => "-",
        }
    }

    /// How much worse `after` is than `before`, in percent; negative where it is better.
    fn worse_percent(self, before: f64, after: f64) -> f64 {
        let change = change_percent(before, after);
        match self {
            Self::Larger => -change,
            Self::Smaller => change,
            Self::Unknown => change.abs(),
        }
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

impl Change {
    /// How much worse the second is, in percent; negative where it is better.
    pub fn worse_percent(&self) -> f64 {
        self.better.worse_percent(self.before.value, self.after.value)
    }

    /// Whether both have rounds, and some of one lie among those of the other.
    fn is_within_spread(&self) -> bool {
        let ends = |ratio: &Ratio| ratio.low.zip(ratio.high);
        let (Some(before), Some(after)) = (ends(&self.before), ends(&self.after)) else {
            return false;
        };
        before.0 <= after.1 && after.0 <= before.1
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
        Ok(Self { scenario: first, changes, only_in_one, notes: notes(&one, &other) })
    }

    /// The ratios that are worse by more than so much.
    pub fn regressions(&self, limit_percent: f64) -> Vec<&Change> {
        self.changes.iter().filter(|change| change.worse_percent() > limit_percent).collect()
    }

    /// The table for people.
    pub fn to_text(&self, limit_percent: Option<f64>) -> String {
        let rows: Vec<Vec<String>> =
            self.changes.iter().map(|change| row(change, limit_percent)).collect();
        let header =
            ["ratio", "before", "rounds", "after", "rounds", "change", "better", "verdict"];
        let mut text = format!("{}\n\n{}", self.scenario, text::table(&header, &rows));
        for note in &self.notes {
            // Writing to a `String` cannot fail.
            let _ = write!(text, "\nNote: {note}");
        }
        if !self.only_in_one.is_empty() {
            let _ = write!(text, "\nNot in both: {}", self.only_in_one.join(", "));
        }
        if let Some(limit) = limit_percent {
            let (worse, all) = (self.regressions(limit).len(), self.changes.len());
            let _ = write!(text, "\n{worse} of {all} ratios are worse by more than {limit} %");
        }
        text.push('\n');
        text
    }
}

fn row(change: &Change, limit_percent: Option<f64>) -> Vec<String> {
    let spread = |ratio: &Ratio| {
        let ends = ratio.low.zip(ratio.high);
        ends.map_or_else(|| "-".to_owned(), |(low, high)| format!("{low:.3} to {high:.3}"))
    };
    let is_past = limit_percent.is_some_and(|limit| change.worse_percent() > limit);
    let verdict = match (is_past, change.is_within_spread()) {
        (true, true) => "WORSE, rounds overlap",
        (true, false) => "WORSE",
        (false, true) => "within the rounds",
        (false, false) if change.worse_percent() > 0.0 => "worse",
        (false, false) => "no worse",
    };
    let (before, after) = (&change.before, &change.after);
    vec![
        before.name.clone(),
        format!("{:.3}", before.value),
        spread(before),
        format!("{:.3}", after.value),
        spread(after),
        format!("{:+.1} %", change_percent(before.value, after.value)),
        change.better.words().to_owned(),
        verdict.to_owned(),
    ]
}

/// What was added, in percent of what was there.
fn change_percent(before: f64, after: f64) -> f64 {
    let added = after - before;
    // Nothing over nothing would be no number.
    if added.abs() > 0.0 { added / before.abs() * 100.0 } else { 0.0 }
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

/// What a reader must know before trusting the changes.
fn notes(before: &Value, after: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    if [before, after].iter().any(|json| json.get("quick") == Some(&Value::Bool(true))) {
        notes.push("a quick run is among the two: its figures mean little".to_owned());
    }
    let hardware = |json: &Value| {
        let machine = json.get("machine")?;
        Some((
            machine.get("cpu")?.clone(),
            machine.get("cores")?.clone(),
            machine.get("gpu")?.clone(),
        ))
    };
    if hardware(before) != hardware(after) {
        notes.push("the two are of different machines".to_owned());
    }
    notes
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

/// By scenario: the ratios that are better when smaller, and those that are better when larger;
/// "*" is all the others.
const DIRECTIONS: &[(&str, &[&str], &[&str])] = &[
    ("frames", &[], &["*"]),
    ("copy", &[], &["lease_over_raw", "lease_memory_over_raw"]),
    ("in-flight", &["*"], &[]),
    (
        "lease",
        &[
            "one_thread_over_pytorch",
            "one_thread_over_mimalloc64",
            "array_queue_1_thread",
            "tail_65536_over_64",
            "growth_median",
            "growth_p99",
            "growth_median_half_out",
            "growth_p99_half_out",
        ],
        &[
            "total16_over_pytorch",
            "total16_over_one_thread",
            "mutex_vec_2_threads",
            "handoff_1_over_integers",
            "handoff_8_over_integers",
            "handoff_1_over_same_size",
            "handoff_8_over_same_size",
        ],
    ),
    (
        "waiting",
        &["tail_tasks", "tail_threads"],
        &[
            "waiting_over_free_tasks",
            "waiting_over_free_threads",
            "waiting_over_free_short",
            "lease_over_semaphore",
            "lease_over_semaphore_giving_up",
            "lease_over_condvar",
            "lease_over_condvar_short",
        ],
    ),
    (
        "startup",
        &[
            "open_over_bare_8g",
            "open_over_bare_1g",
            "neighbour_process_stall_ms",
            "own_copy_stall_ms",
        ],
        &[
            "speedup_over_hostalloc_8g",
            "speedup_over_hostalloc_1g",
            "speedup_over_pytorch16_8g",
            "speedup_over_pytorch16_1g",
        ],
    ),
    ("staged", &["small_over_plain"], &["*"]),
    ("alloc", &[], &["pinned_over_lease", "malloc_over_lease"]),
    ("break-even", &["reuses_leased"], &[]),
    // How pageable and pinned memory compare is the machine's; what a lease adds is ours.
    ("alloc", &[], &["pinned_over_lease", "malloc_over_lease"]),
    ("break-even", &["reuses_leased"], &[]),
    ("neighbours", &["*"], &[]),
    ("overlap", &[], &["*"]),
    ("pressure", &["*"], &[]),
];

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
    fn what_is_worse_depends_on_which_way_is_better() {
        let worse = |better: Better, after: f64| better.worse_percent(10.0, after);
        assert_eq!((worse(Better::Larger, 9.0), worse(Better::Larger, 11.0)), (10.0, -10.0));
        assert_eq!((worse(Better::Smaller, 9.0), worse(Better::Smaller, 11.0)), (-10.0, 10.0));
        assert_eq!((worse(Better::Unknown, 9.0), worse(Better::Unknown, 11.0)), (10.0, 10.0));
        // From nothing to something is more than any limit, and nothing stays nothing.
        assert!(Better::Smaller.worse_percent(0.0, 1.0) > 1e9);
        assert!(Better::Smaller.worse_percent(0.0, 0.0).abs() < 1e-9);
    }

    #[test]
    fn directions_are_of_the_scenario_and_of_the_last_word() {
        assert_eq!(Better::of("lease", "growth_p99"), Better::Smaller);
        assert_eq!(Better::of("lease", "mutex_vec_2_threads"), Better::Larger);
        assert_eq!(Better::of("copy", "4 KiB, h2d: lease_over_raw"), Better::Larger);
        assert_eq!(Better::of("copy", "4 KiB, h2d: pageable_over_raw"), Better::Unknown);
        assert_eq!(Better::of("staged", "small_over_plain"), Better::Smaller);
        assert_eq!(Better::of("dance", "growth_p99"), Better::Unknown);
    }
}
