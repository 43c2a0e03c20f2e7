//! The result of the scenario `gigabyte` for people and as a section of a page.

use super::copies::{PAGEABLE, PINNED};
use super::host::STAGING;
use super::report::{CopyTimes, GIGABYTE, GigabyteReport};
use crate::copy::DIRECTIONS;
use crate::header::Header;
use crate::section::{Bar, FlowRow, FlowStep, Plot, Section};
use crate::tables::{self, Table, Tabled};
use crate::text;
use crate::timing::Range;

impl GigabyteReport {
    /// The result for people.
    pub fn to_text(&self) -> String {
        tables::to_text(self)
    }

    /// The result as a section of a page.
    pub fn section(&self) -> Section {
        let title = format!("One copy of {}", text::bytes(self.bytes));
        let plots = vec![self.flow(), self.bars()];
        Section::of(GIGABYTE, &title, self, &(), plots)
    }

    /// The way of a copy, with the times of this run.
    fn flow(&self) -> Plot {
        let rows = DIRECTIONS.iter().flat_map(|direction| {
            [PAGEABLE, PINNED].map(|memory| FlowRow {
                name: self.way(memory, direction),
                steps: self.steps(memory, direction),
            })
        });
        let title = format!("The way of {}", text::bytes(self.bytes));
        Plot::Flow { title, rows: rows.collect() }
    }

    /// A kind of memory and a direction, and how long a later copy takes in all.
    fn way(&self, memory: &str, direction: &str) -> String {
        let all = self.copy(memory, direction).map_or_else(String::new, |row| {
            format!(", the call {} ms", text::number(row.later_ms.median))
        });
        format!("{memory}, {direction}{all}")
    }

    fn steps(&self, memory: &str, direction: &str) -> Vec<FlowStep> {
        let step = |name: &str, ms: Option<f64>| FlowStep { name: name.to_owned(), ms };
        let row = self.copy(memory, direction);
        let upload = direction == DIRECTIONS[0];
        let write = row.and_then(|row| row.write_ms).map(|ms| ms.median);
        let dma = self.copy(PINNED, direction).map(|row| row.later_ms.median);
        let mut steps = vec![step("DMA over the link", dma)];
        if memory == PAGEABLE {
            let staging = self.host.iter().find(|row| row.step == STAGING);
            let (name, place) = if upload {
                ("memcpy to the driver's pinned buffer", 0)
            } else {
                ("memcpy from the driver's pinned buffer", 1)
            };
            steps.insert(place, step(name, staging.map(|row| row.ms.median)));
        }
        if upload {
            steps.insert(0, step("the program writes it", write));
        }
        steps
    }

    fn bars(&self) -> Plot {
        let bars = self.copies.iter().flat_map(|row| {
            let bar = |which: &str, ms: Range| {
                Bar::of(&format!("{}, {}, {which}", row.memory, row.direction), ms)
            };
            [bar("first", row.first_ms), bar("later", row.later_ms)]
        });
        let title = format!("Copies of {}", text::bytes(self.bytes));
        Plot::Bars { title, unit: "ms".to_owned(), bars: bars.collect() }
    }

    fn ratio_table(&self) -> Table {
        let ratios = &self.ratios;
        let named = [
            ("pageable over pinned: first upload", ratios.h2d_first),
            ("pageable over pinned: later uploads", ratios.h2d_later),
            ("pageable over pinned: get, write and upload once", ratios.h2d_all),
            ("pageable over pinned: first download", ratios.d2h_first),
            ("pageable over pinned: later downloads", ratios.d2h_later),
            ("pageable over pinned: get and download once", ratios.d2h_all),
        ];
        let rows = named.into_iter().filter_map(|(name, ratio)| {
            let ratio = ratio?;
            let cells = [ratio.median, ratio.low, ratio.high].map(text::ratio);
            Some(std::iter::once(name.to_owned()).chain(cells).collect())
        });
        let fresh = ratios.host_fresh_over_touched.map(|ratio| {
            let name = "memcpy to memory nobody touched over touched memory";
            vec![name.to_owned(), text::ratio(ratio), "-".to_owned(), "-".to_owned()]
        });
        let header = vec!["time over time", "median", "lowest", "highest"];
        ("Ratios (above 1.00x the second is faster)", header, rows.chain(fresh).collect())
    }

    fn copy_table(&self) -> Table {
        let header = vec!["ms", "first", "later", "get", "write", "all of one", "GB/s later"];
        let rows = self.copies.iter().map(|row| {
            let cell = |range: Range| text::number(range.median);
            vec![
                format!("{} {}", row.direction, row.memory),
                cell(row.first_ms),
                cell(row.later_ms),
                cell(row.get_ms),
                row.write_ms.map_or_else(|| "-".to_owned(), cell),
                cell(row.all_ms),
                text::number(row.later_gb_per_s),
            ]
        });
        ("Copies", header, rows.collect())
    }

    fn host_table(&self) -> Table {
        let header = vec!["on the host", "ms", "shortest", "longest", "GB/s"];
        let rows = self.host.iter().map(|row| {
            let times = [row.ms.median, row.ms.low, row.ms.high, row.gb_per_s].map(text::number);
            std::iter::once(row.step.clone()).chain(times).collect()
        });
        ("What the host does", header, rows.collect())
    }

    /// What staging costs of a pageable upload, by difference.
    fn staging(&self) -> Option<String> {
        let of = |memory| Some(self.copy(memory, DIRECTIONS[0])?.later_ms.median);
        let (pageable, pinned) = (of(PAGEABLE)?, of(PINNED)?);
        let host = self.host.iter().find(|row| row.step == STAGING)?.ms.median;
        Some(format!(
            " Staging costs a pageable upload {} ms beyond its DMA of {}; a memcpy of the same bytes \
             takes {} by itself.",
            text::number(pageable - pinned),
            text::number(pinned),
            text::number(host),
        ))
    }
}

