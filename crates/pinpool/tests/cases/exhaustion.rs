//! An empty class: what it says, to whom, and how little that costs.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use pinpool::{ClassConfig, Exhausted, Heap, Lease, LeaseError, ManualFence, OnEmpty, Pool};
use pinpool_testkit::soon::HANG;
use tracing::Level;

use crate::tasks::block_on;
use crate::{assert_all_home, builder, counted, log, stats, until_in_line};

const SIZE: usize = 4096;

fn exhausted(result: Result<Lease, LeaseError>) -> (Exhausted, String) {
    let error = result.expect_err("the class is empty");
    match error {
        LeaseError::Exhausted(exhausted) | LeaseError::Timeout { exhausted, .. } => {
            (exhausted, error.to_string())
        }
        other => panic!("another error: {other}"),
    }
}

/// Every way to ask for a slot that may wait for ever.
type Ask = fn(&Pool) -> Result<Lease, LeaseError>;
const ASKS: [Ask; 6] = [
    |pool| pool.lease(SIZE),
    |pool| pool.lease_priority(SIZE),
    |pool| pool.lease_timeout(SIZE, HANG),
    |pool| pool.lease_deadline(SIZE, Instant::now() + HANG),
    |pool| block_on(pool.lease_async(SIZE)),
    |pool| block_on(pool.lease_priority_async(SIZE)),
];

/// Kind of fault: a silent step down where a typed error was due.
///
/// With `on_empty = "fail"` nobody waits, be it a thread or a task; what comes home meanwhile, or is
/// complete, is had.
///
/// Case empty-4.
#[test]
fn a_strict_class_fails_at_once() {
    let class = ClassConfig::new("strict", SIZE, 2).on_empty(OnEmpty::Fail);
    let (pool, ledger) = counted([class]);
    let held = pool.try_lease(SIZE).unwrap();
    for ask in ASKS {
        let fence = ManualFence::new();
        let flight = ask(&pool).unwrap().in_flight_until(fence.clone());
        let (counts, text) = exhausted(ask(&pool));
        assert_eq!((counts.slots, counts.in_flight, counts.name.as_str()), (2, 1, "strict"));
        assert!(text.contains("'strict'") && text.contains("1 in flight"), "{text}");
        drop(flight);
        assert!(ask(&pool).is_err(), "the work is not over");
        fence.complete();
        drop(ask(&pool).expect("the work is over"));
    }
    let class = stats(&pool, "strict");
    assert_eq!((class.waits_total, class.timeouts_total, class.pageable_total), (0, 0, 0));
    assert_eq!(class.misses_total, 2 * ASKS.len() as u64);
    drop(held);
    assert_all_home(pool, &ledger);
}

/// Kind of fault: a queue deeper than the pool, and a slow consumer ends the process.
///
/// The producer waits, or is told which class is empty and who has held a slot for the longest. Once the
/// consumer goes on, so does the producer, and it never waits again for nothing.
///
/// Case empty-5.
#[test]
fn a_stalled_consumer_stops_its_producer_and_no_more() {
    const FRAME: usize = 33_000_000;
    const STALL: Duration = Duration::from_millis(300);
    let pool = builder()
        .memory(Heap::new())
        .track_holders(true)
        .class("message", FRAME, 5)
        .open()
        .unwrap();
    let (send, receive) = mpsc::sync_channel::<Lease>(10);
    std::thread::scope(|scope| {
        let consumer = scope.spawn(move || {
            std::thread::sleep(STALL);
            receive.iter().count()
        });
        let tag = pool.tag("slow consumer");
        let mut told = 0;
        for message in 0..200 {
            let lease = match message % 2 {
                0 => loop {
                    match pool.lease_timeout(FRAME, Duration::from_millis(50)) {
                        Ok(lease) => break lease,
                        Err(error) => {
                            told += 1;
                            let (counts, text) = exhausted(Err(error));
                            let oldest = counts.oldest.expect("holders are tracked");
                            assert_eq!((counts.slots, counts.in_flight), (5, 0));
                            assert!(oldest.held >= Duration::from_millis(50), "{oldest:?}");
                            for word in ["'message'", "5 are leased", "'slow consumer'"] {
                                assert!(text.contains(word), "`{word}` is missing: {text}");
                            }
                        }
                    }
                },
                _ => block_on(pool.lease_async(FRAME)).unwrap(),
            };
            let mut lease = lease;
            lease.set_tag(tag);
            send.send(lease).unwrap();
        }
        drop(send);
        assert_eq!(consumer.join().unwrap(), 200);
        // The wait of message 5 is a task's, and lasts as long as the stall.
        assert!(told <= 1 + STALL.as_millis() / 50, "{told} timeouts");
    });
    let class = stats(&pool, "message");
    assert!(class.longest_wait >= STALL / 2 && class.longest_wait <= class.waited_total);
    assert_eq!((class.free, class.high_water, class.leases_total), (5, 5, 200));
}

