//! The results of `frames` and `copy` on a page.

use crate::report::{COPY, CopyReport, FRAMES, FramesReport};
use crate::section::{Axis, Bar, Plot, Section, SectionTable};

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

impl CopyReport {
    /// The result for a page.
    pub fn section(&self) -> Section {
        let title = "Copies between host and GPU";
        if let Some(reason) = &self.not_run {
            return Section::not_run(COPY, title, reason, &self.method);
        }
        let (ratio_header, ratio_rows) = self.ratio_cells();
        let (header, rows) = self.cells();
        let plot = |title: &str, direction: &str| {
            let rows = self.rows.iter().filter(|row| row.direction == direction);
            let points = rows.map(|row| (row.name.as_str(), row.bytes as f64, row.gb_per_s));
            Plot::lines(title, Axis::log("bytes of a copy"), Axis::linear("GB/s"), points)
        };
        Section {
            id: COPY,
            title: title.into(),
            conclusion: "Bandwidth by where the host memory comes from.".into(),
            method: self.method.clone(),
            tables: vec![
                SectionTable::new("Bandwidth over cuMemHostAlloc's", ratio_header, ratio_rows),
                SectionTable::new("GB/s", header, rows),
            ],
            plots: vec![plot("Host to device", "h2d"), plot("Device to host", "d2h")],
            not_run: None,
        }
    }
}
