//! Who holds the slots: by name, since when, from which thread; who forgot one; and who gave it back
//! after all.

use std::time::Duration;

use pinpool::{ClassConfig, Heap, Lease, LeaseError, ManualFence, Pool};
use pinpool_testkit::scripted::Counted;
use pinpool_testkit::soon::{HANG, until};
use tracing::Level;

use crate::tasks::block_on;
use crate::{assert_all_home, builder, log, stats, until_in_line};

const SIZE: usize = 4096;

/// Kind of fault: buffers held for hours by nobody knows whom, or alarms that are false.
///
/// Four cameras, one of which keeps its frame for too long: one report with its name, class, thread and
/// age, one more line when the frame comes back after all, and a count of one.
///
/// Case stats-3.
#[test]
fn a_lease_held_for_too_long_is_reported_once_by_name() {
    const LIMIT: Duration = Duration::from_millis(200);
    log::listen();
    let (memory, ledger) = Counted::new(Heap::claiming_locked());
    let pool = builder()
        .memory(memory)
        .leak_after(LIMIT)
        .class("cam-frame", SIZE, 4)
        .class("cam-other", 2 * SIZE, 1)
        .open()
        .unwrap();
    let (take, taken) = std::sync::mpsc::channel::<Lease>();
    std::thread::scope(|scope| {
        let pool = &pool;
        std::thread::Builder::new()
            .name("cam2-thread".into())
            .spawn_scoped(scope, move || {
                let mut lease = pool.try_lease(SIZE).unwrap();
                lease.set_tag(pool.tag("cam2"));
                take.send(lease).unwrap();
                until("it is reported", || stats(pool, "cam-frame").leaks_total == 1);
                // Long enough for a second report, were there one.
                std::thread::sleep(2 * LIMIT);
            })
            .unwrap();
        let late = taken.recv().unwrap();
        // The others keep theirs for a while, and change them: none is old, though all are busy.
        for _ in 0..10 {
            let held: Vec<_> = ["cam0", "cam1", "cam3"]
                .map(|name| {
                    let mut lease = pool.lease(SIZE).unwrap();
                    lease.set_tag(pool.tag(name));
                    lease
                })
                .into();
            std::thread::sleep(LIMIT / 4);
            let holders = pool.holders();
            assert_eq!(holders.len(), 4);
            assert_eq!(holders[0].tag.as_deref(), Some("cam2"), "the longest comes first");
            assert!(holders.is_sorted_by(|a, b| a.held >= b.held));
            drop(held);
        }
        until("it is reported", || stats(pool, "cam-frame").leaks_total == 1);
        let holders = pool.holders();
        assert_eq!(holders.len(), 1);
        assert!(holders[0].held.unwrap() >= LIMIT && holders[0].thread.is_some());
        assert_eq!((holders[0].class.as_str(), holders[0].slot), ("cam-frame", late.slot()));
        let text = holders[0].to_string();
        assert!(text.contains("'cam2'") && text.contains("'cam-frame'"), "{text}");
        // Its owner is another thread than the one that leased it, and a copy does not end it.
        let fence = ManualFence::new();
        let flight = late.in_flight_until(fence.clone());
        std::thread::sleep(LIMIT / 2);
        fence.complete();
        let reported = || log::lines(Level::WARN, "cam-frame");
        let returned = || log::lines(Level::INFO, "returned after all");
        let mine = |lines: Vec<String>| lines.into_iter().filter(|l| l.contains("cam-frame"));
        assert_eq!(mine(returned()).count(), 0);
        drop(flight.wait().unwrap());
        until("its return is told", || mine(returned()).count() == 1);
        let lines = reported();
        assert_eq!(lines.len(), 1, "{lines:#?}");
        for word in ["tag=\"cam2\"", "cam-frame", "age=", "thread=", "cam2-thread", "count=1"] {
            assert!(lines[0].contains(word), "`{word}` is missing: {}", lines[0]);
        }
        let back = mine(returned()).next().unwrap();
        assert!(back.contains("tag=\"cam2\"") && back.contains("held="), "{back}");
    });
    assert_eq!(stats(&pool, "cam-frame").leaks_total, 1);
    assert_eq!(stats(&pool, "cam-other").leaks_total, 0);
    assert!(pool.holders().is_empty());
    assert_all_home(pool, &ledger);
}

/// The same slot, held for too long again by the next holder, is a second report.
#[test]
fn each_lease_of_a_slot_is_reported_by_itself() {
    let pool = builder()
        .memory(Heap::new())
        .leak_after(Duration::from_millis(20))
        .class("again", SIZE, 1)
        .open()
        .unwrap();
    for times in 1..=3 {
        let lease = pool.lease(SIZE).unwrap();
        until("it is reported", || stats(&pool, "again").leaks_total == times);
        drop(lease);
    }
}

/// Every way in which a holder goes without a word of its own.
type Death = fn(&Pool);