/// Kind of fault: the only slot is held by the thread that waits for it.
///
/// Case empty-6.
#[test]
fn a_thread_that_waits_for_its_own_slots_is_told_so() {
    let open = |count| {
        builder().memory(Heap::new()).track_holders(true).class("a", SIZE, count).open().unwrap()
    };
    let pool = open(1);
    let mut held = pool.try_lease(SIZE).unwrap();
    held.set_tag(pool.tag("resizer"));
    let asks: [Ask; 3] = [
        |pool| pool.try_lease(SIZE),
        |pool| pool.lease_timeout(SIZE, Duration::from_millis(5)),
        |pool| pool.lease_many_timeout(&[SIZE], Duration::from_millis(5)).map(|mut l| l.remove(0)),
    ];
    for ask in asks {
        let (counts, text) = exhausted(ask(&pool));
        let oldest = counts.oldest.unwrap();
        assert_eq!((oldest.own_slots, oldest.slot), (1, held.slot()));
        assert_eq!(oldest.tag().as_deref(), Some("resizer"));
        assert!(text.contains("this thread itself leased 1 of them"), "{text}");
        assert!(text.contains("'resizer'"), "{text}");
    }
    // Another thread that waits is not told so.
    std::thread::scope(|scope| {
        let other = scope.spawn(|| exhausted(asks[1](&pool)));
        let (counts, text) = other.join().unwrap();
        assert_eq!(counts.oldest.unwrap().own_slots, 0);
        assert!(text.contains("'resizer'") && !text.contains("this thread"), "{text}");
    });
    // Of two slots, one is its own.
    let pool = open(2);
    let own = pool.try_lease(SIZE).unwrap();
    let other = std::thread::scope(|scope| scope.spawn(|| pool.try_lease(SIZE)).join());
    let (counts, text) = exhausted(asks[1](&pool));
    assert_eq!(counts.oldest.unwrap().own_slots, 1, "{text}");
    drop((own, other));
    // Without tracking there is nothing to say of holders, and nothing is said.
    let (pool, ledger) = counted([ClassConfig::new("a", SIZE, 1)]);
    let held = pool.try_lease(SIZE).unwrap();
    let (counts, text) = exhausted(asks[1](&pool));
    assert!(counts.oldest.is_none() && !text.contains("holder"), "{text}");
    drop(held);
    assert_all_home(pool, &ledger);
}

/// The error counts who else waits.
#[test]
fn an_error_says_how_many_wait() {
    let (pool, ledger) = counted([ClassConfig::new("a", SIZE, 1)]);
    let held = pool.try_lease(SIZE).unwrap();
    std::thread::scope(|scope| {
        for waiters in 1..=3 {
            scope.spawn(|| drop(pool.lease_timeout(SIZE, HANG).unwrap()));
            until_in_line(&pool, "a", waiters);
            let (counts, text) = exhausted(pool.try_lease(SIZE));
            assert_eq!(counts.waiting as usize, waiters);
            assert!(text.contains(&format!("{waiters} wait for one")), "{text}");
        }
        drop(held);
    });
    assert_all_home(pool, &ledger);
}

/// Kind of fault: seventeen thousand identical lines in four hours, and nobody can tell how many misses
/// there were.
///
/// Case empty-7.
#[test]
fn misses_are_counted_exactly_and_told_rarely() {
    const EACH: u64 = 25_000;
    log::listen();
    let class = ClassConfig::new("told-rarely", SIZE, 4);
    let (pool, ledger) = counted([class, ClassConfig::new("not-empty", 2 * SIZE, 1)]);
    let held: Vec<_> = (0..4).map(|_| pool.try_lease(SIZE).unwrap()).collect();
    for round in 1..=2 {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let pool = &pool;
                scope.spawn(move || {
                    for miss in 0..EACH {
                        let error = if (miss + thread) % 5_000 == 0 {
                            pool.lease_timeout(SIZE, Duration::ZERO)
                        } else {
                            pool.try_lease(SIZE)
                        };
                        assert!(error.is_err());
                    }
                });
            }
        });
        let class = stats(&pool, "told-rarely");
        assert_eq!(class.misses_total, round * 4 * EACH);
        assert_eq!((class.waits_total, class.timeouts_total), (round * 20, round * 20));
    }
    assert_eq!(stats(&pool, "not-empty").misses_total, 0);
    let lines = log::lines(Level::WARN, "told-rarely");
    assert!((1..=10).contains(&lines.len()), "{lines:#?}");
    assert!(lines[0].contains("misses=") && lines[0].contains("4 are leased"), "{lines:#?}");
    assert!(log::lines(Level::ERROR, "told-rarely").is_empty());
    drop(held);
    assert_all_home(pool, &ledger);
}
