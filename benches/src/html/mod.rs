//! A page of results that needs nothing else: no script, no network, no other file; it lays out
//! [sections](crate::section) and knows of no scenario but what the article claims and what
//! the advice is made of.

mod advice;
mod article;
mod canvas;
mod colours;
mod flow;
mod plot;
mod prose;
mod table;

use std::fmt::Write as _;

use crate::BenchError;
use crate::machine::Machine;
use crate::report::{Report, place};
use crate::section::Section;
use colours::Palette;
use prose::{escaped, prose};

/// What became of a scenario.
#[derive(Debug)]
pub enum Outcome {
    /// It gave a result.
    Ran {
        /// The result.
        report: Box<Report>,
        /// The file beside the page that holds it.
        file: String,
    },
    /// It gave none.
    Failed {
        /// Its name.
        scenario: &'static str,
        /// Why, for people.
        reason: String,
    },
}

/// The page of these outcomes, in the order of [`SCENARIOS`](crate::report::SCENARIOS).
///
/// # Errors
/// What the drawing of a picture says.
pub fn page(outcomes: &[Outcome]) -> Result<String, BenchError> {
    let entries = entries(outcomes);
    let reports: Vec<&Report> = entries.iter().filter_map(|entry| report(entry.outcome)).collect();
    let machine = reports.first().map(|report| report.origin().machine);
    let mut body = format!("<h1>{TITLE}</h1>\n");
    if let Some(report) = reports.first() {
        body.push_str(&facts(report));
    }
    if reports.iter().any(|report| report.is_quick()) {
        body.push_str(QUICK);
    }
    body.push_str(&story(&entries));
    body.push_str(&advice::html(&entries));
    let tables = article::tables(&reports);
    if !tables.is_empty() {
        let heading =
            "<section id=\"article\">\n<h2>What is said of pinned memory, and what is here</h2>";
        let tables: String = tables.iter().map(table::html).collect();
        let _ = writeln!(body, "{heading}\n{tables}</section>");
    }
    for entry in &entries {
        body.push_str(&section_of(entry, machine)?);
    }
    // No page may hold other control characters, whatever a result says, in text or picture.
    let is_wrong = |c: char| c.is_control() && !c.is_whitespace();
    let body = body.replace(is_wrong, "\u{fffd}");
    let style = format!("{STYLE}{}", colours::rules());
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{TITLE}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n{style}</style>\n\
         </head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    ))
}

/// An outcome where it stands on the page.
struct Entry<'a> {
    outcome: &'a Outcome,
    section: Section,
    /// The anchor: no other entry's.
    id: String,
    heading: String,
}

/// In their order; a second result of a scenario has an anchor and a heading of its own.
fn entries(outcomes: &[Outcome]) -> Vec<Entry<'_>> {
    let mut ordered: Vec<&Outcome> = outcomes.iter().collect();
    ordered.sort_by_key(|outcome| place(scenario(outcome)));
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for outcome in ordered {
        let section = section(outcome);
        let is_free = |id: &String| entries.iter().all(|entry| entry.id != *id);
        let numbered = (2..).map(|number: u32| format!("{}-{number}", section.id));
        let mut ids = [name(outcome), section.id].into_iter().map(str::to_owned).chain(numbered);
        let id = ids.find(is_free).unwrap_or_default();
        let same = entries.iter().filter(|entry| entry.section.title == section.title).count();
        let heading = match same {
            0 => section.title.clone(),
            _ => format!("{}, result {}", section.title, same + 1),
        };
        entries.push(Entry { outcome, section, id, heading });
    }
    entries
}

fn name(outcome: &Outcome) -> &str {
    let scenario = scenario(outcome);
    let Outcome::Ran { file, .. } = outcome else { return scenario };
    name_of(scenario, file)
}

/// What a result is called: its scenario, or the name of its file where that begins with it, as
/// `frames-4k.json` does.
pub fn name_of<'a>(scenario: &'a str, file: &'a str) -> &'a str {
    let stem = file.strip_suffix(".json").unwrap_or(file);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let is_of = |rest: &str| rest.starts_with('-') && rest.chars().all(is_plain);
    if stem.strip_prefix(scenario).is_some_and(is_of) { stem } else { scenario }
}

fn scenario(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Ran { report, .. } => report.origin().scenario,
        Outcome::Failed { scenario, .. } => scenario,
    }
}

fn report(outcome: &Outcome) -> Option<&Report> {
    match outcome {
        Outcome::Ran { report, .. } => Some(report),
        Outcome::Failed { .. } => None,
    }
}

fn section(outcome: &Outcome) -> Section {
    match outcome {
        Outcome::Ran { report, .. } => report.section(),
        Outcome::Failed { scenario, reason } => Section {
            id: scenario,
            title: format!("The scenario {scenario} failed"),
            headline: format!("FAILED: {reason}"),
            conclusion: format!("FAILED: {reason}"),
            ..Section::default()
        },
    }
}

