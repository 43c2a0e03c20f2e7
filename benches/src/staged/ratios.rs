//! What the parts of the scenario `staged` come to.

use super::pytorch::{PIN_MEMORY, TO};
use super::report::{
    CACHED, COLD, READ_THEN_COPY, SideRow, StagedRatios, StagedReport, UPLOAD_FILE,
};
use super::side::{PINNED, STAGED, Side};
use crate::copy::Direction;
use crate::text;
use crate::timing::{median_ratio, rounded};

impl StagedReport {
    /// Of what the parts say, for `ratios_bytes`.
    pub(super) fn work_out(&mut self) {
        let [h2d, d2h] = Direction::ALL.map(Direction::name);
        let bytes = self.ratios_bytes;
        let (pageable, register) = (Side::Pageable.name(), Side::Register.name());
        let over_read = |case| {
            let (ours, theirs) = (self.file(UPLOAD_FILE, case)?, self.file(READ_THEN_COPY, case)?);
            Some(rounded(median_ratio(&theirs.rounds, &ours.rounds)))
        };
        let over_pytorch = |way| {
            let ours = self.staged(bytes, h2d)?.gb_per_s;
            let ratio = ours / self.pytorch.as_ref()?.gb_per_s(way, bytes)?;
            Some(rounded(ratio)).filter(|ratio| ratio.is_finite())
        };
        let four = self.copy(bytes, h2d, STAGED, Some(4));
        let small = self.small.iter().map(|row| row.upload_over_plain.median);
        self.ratios = StagedRatios {
            h2d_over_pinned: self.staged_over(bytes, h2d, PINNED),
            h2d_over_pageable: self.staged_over(bytes, h2d, pageable),
            h2d_over_register: self.staged_over(bytes, h2d, register),
            d2h_over_pageable: self.staged_over(bytes, d2h, pageable),
            d2h_over_pinned: self.staged_over(bytes, d2h, PINNED),
            d2h_over_register: self.staged_over(bytes, d2h, register),
            h2d_4_threads_over_pageable: over(four, self.copy(bytes, h2d, pageable, None)),
            file_over_read_then_copy: over_read(CACHED),
            cold_file_over_read_then_copy: over_read(COLD),
            small_over_plain: small.max_by(f64::total_cmp),
            h2d_over_pytorch_to: over_pytorch(TO),
            h2d_over_pytorch_pin_memory: over_pytorch(PIN_MEMORY),
        };
    }

    /// The row of a stager as it is by default.
    pub fn staged(&self, bytes: u64, direction: &str) -> Option<&SideRow> {
        self.copy(bytes, direction, STAGED, Some(self.default_threads))
    }

    /// The bandwidth of a stager as it is by default over that of another side.
    pub(super) fn staged_over(&self, bytes: u64, direction: &str, side: &str) -> Option<f64> {
        over(self.staged(bytes, direction), self.copy(bytes, direction, side, None))
    }

    /// What the ratios are held against, in the order of their weight.
    pub(super) fn bars(&self) -> [Bar; 6] {
        let ratios = &self.ratios;
        let at_least = |name, value, limit| Bar { name, value, limit, is_most: false };
        [
            at_least("H2D over pinned", ratios.h2d_over_pinned, 0.85),
            at_least("H2D over pageable", ratios.h2d_over_pageable, 6.0),
            at_least("D2H over pageable", ratios.d2h_over_pageable, 3.5),
            at_least("H2D, 4 threads, over pageable", ratios.h2d_4_threads_over_pageable, 4.0),
            at_least("cached file over read, then copy", ratios.file_over_read_then_copy, 3.0),
            Bar {
                name: "time of small uploads over plain",
                value: ratios.small_over_plain,
                limit: 1.05,
                is_most: true,
            },
        ]
    }
}

/// What a ratio is to reach, or to keep to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bar {
    pub(super) name: &'static str,
    pub(super) value: Option<f64>,
    limit: f64,
    is_most: bool,
}

impl Bar {
    /// For people.
    pub(super) fn limit(&self) -> String {
        let word = if self.is_most { "at most" } else { "at least" };
        format!("{word} {}", text::ratio(self.limit))
    }

    /// Whether it is met, where it was measured.
    pub(super) fn is_met(&self) -> Option<bool> {
        let value = self.value?;
        Some(if self.is_most { value <= self.limit } else { value >= self.limit })
    }
}

