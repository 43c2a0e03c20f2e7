//! Every call into the memory fails once, in every scenario: the n-th call of all, then of each step,
//! n = 1, 2, … until the scenario passes; that call alone, and all from it on (I4, I6, I10).
//!
//! After each: the error is typed and names class and bytes, nothing is left behind that could be
//! given back, and what could not stays mapped and counted.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test reports by panicking, and its figures by printing"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use pinpool::{
    Error, Heap, LockMode, MemoryError, MemoryStep, Mlock, PIN_CHUNK_DEFAULT, PageLock, Pool,
    PoolBuilder,
};
use pinpool_testkit::proc;
use pinpool_testkit::scripted::{Counted, Fault, FaultLog, Faulty, Ledger, Limited, STEPS};

/// What a scenario does with its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Opens and drops it.
    Open,
    /// Opens, leases, returns, closes.
    Close,
    /// Drops it with leases out, which then come home.
    HeldOver,
}

/// One way to come to memory and to give it back.
#[derive(Debug, Clone, Copy)]
struct Scenario {
    mlock: bool,
    /// Past so many bytes `pin` answers "not locked": the pool opens unlocked.
    lenient_bytes: Option<usize>,
    lock: LockMode,
    /// Name, slot size, slots.
    classes: &'static [(&'static str, usize, usize)],
    pin_chunk: u64,
    threads: usize,
    what: Use,
}

const PLAIN: Scenario = Scenario {
    mlock: false,
    lenient_bytes: None,
    lock: LockMode::Require,
    classes: &[("one", 4096, 8)],
    pin_chunk: PIN_CHUNK_DEFAULT,
    threads: 1,
    what: Use::Close,
};
const THREE: &[(&str, usize, usize)] = &[("s", 64, 100), ("m", 4096, 6), ("l", 12_288, 5)];
/// As many pins as slots, when each is pinned alone.
const MANY: &[(&str, usize, usize)] = &[("many", 4096, 24)];
/// More than two pieces of 16 MiB, which the threads share.
const LARGE: &[(&str, usize, usize)] = &[("small", 100, 3), ("frame", 6_220_800, 6)];

const SCENARIOS: &[Scenario] = &[
    PLAIN,
    Scenario { pin_chunk: 1, what: Use::Open, ..PLAIN },
    Scenario { pin_chunk: 1, what: Use::HeldOver, ..PLAIN },
    Scenario { classes: THREE, what: Use::HeldOver, ..PLAIN },
    Scenario { classes: THREE, pin_chunk: 8192, ..PLAIN },
    Scenario { classes: THREE, pin_chunk: 1, lock: LockMode::Try, ..PLAIN },
    Scenario { classes: THREE, lock: LockMode::Off, ..PLAIN },
    Scenario { classes: LARGE, pin_chunk: 1, threads: 4, ..PLAIN },
    Scenario { classes: MANY, pin_chunk: 1, what: Use::Open, ..PLAIN },
    Scenario { classes: MANY, pin_chunk: 1, what: Use::Close, ..PLAIN },
    Scenario { classes: MANY, pin_chunk: 1, what: Use::HeldOver, ..PLAIN },
    Scenario { mlock: true, lock: LockMode::Try, classes: MANY, pin_chunk: 1, ..PLAIN },
    Scenario { lenient_bytes: Some(20 * 4096), classes: MANY, pin_chunk: 1, ..PLAIN },
    Scenario { lenient_bytes: Some(5 * 4096), pin_chunk: 1, ..PLAIN },
    Scenario {
        lenient_bytes: Some(40_000),
        classes: THREE,
        pin_chunk: 1,
        lock: LockMode::Try,
        what: Use::HeldOver,
        ..PLAIN
    },
    Scenario { mlock: true, lock: LockMode::Try, ..PLAIN },
    Scenario { mlock: true, lock: LockMode::Try, pin_chunk: 1, what: Use::HeldOver, ..PLAIN },
    Scenario { mlock: true, lock: LockMode::Try, classes: THREE, pin_chunk: 4096, ..PLAIN },
    Scenario { mlock: true, lock: LockMode::Off, classes: THREE, what: Use::Open, ..PLAIN },
    Scenario { mlock: true, lock: LockMode::Try, classes: LARGE, threads: 3, ..PLAIN },
];

