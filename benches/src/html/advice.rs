//! What a reader is to do with the results: whether to pin, from which size on, and what to put
//! into the configuration; it knows only what `break-even` found, and leads to the other scenarios.

use std::fmt::Write as _;

use super::prose::{escaped, prose};
use super::{Entry, report};
use crate::alloc::report::ALLOC_SCENARIO;
use crate::break_even::report::{Advice, BreakEvenReport};
use crate::copy::report::COPY;
use crate::frames::report::FRAMES;
use crate::gigabyte::report::GIGABYTE;
use crate::neighbours::report::NEIGHBOURS;
use crate::overlap::report::OVERLAP;
use crate::pressure::report::PRESSURE;
use crate::report::Report;
use crate::startup::report::STARTUP;
use crate::text;

/// The advice of the first result of `break-even` that has figures; nothing where `break-even` is
/// not on the page.
pub(super) fn html(entries: &[Entry<'_>]) -> String {
    let reports = entries.iter().filter_map(|entry| report(entry.outcome));
    let found: Vec<&BreakEvenReport> = reports
        .filter_map(|report| match report {
            Report::BreakEven(report) => Some(&**report),
            _ => None,
        })
        .collect();
    let Some(first) = found.first() else { return String::new() };
    let ran = found.iter().find(|report| report.header.not_run.is_none());
    let body = ran.map_or_else(
        || not_known(first.header.not_run.as_deref().unwrap_or_default()),
        |report| advice(report, entries),
    );
    format!("<section id=\"advice\">\n<h2>What to do on this machine</h2>\n{body}</section>\n")
}

fn not_known(reason: &str) -> String {
    let words = format!(
        "Whether pinning pays here is not known: nothing was copied to a GPU ({reason}). Run \
         `pinpool bench all --report DIR` on the machine that has the GPU.",
    );
    format!("<p class=\"conclusion\">{}</p>\n", prose(&words))
}

fn advice(report: &BreakEvenReport, entries: &[Entry<'_>]) -> String {
    let sizes: Vec<(&Advice, u64)> =
        report.advice.iter().filter_map(|one| Some((one, one.from_bytes?))).collect();
    if sizes.is_empty() {
        return format!("<p class=\"conclusion\">{}</p>\n", prose(NOTHING));
    }
    let mut html = format!("<p class=\"conclusion\">{}</p>\n", prose(&pin(report, &sizes)));
    for (question, scenarios) in QUESTIONS {
        let links = entries.iter().filter(|entry| scenarios.contains(&entry.section.id));
        let links = links.map(|entry| format!("<a href=\"#{id}\">{id}</a>", id = entry.id));
        let links: Vec<String> = links.collect();
        if !links.is_empty() {
            // Writing to a `String` cannot fail.
            let _ = writeln!(html, "<p>{question}: {}.</p>", links.join(", "));
        }
    }
    let _ = writeln!(
        html,
        "<p>In <code>pool.toml</code>:</p>\n<pre class=\"scroll\">{}</pre>",
        escaped(&config(&sizes)),
    );
    html
}

/// What to pin, and when it has paid.
fn pin(report: &BreakEvenReport, sizes: &[(&Advice, u64)]) -> String {
    let of = |&(advice, bytes): &(&Advice, u64)| {
        format!("{} of {} and more", advice.copies_are(), text::bytes(bytes))
    };
    let paid = |&(advice, _): &(&Advice, u64)| {
        let reuses = advice.reuses_pinned?;
        Some(format!("{:.0} {}", reuses.ceil(), advice.copies_are()))
    };
    let what: Vec<String> = sizes.iter().map(of).collect();
    let paid: Vec<String> = sizes.iter().filter_map(paid).collect();
    let has_smaller = report.rows.iter().any(|row| is_smaller(row.bytes, &row.direction, sizes));
    let smaller = if has_smaller { " Smaller copies gain too little, or too late." } else { "" };
    let quick = if report.header.quick { " (A quick run: its figures mean little.)" } else { "" };
    format!(
        "Pin the buffers of {}, and pin them once: leased from an open pool they gain from the first \
         copy on, while pinned memory that is allocated for one of them has paid only after up to \
         {}.{smaller}{quick}",
        what.join(" and of "),
        paid.join(" or "),
    )
}

fn is_smaller(bytes: u64, direction: &str, sizes: &[(&Advice, u64)]) -> bool {
    sizes.iter().any(|(advice, from)| advice.direction == direction && bytes < *from)
}

/// A configuration to begin with.
fn config(sizes: &[(&Advice, u64)]) -> String {
    let least = sizes.iter().map(|(_, bytes)| *bytes).max().unwrap_or_default();
    let least_are: Vec<String> = sizes
        .iter()
        .map(|(advice, bytes)| format!("{} from {}", advice.copies_are(), text::bytes(*bytes)))
        .collect();
    let most = least.saturating_mul(COUNT).div_ceil(1 << 30);
    format!(
        "[pool]\n\
         max_pinned = \"{most}GiB\"  # no less than size times count of all classes\n\n\
         [[class]]\n\
         name = \"buffer\"\n\
         size = \"{}\"  # the bytes of your buffer; worth it for {}\n\
         count = {COUNT}  # as many as are filled, copied and read at a time\n\
         on_empty = \"wait\"\n",
        exact(least),
        least_are.join(", "),
    )
}

/// Bytes as a configuration has them, to the last one.
fn exact(bytes: u64) -> String {
    let words = text::bytes(bytes).replace(' ', "");
    if words.ends_with("iB") { words } else { bytes.to_string() }
}

const NOTHING: &str = "Pin nothing for the sake of bandwidth: no size that was measured here pays \
                       within 1000 copies.";
/// Buffers of the class that the configuration begins with.
const COUNT: u64 = 8;
/// What else a reader asks, and the scenarios that answer it.
const QUESTIONS: [(&str, &[&str]); 3] = [
    ("What it gains", &[COPY, GIGABYTE, FRAMES, OVERLAP]),
    ("What it costs", &[ALLOC_SCENARIO, STARTUP]),
    ("What it costs others", &[NEIGHBOURS, PRESSURE]),
];

#[cfg(test)]
mod tests {
    use super::super::{Outcome, entries};
    use super::*;
    use crate::break_even::report::tests::report;

    fn of(report: BreakEvenReport) -> String {
        let report = Box::new(Report::BreakEven(Box::new(report)));
        html(&entries(&[Outcome::Ran { report, file: "break-even.json".into() }]))
    }

    #[test]
    fn the_configuration_is_one_that_opens_and_holds_the_size() {
        let report = report(&[(4096, None), (65536, Some(39.2)), (512 << 20, Some(6.0))]);
        let html = of(report.clone());
        let words = "buffers of uploads of 64\u{a0}KiB and more, and pin them once";
        assert!(html.contains(words) && html.contains("up to 40 uploads."), "{html}");
        let sizes = [(&report.advice[0], 64 << 10)];
        let plan = pinpool::Pool::builder().toml(config(&sizes)).plan().unwrap();
        assert_eq!((plan.classes.len(), plan.classes[0].slot_bytes), (1, 64 << 10));
        let frame = [(&report.advice[0], 6_220_800)];
        let plan = pinpool::Pool::builder().toml(config(&frame)).plan().unwrap();
        assert!(plan.classes[0].slot_bytes >= 6_220_800, "{plan:?}");
        // A size of which the usual limit would hold too few.
        let text = config(&[(&report.advice[0], 512 << 20)]);
        assert!(text.contains("max_pinned = \"4GiB\""), "{text}");
    }

    #[test]
    fn without_figures_it_says_so() {
        assert!(of(report(&[(4096, None)])).contains("Pin nothing for the sake of bandwidth"));
        let mut none = report(&[]);
        none.header.not_run = Some("no CUDA device: none".into());
        let html = of(none);
        assert!(html.contains("is not known") && html.contains("no CUDA device: none"), "{html}");
        assert_eq!(super::html(&[]), "");
    }
}
