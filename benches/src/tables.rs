//! Results that consist of several tables: how they read for people, and on the performance page.

use std::fmt::Write as _;

use crate::machine::Machine;
use crate::text;

/// A table's title, header and rows.
pub(crate) type Table = (&'static str, Vec<&'static str>, Vec<Vec<String>>);

/// A result of that kind.
pub(crate) trait Tabled {
    /// What is said of the run as a whole.
    fn run(&self) -> Run<'_>;

    /// The tables of all parts.
    fn tables(&self) -> Vec<Table>;

    /// What the run shows, in a few sentences.
    fn conclusion(&self) -> String;
}

/// Where a result comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) command: &'a str,
    pub(crate) commit: &'a str,
    pub(crate) method: &'a str,
    /// Whether every part ran in a small size.
    pub(crate) quick: bool,
}

/// The result for people.
pub(crate) fn to_text(report: &impl Tabled) -> String {
    let run = report.run();
    let mut lines = format!("{}\n", run.machine.summary());
    if run.quick {
        lines.push_str("A quick run: it shows that all parts work, its figures mean little.\n");
    }
    for (title, header, rows) in report.tables() {
        // Writing to a `String` cannot fail.
        let _ = write!(lines, "\n{title}\n{}", text::table(&header, &rows));
    }
    let _ = write!(lines, "\n{}\n{}\n", report.conclusion(), run.method);
    lines
}

/// The absolute figures, for the page.
pub(crate) fn to_markdown(report: &dyn Tabled) -> String {
    let mut body = format!("{}\n", report.conclusion());
    for (title, header, rows) in report.tables() {
        // Writing to a `String` cannot fail.
        let _ = write!(body, "\n{title}:\n\n{}", text::markdown_table(&header, &rows));
    }
    body
}
