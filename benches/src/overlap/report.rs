//! The result of the scenario `overlap`: its JSON form, and what the rounds come to.

use serde::{Deserialize, Serialize};

use super::host::Memory;
use super::lanes::Course;
use crate::BenchError;
use crate::header::Header;
use crate::json::to_json;
use crate::timing::{Range, rounded};

/// A result of the scenario `overlap`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OverlapReport {
    /// Where it comes from; the scenario is always [`OVERLAP`].
    #[serde(flatten)]
    pub header: Header,
    /// What the rows come to.
    pub ratios: OverlapRatios,
    /// What the reader must know about this run.
    pub notes: Vec<String>,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Chunks of a run.
    pub chunks: u64,
    /// Steps of the kernel.
    pub steps: u64,
    /// What each step of a chunk takes by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone: Option<Alone>,
    /// One row for each memory and course.
    pub rows: Vec<OverlapRow>,
    /// A run of each memory, step by step.
    pub timelines: Vec<Timeline>,
}

/// The figures that say most; `None` where nothing was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OverlapRatios {
    /// The time with pageable memory over that with pinned memory, each in as many streams as suit it best.
    pub pinned_over_pageable: Option<Range>,
    /// The serial time over that in the best number of streams, with pinned memory.
    pub pinned_speedup: Option<Range>,
    /// The same with pageable memory.
    pub pageable_speedup: Option<Range>,
    /// The best number of streams with pinned memory.
    pub pinned_streams: Option<u64>,
    /// The same with pageable memory.
    pub pageable_streams: Option<u64>,
}

/// Steps of one chunk, each by itself, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alone {
    /// The kernel.
    pub kernel_us: f64,
    /// From a lease to the device.
    pub pinned_in_us: f64,
    /// From the device to a lease.
    pub pinned_out_us: f64,
    /// From pageable memory to the device.
    pub pageable_in_us: f64,
    /// From the device to pageable memory.
    pub pageable_out_us: f64,
    /// Between two events with nothing between them, which is subtracted from the others.
    pub event_gap_us: f64,
}

/// One memory and course.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OverlapRow {
    /// "pageable" or "pinned".
    pub memory: String,
    /// Streams; `None` is one that is waited for after every step.
    pub streams: Option<u64>,
    /// Milliseconds of a run, by round.
    pub ms: Range,
    /// Serial time over this, with the same memory.
    pub speedup: Range,
    /// The time with pageable memory over this, with the same streams.
    pub pageable_over_this: Range,
    /// Milliseconds, round by round.
    pub rounds: Vec<f64>,
}

/// One run with events around all steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// "pageable" or "pinned".
    pub memory: String,
    /// Streams.
    pub streams: u64,
    /// Milliseconds of the run as the host sees it.
    pub ms: f64,
    /// All steps.
    pub spans: Vec<TimelineSpan>,
}

/// A step of a chunk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimelineSpan {
    /// The stream, from 0.
    pub stream: u64,
    /// The chunk, from 0.
    pub chunk: u64,
    /// "copy in", "kernel" or "copy out".
    pub step: String,
    /// When the stream was ready for it, in milliseconds from the beginning.
    pub start_ms: f64,
    /// When it was over.
    pub end_ms: f64,
}

impl OverlapReport {
    /// Of a run that has not begun.
    pub(super) fn new(header: Header, chunk_bytes: usize, chunks: usize) -> Self {
        Self {
            header,
            ratios: OverlapRatios::default(),
            notes: Vec::new(),
            chunk_bytes: chunk_bytes as u64,
            chunks: chunks as u64,
            steps: 0,
            alone: None,
            rows: Vec::new(),
            timelines: Vec::new(),
        }
    }

    /// The rows and ratios of these milliseconds, by memory and course. The first course is the serial one.
    pub(super) fn fill(&mut self, courses: &[Course], times: &[Vec<Vec<f64>>; 2]) {
        let [pageable, _] = times;
        for (memory, times) in Memory::ALL.iter().zip(times) {
            for (which, course) in courses.iter().enumerate() {
                self.rows.push(OverlapRow {
                    memory: memory.name().to_owned(),
                    streams: match course {
                        Course::Serial => None,
                        Course::Streams(streams) => Some(*streams as u64),
                    },
                    ms: Range::of(&times[which]),
                    speedup: Range::of_ratios(&times[0], &times[which]),
                    pageable_over_this: Range::of_ratios(&pageable[which], &times[which]),
                    rounds: times[which].iter().copied().map(rounded).collect(),
                });
            }
        }
        let [pageable, pinned] = Memory::ALL.map(|memory| self.best(memory).cloned());
        let ratios = &mut self.ratios;
        if let (Some(pageable), Some(pinned)) = (pageable, pinned) {
            ratios.pinned_over_pageable = Some(Range::of_ratios(&pageable.rounds, &pinned.rounds));
            (ratios.pageable_speedup, ratios.pinned_speedup) =
                (Some(pageable.speedup), Some(pinned.speedup));
            (ratios.pageable_streams, ratios.pinned_streams) = (pageable.streams, pinned.streams);
        }
        self.notes.extend(self.doubts());
    }

