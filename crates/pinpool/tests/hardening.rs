//! Hardened pools (`debug_checks`): overruns, writes after the return and steps over the ends of a slab
//! are found, told and counted; everything else is as ever.
//!
//! Built with the Cargo feature `debug-checks` only: `cargo test -p pinpool --features debug-checks --test
//! hardening`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test reports by panicking"
)]

#[path = "hardening/ordinary.rs"]
mod ordinary;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use pinpool::{
    BackendChoice, ClassConfig, ClassStats, Heap, Lease, LockMode, ManualFence, OnEmpty, Pool,
    Scrub,
};
use pinpool_testkit::child;
use pinpool_testkit::scripted::{Counted, Ledger};
use pinpool_testkit::soon::{HANG, until};
use tracing::field::{Field, Visit};
use tracing::span;

const SIZE: usize = 4096;

fn open(class: ClassConfig) -> (Pool, Ledger) {
    let (memory, ledger) = Counted::new(Heap::claiming_locked());
    let builder = Pool::builder().env(false).max_pinned(64 << 20).debug_checks(true);
    (builder.class_config(class).memory(memory).open().unwrap(), ledger)
}

fn frames(count: usize) -> ClassConfig {
    ClassConfig::new("frame", SIZE, count)
}

fn stats(pool: &Pool) -> ClassStats {
    pool.stats().classes[0].clone()
}

/// Free, leased, in flight and quarantined slots.
fn counts(pool: &Pool) -> [u32; 4] {
    let class = stats(pool);
    [class.free, class.leased, class.in_flight, class.quarantined]
}

fn all_home(pool: &Pool) {
    until("all is washed", || matches!(counts(pool), [_, 0, 0, _]));
}

/// Writes one byte, which may be another's.
fn poke(address: *mut u8, offset: usize) {
    // SAFETY: within the mapped slab, as the callers see to; that it is nobody's to write is the test.
    let byte = unsafe { address.add(offset) };
    // SAFETY: as above.
    let value = unsafe { byte.read_volatile() };
    // SAFETY: as above.
    unsafe { byte.write_volatile(value.wrapping_add(1)) };
}

/// Keeps what is logged by any thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// The lines of this process so far with all these words.
    fn lines(words: &[&str]) -> Vec<String> {
        let lines = Self::get().0.lock().unwrap();
        lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).cloned().collect()
    }

    fn get() -> &'static Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        LOG.get_or_init(|| {
            let log = Self::default();
            tracing::subscriber::set_global_default(log.clone()).expect("the only subscriber");
            log
        })
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::ERROR
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        use std::fmt::Write;
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

type Return = fn(Lease);

/// How a lease that was written past its end goes home.
const RETURNS: [(&str, Return); 4] = [
    ("dropped", drop),
    ("retired", |lease| {
        let work = ManualFence::new();
        lease.retire_after(work.clone());
        work.complete();
    }),
    ("shared", |lease| drop((lease.share(),))),
    ("typed", |lease| drop(lease.cast::<u32>().unwrap())),
];

/// One byte past the slot, or any byte of the canary behind it: found when the slot comes home, counted,
/// and told with the name of who held it. The slot is mended and goes on.
#[test]
fn an_overrun_is_found_when_the_slot_comes_home() {
    Log::get();
    for (way, (name, give_back)) in RETURNS.into_iter().enumerate() {
        let (pool, ledger) = open(frames(2));
        let plan = &pool.plan().classes[0];
        let canary_bytes = plan.stride_bytes - plan.slot_bytes;
        assert!(canary_bytes > 0);
        let places = [0, 1, canary_bytes / 2, canary_bytes - 1];
        for (found, place) in (1..).zip(places) {
            let mut lease = pool.lease_timeout(SIZE, HANG).unwrap();
            let tag = format!("encoder {way}.{place}");
            lease.set_tag(pool.tag(&tag));
            let (address, end) = (lease.as_mut_ptr(), lease.capacity());
            poke(address, end + place);
            assert_eq!(stats(&pool).overruns_total, found - 1, "not yet looked at");
            give_back(lease);
            until("it is found", || stats(&pool).overruns_total == found);
            let told = Log::lines(&["canary", &format!("{tag:?}")]);
            assert_eq!(told.len(), 1, "{name}, byte {place}: {told:?}");
            assert!(told[0].contains("frame"), "{told:?}");
            for _ in 0..20 {
                drop(pool.lease_timeout(SIZE, HANG).unwrap());
            }
            all_home(&pool);
            assert_eq!(stats(&pool).overruns_total, found, "{name}: it was mended");
        }
        assert_eq!((counts(&pool), stats(&pool).late_writes_total), ([2, 0, 0, 0], 0));
        assert!(pool.close(HANG).is_complete());
        ledger.assert_clean();
    }
}

