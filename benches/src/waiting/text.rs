//! The result of the scenario `waiting` for people: tables, and what follows from them.

use super::report::{FREE, LoadRow, WaitingReport};
use crate::header::Header;
use crate::tables::{self, Table, Tabled};
use crate::text;
use crate::timing::Range;

impl WaitingReport {
    /// The result for people.
    pub fn to_text(&self) -> String {
        tables::to_text(self)
    }
}

impl Tabled for WaitingReport {
    fn header(&self) -> &Header {
        &self.header
    }

    fn tables(&self) -> Vec<Table> {
        vec![
            rate_table("Tasks with holds of 1 ms", &self.tasks),
            wait_table("Waits of these tasks", &self.tasks),
            rate_table("Threads with holds of 1 ms", &self.threads),
            wait_table("Waits of these threads", &self.threads),
            self.short_table(),
            self.handover_table(),
        ]
    }

    fn headline(&self) -> String {
        format!(
            "With everybody in line, tasks lease at {} and threads at {} of the rate of those who never \
             wait.",
            text::ratio(self.ratios.waiting_over_free_tasks.median),
            text::ratio(self.ratios.waiting_over_free_threads.median),
        )
    }

    fn conclusion(&self) -> String {
        let ratios = &self.ratios;
        let range = text::ratio_range;
        format!(
            "The 99.9th percentile of a wait is {} of the median with tasks and {} with threads. \
             With everybody in line, tasks lease at {} and threads at {} of the rate of those who \
             never wait. Threads with holds of less than a microsecond lease at {} of that rate, \
             and with a vector behind a mutex at {}. {} buffers did not come back.",
            range(ratios.tail_tasks),
            range(ratios.tail_threads),
            range(ratios.waiting_over_free_tasks),
            range(ratios.waiting_over_free_threads),
            range(ratios.waiting_over_free_short),
            range(ratios.waiting_over_free_short_condvar),
            self.lost,
        )
    }
}

impl WaitingReport {
    fn short_table(&self) -> Table {
        let header = vec!["threads that hold for less than 1 us", "leases/s", "lowest", "highest"];
        let rows = self.short.iter().map(|row| {
            let name = format!("{}: {}, {} on {}", row.pool, row.case, row.threads, row.slots);
            std::iter::once(name).chain(rates(&row.leases_per_s)).collect()
        });
        ("Short holds", header, rows.collect())
    }

    fn handover_table(&self) -> Table {
        let header = vec!["drop to next owner", "p50 us", "p99 us", "max us"];
        let rows = self.handover.iter().map(|row| {
            let name = format!("{}: {}", row.pool, row.waiter);
            let numbers = [row.p50_us, row.p99_us, row.max_us].map(text::number);
            std::iter::once(name).chain(numbers).collect()
        });
        ("Hand-over of the only buffer", header, rows.collect())
    }
}

fn rate_table(title: &'static str, rows: &[LoadRow]) -> Table {
    let header =
        vec!["takers on buffers", "leases/s", "lowest", "highest", "in line", "given up", "lost"];
    let rows = rows.iter().map(|row| {
        let percent = row.in_line_percent;
        let rest = [
            percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.1} %")),
            text::count(row.cancelled),
            text::count(row.lost),
        ];
        std::iter::once(name(row)).chain(rates(&row.leases_per_s)).chain(rest).collect()
    });
    (title, header, rows.collect())
}

fn wait_table(title: &'static str, rows: &[LoadRow]) -> Table {
    let header = vec!["ms", "p50", "p99", "p99.9", "p99.99", "max", "p99.9 / p50"];
    let rows = rows.iter().filter(|row| row.case != FREE).map(|row| {
        let times = [row.p50_us, row.p99_us, row.p999_us, row.p9999_us, row.max_us];
        let times = times.map(|us| text::number(us / 1e3));
        let tail = match row.tail.median {
            // The median did not wait at all.
            median if median >= STARVING => format!(">{STARVING}x"),
            median => text::ratio(median),
        };
        std::iter::once(name(row)).chain(times).chain([tail]).collect()
    });
    (title, header, rows.collect())
}

fn name(row: &LoadRow) -> String {
    format!("{}: {}, {} on {}", row.pool, row.case, row.waiters, row.slots)
}

fn rates(range: &Range) -> [String; 3] {
    [range.median, range.low, range.high].map(text::number)
}

/// Past this a ratio only says that most overtake a few.
const STARVING: f64 = 1000.0;