    /// The row of a memory in the number of streams that suits it best.
    pub fn best(&self, memory: Memory) -> Option<&OverlapRow> {
        let rows = self.of(memory).filter(|row| row.streams.is_some());
        rows.min_by(|a, b| a.ms.median.total_cmp(&b.ms.median))
    }

    /// The rows of a memory.
    pub fn of(&self, memory: Memory) -> impl Iterator<Item = &OverlapRow> {
        self.rows.iter().filter(move |row| row.memory == memory.name())
    }

    /// What makes the figures doubtful.
    fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if let Some(Alone { kernel_us, pinned_in_us, .. }) = &self.alone {
            let over = kernel_us / pinned_in_us;
            if !(0.7..=1.4).contains(&over) {
                doubts.push(format!(
                    "the kernel takes {over:.2} of the time of a copy instead of about as long"
                ));
            }
        }
        for row in self.rows.iter().filter(|row| row.ms.high > row.ms.low * STEADY) {
            let streams =
                row.streams.map_or_else(|| "serial".to_owned(), |n| format!("{n} streams"));
            doubts.push(format!(
                "{}, {streams}: rounds took from {} to {} ms, a ratio of them means little",
                row.memory, row.ms.low, row.ms.high
            ));
        }
        doubts
    }

    /// The result as the JSON that is committed.
    ///
    /// # Errors
    /// Never for a result of a run; the writer's reason else.
    pub fn to_json(&self) -> Result<String, BenchError> {
        to_json(self)
    }
}

/// The scenario's name.
pub const OVERLAP: &str = "overlap";
/// Rounds that differ by more are not of the same machine.
const STEADY: f64 = 2.0;

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::header::tests::header;

    /// Pageable: 30 ms serial, 20 in two streams. Pinned: 12, 9 in one stream, 4 in two.
    pub(in super::super) fn report() -> OverlapReport {
        let mut report = OverlapReport::new(header(OVERLAP, true), 16 << 20, 16);
        report.steps = 2001;
        report.alone = Some(Alone {
            kernel_us: 300.0,
            pinned_in_us: 310.0,
            pinned_out_us: 305.0,
            pageable_in_us: 1600.0,
            pageable_out_us: 2600.0,
            event_gap_us: 1.5,
        });
        let courses = [Course::Serial, Course::Streams(1), Course::Streams(2)];
        let rounds = |ms: f64| vec![ms, ms, ms];
        let times = [[30.0, 25.0, 20.0], [12.0, 9.0, 4.0]];
        report.fill(&courses, &times.map(|times| times.map(rounds).to_vec()));
        let span = |stream, step: &str, start_ms, end_ms| TimelineSpan {
            stream,
            chunk: stream,
            step: step.to_owned(),
            start_ms,
            end_ms,
        };
        let spans = vec![span(0, "copy in", 0.0, 0.3), span(1, "copy in", 0.1, 0.6)];
        report.timelines =
            vec![Timeline { memory: "pinned".to_owned(), streams: 2, ms: 4.0, spans }];
        report
    }

    #[test]
    fn ratios_are_of_the_best_number_of_streams() {
        let report = report();
        let median = |range: Option<Range>| range.map(|range| range.median);
        assert_eq!(median(report.ratios.pinned_over_pageable), Some(5.0));
        assert_eq!(median(report.ratios.pinned_speedup), Some(3.0));
        assert_eq!(median(report.ratios.pageable_speedup), Some(1.5));
        assert_eq!(
            (report.ratios.pinned_streams, report.ratios.pageable_streams),
            (Some(2), Some(2))
        );
        assert_eq!(report.rows.len(), 6);
        assert!((report.rows[4].pageable_over_this.median - 25.0 / 9.0).abs() < 1e-3);
        assert_eq!(report.notes, [""; 0]);
        let json = report.to_json().unwrap_or_default();
        assert_eq!(serde_json::from_str::<OverlapReport>(&json).ok(), Some(report), "{json}");
    }

    #[test]
    fn what_is_not_steady_or_not_tuned_is_said() {
        let mut report = report();
        report.alone = report.alone.map(|alone| Alone { kernel_us: 900.0, ..alone });
        report.rows[1].ms.high = 60.0;
        let doubts = report.doubts();
        assert_eq!(doubts.len(), 2, "{doubts:?}");
        assert!(doubts[0].contains("takes 2.90 of the time"), "{doubts:?}");
        assert!(doubts[1].starts_with("pageable, 1 streams: rounds took from 25"), "{doubts:?}");
    }
}
