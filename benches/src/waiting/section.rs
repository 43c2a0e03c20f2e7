//! The result of the scenario `waiting` on a page: its tables, and its bars.

use super::report::{FREE, LoadRow, WAITING_SCENARIO, WaitingReport};
use crate::section::{Bar, Plot, Section};

impl WaitingReport {
    /// The result for a page.
    pub fn section(&self) -> Section {
        let rates = |title: &str, rows: &[LoadRow]| Plot::Bars {
            title: title.into(),
            unit: "leases/s".into(),
            bars: rows.iter().map(|row| Bar::of(&name(row), row.leases_per_s)).collect(),
        };
        let waits = |title: &str, rows: &[LoadRow]| Plot::Bars {
            title: title.into(),
            unit: "ms".into(),
            bars: rows
                .iter()
                .filter(|row| row.case != FREE)
                .map(|row| Bar {
                    low: Some(row.p50_us / 1e3),
                    high: Some(row.p999_us / 1e3),
                    ..Bar::new(&name(row), row.p999_us / 1e3)
                })
                .collect(),
        };
        let handover = self.handover.iter().map(|row| {
            let name = format!("{}: {}", row.pool, row.waiter);
            Bar { low: Some(row.p50_us), high: Some(row.p99_us), ..Bar::new(&name, row.p50_us) }
        });
        let plots = vec![
            rates("Tasks with holds of 1 ms", &self.tasks),
            rates("Threads with holds of 1 ms", &self.threads),
            waits("Waits of these tasks: p99.9, mark from p50", &self.tasks),
            waits("Waits of these threads: p99.9, mark from p50", &self.threads),
            Plot::Bars {
                title: "Drop to next owner: median, mark to p99".into(),
                unit: "us".into(),
                bars: handover.collect(),
            },
        ];
        let title = "Far more takers than slots: what waiting in line costs";
        Section::of(WAITING_SCENARIO, title, self, &self.ratios, plots)
    }
}

fn name(row: &LoadRow) -> String {
    format!("{}: {}, {} on {}", row.pool, row.case, row.waiters, row.slots)
}
