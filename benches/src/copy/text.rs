//! What `copy` measures of leases and what they are compared with, for people.

use super::DIRECTIONS;
use super::report::{CopyReport, CopyRow};
use crate::{tables, text};

impl CopyReport {
    /// The cells of the table of bandwidths, with its header: one line for each kind of memory.
    pub fn cells(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let mut header = vec!["GB/s from".to_owned()];
        let columns: Vec<(&str, u64)> = DIRECTIONS
            .iter()
            .flat_map(|&direction| self.sizes.iter().map(move |&bytes| (direction, bytes)))
            .collect();
        for (direction, bytes) in &columns {
            header.push(format!("{direction} {}", text::bytes(*bytes)));
        }
        let mut names: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !names.contains(&row.name.as_str()) {
                names.push(&row.name);
            }
        }
        let rows = names.iter().map(|name| {
            let cell = |&(direction, bytes): &(&str, u64)| {
                let found = |row: &&CopyRow| {
                    row.name == *name && row.direction == direction && row.bytes == bytes
                };
                let row = self.rows.iter().find(found);
                row.map_or_else(|| "-".to_owned(), |row| text::number(row.gb_per_s))
            };
            std::iter::once((*name).to_owned()).chain(columns.iter().map(cell)).collect()
        });
        (header, rows.collect())
    }

    /// The cells of the table of ratios, with its header.
    pub fn ratio_cells(&self) -> (Vec<&'static str>, Vec<Vec<String>>) {
        let header = vec!["copy", "lease/raw", "lease memory/raw", "pageable/raw"];
        let rows = self.ratios.iter().map(|row| {
            let name = format!("{} {}", row.direction, text::bytes(row.bytes));
            let ratios = [row.lease_over_raw, row.lease_memory_over_raw, row.pageable_over_raw];
            std::iter::once(name).chain(ratios.map(|ratio| format!("{ratio:.3}"))).collect()
        });
        (header, rows.collect())
    }

    /// The result for people.
    pub fn to_text(&self) -> String {
        let sizes: Vec<String> = self.sizes.iter().map(|&size| text::bytes(size)).collect();
        if let Some(reason) = &self.not_run {
            return format!(
                "not run: {reason}\n\
                 This scenario measures copies between host and device, in both directions ({}), \
                 from a lease (the pool's upload and download, and raw copy calls on its memory), \
                 from cuMemHostAlloc memory and from pageable memory. It needs an NVIDIA GPU and \
                 its driver.\n",
                sizes.join(", "),
            );
        }
        let (header, rows) = self.cells();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let (ratio_header, ratio_rows) = self.ratio_cells();
        let quick = if self.quick { tables::QUICK } else { "" };
        let kinds = self.kinds.as_ref().map_or_else(String::new, |kinds| kinds.to_text());
        format!(
            "{}\n{quick}\n{}\n{}\n{}\n{kinds}",
            self.machine.summary(),
            text::table(&header, &rows),
            text::table(&ratio_header, &ratio_rows),
            self.method,
        )
    }
}
