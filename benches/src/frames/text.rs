//! The result of `frames` for people.

use std::fmt::Write as _;

use super::FRAMES_QUICK;
use super::report::{FramesRatios, FramesReport};
use crate::tables::QUICK;
use crate::text;

impl FramesReport {
    /// The cells of the table of absolute figures, with its header.
    pub fn cells(&self) -> (Vec<&'static str>, Vec<Vec<String>>) {
        let mut header = vec!["source", "frames/s", "p50 us", "p99 us", "max us"];
        if self.rate_fps.is_some() {
            header.push("missed");
        }
        let rows = self.rows.iter().map(|row| {
            let numbers = [row.fps, row.p50_us, row.p99_us, row.max_us].map(text::number);
            let mut cells = vec![row.name.clone()];
            cells.extend(numbers);
            cells.extend(row.missed.map(|missed| missed.to_string()));
            cells
        });
        (header, rows.collect())
    }

    /// The cells of the table of frame rates, with its header.
    pub fn rate_cells(&self) -> (Vec<&'static str>, Vec<Vec<String>>) {
        let header = vec!["behind a camera", "in time", "dropped", "of", "holds"];
        let rows = self.rates.iter().map(|row| {
            vec![
                format!("{} frames/s, {}", row.target_fps, row.name),
                format!("{:.1} %", row.in_time_percent),
                text::count(row.dropped),
                text::count(row.arrived),
                if row.holds { "yes" } else { "no" }.to_owned(),
            ]
        });
        (header, rows.collect())
    }

    /// The result for people.
    pub fn to_text(&self) -> String {
        let paced = self.rate_fps.map_or_else(String::new, |rate| format!(" paced at {rate} fps"));
        let locked = if self.locked { "locked" } else { "NOT locked" };
        let (header, rows) = self.cells();
        let mut lines = format!(
            "{} frames of {} ({} bytes), {} deep{paced}; backend {}, memory {locked}\n{}\n",
            self.frames,
            self.frame.spec,
            self.frame.bytes,
            self.depth,
            self.backend,
            self.machine.summary(),
        );
        if self.frames <= FRAMES_QUICK {
            lines.push_str(QUICK);
        }
        lines.push('\n');
        lines.push_str(&text::table(&header, &rows));
        // Writing to a `String` cannot fail.
        if !self.rates.is_empty() {
            let (header, rows) = self.rate_cells();
            let _ = write!(lines, "\n{}", text::table(&header, &rows));
        }
        for note in &self.notes {
            let _ = write!(lines, "\nNote: {note}");
        }
        let _ = write!(lines, "\n{}\n", self.conclusion());
        lines
    }

    /// What the run shows, in one sentence.
    pub fn conclusion(&self) -> String {
        let FramesRatios {
            lease_over_pinned_per_frame: pinned,
            lease_over_malloc_per_frame: malloc,
            lease_over_fixed_ring: ring,
        } = self.ratios;
        format!(
            "Round by round (medians), leases moved {} as many frames per second of busy time as \
             pinning each frame, {} as many as malloc per frame and {} as many as a fixed ring.",
            text::ratio(pinned),
            text::ratio(malloc),
            text::ratio(ring),
        ) + &self.held()
    }

    /// The highest frame rate that each rival holds, in a sentence; nothing where none was looked at.
    fn held(&self) -> String {
        let held = |name: &str| {
            let rates = self.rates.iter().filter(|row| row.name == name && row.holds);
            rates.map(|row| row.target_fps).fold(0.0, f64::max)
        };
        let words = self.rows.iter().map(|row| match held(&row.name) {
            0.0 => format!("{} none", row.name),
            fps => format!("{} {fps}", row.name),
        });
        let words: Vec<String> = words.collect();
        if self.rates.is_empty() {
            return String::new();
        }
        let mut rates: Vec<String> = Vec::new();
        for row in &self.rates {
            let rate = row.target_fps.to_string();
            if !rates.contains(&rate) {
                rates.push(rate);
            }
        }
        format!(
            " The fastest camera of {} frames/s that each keeps up with: {}.",
            rates.join(", "),
            words.join(", "),
        )
    }
}
