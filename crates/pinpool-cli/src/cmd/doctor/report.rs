//! The lines of a report, as text for people and as JSON; it knows no check.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// How a line came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// There is nothing to check here.
    NotApplicable,
    /// As it should be.
    Ok,
    /// A pool opens, but it may be slow or smaller than expected.
    Warning,
    /// The pool in question does not open.
    Problem,
}

/// What a line belongs to, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    Driver,
    Devices,
    Link,
    Memory,
    Limits,
    Kernel,
    Test,
    Config,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) status: Status,
    pub(super) value: String,
    /// What to do; of each warning and each problem.
    pub(super) remedy: Option<String>,
}

impl Line {
    pub(super) fn ok(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), status: Status::Ok, value: value.into(), remedy: None }
    }

    pub(super) fn none(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { status: Status::NotApplicable, ..Self::ok(name, value) }
    }

    pub(super) fn warning(
        name: impl Into<String>,
        value: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { status: Status::Warning, remedy: Some(remedy.into()), ..Self::ok(name, value) }
    }

    pub(super) fn problem(
        name: impl Into<String>,
        value: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { status: Status::Problem, ..Self::warning(name, value, remedy) }
    }

    /// A problem where it stops the pool in question, else a warning.
    pub(super) fn problem_if(
        stops: bool,
        name: impl Into<String>,
        value: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let status = if stops { Status::Problem } else { Status::Warning };
        Self { status, ..Self::warning(name, value, remedy) }
    }
}

/// All lines of a run.
#[derive(Debug, Default)]
pub(super) struct Report {
    lines: Vec<(Group, Line)>,
}

impl Report {
    pub(super) fn add(&mut self, group: Group, lines: impl IntoIterator<Item = Line>) {
        self.lines.extend(lines.into_iter().map(|line| (group, line)));
        // Stable: the lines of a group stay in their order.
        self.lines.sort_by_key(|(group, _)| *group);
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().map(|(_, line)| line)
    }

    /// The names of the lines with a status.
    pub(super) fn names(&self, status: Status) -> Vec<&str> {
        let with = self.all().filter(|line| line.status == status);
        with.map(|line| line.name.as_str()).collect()
    }

    /// Each group under its name, in columns, at most [`WIDTH`] wide but for words that are longer.
    pub(super) fn to_text(&self) -> String {
        let names = self.all().map(|line| line.name.chars().count());
        let width = names.max().unwrap_or(0);
        let mut text = String::new();
        let mut before = None;
        for (group, line) in &self.lines {
            if before.replace(*group) != Some(*group) {
                text.push_str(group.name());
                text.push('\n');
            }
            line.write(width, &mut text);
        }
        text
    }

    /// The same as a list, whose shape [`VERSION`] names.
    pub(super) fn to_json(&self) -> Value {
        self.lines.iter().map(|(group, line)| line.to_json(*group)).collect()
    }
}

impl Line {
    fn write(&self, name_width: usize, text: &mut String) {
        let head = format!("  {:<14}  {:<name_width$}  ", self.status.name(), self.name);
        let indent = head.chars().count();
        let remedy = self.remedy.as_ref().map(|remedy| format!("remedy: {remedy}"));
        let rows = std::iter::once(&self.value).chain(&remedy);
        let rows = rows.flat_map(|row| wrapped(row, WIDTH.saturating_sub(indent)));
        for (number, row) in rows.enumerate() {
            let before = if number == 0 { head.as_str() } else { "" };
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "{before:<indent$}{row}");
        }
    }

    fn to_json(&self, group: Group) -> Value {
        json!({
            "group": group.name(),
            "name": self.name,
            "status": self.status.key(),
            "value": self.value,
            "remedy": self.remedy,
        })
    }
}

impl Status {
    /// For people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NotApplicable => "not applicable",
            Self::Ok => "OK",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }

    /// For programs.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::NotApplicable => "not_applicable",
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

impl Group {
    fn name(self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::Devices => "devices",
            Self::Link => "link",
            Self::Memory => "memory",
            Self::Limits => "limits",
            Self::Kernel => "kernel",
            Self::Test => "test",
            Self::Config => "config",
        }
    }
}

/// How many there are of something.
pub(super) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// The words of a text in rows of at most `width`, at least one row.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut rows = vec![String::new()];
    for word in text.split_whitespace() {
        let long = |row: &String| row.chars().count() + 1 + word.chars().count() > width;
        match rows.last_mut() {
            Some(row) if row.is_empty() => row.push_str(word),
            Some(row) if !long(row) => {
                row.push(' ');
                row.push_str(word);
            }
            _ => rows.push(word.to_owned()),
        }
    }
    rows
}

/// The columns of a screen.
pub(super) const WIDTH: usize = 100;

/// The shape of the JSON: rises when a field changes its meaning or goes, not when one is added.
pub(super) const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_stand_in_their_order_and_columns_line_up() {
        let mut report = Report::default();
        report.add(Group::Limits, [Line::problem("locked memory", "none", "raise it")]);
        report.add(Group::Driver, [Line::ok("CUDA", "12.8"), Line::none("module", "no driver")]);
        let expected = "\
driver
  OK              CUDA           12.8
  not applicable  module         no driver
limits
  problem         locked memory  none
                                 remedy: raise it
";
        assert_eq!(report.to_text(), expected);
        assert_eq!(report.names(Status::Problem), ["locked memory"]);
        assert!(report.names(Status::Warning).is_empty());
    }

    #[test]
    fn long_values_go_on_below_and_no_row_is_too_wide() {
        let mut report = Report::default();
        let words = "word ".repeat(60);
        report.add(Group::Memory, [Line::warning("a name", words.as_str(), words.as_str())]);
        let text = report.to_text();
        assert!(text.lines().all(|row| row.chars().count() <= WIDTH), "{text}");
        assert_eq!(text.matches("word").count(), 120);
        assert_eq!(wrapped("", 10), [""]);
        assert_eq!(wrapped("longer-than-it-all b", 4), ["longer-than-it-all", "b"]);
    }

    #[test]
    fn json_has_every_field_of_every_line() {
        let mut report = Report::default();
        report.add(Group::Test, [Line::ok("a", "1"), Line::warning("b", "2", "do")]);
        let expected = json!([
            { "group": "test", "name": "a", "status": "ok", "value": "1", "remedy": null },
            { "group": "test", "name": "b", "status": "warning", "value": "2", "remedy": "do" },
        ]);
        assert_eq!(report.to_json(), expected);
    }
}