/// Kind of fault: a holder that died with its buffers kept them for ever.
///
/// A panic and a cancelled task give their slots back, and those who wait get them.
///
/// Case leak-7.
#[test]
fn a_holder_that_dies_gives_its_slots_back() {
    let deaths: [Death; 4] = [
        |pool| {
            let pool = pool.clone();
            let holder = std::thread::spawn(move || {
                let _held: Vec<_> = (0..4).map(|_| pool.try_lease(SIZE).unwrap()).collect();
                until_in_line(&pool, "frame", 2);
                std::panic::resume_unwind(Box::new("a planted panic"));
            });
            assert!(holder.join().is_err());
        },
        |pool| {
            let holder = async {
                let held: Vec<_> = (0..4).map(|_| pool.try_lease(SIZE).unwrap()).collect();
                std::future::pending::<()>().await;
                drop(held);
            };
            let mut holder = Box::pin(holder);
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(holder.as_mut().poll(&mut context).is_pending());
            until_in_line(pool, "frame", 2);
            drop(holder);
        },
        |pool| {
            // In flight, and a task that awaits it is cancelled.
            let fence = ManualFence::new();
            let flights: Vec<_> = (0..4)
                .map(|_| pool.try_lease(SIZE).unwrap().in_flight_until(fence.clone()))
                .collect();
            until_in_line(pool, "frame", 2);
            drop(flights);
            fence.complete();
        },
        |pool| {
            // Shared among threads of which one panics.
            let shared: Vec<_> = (0..4).map(|_| pool.try_lease(SIZE).unwrap().share()).collect();
            let own = shared.clone();
            until_in_line(pool, "frame", 2);
            let holder = std::thread::spawn(move || {
                let _own = own;
                std::panic::resume_unwind(Box::new("a planted panic"));
            });
            assert!(holder.join().is_err());
            drop(shared);
        },
    ];
    for (number, death) in deaths.into_iter().enumerate() {
        let (memory, ledger) = Counted::new(Heap::claiming_locked());
        let pool = builder().memory(memory).class("frame", SIZE, 4).open().unwrap();
        std::thread::scope(|scope| {
            let holder = scope.spawn(|| death(&pool));
            until("it holds all", || stats(&pool, "frame").free == 0);
            let thread = scope.spawn(|| pool.lease_timeout(SIZE, HANG).map(drop));
            let task = scope.spawn(|| block_on(pool.lease_async(SIZE)).map(drop));
            holder.join().unwrap();
            assert_eq!(thread.join().unwrap(), Ok(()), "death {number}");
            assert_eq!(task.join().unwrap(), Ok(()), "death {number}");
        });
        let again = pool.lease_many_timeout(&[SIZE; 4], HANG).unwrap();
        drop(again);
        assert_all_home(pool, &ledger);
    }
}

/// Forgotten leases stay visible, by name and age, in the list of holders, in the error of who finds
/// nothing, in the count of leaks and in the report of a close.
///
/// Case leak-7.
#[test]
fn forgotten_leases_are_named() {
    let (memory, _ledger) = Counted::new(Heap::claiming_locked());
    let pool = builder()
        .memory(memory)
        .leak_after(Duration::from_millis(50))
        .class("frame", SIZE, 4)
        .open()
        .unwrap();
    for name in ["decoder", "encoder"] {
        let mut lease = pool.try_lease(SIZE).unwrap();
        lease.set_tag(pool.tag(name));
        std::mem::forget(lease);
        std::thread::sleep(Duration::from_millis(2));
    }
    let shared = pool.try_lease(SIZE).unwrap().share();
    std::mem::forget(shared.clone());
    std::mem::forget(shared);
    let fence = ManualFence::new();
    std::mem::forget(pool.try_lease(SIZE).unwrap().in_flight_until(fence));
    until("all are reported", || stats(&pool, "frame").leaks_total >= 3);
    let error = pool.lease_timeout(SIZE, Duration::from_millis(60)).unwrap_err();
    let LeaseError::Timeout { exhausted, .. } = error else { panic!("{error}") };
    let oldest = exhausted.oldest.unwrap();
    assert_eq!(oldest.tag().as_deref(), Some("decoder"));
    assert!(oldest.held >= Duration::from_millis(50));
    assert!(error.to_string().contains("the oldest holder, 'decoder', has had slot"), "{error}");
    let names = |holders: Vec<pinpool::Holder>| -> Vec<_> {
        holders.into_iter().filter_map(|holder| holder.tag).map(|tag| tag.to_string()).collect()
    };
    assert_eq!(names(pool.holders()), ["decoder", "encoder"]);
    let report = pool.close(Duration::ZERO);
    assert_eq!(names(report.holders.clone()), ["decoder", "encoder"]);
    assert_eq!(report.still_out.iter().map(|(_, slots)| slots).sum::<usize>(), 4);
    let text = report.to_string();
    assert!(text.contains("held by 'decoder' for"), "{text}");
}

/// Without tracking the holders are listed all the same, only not since when and by whom.
#[test]
fn holders_are_listed_without_tracking() {
    let (pool, ledger) = crate::counted([ClassConfig::new("frame", SIZE, 3)]);
    assert!(pool.holders().is_empty());
    let mut named = pool.try_lease(SIZE).unwrap();
    named.set_tag(pool.tag("sink"));
    let plain = pool.try_lease(SIZE).unwrap();
    let holders = pool.holders();
    assert_eq!(holders.len(), 2);
    assert!(holders.iter().all(|holder| holder.held.is_none() && holder.thread.is_none()));
    let tags: Vec<_> = holders.iter().map(|holder| holder.tag.as_deref()).collect();
    assert!(tags.contains(&Some("sink")) && tags.contains(&None), "{tags:?}");
    drop((named, plain));
    // The next holder of the slot does not inherit the name.
    let next = pool.lease_many(&[SIZE; 3]).unwrap();
    assert!(pool.holders().iter().all(|holder| holder.tag.is_none()));
    drop(next);
    assert_all_home(pool, &ledger);
}
