//! The result of the scenario `staged` for people: tables, a chart, and what follows from them.

use std::fmt::Write as _;

use super::pytorch::PyTorchRow;
use super::report::{CACHED, FileRow, READ_THEN_COPY, SideRow, SmallRow, StagedReport};
use super::side::{STAGED, Side};
use super::stagers::THREADS;
use crate::copy::Direction;
use crate::header::Header;
use crate::tables::{self, Table, Tabled};
use crate::text;

impl StagedReport {
    /// The result for people.
    pub fn to_text(&self) -> String {
        if let Some(reason) = &self.header.not_run {
            return format!(
                "not run: {reason}\n\
                 This scenario measures copies of ordinary memory and of files to and from the \
                 device: the driver's own, those of memory registered in place, those through a \
                 stager by threads and chunks, and PyTorch's, beside those of a lease. It needs an \
                 NVIDIA GPU and its driver.\n"
            );
        }
        format!("{}{}", tables::to_text(self), self.charts())
    }
}

impl Tabled for StagedReport {
    fn header(&self) -> &Header {
        &self.header
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn tables(&self) -> Vec<Table> {
        let [h2d, d2h] = Direction::ALL;
        let mut tables = vec![
            self.sides_table("Host to device, GB/s", h2d),
            self.sides_table("Device to host, GB/s", d2h),
            self.spread_table(),
            self.chunks_table(),
            self.small_table(),
            self.file_table(),
        ];
        if let Some(theirs) = &self.pytorch {
            let header = vec!["PyTorch", "ms", "lowest", "highest", "GB/s"];
            tables.push(("PyTorch", header, theirs.rows.iter().map(pytorch_row).collect()));
        }
        tables.push(self.bars_table());
        tables
    }

    fn headline(&self) -> String {
        let staged = self.staged(self.ratios_bytes, Direction::ALL[0].name());
        let Some(staged) = staged else { return self.conclusion() };
        format!(
            "A stager brings ordinary memory to the device at {} GB/s: {} of the driver's own copy, {} of \
             what a lease reaches.",
            text::number(staged.gb_per_s),
            ratio(self.ratios.h2d_over_pageable),
            ratio(self.ratios.h2d_over_pinned),
        )
    }

    fn conclusion(&self) -> String {
        let parts = [self.of_uploads(), self.of_downloads(), self.of_files(), self.of_pytorch()];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

/// The sentences of the conclusion.
impl StagedReport {
    fn of_uploads(&self) -> Option<String> {
        let [h2d, _] = Direction::ALL.map(Direction::name);
        let staged = self.staged(self.ratios_bytes, h2d)?;
        Some(format!(
            "A stager of {} with chunks of {} brings {} of ordinary memory to the device at \
             {} GB/s: {} of what a lease reaches, {} of the driver's own copy, {} of registering the \
             memory first. Small uploads take {} of the plain call's time.",
            threads(self.default_threads),
            text::bytes(self.default_chunk_bytes),
            text::bytes(self.ratios_bytes),
            text::number(staged.gb_per_s),
            ratio(self.ratios.h2d_over_pinned),
            ratio(self.ratios.h2d_over_pageable),
            ratio(self.ratios.h2d_over_register),
            ratio(self.ratios.small_over_plain),
        ))
    }

    fn of_downloads(&self) -> Option<String> {
        let [_, d2h] = Direction::ALL.map(Direction::name);
        let staged = self.staged(self.ratios_bytes, d2h)?;
        Some(format!(
            "Back it goes at {} GB/s, {} of a lease, {} of the driver's own copy.",
            text::number(staged.gb_per_s),
            ratio(self.ratios.d2h_over_pinned),
            ratio(self.ratios.d2h_over_pageable),
        ))
    }

    fn of_files(&self) -> Option<String> {
        let read = self.file(READ_THEN_COPY, CACHED)?;
        Some(format!(
            "A file of {} in the page cache goes up {} as fast as reading and copying it, {} where \
             it is cold.",
            text::bytes(read.bytes),
            ratio(self.ratios.file_over_read_then_copy),
            ratio(self.ratios.cold_file_over_read_then_copy),
        ))
    }

    fn of_pytorch(&self) -> Option<String> {
        if let Some(reason) = &self.pytorch_not_measured {
            return Some(format!("PyTorch NOT RUN: {reason}."));
        }
        let theirs = self.pytorch.as_ref()?;
        let once =
            if theirs.pins_anew { "" } else { " (once: it could not give back what it pinned)" };
        Some(format!(
            "Uploads of memory go at {} of the rate of PyTorch {}'s to(\"cuda\"), and at {} of that of \
             its pin_memory().to(\"cuda\"), which pins anew each time{once}.",
            ratio(self.ratios.h2d_over_pytorch_to),
            theirs.pytorch_version,
            ratio(self.ratios.h2d_over_pytorch_pin_memory),
        ))
    }
}

impl StagedReport {
    fn sides_table(&self, title: &'static str, direction: Direction) -> Table {
        let mut header = vec!["bytes"];
        header.extend(OTHERS.map(Side::name));
        header.push("staged");
        header.extend(THREAD_NAMES);
        let threads = [self.default_threads].into_iter().chain(THREADS.map(|n| n as u64));
        let of_size = |&bytes: &u64| {
            let name = direction.name();
            let others = OTHERS.map(|side| self.copy(bytes, name, side.name(), None));
            let staged = threads.clone().map(|n| self.copy(bytes, name, STAGED, Some(n)));
            let cells = others.into_iter().chain(staged).map(rate);
            std::iter::once(text::bytes(bytes)).chain(cells).collect()
        };
        (title, header, self.sizes().iter().map(of_size).collect())
    }

    fn spread_table(&self) -> Table {
        let header = vec![
            "staged",
            "GB/s",
            "lowest",
            "highest",
            "over pageable",
            "over registering",
            "over pinned",
            "rounds",
        ];
        let mut rows = Vec::new();
        for direction in Direction::ALL.map(Direction::name) {
            for bytes in self.sizes() {
                let Some(row) = self.staged(bytes, direction) else { continue };
                let name = format!("{} {}", direction.to_uppercase(), text::bytes(bytes));
                // The longest time is the lowest rate.
                let rates = [row.us.median, row.us.high, row.us.low]
                    .map(|us| text::number(bytes as f64 / 1e3 / us));
                let over =
                    OTHERS.map(|side| ratio(self.staged_over(bytes, direction, side.name())));
                let cells = std::iter::once(name).chain(rates).chain(over);
                rows.push(cells.chain([row.rounds.len().to_string()]).collect());
            }
        }
        ("Staged copies beside the others", header, rows)
    }

    fn chunks_table(&self) -> Table {
        let header = vec!["chunks of", "H2D, GB/s", "D2H, GB/s"];
        let [h2d, d2h] = Direction::ALL.map(Direction::name);
        let row = |chunk: &SideRow| {
            let is_default = chunk.chunk_bytes == Some(self.default_chunk_bytes);
            let note = if is_default { " (default)" } else { "" };
            let mut cells = vec![format!("{}{note}", text::bytes(chunk.chunk_bytes.unwrap_or(0)))];
            cells.extend([h2d, d2h].map(|direction| {
                let mut rows = self.chunks.iter();
                rate(
                    rows.find(|row| {
                        row.direction == direction && row.chunk_bytes == chunk.chunk_bytes
                    }),
                )
            }));
            cells
        };
        let chunks = self.chunks.iter().filter(|row| row.direction == h2d);
        ("Sizes of chunks", header, chunks.map(row).collect())
    }

    fn small_table(&self) -> Table {
        let header = vec!["upload", "plain us", "stager us", "time over time", "lowest", "highest"];
        ("Uploads too small to be staged", header, self.small.iter().map(small_row).collect())
    }

    fn file_table(&self) -> Table {
        let header = vec!["file", "ms", "lowest", "highest", "GB/s", "cached before"];
        ("A file to the device", header, self.file.iter().map(file_row).collect())
    }

    fn bars_table(&self) -> Table {
        let header = vec!["bar", "measured", "wanted", "verdict"];
        let row = |bar: &super::ratios::Bar| {
            let verdict = match bar.is_met() {
                Some(true) => "met",
                Some(false) => "MISSED",
                None => "not measured",
            };
            // A miss by less than is shown must not look like a hit.
            let is_close = bar.limit().ends_with(&format!(" {}", ratio(bar.value)));
            let measured = match bar.value {
                Some(value) if is_close => format!("{value:.4}x"),
                value => ratio(value),
            };
            vec![bar.name.to_owned(), measured, bar.limit(), verdict.to_owned()]
        };
        ("Bars", header, self.bars().iter().map(row).collect())
    }
}

/// The chart.
impl StagedReport {
    /// A bar for each side and size, in both directions.
    fn charts(&self) -> String {
        let fastest = self.copies.iter().map(|row| row.gb_per_s).fold(0.0, f64::max);
        let mut text = String::new();
        for direction in Direction::ALL.map(Direction::name) {
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "\n{}, GB/s", direction.to_uppercase());
            for bytes in self.sizes() {
                let staged = (STAGED, Some(self.default_threads));
                let sides = OTHERS.map(|side| (side.name(), None)).into_iter().chain([staged]);
                let mut label = text::bytes(bytes);
                for (name, threads) in sides {
                    let Some(row) = self.copy(bytes, direction, name, threads) else { continue };
                    let length = (row.gb_per_s / fastest * CHART_WIDTH).round();
                    let bar: String = (0..CHART_COLUMNS)
                        .take_while(|column| f64::from(*column) < length)
                        .map(|_| '#')
                        .collect();
                    let number = text::number(row.gb_per_s);
                    let _ = writeln!(text, "{label:>8}  {name:<17} {bar} {number}");
                    label.clear();
                }
            }
        }
        text
    }
}

fn rate(row: Option<&SideRow>) -> String {
    row.map_or_else(|| "-".to_owned(), |row| text::number(row.gb_per_s))
}

fn small_row(row: &SmallRow) -> Vec<String> {
    let over = row.upload_over_plain;
    let name = format!("{}, {} times", text::bytes(row.bytes), row.repeats);
    let times = [row.plain_us.median, row.upload_us.median].map(text::number);
    let ratios = [over.median, over.low, over.high].map(|value| format!("{value:.3}x"));
    std::iter::once(name).chain(times).chain(ratios).collect()
}

fn file_row(row: &FileRow) -> Vec<String> {
    let name = format!("{}, {}: {}", text::bytes(row.bytes), row.case, row.side);
    let times = [row.ms.median, row.ms.low, row.ms.high].map(text::number);
    let rest = [text::number(row.gb_per_s), format!("{:.0}%", row.cached_percent)];
    std::iter::once(name).chain(times).chain(rest).collect()
}

fn pytorch_row(row: &PyTorchRow) -> Vec<String> {
    let ms = crate::timing::Range::of(&row.ms);
    let name = format!("{}: {}", text::bytes(row.bytes), row.way);
    let times = [ms.median, ms.low, ms.high].map(text::number);
    std::iter::once(name).chain(times).chain([text::number(row.gb_per_s())]).collect()
}

fn threads(count: u64) -> String {
    if count == 1 { "one thread".to_owned() } else { format!("{count} threads") }
}

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), text::ratio)
}

