//! Runs a loom model and says how many executions it took.

use std::io::Write as _;
use std::sync::Arc;

use crate::sync::plain::{AtomicUsize, Ordering};

/// Every interleaving of `model`, with at most so many preemptions where `bound` says so.
pub(crate) fn explore(bound: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
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
