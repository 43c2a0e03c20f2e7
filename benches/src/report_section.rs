//! The result of `frames` on a page.

use crate::report::{FRAMES, FramesReport};
use crate::section::{Bar, Plot, Section, SectionTable};

impl FramesReport {
    /// The result for a page.
    pub fn section(&self) -> Section {
        let (header, rows) = self.cells();
        let ratios = SectionTable::of_ratios(FRAMES, &self.ratios);
        let notes = self.notes.iter().map(|note| format!("\nNote: {note}"));
        Section {
            id: FRAMES,
            title: "Video frames: leases, pinning each frame, malloc and a fixed ring".into(),
            conclusion: self.conclusion(),
            method: std::iter::once(self.method.clone()).chain(notes).collect(),
            tables: ratios.into_iter().chain([SectionTable::new("Frames", header, rows)]).collect(),
            plots: vec![Plot::Bars {
                title: format!("Frames of {}", self.frame.spec),
                unit: "frames/s".into(),
                bars: self.rows.iter().map(|row| Bar::new(&row.name, row.fps)).collect(),
            }],
            not_run: None,
        }
    }
}
