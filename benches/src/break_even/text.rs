//! The result of the scenario `break-even` for people and as a section of a page.

use super::report::{Advice, BREAK_EVEN, BreakEvenRatio, BreakEvenReport, WORTH};
use crate::copy::DIRECTIONS;
use crate::header::Header;
use crate::section::{Axis, Plot, Section};
use crate::tables::{self, Table, Tabled};
use crate::text;

impl BreakEvenReport {
    /// The result for people.
    pub fn to_text(&self) -> String {
        if let Some(reason) = &self.header.not_run {
            return format!(
                "not run: {reason}\n\
                 This scenario measures from which size and how many copies on pinning a buffer pays. \
                 Without an NVIDIA GPU and its driver nothing is copied to a device, and pinning gains \
                 nothing.\n"
            );
        }
        tables::to_text(self)
    }

    /// The result as a section of a page.
    pub fn section(&self) -> Section {
        let plots = ["h2d", "d2h"].map(|direction| self.plot(direction)).to_vec();
        Section::of(BREAK_EVEN, "From when on pinning pays", self, &(), plots)
    }

    fn plot(&self, direction: &str) -> Plot {
        type Way = (&'static str, fn(&BreakEvenRatio) -> Option<f64>);
        let ways: [Way; 3] = [
            ("cuMemHostAlloc", |ratio| ratio.reuses_pinned),
            ("registered in place", |ratio| ratio.reuses_registered),
            ("a lease", |ratio| ratio.reuses_leased),
        ];
        let of = |ratio: &&BreakEvenRatio| ratio.direction == direction;
        let points = ways.into_iter().flat_map(|(name, reuses)| {
            let point =
                move |ratio: &BreakEvenRatio| Some((name, ratio.bytes as f64, reuses(ratio)?));
            self.ratios.iter().filter(of).filter_map(point)
        });
        let title = format!("Copies until pinning pays, {direction}");
        Plot::lines(&title, Axis::log("bytes"), Axis::log("copies"), points)
    }

    fn ratio_table(&self) -> Table {
        let header = vec![
            "copies until it pays",
            "cuMemHostAlloc",
            "registered",
            "lease",
            "pageable/pinned",
        ];
        let rows = self.ratios.iter().map(|ratio| {
            let reuses = [ratio.reuses_pinned, ratio.reuses_registered, ratio.reuses_leased];
            let reuses = reuses.map(|reuses| reuses.map_or_else(|| "never".to_owned(), copies));
            let name = format!("{} {}", ratio.direction, text::bytes(ratio.bytes));
            let last = text::ratio(ratio.pageable_over_pinned);
            std::iter::once(name).chain(reuses).chain([last]).collect()
        });
        ("Copies until pinning pays (fewer are better)", header, rows.collect())
    }

    fn time_table(&self) -> Table {
        let header =
            vec!["us", "saved", "pageable", "pinned", "cuMemHostAlloc", "register", "lease"];
        let rows = self.rows.iter().map(|row| {
            let mark = if row.unsteady { "~" } else { "" };
            let name = format!("{} {}", row.direction, text::bytes(row.bytes));
            let times = [row.pageable_us, row.pinned_us, row.pin_us, row.register_us];
            let saved = format!("{mark}{:.1}", row.saved_us);
            let lease = format!("{:.3}", row.lease_us);
            let times = times.map(text::number);
            std::iter::once(name).chain([saved]).chain(times).chain([lease]).collect()
        });
        ("What it was worked out from", header, rows.collect())
    }
}

impl Tabled for BreakEvenReport {
    fn header(&self) -> &Header {
        &self.header
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn tables(&self) -> Vec<Table> {
        vec![self.ratio_table(), self.time_table()]
    }

    fn headline(&self) -> String {
        let pays = |advice: &Advice| {
            let copies_are = advice.copies_are();
            match (advice.from_bytes, advice.reuses_pinned) {
                (Some(bytes), Some(reuses)) => format!(
                    "{copies_are} from {} on within {:.0} copies",
                    text::bytes(bytes),
                    reuses.ceil(),
                ),
                _ => format!("{copies_are} within no {WORTH} copies"),
            }
        };
        let pays: Vec<String> = self.advice.iter().map(pays).collect();
        format!("Pinning a buffer pays for {}.", pays.join(", for "))
    }

    fn conclusion(&self) -> String {
        let sentences: Vec<String> = self.advice.iter().map(Advice::sentence).collect();
        sentences.join(" ")
    }
}

impl Advice {
    /// What its copies are called.
    pub(crate) fn copies_are(&self) -> &'static str {
        if self.direction == DIRECTIONS[0] { "uploads" } else { "downloads" }
    }

    fn sentence(&self) -> String {
        let copies_are = self.copies_are();
        match (self.from_bytes, self.reuses_pinned) {
            (Some(bytes), Some(reuses)) => format!(
                "For {copies_are}, lease buffers of {} and more from a pool: that pays with the \
                 first copy, while pinning a buffer for itself has paid after {} copies or less.",
                text::bytes(bytes),
                reuses.ceil(),
            ),
            _ => format!(
                "For {copies_are}, no size of this run pays within {WORTH} copies: pin nothing for \
                 bandwidth alone.",
            ),
        }
    }
}

/// A number of copies for people; below one it pays with the first.
fn copies(reuses: f64) -> String {
    if reuses < 0.1 { "<0.1".to_owned() } else { text::number(reuses) }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn the_advice_is_a_sentence_that_names_a_size() {
        let text = report(&[(4096, None), (65536, Some(39.2))]).to_text();
        let words = "For uploads, lease buffers of 64 KiB and more from a pool: that pays with the \
                     first copy, while pinning a buffer for itself has paid after 40 copies or less";
        assert!(text.contains(words) && text.contains("never"), "{text}");
        assert!(text.contains("For downloads, no size of this run pays within 1000"), "{text}");
        let headline = report(&[(65536, Some(39.2))]).headline();
        assert!(headline.contains("uploads from 64 KiB on within 40 copies"), "{headline}");
    }

    #[test]
    fn the_curves_leave_out_what_never_pays() {
        let section = report(&[(4096, None), (65536, Some(40.0))]).section();
        let Plot::Lines { series, .. } = &section.plots[0] else { panic!("{section:?}") };
        assert_eq!(series.len(), 3);
        assert_eq!(series[0].points, [(65536.0, 40.0)]);
        // Nothing was downloaded: that picture is left out.
        assert_eq!(section.plots.len(), 1);
    }
}
