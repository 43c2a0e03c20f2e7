//! The result of the scenario `staged` on a page: its tables, and its curves.

use super::report::{STAGED_SCENARIO, StagedReport};
use crate::copy::Direction;
use crate::section::{Axis, Bar, Plot, Section};
use crate::text;

impl StagedReport {
    /// The result for a page.
    pub fn section(&self) -> Section {
        let [h2d, d2h] = Direction::ALL;
        let mut plots = vec![
            self.rates_plot("Host to device", h2d),
            self.rates_plot("Device to host", d2h),
            self.chunks_plot(),
        ];
        let file = self.file.iter().map(|row| {
            Bar::of(&format!("{}, {}: {}", text::bytes(row.bytes), row.case, row.side), row.ms)
        });
        plots.push(Plot::Bars {
            title: "A file to the device".into(),
            unit: "ms".into(),
            bars: file.collect(),
        });
        let title = "Ordinary memory and files to and from the GPU";
        Section::of(STAGED_SCENARIO, title, self, &self.ratios, plots)
    }

    /// Stagers as they are by default, beside the others.
    fn rates_plot(&self, title: &str, direction: Direction) -> Plot {
        let is_shown =
            |threads: Option<u64>| threads.is_none() || threads == Some(self.default_threads);
        let rows = self.copies.iter();
        let rows = rows.filter(|row| row.direction == direction.name() && is_shown(row.threads));
        let points = rows.map(|row| (row.side.as_str(), row.bytes as f64, row.gb_per_s));
        Plot::lines(title, Axis::log("bytes of a copy"), Axis::linear("GB/s"), points)
    }

    fn chunks_plot(&self) -> Plot {
        let points = self.chunks.iter().filter_map(|row| {
            Some((row.direction.as_str(), row.chunk_bytes? as f64, row.gb_per_s))
        });
        let title = format!("Staged copies of {} by chunk", text::bytes(self.ratios_bytes));
        Plot::lines(&title, Axis::log("bytes of a chunk"), Axis::linear("GB/s"), points)
    }
}
