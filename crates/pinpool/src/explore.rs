//! Runs a model of loom's or shuttle's, and says how many executions it took.

use std::io::Write as _;

/// Every interleaving of `model`, with at most so many preemptions where `bound` says so.
#[cfg(loom)]
pub(crate) fn explore(bound: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    use std::sync::Arc;

    use crate::sync::plain::{AtomicUsize, Ordering};

    let executions = Arc::new(AtomicUsize::new(0));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound;
    // Loops that wait for another thread add to it.
    builder.max_branches = 10_000;
    let counted = Arc::clone(&executions);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    // Past the test harness, which hides what a passing test prints.
    let _ = writeln!(
        std::io::stderr(),
        "{}: {} executions",
        std::thread::current().name().unwrap_or("a model"),
        executions.load(Ordering::Relaxed)
    );
}

/// Runs `model` under so many schedules, times `MODEL_SCHEDULES` percent.
#[cfg(shuttle)]
pub(crate) fn check<S: shuttle::scheduler::Scheduler + 'static>(
    name: &str,
    schedules: usize,
    scheduler: impl FnOnce(usize) -> S,
    model: impl Fn() + Send + Sync + 'static,
) {
    use shuttle::scheduler::ReplayScheduler;
    use shuttle::{Config, Runner};

    let mut config = Config::new();
    config.silence_warnings = true;
    config.stack_size = STACK_BYTES;
    if let Ok(schedule) = std::env::var("MODEL_REPLAY") {
        Runner::new(ReplayScheduler::new_from_encoded(&schedule), config).run(model);
        return;
    }
    let percent = std::env::var("MODEL_SCHEDULES").ok().and_then(|text| text.parse().ok());
    let schedules = (schedules * percent.unwrap_or(100) / 100).max(1);
    let start = std::time::Instant::now();
    let run = Runner::new(scheduler(schedules), config).run(model);
    assert_eq!(run, schedules, "the scheduler ended early");
    let kind = std::any::type_name::<S>().rsplit("::").next().unwrap_or_default();
    // Past the test harness, which hides what a passing test prints.
    let _ = writeln!(
        std::io::stderr(),
        "{name}: {run} schedules of {kind} in {:.1} s",
        start.elapsed().as_secs_f64()
    );
}

/// Panics and log lines are made on it.
#[cfg(shuttle)]
const STACK_BYTES: usize = 256 << 10;