/// A device that writes past the end before its fence completes is found as well, and grown slabs and
/// pageable buffers have canaries of their own.
#[test]
fn overruns_of_devices_and_of_added_memory() {
    let added = [
        frames(1).on_empty(OnEmpty::Grow).grow_max(2),
        frames(1).on_empty(OnEmpty::Pageable).pageable_max(2),
    ];
    for class in added {
        let (pool, _ledger) = open(class);
        let mut leases: Vec<_> = (0..3).map(|_| pool.lease_timeout(SIZE, HANG).unwrap()).collect();
        let work = ManualFence::new();
        for mut lease in leases.drain(..) {
            let (address, end) = (lease.as_mut_ptr(), lease.capacity());
            lease.retire_after(work.clone());
            poke(address, end + 7);
        }
        assert_eq!(stats(&pool).overruns_total, 0);
        work.complete();
        until("all three are found", || stats(&pool).overruns_total == 3);
        all_home(&pool);
    }
}

/// A slot that is written after it was returned is found by whoever would have it next, who gets another
/// one; it is never used again, and told of.
#[test]
fn a_write_after_the_return_costs_the_slot() {
    Log::get();
    for place in [0, SIZE / 2, SIZE - 1] {
        let (pool, ledger) = open(ClassConfig::new(format!("late-{place}"), SIZE, 2));
        let mut lease = pool.try_lease(SIZE).unwrap();
        let (address, slot) = (lease.as_mut_ptr(), lease.slot());
        drop(lease);
        all_home(&pool);
        poke(address, place);
        let one = pool.lease_timeout(SIZE, HANG).unwrap();
        assert!(pool.try_lease(SIZE).is_err(), "one is lost");
        assert_ne!(one.slot(), slot);
        assert_eq!((counts(&pool), stats(&pool).late_writes_total), ([0, 1, 0, 1], 1));
        let class = format!("late-{place}");
        assert_eq!(Log::lines(&["after it was returned", &class]).len(), 1);
        // It is at the mercy of who wrote: nobody looks again, and its memory stays.
        poke(address, place);
        drop(one);
        for _ in 0..20 {
            drop(pool.lease_timeout(SIZE, HANG).unwrap());
        }
        all_home(&pool);
        assert_eq!((counts(&pool), stats(&pool).late_writes_total), ([1, 0, 0, 1], 1));
        let report = pool.close(Duration::from_millis(20));
        assert_eq!((report.quarantined, report.is_complete()), (1, false), "{report}");
        drop(pool);
        assert_eq!(ledger.regions(), 1);
    }
}

/// The slot was handed to somebody in line, who gathers several, and is written then: the line goes on
/// with what is left, instead of being told that there is nothing.
#[test]
fn a_waiter_who_is_handed_a_written_slot_waits_on() {
    let (pool, _ledger) = open(frames(3));
    let mut held: Vec<_> = (0..3).map(|_| pool.try_lease(SIZE).unwrap()).collect();
    std::thread::scope(|scope| {
        let gathers = scope.spawn(|| pool.lease_many_timeout(&[SIZE, SIZE], HANG));
        until("it waits", || stats(&pool).waiting == 1);
        let mut first = held.pop().unwrap();
        let address = first.as_mut_ptr();
        drop(first);
        until("it was handed over", || {
            counts(&pool) == [0, 3, 0, 0] && stats(&pool).landed_total > 0
        });
        poke(address, 3);
        drop(held.pop());
        until("it is found", || stats(&pool).late_writes_total == 1);
        assert_eq!(stats(&pool).waiting, 1);
        drop(held.pop());
        let leases = gathers.join().unwrap().unwrap();
        assert_eq!((leases.len(), counts(&pool)), (2, [0, 2, 0, 1]));
    });
    // Where nothing is left to hope for, whoever waits is told.
    assert!(pool.lease_many_timeout(&[SIZE; 3], HANG).is_err());
}

