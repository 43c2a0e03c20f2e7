//! The result of the scenario `startup` for people: tables, and what follows from them.

use super::pytorch::PyTorchRow;
use super::report::{Felt, NeighbourRow, OpenRow, StartupReport};
use super::strategies::{CUDA, Strategy};
use crate::header::Header;
use crate::tables::{self, Table, Tabled};
use crate::text;
use crate::timing::Range;

impl StartupReport {
    /// The result for people.
    pub fn to_text(&self) -> String {
        tables::to_text(self)
    }
}

impl Tabled for StartupReport {
    fn header(&self) -> &Header {
        &self.header
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn tables(&self) -> Vec<Table> {
        let mut tables = vec![self.ratios_table(), self.opens_table(), self.neighbours_table()];
        if let Some(theirs) = &self.pytorch {
            let header = vec!["PyTorch, ms", "empty, pinned", "lowest", "highest", "pin_memory()"];
            let rows = theirs.rows.iter().map(pytorch_row).collect();
            tables.push(("PyTorch's pinned memory", header, rows));
        }
        tables
    }

    fn conclusion(&self) -> String {
        let parts = [
            self.opening(),
            self.beside_pytorch(),
            self.of_processes(),
            self.of_own_thread(),
            Some(self.what_is_left()),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

/// The sentences of the conclusion.
impl StartupReport {
    fn opening(&self) -> Option<String> {
        let largest = self.sizes.last()?;
        let pool = self.open(largest.bytes, Strategy::Pool.name())?;
        let over_driver = largest.speedup_over_hostalloc.map_or_else(String::new, |speedup| {
            format!(", {} as fast as cuMemHostAlloc", text::ratio(speedup))
        });
        Some(format!(
            "A pool of {} opens in {} ms, {} GiB/s{over_driver}. That is {} of the time of the same \
             calls without a pool; with one prefault thread it takes {} as long, and untouched memory that \
             one call pins {}.",
            text::bytes(largest.bytes),
            text::number(pool.ms.median),
            text::number(pool.gib_per_s),
            ratio(largest.open_over_bare),
            ratio(largest.speedup_over_one_thread),
            ratio(largest.speedup_over_untouched),
        ))
    }

    fn beside_pytorch(&self) -> Option<String> {
        if let Some(reason) = &self.pytorch_not_measured {
            return Some(format!("PyTorch NOT RUN: {reason}."));
        }
        let (largest, theirs) = (self.sizes.last()?, self.pytorch.as_ref()?);
        Some(format!(
            "PyTorch {} takes {} of the pool's time as it is, and {} with 16 threads that register.",
            theirs.pytorch_version,
            ratio(largest.speedup_over_pytorch),
            ratio(largest.speedup_over_pytorch16),
        ))
    }

    fn of_processes(&self) -> Option<String> {
        if let Some(reason) = &self.process_not_watched {
            return Some(format!("Another process was NOT WATCHED: {reason}."));
        }
        let pool = self.neighbour(Strategy::Pool.name())?;
        let driver = self.neighbour(Strategy::DriverAlloc.name())?;
        Some(format!(
            "While a pool of {} opens, another process's calls take {} ms at most, and {} ms while \
             cuMemHostAlloc pins {}.",
            text::bytes(pool.bytes),
            longest(pool.process.as_ref()),
            longest(driver.process.as_ref()),
            text::bytes(driver.bytes),
        ))
    }

    fn of_own_thread(&self) -> Option<String> {
        let pool = self.neighbour(Strategy::Pool.name())?;
        let one_call = self.neighbour(Strategy::Bare.name())?;
        let driver = self.neighbour(Strategy::DriverAlloc.name());
        let driver = driver.map_or_else(String::new, |driver| {
            format!(" and {} ms beside cuMemHostAlloc", longest(driver.own.as_ref()))
        });
        Some(format!(
            "{} by another thread of the pool's process take {} ms at most, {} ms where one call pins \
             all{driver}.",
            if self.is_gpu() { "Copies" } else { "Mappings" },
            longest(pool.own.as_ref()),
            longest(one_call.own.as_ref()),
        ))
    }

    fn what_is_left(&self) -> String {
        let left = self.left;
        if left.is_nothing() {
            "Nothing is left after a close.".to_owned()
        } else {
            format!(
                "After a close {} stayed in RAM, {} LOCKED.",
                text::bytes(left.resident_bytes),
                text::bytes(left.locked_bytes),
            )
        }
    }

    fn is_gpu(&self) -> bool {
        self.backend == CUDA
    }
}

impl StartupReport {
    fn opens_table(&self) -> Table {
        let header = vec![
            "ms",
            "pages",
            "open",
            "lowest",
            "highest",
            "GiB/s",
            "reserve",
            "populate (GiB/s)",
            "pin (GiB/s)",
            "close",
        ];
        ("Opening and closing", header, self.opens.iter().map(open_row).collect())
    }

    fn ratios_table(&self) -> Table {
        let header = vec![
            "opening a pool",
            "GiB/s",
            "time over no pool",
            "over no pauses",
            "over no huge pages",
            "as fast as 1 thread",
            "untouched memory",
            "cuMemHostAlloc",
            "PyTorch",
            "PyTorch, 16 threads",
        ];
        let rows = self.sizes.iter().map(|size| {
            let ratios = [
                size.open_over_bare,
                size.open_over_no_pauses,
                size.open_over_no_huge_pages,
                size.speedup_over_one_thread,
                size.speedup_over_untouched,
                size.speedup_over_hostalloc,
                size.speedup_over_pytorch,
                size.speedup_over_pytorch16,
            ];
            let cells = [text::bytes(size.bytes), text::number(size.gib_per_s)].into_iter();
            cells.chain(ratios.map(ratio)).collect()
        });
        (RATIOS, header, rows.collect())
    }

    fn neighbours_table(&self) -> Table {
        let (title, own) = if self.is_gpu() {
            (
                "Neighbours: p99 / longest ms of another process's call and of an own copy",
                "own copy",
            )
        } else {
            ("Neighbours: p99 / longest ms of an own mapping of a page", "own mapping")
        };
        let header =
            vec!["meanwhile", "open ms", "other process", own, "close ms", "other process", own];
        (title, header, self.neighbours.iter().map(neighbour_row).collect())
    }
}

fn open_row(row: &OpenRow) -> Vec<String> {
    let threads = match row.threads {
        0 => String::new(),
        1 => ", 1 thread".to_owned(),
        threads => format!(", {threads} threads"),
    };
    let threads = if row.strategy.contains("thread") { String::new() } else { threads };
    let mut cells = vec![format!("{}: {}{threads}", text::bytes(row.bytes), row.strategy)];
    cells.push(row.pages.clone().unwrap_or_else(|| "-".to_owned()));
    cells.extend(range(&row.ms));
    cells.push(text::number(row.gib_per_s));
    for (phase, has_rate) in [("reserve", false), ("populate", true), ("pin", true)] {
        let found = row.phases.iter().find(|found| found.phase == phase);
        cells.push(match found {
            None => "-".to_owned(),
            Some(found) if has_rate && found.ms.median >= 0.01 => {
                format!("{} ({})", text::number(found.ms.median), text::number(found.gib_per_s))
            }
            Some(found) => text::number(found.ms.median),
        });
    }
    cells.push(text::number(row.close_ms.median));
    cells
}

fn neighbour_row(row: &NeighbourRow) -> Vec<String> {
    let name = if row.bytes == 0 {
        row.case.clone()
    } else {
        format!("{}: {}", text::bytes(row.bytes), row.case)
    };
    let ms = |ms: &Option<Range>| ms.map_or_else(|| "-".to_owned(), |ms| text::number(ms.median));
    let felt = |felt: &Option<Felt>| {
        felt.as_ref().map_or_else(
            || "-".to_owned(),
            |felt| format!("{} / {}", text::number(felt.p99_ms), text::number(felt.longest_ms)),
        )
    };
    vec![
        name,
        ms(&row.ms),
        felt(&row.process),
        felt(&row.own),
        ms(&row.close_ms),
        felt(&row.process_closing),
        felt(&row.own_closing),
    ]
}

fn pytorch_row(row: &PyTorchRow) -> Vec<String> {
    let mut cells = vec![format!("{}: {}", text::bytes(row.bytes), row.mode)];
    cells.extend(range(&Range::of(&row.empty_ms)));
    cells.push(text::number(Range::of(&row.pin_memory_ms).median));
    cells
}

fn range(range: &Range) -> [String; 3] {
    [range.median, range.low, range.high].map(text::number)
}

fn longest(felt: Option<&Felt>) -> String {
    felt.map_or_else(|| "-".to_owned(), |felt| text::number(felt.longest_ms))
}

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), text::ratio)
}

/// Which way the columns are better.
const RATIOS: &str = "Ratios (the pool's time over: less is better; as fast as one thread, and \
                      the others' time over the pool's: more is better)";
