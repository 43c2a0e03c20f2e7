//! A page of results that needs nothing else: no script, no network, no other file; it lays out
//! [sections](crate::section) and knows of no scenario but what the article claims.

mod article;
mod canvas;
mod colours;
mod flow;
mod plot;

use std::fmt::Write as _;

use crate::BenchError;
use crate::machine::Machine;
use crate::report::Report;
use crate::section::{Section, SectionTable};

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

/// The page of these outcomes, in their order.
///
/// # Errors
/// What the drawing of a picture says.
pub fn page(outcomes: &[Outcome]) -> Result<String, BenchError> {
    let reports: Vec<&Report> = outcomes.iter().filter_map(report).collect();
    let sections: Vec<Section> = outcomes.iter().map(section).collect();
    let machine = reports.first().map(|report| report.origin().machine);
    let mut body = format!("<h1>{TITLE}</h1>\n");
    if let Some(report) = reports.first() {
        body.push_str(&facts(report));
    }
    if reports.iter().any(|report| report.origin().quick) {
        body.push_str(QUICK);
    }
    body.push_str(&contents(&sections));
    if let Some(table) = article::table(&reports) {
        let heading =
            "<section id=\"article\">\n<h2>What is said of pinned memory, and what is here</h2>";
        let _ = writeln!(body, "{heading}\n{}</section>", table_of(&table));
    }
    for (at, (outcome, section)) in outcomes.iter().zip(&sections).enumerate() {
        body.push_str(&section_of(at, outcome, section, machine)?);
    }
    let style = format!("{STYLE}{}", colours::rules());
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{TITLE}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n{style}</style>\n\
         </head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    ))
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
    let rows = rows.map(|(name, value)| format!("<dt>{name}</dt><dd>{}</dd>\n", escaped(&value)));
    format!("<dl class=\"facts\">\n{}</dl>\n", rows.concat())
}

fn gib(bytes: u64) -> String {
    format!("{:.0} GiB", bytes as f64 / (1u64 << 30) as f64)
}

fn contents(sections: &[Section]) -> String {
    let item = |(at, section): (usize, &Section)| {
        format!("<li><a href=\"#{}\">{}</a></li>\n", anchor(at, section), escaped(section.id))
    };
    let items: String = sections.iter().enumerate().map(item).collect();
    format!("<nav><ul>\n{items}</ul></nav>\n")
}

/// Two results of one scenario may be on a page.
fn anchor(at: usize, section: &Section) -> String {
    format!("{}-{at}", section.id)
}

fn section_of(
    at: usize,
    outcome: &Outcome,
    section: &Section,
    machine: Option<&Machine>,
) -> Result<String, BenchError> {
    let class = match (outcome, &section.not_run) {
        (Outcome::Failed { .. }, _) => " class=\"failed\"",
        (_, Some(_)) => " class=\"not-run\"",
        _ => "",
    };
    let mut html = format!(
        "<section id=\"{}\"{class}>\n<h2>{}</h2>\n<p class=\"conclusion\">{}</p>\n",
        anchor(at, section),
        escaped(&section.title),
        escaped(&section.conclusion),
    );
    // The ratios stand first, the pictures before the many numbers behind them.
    let (first, rest) = section.tables.split_at(section.tables.len().min(1));
    html.extend(first.iter().map(table_of));
    let figures: Result<Vec<String>, BenchError> = section.plots.iter().map(plot::figure).collect();
    let figures = figures?;
    if !figures.is_empty() {
        let _ = writeln!(html, "<div class=\"plots\">\n{}</div>", figures.concat());
    }
    html.extend(rest.iter().map(table_of));
    let mut lines: Vec<&str> = Vec::new();
    for line in section.method.lines() {
        // The same note may be of several parts.
        if !line.is_empty() && !lines.contains(&line) {
            let _ = writeln!(html, "<p class=\"method\">{}</p>", escaped(line));
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

fn table_of(table: &SectionTable) -> String {
    let mut html = format!("<h3>{}</h3>\n<div class=\"scroll\"><table>\n", escaped(&table.caption));
    let header =
        table.columns.iter().map(|name| format!("<th scope=\"col\">{}</th>", escaped(name)));
    let _ = writeln!(html, "<thead><tr>{}</tr></thead>\n<tbody>", header.collect::<String>());
    for row in &table.rows {
        let cells = row.iter().enumerate().map(|(column, cell)| match column {
            0 => format!("<th scope=\"row\">{}</th>", escaped(cell)),
            _ => format!("<td>{}</td>", escaped(cell)),
        });
        let _ = writeln!(html, "<tr>{}</tr>", cells.collect::<String>());
    }
    html.push_str("</tbody></table></div>\n");
    html
}

/// Text that HTML shows as it is.
fn escaped(text: &str) -> String {
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

const TITLE: &str = "Pinned host memory, measured";
const QUICK: &str = "<p class=\"warning\">Quick runs: they show that all parts work, their figures mean \
                     little.</p>\n";
const STYLE: &str = include_str!("style.css");
