//! The result of the scenario `in-flight` for people: tables, and what follows from them.

use super::report::{BARE, InFlightReport, PendingRow, Spread};
use crate::header::Header;
use crate::tables::{self, Table, Tabled};
use crate::text;

impl InFlightReport {
    /// The result for people.
    pub fn to_text(&self) -> String {
        if let Some(reason) = &self.header.not_run {
            return format!(
                "not run: {reason}\n\
                 This scenario measures what it costs to drop a lease while a copy from it is in \
                 flight, with few and with many fences pending, how soon its slot comes home, what \
                 the keeper thread costs, and checks every byte of a million copies. It needs an \
                 NVIDIA GPU and its driver.\n"
            );
        }
        tables::to_text(self)
    }
}

impl Tabled for InFlightReport {
    fn header(&self) -> &Header {
        &self.header
    }

    fn tables(&self) -> Vec<Table> {
        vec![
            self.round_table(),
            self.pending_table(),
            self.storm_table(),
            self.reclaim_table(),
            self.keeper_table(),
        ]
    }

    fn headline(&self) -> String {
        let Some(storm) = &self.storm else { return self.conclusion() };
        format!(
            "Of {} copies whose lease was dropped while the GPU used it, {} arrived wrong, and {} slots \
             did not come home.",
            text::count(storm.rounds),
            text::count(storm.mismatches),
            text::count(storm.leaks),
        )
    }

    fn conclusion(&self) -> String {
        let ratio = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), text::ratio);
        let pytorch = match (&self.pytorch, self.ratios.ours_over_pytorch) {
            (Some(theirs), Some(ours)) => format!(
                "Lease, upload and drop add {} of what PyTorch {}'s allocate, record_event and \
                 free add to a copy call. ",
                text::ratio(ours),
                theirs.pytorch_version,
            ),
            _ => "No figures of PyTorch to compare with were given. ".to_owned(),
        };
        let count = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), text::count);
        format!(
            "{pytorch}With 512 fences pending the 99th percentile of a round is {} of that with 8 \
             (8 threads). Of {} copies {} arrived wrong, and {} slots did not come home.",
            ratio(self.ratios.p99_512_over_8),
            text::count(self.storm.as_ref().map_or(0, |storm| storm.rounds)),
            count(self.mismatches),
            count(self.leaks),
        )
    }
}

impl InFlightReport {
    fn round_table(&self) -> Table {
        let header = vec!["ns a round, median / p99", "round", "copy call", "added"];
        let cell = |spread: &Spread| {
            let [median, p99] = [spread.median, spread.p99].map(text::number);
            format!("{median} / {p99}")
        };
        let mut rows: Vec<Vec<String>> = self
            .round
            .iter()
            .map(|row| {
                let tracking = if row.event_tracking { "on" } else { "off" };
                let name = format!("lease, upload, drop; event tracking {tracking}");
                let cells = [&row.round_ns, &row.copy_call_ns, &row.added_ns].map(cell);
                std::iter::once(name).chain(cells).collect()
            })
            .collect();
        rows.extend(self.pytorch.iter().map(|theirs| {
            let name = format!("PyTorch {}", theirs.pytorch_version);
            let spreads = [&theirs.round_ns, &theirs.copy_call_ns, &theirs.allocate_record_free_ns];
            std::iter::once(name).chain(spreads.map(cell)).collect()
        }));
        ("Lease, upload of 64 KiB and drop, against the copy call", header, rows)
    }

    fn pending_table(&self) -> Table {
        let header = vec!["fences pending", "p50 ns", "p99 ns", "max ns"];
        let row = |who: &str, row: &PendingRow| {
            let threads = if row.threads == 1 { "1 thread" } else { "8 threads" };
            let what = match row.fence.as_str() {
                BARE => "cuEventRecord alone".to_owned(),
                fence => format!("{who}, {fence} fences"),
            };
            let name = format!("{what}, {threads}, {} pending", row.pending);
            let numbers = [row.p50_ns, row.p99_ns, row.max_ns].map(text::number);
            std::iter::once(name).chain(numbers).collect::<Vec<_>>()
        };
        let theirs = self.pytorch.iter().flat_map(|theirs| &theirs.pending);
        let rows = self.pending.iter().map(|ours| row("lease", ours));
        let rows = rows.chain(theirs.map(|theirs| row("PyTorch", theirs))).collect();
        ("Lease, record use and drop, without a copy", header, rows)
    }

    fn storm_table(&self) -> Table {
        let header = vec!["rounds", "seconds", "rounds/s", "mismatches", "leaks", "resident drift"];
        let rows = self.storm.iter().map(|storm| {
            vec![
                text::count(storm.rounds),
                text::number(storm.seconds),
                text::number(storm.rounds_per_s),
                text::count(storm.mismatches),
                text::count(storm.leaks),
                format!("{:.1} MB", storm.resident_drift_bytes as f64 / 1e6),
            ]
        });
        ("8 threads, 4 streams, 64 slots: fill, upload, drop, compare", header, rows.collect())
    }

    fn reclaim_table(&self) -> Table {
        let header = vec!["copy, until", "p50 us", "p99 us", "max us"];
        let rows = self.reclaim.iter().flat_map(|row| {
            let delay = if row.delay_us == 0 { "at once" } else { "2 ms later" };
            let copy = format!("{}, {delay}", text::bytes(row.bytes));
            [("leasable", row.leasable), ("the waiter has it", row.leased)].map(|(until, times)| {
                let numbers = [times.p50_us, times.p99_us, times.max_us].map(text::number);
                std::iter::once(format!("{copy}: {until}")).chain(numbers).collect()
            })
        });
        ("From the end of a copy to the next lease, with a waiting thread", header, rows.collect())
    }

    fn keeper_table(&self) -> Table {
        let header = vec!["keeper thread", "% of a core", "wakes/s", "frames"];
        let rows = self.keeper.iter().map(|row| {
            vec![
                row.case.clone(),
                format!("{:.2}", row.cpu_percent),
                text::number(row.wakes_per_s),
                text::count(row.frames),
            ]
        });
        ("What the keeper costs", header, rows.collect())
    }
}
