//! The result of `frames` on a page.

use super::report::{FRAMES, FramesReport};
use crate::section::{Axis, Bar, Plot, Section, SectionTable};
use crate::text;

impl FramesReport {
    /// The result for a page.
    pub fn section(&self) -> Section {
        let (header, rows) = self.cells();
        let ratios = SectionTable::of_ratios(FRAMES, &self.ratios);
        let mut tables = vec![SectionTable::new("Frames", header, rows)];
        if !self.rates.is_empty() {
            let (header, rows) = self.rate_cells();
            tables.push(SectionTable::new("Frame rates that are held", header, rows));
        }
        let frames = Plot::Bars {
            title: format!("Frames of {}", self.frame.spec),
            unit: "frames/s".into(),
            bars: self.rows.iter().map(|row| Bar::new(&row.name, row.fps)).collect(),
        };
        let notes = self.notes.iter().map(|note| format!("\nNote: {note}"));
        Section {
            id: FRAMES,
            title: format!(
                "Video frames of {}: leases, pinning each frame, malloc and a fixed ring",
                self.frame.spec,
            ),
            headline: format!(
                "Leases move {} as many frames of {} a second as pinning each frame, {} as many as \
                 malloc.",
                text::ratio(self.ratios.lease_over_pinned_per_frame),
                self.frame.spec,
                text::ratio(self.ratios.lease_over_malloc_per_frame),
            ),
            conclusion: self.conclusion(),
            method: std::iter::once(self.method.clone()).chain(notes).collect(),
            tables: ratios.into_iter().chain(tables).collect(),
            plots: vec![frames, self.rate_plot()].into_iter().filter(Plot::has_figures).collect(),
            not_run: None,
        }
    }

    /// The share of frames in time, by the rate of the camera.
    fn rate_plot(&self) -> Plot {
        let points = self.rates.iter();
        let points = points.map(|row| (row.name.as_str(), row.target_fps, row.in_time_percent));
        let (x, y) = (Axis::linear("frames/s of a camera"), Axis::linear("% in time"));
        Plot::lines("Frames that are done before the next one comes", x, y, points)
    }
}
