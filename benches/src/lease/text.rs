//! The result of the scenario `lease` for people: tables, and what follows from them.

use super::report::{LeaseRatios, LeaseReport, RateRow};
use crate::churn::{INTEGERS, MESSAGES, PINPOOL};
use crate::header::Header;
use crate::tables::{self, Table, Tabled};
use crate::text;

impl LeaseReport {
    /// The result for people.
    pub fn to_text(&self) -> String {
        tables::to_text(self)
    }
}

impl Tabled for LeaseReport {
    fn header(&self) -> &Header {
        &self.header
    }

    fn tables(&self) -> Vec<Table> {
        vec![
            self.threads_table(),
            rate_table("From thread to thread, a channel between them", PAIRS, &self.handoff),
            rate_table("Told that there is none", THREADS, &self.exhausted),
            rate_table("A fence that is complete at the drop", THREADS, &self.after_fence),
            self.tail_table(),
            self.growth_table(),
        ]
    }

    fn conclusion(&self) -> String {
        let ratios = &self.ratios;
        let pytorch = match (&self.pytorch, &self.pytorch_not_measured) {
            (Some(theirs), _) => format!(
                "That is {} of the time of PyTorch {}'s host allocator, and {} of its rate. ",
                ratio(ratios.one_thread_over_pytorch),
                theirs.pytorch_version,
                ratio(ratios.total16_over_pytorch),
            ),
            (None, Some(reason)) => format!("PyTorch NOT RUN: {reason}. "),
            (None, None) => String::new(),
        };
        format!(
            "A lease and its drop take {} ns with one thread; {} threads together do {} million a \
             second, {} of one. {pytorch}With one thread they take {} of the time of mimalloc with \
             64 B and {} of an ArrayQueue's, with two they go at {} of the rate of a vector behind a \
             mutex. {} Of 10,000 under load 9,999 keep to {} ns, and to {} of that with 65,536 slots. With 65,536 slots \
             instead of 64 the median is {} and the 99th percentile {}; with half of them out {} and \
             {}.",
            text::number(self.ns_one_thread),
            self.mops_16_threads,
            text::number(self.mops_16),
            ratio(ratios.total16_over_one_thread),
            ratio(ratios.one_thread_over_mimalloc64),
            ratio(ratios.array_queue_1_thread),
            ratio(ratios.mutex_vec_2_threads),
            handed_over(ratios),
            text::number(self.p9999_ns),
            ratio(ratios.tail_65536_over_64),
            ratio(ratios.growth_median),
            ratio(ratios.growth_p99),
            ratio(ratios.growth_median_half_out),
            ratio(ratios.growth_p99_half_out),
        )
    }
}

/// What a channel leaves of the rate; nothing of eight pairs where there are too few processors.
fn handed_over(ratios: &LeaseRatios) -> String {
    let (integers, same_size) = (ratios.handoff_8_over_integers, ratios.handoff_8_over_same_size);
    let (with_eight, and_eight) = if integers.is_none() && same_size.is_none() {
        (String::new(), String::new())
    } else {
        (format!(" and at {} with eight", ratio(integers)), format!(" and {}", ratio(same_size)))
    };
    format!(
        "Through a channel they go at {} of the rate of integers with one pair of threads{with_eight}, \
         and at {}{and_eight} of the rate of plain messages of a lease's size.",
        ratio(ratios.handoff_1_over_integers),
        ratio(ratios.handoff_1_over_same_size),
    )
}

impl LeaseReport {
    /// As [`rate_table`], with PyTorch's figures.
    fn threads_table(&self) -> Table {
        let (title, header, mut rows) = rate_table("Taken and given back", THREADS, &self.threads);
        rows.extend(self.pytorch.iter().map(|theirs| {
            let name = format!("PyTorch {} (all sizes, unbounded)", theirs.pytorch_version);
            let cells = numbers(&self.threads).into_iter().map(|threads| {
                theirs.row(threads).map_or_else(|| "-".to_owned(), |row| cell(row.ns, row.mops))
            });
            std::iter::once(name).chain(cells).collect()
        }));
        (title, header, rows)
    }

    fn tail_table(&self) -> Table {
        let header = vec!["all processors, ns each", "p50", "p99", "p99.9", "p99.99", "max"];
        let rows = self.tail.iter().map(|row| {
            let numbers = [row.p50_ns, row.p99_ns, row.p999_ns, row.p9999_ns, row.max_ns];
            let name = format!("{}, {}", row.source, counted(row.threads, "thread"));
            std::iter::once(name).chain(numbers.map(text::number)).collect()
        });
        ("Single times under load", header, rows.collect())
    }

    fn growth_table(&self) -> Table {
        let header = vec!["one thread, ns each", "p50", "p99"];
        let rows = self.growth.iter().map(|row| {
            let name = format!("{} slots: {}", row.slots, row.case);
            std::iter::once(name).chain([row.p50_ns, row.p99_ns].map(text::number)).collect()
        });
        ("Slots that came back in a random order", header, rows.collect())
    }
}

/// One line for each source, one column for each number of threads, or of pairs.
fn rate_table(title: &'static str, columns: &[(u64, &'static str)], rows: &[RateRow]) -> Table {
    let numbers = numbers(rows);
    let mut header = vec!["ns of a thread / M a second of all"];
    header.extend(
        columns.iter().filter(|(number, _)| numbers.contains(number)).map(|(_, name)| name),
    );
    let mut sources: Vec<&RateRow> = Vec::new();
    for row in rows {
        if !sources.iter().any(|other| other.source == row.source) {
            sources.push(row);
        }
    }
    let lines = sources.into_iter().map(|source| {
        let cells = numbers.iter().map(|&threads| {
            let same = |row: &&RateRow| row.source == source.source && row.threads == threads;
            let row = rows.iter().find(same);
            row.map_or_else(|| "-".to_owned(), |row| cell(row.ns, row.mops.median))
        });
        let same = |row: &&RateRow| row.source == source.source;
        let missed = rows.iter().filter(same).map(|row| row.missed).fold(0, u64::saturating_add);
        let missed = if missed == 0 { String::new() } else { format!(", {missed} MISSED") };
        std::iter::once(format!("{}{missed}", name(source))).chain(cells).collect()
    });
    (title, header, lines.collect())
}

/// The source, and what it lacks that the pool has.
fn name(row: &RateRow) -> String {
    let lacks = match (row.has_classes, row.is_bounded) {
        _ if row.source.starts_with(PINPOOL) => "",
        _ if [INTEGERS, MESSAGES].contains(&row.source.as_str()) => "",
        (true, true) => "",
        (true, false) => " (all sizes, unbounded)",
        (false, true) => " (one size)",
        (false, false) => " (one size, unbounded)",
    };
    format!("{}{lacks}", row.source)
}

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), text::ratio)
}

fn cell(ns: f64, mops: f64) -> String {
    format!("{} / {}", text::number(ns), text::number(mops))
}

/// The numbers of threads that were measured.
fn numbers(rows: &[RateRow]) -> Vec<u64> {
    let mut numbers: Vec<u64> = rows.iter().map(|row| row.threads).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

const THREADS: &[(u64, &str)] =
    &[(1, "1 thread"), (2, "2 threads"), (4, "4 threads"), (8, "8 threads"), (16, "16 threads")];
const PAIRS: &[(u64, &str)] = &[(1, "1 pair"), (2, "2 pairs"), (4, "4 pairs"), (8, "8 pairs")];
