//! A subscriber of the log that panics at every line: it costs no slot, no thread of the pool, and no
//! caller anything.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test reports by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pinpool::{ClassConfig, Heap, ManualFence, OnEmpty, Pool};
use pinpool_testkit::soon::{HANG, until};
use tracing::{Event, Metadata, Subscriber, span};

static LINES: AtomicUsize = AtomicUsize::new(0);

struct Breaks;

impl Subscriber for Breaks {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("pinpool")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &Event<'_>) {
        LINES.fetch_add(1, Ordering::Relaxed);
        // Without the hook that prints.
        std::panic::resume_unwind(Box::new("planted"));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[test]
fn a_subscriber_that_panics_costs_nothing() {
    const SIZE: usize = 4096;
    tracing::subscriber::set_global_default(Breaks).unwrap();
    let growing = ClassConfig::new("growing", SIZE, 2).on_empty(OnEmpty::Grow).grow_max(4);
    let growing = growing.idle_after(Duration::from_millis(20));
    let pool = Pool::builder().env(false).memory(Heap::claiming_locked()).max_pinned(1 << 30);
    let pool = pool.class_config(growing).class("plain", 2 * SIZE, 2);
    let pool = pool.leak_after(Duration::from_millis(20)).open().unwrap();
    for _ in 0..3 {
        // The caller's own: misses.
        let held = [pool.try_lease(2 * SIZE).unwrap(), pool.try_lease(2 * SIZE).unwrap()];
        let before = LINES.load(Ordering::Relaxed);
        (0..1000).for_each(|_| assert!(pool.try_lease(2 * SIZE).is_err()));
        // The keeper's: leaks and what came back; growth and its end.
        until("a leak is told of", || pool.stats().classes[1].leaks_total > 0);
        let more: Vec<_> = (0..6).map(|_| pool.lease_timeout(SIZE, HANG).unwrap()).collect();
        assert!(LINES.load(Ordering::Relaxed) > before, "something was told");
        // Whoever returns: a fence that fails, and the keeper that sends another home.
        let [first, second] = held;
        let fence = ManualFence::new();
        first.retire_after(fence.clone());
        fence.complete();
        until("the keeper goes on", || pool.stats().classes[1].in_flight == 0);
        drop((second, more));
        until("growth goes back", || pool.stats().classes[0].slots == 2);
    }
    let lease = pool.try_lease(2 * SIZE).unwrap();
    let fence = ManualFence::new();
    lease.retire_after(fence.clone());
    fence.fail("lost");
    until("it is quarantined", || pool.stats().classes[1].quarantined == 1);
    assert_eq!(pool.close(HANG).quarantined, 1);
}