/// What stagers are compared with.
const OTHERS: [Side; 3] = [Side::Pageable, Side::Register, Side::Pinned];
/// Of [`THREADS`].
const THREAD_NAMES: [&str; 6] = ["1 thread", "2", "4", "6", "8", "12 threads"];
const CHART_COLUMNS: u32 = 50;
const CHART_WIDTH: f64 = CHART_COLUMNS as f64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staged::ratios::tests::report;

    #[test]
    fn columns_are_named_after_their_threads_and_bars_are_as_long_as_rates() {
        for (name, threads) in THREAD_NAMES.iter().zip(THREADS) {
            assert_eq!(name.split(' ').next(), Some(threads.to_string().as_str()));
        }
        let text = report().to_text();
        let bar = |line: &str| text.lines().find(|text| text.contains(line)).map(str::to_owned);
        let length = |line: &str| bar(line).map(|line| line.matches('#').count());
        assert_eq!(length("pinned            #"), Some(50), "{text}");
        assert_eq!(length("1 GiB  pageable          #"), Some(8), "{text}");
    }

    #[test]
    fn without_a_device_it_says_why_and_what_it_would_measure() {
        let mut report = report();
        report.header.not_run = Some("no CUDA device: none".into());
        let text = report.to_text();
        assert!(text.starts_with("not run: no CUDA device: none\n"), "{text}");
        assert!(text.contains("through a stager"), "{text}");
    }
}
