//! Results that consist of several tables: how they read for people, and on the performance page.

use std::fmt::Write as _;

use crate::header::Header;
use crate::text;

/// A table's title, header and rows.
pub(crate) type Table = (&'static str, Vec<&'static str>, Vec<Vec<String>>);

/// What is said of quick runs.
pub(crate) const QUICK: &str =
    "A quick run: it shows that all parts work, its figures mean little.\n";

/// A result of that kind.
pub(crate) trait Tabled {
    /// What is said of the run as a whole.
    fn header(&self) -> &Header;

    /// What the reader must know about this run.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// The tables of all parts.
    fn tables(&self) -> Vec<Table>;

    /// What the run shows, in a few sentences.
    fn conclusion(&self) -> String;

    /// What it comes to, in one short sentence; the first of the conclusion where it is one.
    fn headline(&self) -> String {
        let conclusion = self.conclusion();
        conclusion.split_inclusive(". ").next().unwrap_or_default().trim_end().to_owned()
    }
}

/// The result for people.
pub(crate) fn to_text(report: &impl Tabled) -> String {
    let header = report.header();
    let mut lines = format!("{}\n", header.machine.summary());
    if header.quick {
        lines.push_str(QUICK);
    }
    for (title, header, rows) in report.tables() {
        // Writing to a `String` cannot fail.
        let _ = write!(lines, "\n{title}\n{}", text::table(&header, &rows));
    }
    for note in report.notes() {
        let _ = write!(lines, "\nNote: {note}");
    }
    let _ = write!(lines, "\n{}\n{}\n", report.conclusion(), header.method);
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
