//! The result of the scenario `lease` on a page: its tables, and its curves.

use super::report::{LEASE_SCENARIO, LeaseReport, RateRow, STAMPS};
use crate::churn::PINPOOL;
use crate::section::{Axis, Bar, Plot, Section};

impl LeaseReport {
    /// The result for a page.
    pub fn section(&self) -> Section {
        let rates = |title, x, rows: &[RateRow]| {
            // The pool in its other sizes lies so near itself that one curve stands for all.
            let shown = |row: &&RateRow| row.source == PINPOOL || !row.source.starts_with(PINPOOL);
            let shown = rows.iter().filter(shown);
            let points =
                shown.map(|row| (row.source.as_str(), row.threads as f64, row.mops.median));
            Plot::lines(title, Axis::log(x), Axis::log("millions a second, all together"), points)
        };
        let tail = self.tail.iter().filter(|row| row.source != STAMPS).map(|row| Bar {
            low: Some(row.p50_ns),
            high: Some(row.p9999_ns),
            ..Bar::new(&row.source, row.p9999_ns)
        });
        let mut plots = vec![
            rates("Taken and given back", "threads", &self.threads),
            rates("From thread to thread through a channel", "pairs of threads", &self.handoff),
        ];
        plots.push(Plot::Bars {
            title: "All processors at once: p99.99 of a lease and its drop, mark from p50".into(),
            unit: "ns".into(),
            bars: tail.collect(),
        });
        let title = "Leases and drops by themselves, and from thread to thread";
        Section::of(LEASE_SCENARIO, title, self, &self.ratios, plots)
    }
}
