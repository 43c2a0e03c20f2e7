//! Tables: short ones stand open, long ones behind their caption.

use std::fmt::Write as _;

use super::prose::prose;
use crate::section::SectionTable;

/// A table with its caption.
pub(super) fn html(table: &SectionTable) -> String {
    let (caption, rows) = (prose(&table.caption), table.rows.len());
    let body = body(table);
    if rows > ROWS_OPEN {
        format!("<details>\n<summary>{caption} ({rows} rows)</summary>\n{body}</details>\n")
    } else {
        format!("<h3>{caption}</h3>\n{body}")
    }
}

fn body(table: &SectionTable) -> String {
    let header = table.columns.iter().map(|name| format!("<th scope=\"col\">{}</th>", prose(name)));
    let mut html = format!(
        "<div class=\"scroll\"><table>\n<thead><tr>{}</tr></thead>\n<tbody>\n",
        header.collect::<String>()
    );
    for row in &table.rows {
        let cells = row.iter().enumerate().map(|(column, cell)| match column {
            0 => format!("<th scope=\"row\">{}</th>", prose(cell)),
            _ => format!("<td>{}</td>", prose(cell)),
        });
        // Writing to a `String` cannot fail.
        let _ = writeln!(html, "<tr>{}</tr>", cells.collect::<String>());
    }
    html.push_str("</tbody></table></div>\n");
    html
}

/// A longer table would push what comes after it off the screen.
const ROWS_OPEN: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_tables_are_closed() {
        let table = |rows: usize| {
            let rows = (0..rows).map(|row| vec![format!("row {row}"), "1 ms".to_owned()]);
            html(&SectionTable::new("Times & more", ["a", "b"], rows.collect()))
        };
        let short = table(ROWS_OPEN);
        assert!(short.starts_with("<h3>Times &amp; more</h3>") && !short.contains("<details"));
        let long = table(ROWS_OPEN + 1);
        assert!(
            long.starts_with("<details>\n<summary>Times &amp; more (13 rows)</summary>"),
            "{long}"
        );
        assert!(!long.contains("<h3>") && long.ends_with("</details>\n"), "{long}");
        assert_eq!(long.matches("<td>1\u{a0}ms</td>").count(), 13);
    }
}
