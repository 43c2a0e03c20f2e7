//! The result of the scenario `in-flight` on a page: its tables, and its pictures.

use super::report::{BARE, IN_FLIGHT, InFlightReport};
use crate::section::{Axis, Bar, Plot, Section};

impl InFlightReport {
    /// The result for a page.
    pub fn section(&self) -> Section {
        let title = "Leases dropped while the GPU still uses them";
        let plots = vec![self.added_plot(), self.pending_plot(), self.reclaim_plot()];
        Section::of(IN_FLIGHT, title, self, &self.ratios, plots)
    }

    fn added_plot(&self) -> Plot {
        let ours = self.round.iter().map(|row| {
            let tracking = if row.event_tracking { "on" } else { "off" };
            let name = format!("lease, upload, drop; cudarc's event tracking {tracking}");
            Bar::new(&name, row.added_ns.median)
        });
        let theirs = self.pytorch.iter().map(|theirs| {
            let name = format!("PyTorch {}: allocate, record_event, free", theirs.pytorch_version);
            Bar::new(&name, theirs.allocate_record_free_ns.median)
        });
        Plot::Bars {
            title: "What a round adds to its copy call, median".into(),
            unit: "ns".into(),
            bars: ours.chain(theirs).collect(),
        }
    }

    fn pending_plot(&self) -> Plot {
        let names: Vec<String> = self
            .pending
            .iter()
            .map(|row| {
                let threads = if row.threads == 1 { "1 thread" } else { "8 threads" };
                match row.fence.as_str() {
                    BARE => format!("cuEventRecord alone, {threads}"),
                    fence => format!("{fence} fences, {threads}"),
                }
            })
            .collect();
        let points = self.pending.iter().zip(&names);
        let points = points.map(|(row, name)| (name.as_str(), row.pending as f64, row.p99_ns));
        let title = "Lease, record use and drop beside pending fences";
        Plot::lines(title, Axis::log("fences pending"), Axis::log("p99, ns"), points)
    }

    fn reclaim_plot(&self) -> Plot {
        let points = self.reclaim.iter().flat_map(|row| {
            let bytes = row.bytes as f64;
            let names = if row.delay_us == 0 {
                ["at once: leasable", "at once: the waiter has it"]
            } else {
                ["2 ms later: leasable", "2 ms later: the waiter has it"]
            };
            [(names[0], bytes, row.leasable.p50_us), (names[1], bytes, row.leased.p50_us)]
        });
        let title = "From the end of a copy to the next lease";
        Plot::lines(title, Axis::log("bytes of the copy"), Axis::linear("median, us"), points)
    }
}
