//! The result of the scenario `startup` on a page: its tables, and its pictures.

use super::report::{Felt, NeighbourRow, STARTUP, StartupReport};
use crate::section::{Bar, Lane, Plot, Section, Span};
use crate::text;

impl StartupReport {
    /// The result for a page.
    pub fn section(&self) -> Section {
        let plots = vec![
            self.rates_plot(),
            self.steps_plot(),
            self.stalls_plot("Longest call of another process meanwhile", |row| &row.process),
            self.stalls_plot("Longest call of another thread of this process", |row| &row.own),
        ];
        let title = "Opening pools, and who is held up by it";
        Section::of(STARTUP, title, self, &(), plots)
    }

    fn rates_plot(&self) -> Plot {
        let largest = self.sizes.last().map_or(0, |size| size.bytes);
        let bars = self.opens.iter().filter(|row| row.bytes == largest);
        Plot::Bars {
            title: format!("Opening {}", text::bytes(largest)),
            unit: "ms".into(),
            bars: bars.map(|row| Bar::of(&row.strategy, row.ms)).collect(),
        }
    }

    /// The steps one after the other, at their medians.
    fn steps_plot(&self) -> Plot {
        let largest = self.sizes.last().map_or(0, |size| size.bytes);
        let rows = self.opens.iter().filter(|row| row.bytes == largest && !row.phases.is_empty());
        let lane = |row: &super::report::OpenRow| {
            let steps = row.phases.iter().filter(|phase| phase.phase != "total");
            let spans = steps.scan(0.0, |start, phase| {
                let span = Span {
                    start: *start,
                    end: *start + phase.ms.median,
                    label: phase.phase.clone(),
                };
                *start = span.end;
                Some(span)
            });
            Lane { name: row.strategy.clone(), spans: spans.collect() }
        };
        Plot::Timeline {
            title: format!("Steps of opening {}", text::bytes(largest)),
            unit: "ms".into(),
            lanes: rows.map(lane).collect(),
        }
    }

    fn stalls_plot(&self, title: &str, felt: fn(&NeighbourRow) -> &Option<Felt>) -> Plot {
        let bar = |row: &NeighbourRow| {
            let name = match row.bytes {
                0 => row.case.clone(),
                bytes => format!("{}: {}", text::bytes(bytes), row.case),
            };
            felt(row).as_ref().map(|felt| Bar::new(&name, felt.longest_ms))
        };
        Plot::Bars {
            title: title.to_owned(),
            unit: "ms".into(),
            bars: self.neighbours.iter().filter_map(bar).collect(),
        }
    }
}
