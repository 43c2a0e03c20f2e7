//! The watcher: looks at the pool's numbers a thousand times a second and at resident memory ten
//! times, and ends the process where nothing moves any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pinpool::{Pool, PoolStats};
use pinpool_testkit::{proc, sampler};

use crate::verdict::Verdict;

/// What the watcher has seen.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    pub(crate) count: u64,
    /// Resident bytes after the warm-up, at the last look, and at most in between.
    pub(crate) rss_start: Option<i64>,
    pub(crate) rss_end: i64,
    pub(crate) rss_most: i64,
}

impl Looks {
    /// Resident bytes at the end less those after the warm-up.
    pub(crate) fn drift_bytes(&self) -> i64 {
        self.rss_end - self.rss_start.unwrap_or(self.rss_end)
    }

    fn see_rss(&mut self, warm: bool) {
        let now = i64::try_from(proc::resident_bytes()).unwrap_or(i64::MAX);
        if warm && self.rss_start.is_none() {
            self.rss_start = Some(now);
        }
        self.rss_end = now;
        self.rss_most = self.rss_most.max(now);
    }
}

/// The watcher before it begins.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    pool: &'a Pool,
    verdict: &'a Verdict,
    /// So many leases are the warm-up.
    warm_leases: u64,
    over: Arc<AtomicBool>,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(pool: &'a Pool, verdict: &'a Verdict, leases: u64) -> Self {
        Self { pool, verdict, warm_leases: leases / 50, over: Arc::default() }
    }

    /// Set when the load is over.
    pub(crate) fn over(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.over)
    }

    /// Looks until the load is over.
    pub(crate) fn run(self) -> Looks {
        let mut looks = Looks::default();
        let mut last = self.pool.stats();
        let mut next = Instant::now();
        let mut moved = (0, Instant::now());
        while !self.over.load(Ordering::Acquire) {
            let now = self.pool.stats();
            for what in faults(&last, &now) {
                self.verdict.wrong(what);
            }
            let leases = now.classes.iter().map(|class| class.leases_total).sum();
            if leases != moved.0 {
                moved = (leases, Instant::now());
            } else if moved.1.elapsed() > STILL_MAX {
                self.give_up(&now);
            }
            if looks.count.is_multiple_of(100) {
                looks.see_rss(leases >= self.warm_leases);
            }
            looks.count += 1;
            last = now;
            // Late looks are made up for.
            next += PERIOD;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        looks.see_rss(true);
        looks
    }

    /// A thread hangs, and joining it would hang too.
    fn give_up(&self, stats: &PoolStats) -> ! {
        self.verdict.wrong(format!("no lease for {STILL_MAX:?}:\n{stats}\n{stats:?}"));
        self.verdict.print();
        std::process::exit(1)
    }
}

/// Numbers that cannot be (I5, I15).
fn faults(last: &PoolStats, now: &PoolStats) -> Vec<String> {
    let mut faults: Vec<_> = last
        .classes
        .iter()
        .zip(&now.classes)
        .filter_map(|(before, class)| sampler::fault(before, class))
        .collect();
    if now.pinned_bytes > now.cap_bytes || now.stuck_bytes > 0 {
        faults.push(format!("{now:?}"));
    }
    faults
}

const PERIOD: Duration = Duration::from_millis(1);
/// What stands still for longer hangs.
const STILL_MAX: Duration = Duration::from_secs(60);
