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

#[path = "faults/scenarios.rs"]
mod scenarios;

use std::collections::BTreeMap;
use std::time::Duration;

use pinpool::{Error, Heap, LockMode, MemoryError, MemoryStep, Mlock, Opening, PageLock, Pool};
use pinpool_testkit::proc;
use pinpool_testkit::scripted::{Counted, Fault, FaultLog, Faulty, Ledger, Limited, STEPS};

use scenarios::{SCENARIOS, Scenario, Use, builder};

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
    if scenario.min_bytes.is_some() {
        ledger.expect_less();
    }
    let mut seen = Seen { log: log.clone(), sites, count: 0 };
    let builder = builder(scenario).memory(memory);
    let opened =
        if scenario.beside { builder.open_async().and_then(Opening::wait) } else { builder.open() };
    match opened {
        Ok(pool) => {
            seen.until_now("open");
            check_survived(scenario, &pool, &log.injected(), context);
            use_up(scenario, pool, &ledger, &mut seen, context);
        }
        Err(error) => {
            let injected = log.injected();
            assert!(!injected.is_empty(), "{error}: {context}");
            check_error(scenario, &error, &injected, &ledger, context);
            // Of several threads each may have met the fault before the pool gave up; where it may become
            // smaller other classes were tried.
            let (first, _) = injected[0];
            let undoes = |step| matches!(step, MemoryStep::Unpin | MemoryStep::Release);
            let more = |step| scenario.min_bytes.is_some() && !undoes(step);
            let opening = injected.iter().take_while(|(step, _)| *step == first || more(*step));
            let opening = opening.count();
            seen.so_many("open", opening);
            seen.until_now("roll-back");
        }
    }
    Run { ledger, injected: log.injected() }
}

/// A fault that an opening survives is an unpin of a slab that could not be locked whole; or the end of a
/// class, where `min_bytes` lets it end: then every slot that there is can be had, and is whole.
fn check_survived(
    scenario: &Scenario,
    pool: &Pool,
    injected: &[(MemoryStep, usize)],
    context: &str,
) {
    let (other, ends): (Vec<_>, Vec<_>) =
        injected.iter().map(|(step, _)| *step).partition(|step| *step == MemoryStep::Unpin);
    let ending = |step| matches!(step, MemoryStep::Populate | MemoryStep::Pin);
    assert!(ends.iter().all(|step| ending(*step)), "open survived: {context}");
    assert!(ends.is_empty() || scenario.min_bytes.is_some(), "open succeeded: {context}");
    assert!(ends.is_empty() || other.is_empty(), "{injected:?}: {context}");
    let cut = &pool.startup().cut;
    assert_eq!(cut.is_empty(), ends.is_empty(), "{cut:?}, {ends:?}: {context}");
    let Some(least) = scenario.min_bytes else { return };
    let stats = pool.stats();
    let mut bytes = 0;
    for class in &stats.classes {
        let count = scenario.classes.iter().find(|(name, ..)| *name == class.name.as_str());
        let count = count.expect("a class of ours").2;
        let ended = cut.iter().find(|cut| cut.class == class.name);
        assert_eq!(ended.map_or(count, |cut| cut.slots as usize), class.slots as usize);
        assert!(ended.is_none_or(|cut| cut.slots < cut.wanted && cut.slots > 0), "{context}");
        let mut held: Vec<_> =
            (0..class.slots).map(|_| pool.try_lease(class.size).unwrap()).collect();
        for (lease, value) in held.iter_mut().zip(0u8..) {
            assert_eq!(lease.class(), class.id, "{context}");
            lease.as_mut_slice().fill(value);
        }
        for (lease, value) in held.iter().zip(0u8..) {
            assert!(lease.as_slice().iter().all(|byte| *byte == value), "{context}");
        }
        bytes += class.slot_bytes as u64 * u64::from(class.slots);
    }
    // Chunks and pages may make it a little more.
    assert!(bytes + 2 * 4096 * stats.classes.len() as u64 >= least, "{bytes}: {context}");
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
            let kept = |step| matches!(step, MemoryStep::Unpin | MemoryStep::Release);
            let kept = seen.log.injected().into_iter().filter(|(step, _)| kept(*step));
            let stuck: usize = kept.map(|(_, bytes)| bytes).sum();
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
            if scenario.min_bytes.is_some() {
                // What failed first is told, and other classes were tried after it.
                assert!(*pinned <= peak, "{context}");
            } else if scenario.lenient_bytes.is_none() {
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