/// Writes to the slot that its task was just handed, and is woken for.
struct Meddler {
    address: usize,
    done: AtomicBool,
}

impl Wake for Meddler {
    fn wake(self: Arc<Self>) {
        poke(std::ptr::with_exposed_provenance_mut(self.address), 5);
        self.done.store(true, Ordering::Release);
    }
}

/// The same for a task: it stays in line, and is served by the next slot that comes.
#[test]
fn a_task_that_is_handed_a_written_slot_waits_on() {
    let (pool, _ledger) = open(frames(2));
    let [mut first, second] = [(); 2].map(|()| pool.try_lease(SIZE).unwrap());
    let address = first.as_mut_ptr().expose_provenance();
    let meddler = Arc::new(Meddler { address, done: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&meddler));
    let mut task = pool.lease_async(SIZE);
    let mut ask = |waker| Pin::new(&mut task).poll(&mut Context::from_waker(waker));
    assert!(ask(&waker).is_pending());
    drop(first);
    until("it was handed over and written", || meddler.done.load(Ordering::Acquire));
    assert!(ask(Waker::noop()).is_pending(), "in line again");
    assert_eq!((stats(&pool).late_writes_total, stats(&pool).waiting), (1, 1));
    drop(second);
    until("it is served", || stats(&pool).waiting == 0);
    let Poll::Ready(Ok(lease)) = ask(Waker::noop()) else { panic!("it was served") };
    assert!(lease.as_slice().iter().all(|byte| *byte == 0xdb));
}

/// One byte before the first slot, and one past the canary of the last, kill the process.
#[test]
fn a_step_over_either_end_of_a_slab_is_a_fault() {
    const NAME: &str = "a_step_over_either_end_of_a_slab_is_a_fault";
    const AT: &str = "PINPOOL_TEST_TOUCH";
    if !child::in_child() {
        let fault = Some(libc::SIGSEGV);
        let ends = [("first", None), ("last", None), ("before", fault), ("behind", fault)];
        child::assert_ends(NAME, AT, &ends);
        return;
    }
    let builder = Pool::builder().env(false).backend(BackendChoice::Host).lock(LockMode::Try);
    let pool = builder.debug_checks(true).class("frame", SIZE, 3).open().unwrap();
    let stride = pool.plan().classes[0].stride_bytes;
    assert_eq!((stride * 3) % SIZE, 0, "the guard begins behind the last canary");
    let mut leases: Vec<_> = (0..3).map(|_| pool.try_lease(SIZE).unwrap()).collect();
    leases.sort_by_key(Lease::slot);
    let (first, last) = (leases[0].as_mut_ptr(), leases[2].as_mut_ptr());
    let touched = match std::env::var(AT).unwrap().as_str() {
        "first" => first,
        "last" => last.wrapping_add(stride - 1),
        "before" => first.wrapping_sub(1),
        "behind" => last.wrapping_add(stride),
        other => panic!("{AT}={other}"),
    };
    // SAFETY: within the slab, or on a guard, which ends this process.
    unsafe { touched.write_volatile(1) };
}

/// What a lease holds at first: a pattern where nothing is scrubbed, so that nobody relies on old bytes,
/// and zeroes where the class promises them.
#[test]
fn a_lease_holds_poison_or_what_its_class_promises() {
    for (scrub, wanted) in [(Scrub::None, 0xdb), (Scrub::Poison, 0xdb), (Scrub::Zero, 0)] {
        let classes = [
            frames(2).scrub(scrub),
            frames(1).scrub(scrub).on_empty(OnEmpty::Grow).grow_max(1),
            frames(1).scrub(scrub).on_empty(OnEmpty::Pageable).pageable_max(1),
        ];
        for class in classes {
            let (pool, _ledger) = open(class);
            for round in 0..200 {
                let mut both = [(); 2].map(|()| pool.lease_timeout(SIZE, HANG).unwrap());
                for lease in &mut both {
                    let whole = lease.as_slice().iter().all(|byte| *byte == wanted);
                    assert!(whole, "{scrub:?}, round {round}");
                    lease.as_mut_slice().fill(0x33);
                }
                let [first, second] = both;
                let work = ManualFence::new();
                first.retire_after(work.clone());
                drop(second);
                work.complete();
            }
            all_home(&pool);
            assert_eq!((stats(&pool).overruns_total, stats(&pool).late_writes_total), (0, 0));
        }
    }
}