/// Where the results come from.
fn facts(report: &Report) -> String {
    let origin = report.origin();
    let machine = origin.machine;
    let gpu = machine.gpu.as_ref().map_or_else(
        || "none".to_owned(),
        |gpu| {
            let memory = gib(gpu.memory_bytes);
            format!("{}, {memory}, driver {}, CUDA {}", gpu.name, gpu.driver, gpu.cuda)
        },
    );
    let processor = format!("{}, {} cores for this process", machine.cpu, machine.cores);
    let rows = [
        ("GPU", gpu),
        ("Processor", processor),
        ("Memory", gib(machine.memory_bytes)),
        ("Kernel", machine.kernel.clone()),
        ("May be locked", machine.memlock.summary()),
        ("Huge pages", machine.transparent_huge_pages.clone()),
        ("Commit", origin.commit.to_owned()),
    ];
    let rows = rows.map(|(name, value)| format!("<dt>{name}</dt><dd>{}</dd>\n", prose(&value)));
    format!("<dl class=\"facts\">\n{}</dl>\n", rows.concat())
}

fn gib(bytes: u64) -> String {
    format!("{:.0} GiB", bytes as f64 / (1u64 << 30) as f64)
}

/// What each scenario comes to, in a sentence.
fn story(entries: &[Entry<'_>]) -> String {
    let item = |entry: &Entry<'_>| {
        let quick = match report(entry.outcome) {
            Some(report) if report.is_quick() => " <small>(quick run)</small>",
            _ => "",
        };
        format!(
            "<li><a href=\"#{id}\">{id}</a> <span>{}{quick}</span></li>\n",
            prose(&entry.section.headline),
            id = entry.id,
        )
    };
    let items: String = entries.iter().map(item).collect();
    format!("<nav><ul>\n{items}</ul></nav>\n")
}

fn section_of(entry: &Entry<'_>, machine: Option<&Machine>) -> Result<String, BenchError> {
    let Entry { outcome, section, id, heading } = entry;
    let class = match (outcome, &section.not_run) {
        (Outcome::Failed { .. }, _) => " class=\"failed\"",
        (_, Some(_)) => " class=\"not-run\"",
        _ => "",
    };
    let mut html = format!(
        "<section id=\"{id}\"{class}>\n<h2>{}</h2>\n<p class=\"conclusion\">{}</p>\n",
        prose(heading),
        prose(&section.conclusion),
    );
    if let (Outcome::Ran { report, .. }, Some(_)) = (outcome, &section.not_run) {
        // Behind the reason: what it would have measured, and what that needs.
        let text = report.to_text();
        html.extend(text.lines().skip(1).map(|line| format!("<p>{}</p>\n", prose(line))));
    }
    // The ratios stand first, the pictures before the many numbers behind them.
    let (first, rest) = section.tables.split_at(section.tables.len().min(1));
    html.extend(first.iter().map(table::html));
    let palette = Palette::of(&section.plots);
    let figures = section.plots.iter().map(|plot| plot::figure(plot, &palette));
    let figures = figures.collect::<Result<Vec<String>, BenchError>>()?;
    if !figures.is_empty() {
        let _ = writeln!(html, "<div class=\"plots\">\n{}</div>", figures.concat());
    }
    html.extend(rest.iter().map(table::html));
    let mut lines: Vec<&str> = Vec::new();
    for line in section.method.lines() {
        // The same note may be of several parts.
        if !line.is_empty() && !lines.contains(&line) {
            let _ = writeln!(html, "<p class=\"method\">{}</p>", prose(line));
            lines.push(line);
        }
    }
    if let Outcome::Ran { report, file } = outcome {
        html.push_str(&provenance(report, file, machine));
    }
    html.push_str("</section>\n");
    Ok(html)
}

/// The command of a result and its file, and its machine and commit where they are others than above.
fn provenance(report: &Report, file: &str, machine: Option<&Machine>) -> String {
    let origin = report.origin();
    let elsewhere = if machine == Some(origin.machine) {
        String::new()
    } else {
        format!(" on {}, commit {}", origin.machine.summary(), origin.commit)
    };
    format!(
        "<p class=\"method\"><code>{}</code>{}: <a href=\"{name}\">{name}</a></p>\n",
        escaped(origin.command),
        escaped(&elsewhere),
        name = escaped(file),
    )
}

const TITLE: &str = "Pinned host memory, measured";
const QUICK: &str = "<p class=\"warning\">Quick runs: those that are marked so show that all parts work, their \
                     figures mean little.</p>\n";
const STYLE: &str = include_str!("style.css");