/// Where a failing call was made, for the proof that every call site was hit.
type Sites = BTreeMap<(&'static str, String), u64>;

#[test]
fn every_call_may_fail_without_damage() {
    let locked_before = proc::locked_bytes();
    let mut sites = Sites::new();
    let mut runs = 0u64;
    for scenario in SCENARIOS {
        for step in [None].into_iter().chain(STEPS.map(Some)) {
            for persistent in [false, true] {
                for nth in 1.. {
                    let mut fault = Fault::nth(nth);
                    fault.step = step;
                    fault.persistent = persistent;
                    // The system's own words where there is a system below.
                    let fault = if scenario.mlock { fault.os(libc::ENOMEM) } else { fault };
                    if !attempt(scenario, fault, &mut sites) {
                        break;
                    }
                    runs += 1;
                }
            }
        }
    }
    let faults: u64 = sites.values().sum();
    println!("{} scenarios, {runs} failing runs, {faults} faults: {sites:#?}", SCENARIOS.len());
    assert!(SCENARIOS.len() >= 12 && runs >= 2000, "{runs} runs");
    for site in SITES {
        assert!(sites.contains_key(&(site.0, site.1.to_string())), "no fault hit {site:?}");
    }
    assert_eq!(sites.len(), SITES.len(), "a call site that nobody listed");
    assert_eq!(proc::locked_bytes(), locked_before, "bytes are still locked");
}

/// Runs a scenario with one fault; false when no call failed.
fn attempt(scenario: &Scenario, fault: Fault, sites: &mut Sites) -> bool {
    let context = format!("{scenario:?} with {fault:?}");
    let base = Mlock::new(scenario.lock);
    let heap = Heap::claiming_locked();
    let locked_before = proc::locked_bytes();
    let run = match (scenario.mlock, scenario.lenient_bytes) {
        (true, _) => run(scenario, base, fault, sites, &context),
        (false, None) => run(scenario, heap, fault, sites, &context),
        (false, Some(limit)) => {
            run(scenario, Limited::lenient(heap, limit), fault, sites, &context)
        }
    };
    let ledger = run.ledger;
    assert_eq!(ledger.violations(), [""; 0], "{context}");
    let (mut pinned, mut reserved) = (0, 0);
    for (step, bytes) in &run.injected {
        match step {
            MemoryStep::Unpin => pinned += bytes,
            MemoryStep::Release => reserved += bytes,
            _ => {}
        }
    }
    assert_eq!(ledger.pinned_bytes(), pinned, "what stays pinned is what no unpin took: {context}");
    if pinned == 0 {
        assert_eq!(ledger.reserved_bytes(), reserved, "and so for what stays mapped: {context}");
    } else {
        assert!(ledger.reserved_bytes() >= pinned + reserved, "pinned is mapped: {context}");
    }
    if scenario.mlock {
        let locked = proc::locked_bytes() - locked_before;
        assert_eq!(locked, pinned as u64, "the kernel agrees: {context}");
        ledger.give_back(&base);
    } else {
        ledger.give_back(&heap);
    }
    !run.injected.is_empty()
}

struct Run {
    ledger: Ledger,
    injected: Vec<(MemoryStep, usize)>,
}

fn run(
    scenario: &Scenario,
    memory: impl PageLock + 'static,
    fault: Fault,
    sites: &mut Sites,
    context: &str,
) -> Run {
    let (memory, ledger) = Counted::new(memory);
    let (memory, log) = Faulty::new(memory, fault);
    let mut seen = Seen { log: log.clone(), sites, count: 0 };
    match builder(scenario).memory(memory).open() {
        Ok(pool) => {
            // A fault that open survives is an unpin of a slab that could not be locked whole.
            let survived = log.injected().iter().all(|(step, _)| *step == MemoryStep::Unpin);
            assert!(survived, "open succeeded: {context}");
            seen.until_now("open");
            use_up(scenario, pool, &ledger, &mut seen, context);
        }
        Err(error) => {
            let injected = log.injected();
            assert!(!injected.is_empty(), "{error}: {context}");
            check_error(scenario, &error, &injected, &ledger, context);
            // Of several threads each may have met the fault before the pool gave up.
            let first = injected[0].0;
            let opening = injected.iter().take_while(|(step, _)| *step == first).count();
            seen.so_many("open", opening);
            seen.until_now("roll-back");
        }
    }
    Run { ledger, injected: log.injected() }
}

fn use_up(scenario: &Scenario, pool: Pool, ledger: &Ledger, seen: &mut Seen<'_>, context: &str) {
    let lenient = scenario.lenient_bytes.is_some();
    assert_eq!(pool.is_pinned(), scenario.lock != LockMode::Off && !lenient, "{context}");
    assert_eq!(pool.stats().pinned_bytes, ledger.pinned_bytes() as u64, "{context}");
    assert_eq!(pool.stats().mapped_bytes, ledger.reserved_bytes() as u64, "{context}");
    let mut leases = Vec::new();
    for (_, size, _) in scenario.classes {
        let mut lease = pool.try_lease(*size).unwrap();
        lease.as_mut_slice().fill(1);
        leases.push(lease);
    }
    match scenario.what {
        Use::Open => {
            drop(leases);
            drop(pool);
            seen.until_now("drop");
        }
        Use::HeldOver => {
            drop(pool);
            seen.until_now("drop");
            for lease in leases {
                assert!(lease.as_slice().iter().all(|byte| *byte == 1), "{context}");
                drop(lease);
            }
            seen.until_now("last lease");
        }
        Use::Close => {
            drop(leases);
            let report = pool.close(Duration::from_secs(10));
            seen.until_now("close");
            let stuck: usize = seen.log.injected().iter().map(|(_, bytes)| bytes).sum();
            assert_eq!(report.stuck_bytes, stuck as u64, "{report:?}: {context}");
            assert_eq!(report.still_out, [], "{context}");
            assert_eq!(report.is_complete(), stuck == 0, "{context}");
            assert_eq!(ledger.regions() == 0, stuck == 0, "back when close returns: {context}");
            let stats = pool.stats();
            assert_eq!(stats.stuck_bytes, stuck as u64, "{context}");
            assert_eq!(stats.pinned_bytes, ledger.pinned_bytes() as u64, "no refund: {context}");
        }
    }
}

/// The error says which step of which class failed, with how many bytes, and what was pinned then.
fn check_error(
    scenario: &Scenario,
    error: &Error,
    injected: &[(MemoryStep, usize)],
    ledger: &Ledger,
    context: &str,
) {
    let is_planted = |source: &MemoryError| injected.contains(&(source.step, source.bytes));
    let text = error.to_string();
    // Up to the first fault, pinned bytes only rose.
    let peak = ledger.pinned_bytes_peak() as u64;
    match error {
        Error::Memory { class, pinned, total, offset, source } => {
            assert!(is_planted(source), "{source:?} of {injected:?}: {context}");
            let planned = builder(scenario).plan().unwrap();
            let known = planned.classes.iter().find(|known| known.name == *class);
            let slab_bytes = known.expect("a class of ours").slab_bytes;
            assert!(offset + source.bytes as u64 <= slab_bytes as u64, "{class}: {context}");
            if source.step == MemoryStep::Reserve {
                assert_eq!(source.bytes, slab_bytes, "{class}: {context}");
            }
            assert_eq!(*total, planned.total_bytes);
            if scenario.lenient_bytes.is_none() {
                assert_eq!(*pinned, peak, "{context}");
            }
            for part in [
                format!("'{class}'"),
                source.bytes.to_string(),
                pinned.to_string(),
                offset.to_string(),
            ] {
                assert!(text.contains(&part), "{part} is not in {text:?}");
            }
        }
        Error::MemlockLimit { needed, already, source, .. } => {
            assert!(is_planted(source) && source.step == MemoryStep::Pin, "{context}");
            assert_eq!(*already, peak, "{context}");
            assert!(text.contains(&needed.to_string()) && text.contains("RLIMIT_MEMLOCK"));
        }
        other => panic!("{other}: {context}"),
    }
}

/// Sorts the failed calls by where in the pool's life they were made.
struct Seen<'a> {
    log: FaultLog,
    sites: &'a mut Sites,
    count: usize,
}

