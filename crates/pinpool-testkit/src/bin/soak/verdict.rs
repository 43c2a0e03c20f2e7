//! What is wrong, gathered from all threads, and the table at the end.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pinpool::{Lease, Pool};
use pinpool_testkit::stamp;

use crate::Arguments;
use crate::load::Tally;
use crate::watch::Looks;

/// Everything that was wrong. The first entry ends the load.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    wrong: AtomicBool,
    list: Mutex<Vec<String>>,
}

impl Verdict {
    /// Something is wrong.
    pub(crate) fn wrong(&self, what: String) {
        self.wrong.store(true, Ordering::Relaxed);
        if let Ok(mut list) = self.list.lock()
            && list.len() < LISTED
        {
            list.push(what);
        }
    }

    /// True once something was wrong.
    pub(crate) fn is_wrong(&self) -> bool {
        self.wrong.load(Ordering::Relaxed)
    }

    /// The whole slot is as its owner wrote it.
    pub(crate) fn check(&self, lease: &Lease, owner: u64) {
        if !stamp::is_whole(lease.as_slice(), owner) {
            self.wrong(format!("owner {owner:#x} found its slot changed: {lease:?}"));
        }
    }

    /// What must hold when all threads have ended.
    pub(crate) fn settle(&self, pool: &Pool, tally: &Tally, asked: Arguments, looks: &Looks) {
        let expect = |fact: bool, what: String| {
            if !fact {
                self.wrong(what);
            }
        };
        let all_home = || pool.stats().classes.iter().all(|class| class.free == class.slots);
        let start = std::time::Instant::now();
        while !all_home() && start.elapsed() < pinpool_testkit::soon::HANG {
            std::thread::sleep(Duration::from_millis(1));
        }
        let stats = pool.stats();
        expect(all_home(), format!("slots are missing:\n{stats}"));
        let sum = |of: fn(&pinpool::ClassStats) -> u64| stats.classes.iter().map(of).sum::<u64>();
        let (leases, landed) = (sum(|class| class.leases_total), sum(|class| class.landed_total));
        expect(leases == tally.leases, format!("{} leases had, {leases} counted", tally.leases));
        expect(leases >= asked.leases, format!("only {leases} leases"));
        expect(
            landed == tally.retired,
            format!("{} slots left in flight, {landed} landed", tally.retired),
        );
        let timeouts = sum(|class| class.timeouts_total);
        expect(
            timeouts == tally.timeouts,
            format!("{} timeouts, {timeouts} counted", tally.timeouts),
        );
        let quarantined = sum(|class| class.quarantined.into());
        expect(quarantined == 0, format!("{quarantined} slots quarantined"));
        let drift = looks.drift_bytes();
        let limit = i64::try_from(asked.rss_drift_mib_max << 20).unwrap_or(i64::MAX);
        expect(drift < limit, format!("resident memory grew by {} MiB", mib(drift)));
        expect(looks.rss_start.is_some(), "no reading of resident memory after a warm-up".into());
    }

    /// Prints what was wrong; true if nothing was.
    pub(crate) fn print(&self) -> bool {
        let list = self.list.lock().map(|list| list.clone()).unwrap_or_default();
        for what in &list {
            println!("WRONG: {what}");
        }
        let good = list.is_empty() && !self.is_wrong();
        println!("{}", if good { "nothing wrong" } else { "FAILED" });
        good
    }
}

/// The table.
pub(crate) fn report(
    pool: &Pool,
    tally: &Tally,
    asked: Arguments,
    looks: &Looks,
    reads: u64,
    took: Duration,
) {
    let row = |name: &str, value: String| println!("{name:<34} {value:>16}");
    let rate = |count: u64| format!("{:.0}", count as f64 / took.as_secs_f64());
    row("a panic", if cfg!(panic = "abort") { "aborts" } else { "unwinds" }.to_owned());
    row("threads", asked.threads.to_string());
    row("leases", tally.leases.to_string());
    row("seconds", format!("{:.1}", took.as_secs_f64()));
    row("leases a second", rate(tally.leases));
    row("handed to another thread", tally.handed.to_string());
    row("left in flight", tally.retired.to_string());
    row("slots read by the device", reads.to_string());
    row("waits for an empty class", tally.waits.to_string());
    row("waits of 20 us that timed out", tally.timeouts.to_string());
    row("looks at the numbers", looks.count.to_string());
    row("looks a second", rate(looks.count));
    row("lease + drop, timed", tally.latency.len().to_string());
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)] {
        row(
            &format!("lease + drop {name}, ns"),
            tally.latency.value_at_quantile(quantile).to_string(),
        );
    }
    row("lease + drop max, ns", tally.latency.max().to_string());
    row("RSS after warm-up, MiB", mib(looks.rss_start.unwrap_or(0)));
    row("RSS at the end, MiB", mib(looks.rss_end));
    row("RSS at most, MiB", mib(looks.rss_most));
    row("RSS drift, MiB", mib(looks.drift_bytes()));
    println!("\n{}", pool.stats());
}

fn mib(bytes: i64) -> String {
    format!("{:.2}", bytes as f64 / f64::from(1 << 20))
}

/// What else is wrong follows from these, mostly.
const LISTED: usize = 20;
