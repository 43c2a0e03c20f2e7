//! The part of the page about instructions, from the text that `scripts/instructions` keeps.

use crate::text;

/// Where the text lies.
pub(super) const PATH: &str = "results/host/instructions.txt";

/// The section: one row for each line of `counted`, its first line apart.
///
/// # Errors
/// The line that is none of ours.
pub(super) fn section(counted: &str) -> Result<String, String> {
    let no_line = |line: &str| format!("{PATH}: {line:?} is no line of scripts/instructions");
    let (first, lines) = counted.split_once('\n').unwrap_or_default();
    let how = first.strip_prefix("# Instructions per lease and drop, ");
    let how = how.ok_or_else(|| no_line(first))?;
    let rows: Result<Vec<Vec<String>>, String> = lines
        .lines()
        .map(|line| {
            let (_, rest) = line.split_once(' ').ok_or_else(|| no_line(line))?;
            let (figure, what) = rest.trim().split_once("  ").ok_or_else(|| no_line(line))?;
            let figure: f64 = figure.parse().map_err(|_| no_line(line))?;
            Ok(vec![what.trim().to_owned(), format!("{figure:.0}")])
        })
        .collect();
    let rows = rows?;
    if rows.is_empty() {
        return Err(format!("{PATH}: nothing was counted"));
    }
    let table = text::markdown_table(&["a lease and its drop", "instructions"], &rows);
    Ok(format!(
        "\n## Instructions per lease and drop\n\nCounted with two processors, not timed. CI fails when one is more \
         than 2 % away.\n\n{table}\n- From: `{PATH}`, {how}\n"
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
pub(super) mod tests {
    use super::*;

    pub(crate) const COUNTED: &str = "\
# Instructions per lease and drop, rustc 1.0.0, x86-64; scripts/instructions --accept
one-class              200.9  one class, most slots free
refused               1006.0  all slots are out: the refusal
";

    #[test]
    fn a_row_for_each_case() {
        let section = section(COUNTED).unwrap();
        assert!(section.contains("| one class, most slots free | 201 |"), "{section}");
        assert!(section.contains("| all slots are out: the refusal | 1006 |"), "{section}");
        assert!(section.ends_with(", rustc 1.0.0, x86-64; scripts/instructions --accept\n"));
    }

    #[test]
    fn a_text_of_another_kind_is_refused() {
        let (head, _) = COUNTED.split_once('\n').unwrap();
        for wrong in ["", "one-class 1.0  x\n", head, &format!("{head}\none-class many  x\n")] {
            assert!(section(wrong).unwrap_err().starts_with(PATH), "{wrong}");
        }
    }
}
