//! A thread that looks at a pool's statistics all the time a test runs: they must balance at every
//! look, and what is cumulative must only rise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use pinpool::{ClassStats, Pool};

/// The sampling thread. Stop it to learn how often it looked.
#[derive(Debug)]
pub struct Sampler {
    over: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Sampler {
    /// Starts to look. Its handle on the pool goes when it is stopped.
    pub fn start(pool: &Pool) -> Self {
        let (pool, over) = (pool.clone(), Arc::new(AtomicBool::new(false)));
        let told = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let mut last = pool.stats().classes;
            let mut looks = 1;
            while !told.load(Ordering::Relaxed) {
                let now = pool.stats().classes;
                for (before, class) in last.iter().zip(&now) {
                    check(before, class);
                }
                last = now;
                looks += 1;
                // Two processors are all that some machines have.
                std::thread::yield_now();
            }
            looks
        });
        Self { over, thread }
    }

    /// Stops, and says how often it looked.
    ///
    /// # Panics
    ///
    /// A look found numbers that cannot be.
    pub fn stop(self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("the numbers balanced at every look")
    }
}

fn check(before: &ClassStats, now: &ClassStats) {
    if let Some(fault) = fault(before, now) {
        panic!("{fault}");
    }
}

/// What cannot be in the numbers of one class, or between two readings of them (I5, I15).
pub fn fault(before: &ClassStats, now: &ClassStats) -> Option<String> {
    let sum = now.free + now.leased + now.in_flight + now.quarantined;
    if sum != now.slots {
        return Some(format!("free, leased, in flight and quarantined are {sum}: {now:?}"));
    }
    // What was added and is gone was out once, too.
    if now.high_water > now.slots && now.grown_total + now.pageable_total == 0 {
        return Some(format!("more out than there are: {now:?}"));
    }
    if now.stale_returns_total != 0 {
        return Some(format!("a stale return: {now:?}"));
    }
    let cumulative = |class: &ClassStats| {
        [
            class.leases_total,
            class.landed_total,
            class.misses_total,
            class.waits_total,
            class.timeouts_total,
            class.cancelled_total,
            class.spilled_total,
            class.pageable_total,
            class.grown_total,
            class.grow_failures_total,
            class.trimmed_total,
            class.leaks_total,
            class.overruns_total,
            class.late_writes_total,
            class.stale_returns_total,
            class.quarantined.into(),
            class.high_water.into(),
        ]
    };
    let fell = cumulative(before).into_iter().zip(cumulative(now)).any(|(was, is)| is < was);
    fell.then(|| format!("a count fell: {before:?}, then {now:?}"))
}