impl Seen<'_> {
    fn until_now(&mut self, phase: &'static str) {
        self.so_many(phase, usize::MAX);
    }

    fn so_many(&mut self, phase: &'static str, most: usize) {
        for (step, _) in self.log.injected().iter().skip(self.count).take(most) {
            *self.sites.entry((phase, format!("{step:?}"))).or_default() += 1;
            self.count += 1;
        }
    }
}

fn builder(scenario: &Scenario) -> PoolBuilder {
    let builder = Pool::builder()
        .env(false)
        .lock(scenario.lock)
        .prefault_threads(scenario.threads)
        .pin_chunk(scenario.pin_chunk);
    let class = |builder: PoolBuilder, class: &(&str, usize, usize)| {
        builder.class(class.0, class.1, class.2)
    };
    scenario.classes.iter().fold(builder, class)
}

/// Every place from which the pool calls a step that can fail. `Unpin` at open is a slab that could
/// not be locked whole.
const SITES: &[(&str, &str)] = &[
    ("open", "Reserve"),
    ("open", "Populate"),
    ("open", "Pin"),
    ("open", "Unpin"),
    ("roll-back", "Unpin"),
    ("roll-back", "Release"),
    ("drop", "Unpin"),
    ("drop", "Release"),
    ("last lease", "Unpin"),
    ("last lease", "Release"),
    ("close", "Unpin"),
    ("close", "Release"),
];