/// Bandwidth over bandwidth, which is time under time, of the rounds that both have.
fn over(above: Option<&SideRow>, below: Option<&SideRow>) -> Option<f64> {
    Some(rounded(median_ratio(&below?.rounds, &above?.rounds)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
pub(crate) mod tests {
    use super::*;
    use crate::header::tests::header;
    use crate::staged::pytorch::tests::figures;
    use crate::staged::report::{FileRow, STAGED_SCENARIO, SmallRow, UPLOAD_FROM};
    use crate::timing::Range;

    fn side_row(side: &str, direction: &str, threads: Option<u64>, rounds: &[f64]) -> SideRow {
        let us = Range::of(rounds);
        SideRow {
            side: side.into(),
            direction: direction.into(),
            bytes: 1 << 30,
            threads,
            chunk_bytes: threads.map(|_| 4 << 20),
            us,
            gb_per_s: rounded((1u64 << 30) as f64 / 1e3 / us.median),
            rounds: rounds.to_vec(),
        }
    }

    fn file_row(side: &str, case: &str, ms: f64) -> FileRow {
        FileRow {
            side: side.into(),
            case: case.into(),
            bytes: 1 << 30,
            cached_percent: if case == CACHED { 100.0 } else { 0.0 },
            ms: Range::of(&[ms]),
            gb_per_s: rounded((1u64 << 30) as f64 / 1e6 / ms),
            rounds: vec![ms],
        }
    }

    fn small_row(bytes: u64, ratio: f64) -> SmallRow {
        SmallRow {
            bytes,
            repeats: 1000,
            plain_us: Range::of(&[10.0]),
            upload_us: Range::of(&[10.0 * ratio]),
            upload_over_plain: Range::of(&[ratio]),
        }
    }

    pub(crate) fn report() -> StagedReport {
        let mut report = StagedReport::new(header(STAGED_SCENARIO, true));
        report.notes = vec!["a note".into()];
        (report.default_threads, report.default_chunk_bytes) = (6, 4 << 20);
        report.ratios_bytes = 1 << 30;
        let row = side_row;
        report.copies = vec![
            // The second round was disturbed for both.
            row("pageable", "h2d", None, &[120_000.0, 240_000.0, 120_000.0]),
            row("register in place", "h2d", None, &[240_000.0]),
            row("pinned", "h2d", None, &[18_000.0, 36_000.0, 18_000.0]),
            row("staged", "h2d", Some(4), &[30_000.0, 60_000.0, 30_000.0]),
            row("staged", "h2d", Some(6), &[20_000.0, 40_000.0, 20_000.0]),
            row("pageable", "d2h", None, &[100_000.0]),
            row("pinned", "d2h", None, &[20_000.0]),
            row("staged", "d2h", Some(6), &[40_000.0]),
        ];
        report.chunks = vec![
            row("staged", "h2d", Some(6), &[20_000.0]),
            row("staged", "d2h", Some(6), &[40_000.0]),
        ];
        report.small = vec![small_row(4096, 1.04), small_row(16384, 1.06), small_row(65536, 1.02)];
        report.file = vec![
            file_row(READ_THEN_COPY, CACHED, 250.0),
            file_row(UPLOAD_FILE, CACHED, 25.0),
            file_row(UPLOAD_FROM, CACHED, 100.0),
            file_row(READ_THEN_COPY, COLD, 900.0),
            file_row(UPLOAD_FILE, COLD, 600.0),
            file_row(UPLOAD_FROM, COLD, 800.0),
        ];
        report.pytorch = Some(figures());
        report.work_out();
        report
    }

    #[test]
    fn bandwidths_are_compared_round_by_round_and_small_copies_by_time() {
        let ratios = report().ratios;
        assert_eq!(ratios.h2d_over_pinned, Some(0.9));
        assert_eq!(ratios.h2d_over_pageable, Some(6.0));
        assert_eq!(ratios.h2d_over_register, Some(12.0));
        assert_eq!(ratios.h2d_4_threads_over_pageable, Some(4.0));
        assert_eq!((ratios.d2h_over_pageable, ratios.d2h_over_pinned), (Some(2.5), Some(0.5)));
        assert_eq!(ratios.file_over_read_then_copy, Some(10.0));
        assert_eq!(ratios.cold_file_over_read_then_copy, Some(1.5));
        assert_eq!(ratios.small_over_plain, Some(1.06));
        // 53.7 GB/s over their 8 and 2.
        assert_eq!(ratios.h2d_over_pytorch_to, Some(6.711));
        assert_eq!(ratios.h2d_over_pytorch_pin_memory, Some(26.844));
        // Nothing is made up where a side was not measured.
        assert_eq!(ratios.d2h_over_register, None);
        let mut other = report();
        (other.ratios_bytes, other.pytorch) = (1 << 20, None);
        other.work_out();
        assert_eq!((other.ratios.h2d_over_pinned, other.ratios.h2d_over_pytorch_to), (None, None));
    }

    #[test]
    fn bars_are_met_or_missed_or_not_measured() {
        let mut report = report();
        let met = |report: &StagedReport| report.bars().map(|bar| bar.is_met());
        assert_eq!(met(&report), [true, true, false, true, true, false].map(Some));
        let limits = report.bars().map(|bar| bar.limit());
        assert_eq!((limits[1].as_str(), limits[5].as_str()), ("at least 6.00x", "at most 1.05x"));
        report.ratios = StagedRatios::default();
        assert_eq!(met(&report), [None; 6]);
    }
}