impl Tabled for GigabyteReport {
    fn header(&self) -> &Header {
        &self.header
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn tables(&self) -> Vec<Table> {
        let tables = vec![self.ratio_table(), self.copy_table(), self.host_table()];
        tables.into_iter().filter(|(_, _, rows)| !rows.is_empty()).collect()
    }

    fn headline(&self) -> String {
        let (Some(up), Some(down)) = (self.ratios.h2d_first, self.ratios.d2h_first) else {
            return format!(
                "A memcpy of {} to memory that nobody touched takes {} of the time of one to touched \
                 memory.",
                text::bytes(self.bytes),
                text::ratio(self.ratios.host_fresh_over_touched.unwrap_or_default()),
            );
        };
        format!(
            "The first upload of {} from pageable memory takes {} of the time of one from pinned \
             memory, the first download {}.",
            text::bytes(self.bytes),
            text::ratio(up.median),
            text::ratio(down.median),
        )
    }

    fn conclusion(&self) -> String {
        let size = text::bytes(self.bytes);
        let fresh = self.ratios.host_fresh_over_touched.unwrap_or_default();
        let copies = |memory| DIRECTIONS.map(|direction| self.copy(memory, direction));
        let ([Some(up), Some(down)], [Some(pinned_up), Some(pinned_down)]) =
            (copies(PAGEABLE), copies(PINNED))
        else {
            let why = self.copies_not_measured.as_deref().unwrap_or("nothing was copied");
            return format!(
                "Only the host's part of a copy of {size} ran ({why}): a memcpy to memory that \
                 nobody touched takes {} of the time of one to touched memory.",
                text::ratio(fresh),
            );
        };
        let first = |row: &CopyTimes| text::number(row.first_ms.median);
        let later = |row: &CopyTimes| text::number(row.later_ms.median);
        format!(
            "The first upload of {size} takes {} ms from pageable and {} ms from pinned memory, later \
             ones {} and {}; the first download {} and {}, later ones {} and {}.{}",
            first(up),
            first(pinned_up),
            later(up),
            later(pinned_up),
            first(down),
            first(pinned_down),
            later(down),
            later(pinned_down),
            self.staging().unwrap_or_default(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::{GigabyteRatios, StepRow};
    use super::*;
    use crate::header::tests::header;

    fn report(device: bool) -> GigabyteReport {
        let mut report = GigabyteReport::new(header(GIGABYTE, device));
        report.bytes = 1_000_000_000;
        let ms = |ms: f64| Range { median: ms, low: ms, high: ms };
        report.host = vec![StepRow { step: STAGING.to_owned(), ms: ms(90.0), gb_per_s: 11.1 }];
        report.ratios.host_fresh_over_touched = Some(2.5);
        if !device {
            report.copies_not_measured = Some("no CUDA device: why".to_owned());
            return report;
        }
        let copy = |memory: &str, direction: &str, first: f64, later: f64| CopyTimes {
            memory: memory.to_owned(),
            direction: direction.to_owned(),
            first_ms: ms(first),
            later_ms: ms(later),
            first_gb_per_s: 1e3 / first,
            later_gb_per_s: 1e3 / later,
            get_ms: ms(1.0),
            write_ms: (direction == "h2d").then(|| ms(300.0)),
            all_ms: ms(first + 1.0),
        };
        for direction in DIRECTIONS {
            report.copies.push(copy(PAGEABLE, direction, 800.0, 120.0));
            report.copies.push(copy(PINNED, direction, 20.0, 18.0));
        }
        report.ratios = GigabyteRatios { h2d_first: Some(ms(40.0)), ..report.ratios };
        report
    }

    #[test]
    fn the_text_sets_first_copies_against_later_ones_and_finds_the_staging() {
        let text = report(true).to_text();
        for words in [
            "The first upload of 1.0 GB takes 800 ms from pageable and 20.0 ms from pinned memory, \
             later ones 120 and 18.0",
            "Staging costs a pageable upload 102 ms beyond its DMA of 18.0",
            "40.0x",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let text = report(false).to_text();
        assert!(
            text.contains("Only the host's part of a copy of 1.0 GB ran (no CUDA device: why)")
        );
        assert!(text.contains("takes 2.50x of the time"), "{text}");
    }

    #[test]
    fn a_pageable_copy_has_a_step_more_than_a_pinned_one() {
        let section = report(true).section();
        let Plot::Flow { rows, .. } = &section.plots[0] else { panic!("{section:?}") };
        let steps = |row: usize| -> Vec<(&str, Option<f64>)> {
            rows[row].steps.iter().map(|step| (step.name.as_str(), step.ms)).collect()
        };
        let (write, dma) =
            (("the program writes it", Some(300.0)), ("DMA over the link", Some(18.0)));
        assert_eq!(steps(0), [write, ("memcpy to the driver's pinned buffer", Some(90.0)), dma]);
        assert_eq!(steps(1), [write, dma]);
        assert_eq!(steps(2), [dma, ("memcpy from the driver's pinned buffer", Some(90.0))]);
        assert_eq!(steps(3), [dma]);
    }

    #[test]
    fn without_a_device_the_way_has_only_the_hosts_time() {
        let section = report(false).section();
        let Plot::Flow { rows, .. } = &section.plots[0] else { panic!("{section:?}") };
        let times: Vec<Option<f64>> = rows[0].steps.iter().map(|step| step.ms).collect();
        assert_eq!(times, [None, Some(90.0), None]);
        assert_eq!(section.plots.len(), 1, "no bars of copies that did not run");
    }
}
