//! Waiting: timeouts, wake-up by a return, the order of the line, whoever is in it, and that two classes
//! do not disturb each other.

use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use pinpool::{ClassConfig, Lease, LeaseError, LeaseFuture, OnEmpty, Pool};

use super::{Check, HANG, Subject, assert_balanced, join_soon, main_stats, until_waiting};

pub(super) const CHECKS: &[Check] = &[
    ("a free slot is had without waiting", no_wait_when_free),
    ("a timeout ends the wait", timeout),
    ("a return wakes a waiter", woken_by_return),
    ("a return wakes the waiter of its class", woken_by_its_class),
    ("threads and tasks are served in the order of their arrival", in_order),
    ("nobody who looks passes a waiter", no_overtaking),
    ("a task that gives up hands its slot on", cancelled_task),
    ("a close ends every wait", closed),
    ("several leases are had all or none", all_or_none),
    ("priority goes first, and the reserve is its own", priority),
    ("a strict class never waits", strict),
];

fn no_wait_when_free(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 3);
    let held = (
        pool.lease(4096).unwrap(),
        pool.lease_timeout(4096, Duration::ZERO).unwrap(),
        pool.lease_timeout(4096, Duration::MAX).unwrap(),
    );
    assert_eq!(main_stats(&pool).waits_total, 0);
    drop(held);
    assert_eq!(pool.lease_of::<u32>(4).unwrap().len(), 4);
    assert_eq!(pool.lease_timeout_of::<u32>(4, Duration::ZERO).unwrap().len(), 4);
}

fn timeout(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 1);
    let held = pool.try_lease(4096).unwrap();
    for patience in [Duration::ZERO, Duration::from_millis(20)] {
        let start = Instant::now();
        let error = pool.lease_timeout(4096, patience).unwrap_err();
        let LeaseError::Timeout { exhausted, waited } = error else { panic!("{error:?}") };
        assert!(waited >= patience && start.elapsed() >= waited, "{waited:?} of {patience:?}");
        assert_eq!((exhausted.name.as_str(), exhausted.slots), ("main", 1));
        let text = error.to_string();
        assert!(text.contains("'main'") && text.contains("1 slots"), "{text}");
    }
    let stats = main_stats(&pool);
    assert_eq!((stats.waits_total, stats.timeouts_total, stats.misses_total), (2, 2, 2));
    drop(held);
    assert!(pool.lease_timeout(4096, Duration::ZERO).is_ok(), "the queue is not stuck");
    assert_balanced(&pool);
}

fn woken_by_return(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 1);
    for round in 1..=5 {
        let held = pool.try_lease(4096).unwrap();
        let slot = held.slot();
        let waiter = {
            let pool = pool.clone();
            std::thread::spawn(move || pool.lease(4096).map(|lease| lease.slot()))
        };
        until_waiting(&pool, round);
        assert!(!waiter.is_finished(), "it waits while the slot is out");
        drop(held);
        assert_eq!(join_soon(waiter), Ok(slot));
    }
    let stats = main_stats(&pool);
    assert_eq!((stats.waits_total, stats.timeouts_total, stats.free), (5, 0, 1));
}

fn woken_by_its_class(subject: &Subject<'_>) {
    let classes = vec![ClassConfig::new("main", 4096, 1), ClassConfig::new("small", 64, 1)];
    let pool = (subject.open)(classes);
    let large = pool.try_lease(4096).unwrap();
    let small = pool.try_lease(64).unwrap();
    let waiter = {
        let pool = pool.clone();
        std::thread::spawn(move || pool.lease(4096).map(|lease| lease.capacity()))
    };
    until_waiting(&pool, 1);
    drop(small);
    std::thread::sleep(Duration::from_millis(10));
    assert!(!waiter.is_finished(), "a slot of another class is no use to it");
    assert!(pool.try_lease(64).is_ok(), "and is still free");
    drop(large);
    assert_eq!(join_soon(waiter), Ok(4096));
}

fn poll(task: &mut LeaseFuture) -> Poll<Result<Lease, LeaseError>> {
    Pin::new(task).poll(&mut Context::from_waker(Waker::noop()))
}

/// A task that is in line for "main".
fn task_in_line(pool: &Pool) -> LeaseFuture {
    let mut task = pool.lease_async(4096);
    assert!(poll(&mut task).is_pending(), "there is no slot for it");
    task
}

/// The slot that a task was served with.
fn served(task: &mut LeaseFuture) -> Lease {
    match poll(task) {
        Poll::Ready(lease) => lease.unwrap(),
        Poll::Pending => panic!("the task is not served"),
    }
}

/// A thread that waits, tells its number when it is served, and returns the slot.
fn thread_in_line(
    pool: &Pool,
    number: usize,
    urgent: bool,
    told: &mpsc::Sender<usize>,
) -> std::thread::JoinHandle<()> {
    let (waiting, user, told) = (main_stats(pool).waiting, pool.clone(), told.clone());
    let thread = std::thread::spawn(move || {
        let lease = if urgent {
            user.lease_priority_timeout(4096, HANG)
        } else {
            user.lease_timeout(4096, HANG)
        };
        told.send(number).unwrap();
        drop(lease.unwrap());
    });
    let start = Instant::now();
    while main_stats(pool).waiting == waiting {
        assert!(start.elapsed() < HANG, "a lease that must wait does not");
        std::thread::sleep(Duration::from_micros(200));
    }
    thread
}

fn in_order(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 1);
    let held = pool.try_lease(4096).unwrap();
    let (tell, told) = mpsc::channel();
    let first = thread_in_line(&pool, 0, false, &tell);
    let mut second = task_in_line(&pool);
    let third = thread_in_line(&pool, 2, false, &tell);
    let fourth = thread_in_line(&pool, 3, false, &tell);
    assert_eq!(main_stats(&pool).waiting, 4);
    drop(held);
    join_soon(first);
    let start = Instant::now();
    let lease = loop {
        if let Poll::Ready(lease) = poll(&mut second) {
            break lease.unwrap();
        }
        assert!(start.elapsed() < HANG, "the task is never served");
    };
    std::thread::sleep(Duration::from_millis(5));
    assert!(!third.is_finished() && !fourth.is_finished(), "they came after the task");
    drop(lease);
    join_soon(third);
    join_soon(fourth);
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [0, 2, 3]);
    assert_eq!((main_stats(&pool).waiting, main_stats(&pool).timeouts_total), (0, 0));
    assert_balanced(&pool);
}

fn no_overtaking(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 1);
    let held = pool.try_lease(4096).unwrap();
    let mut task = task_in_line(&pool);
    drop(held);
    // The slot is the task's, though it has not come for it yet.
    assert!(pool.try_lease(4096).is_err() && pool.try_lease_priority(4096).is_err());
    assert!(pool.try_lease_many(&[4096]).is_err());
    assert!(pool.lease_timeout(4096, Duration::from_millis(2)).is_err());
    drop(served(&mut task));
    assert!(pool.try_lease(4096).is_ok());
    assert_balanced(&pool);
}

fn cancelled_task(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 1);
    let (tell, _told) = mpsc::channel();
    let held = pool.try_lease(4096).unwrap();
    let (first, second) = (task_in_line(&pool), task_in_line(&pool));
    let mut third = task_in_line(&pool);
    let fourth = thread_in_line(&pool, 3, false, &tell);
    // One goes while it waits, one when it was served and does not know.
    drop(second);
    drop(held);
    drop(first);
    drop(served(&mut third));
    join_soon(fourth);
    // Nobody is behind this one.
    let held = pool.try_lease(4096).unwrap();
    let last = task_in_line(&pool);
    drop(held);
    drop(last);
    assert!(pool.try_lease(4096).is_ok());
    assert_eq!((main_stats(&pool).cancelled_total, main_stats(&pool).waiting), (3, 0));
    assert_balanced(&pool);
}

fn closed(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 1);
    let held = pool.try_lease(4096).unwrap();
    let mut task = task_in_line(&pool);
    let (one, several) = (pool.clone(), pool.clone());
    let waiters = [
        std::thread::spawn(move || one.lease(4096).map(drop)),
        std::thread::spawn(move || several.lease_many(&[4096]).map(drop)),
    ];
    until_waiting(&pool, 3);
    pool.close(Duration::ZERO);
    for waiter in waiters {
        assert_eq!(join_soon(waiter), Err(LeaseError::Closed));
    }
    let Poll::Ready(answer) = poll(&mut task) else { panic!("the task still waits") };
    assert_eq!(answer.map(drop), Err(LeaseError::Closed));
    drop(held);
    assert!(pool.close(HANG).is_complete());
}

fn all_or_none(subject: &Subject<'_>) {
    let pool = subject.pool(4096, 3);
    let held = pool.try_lease(4096).unwrap();
    assert!(pool.try_lease_many(&[4096; 3]).is_err());
    let error = pool.lease_many_timeout(&[4096; 3], Duration::from_millis(5)).unwrap_err();
    assert!(matches!(error, LeaseError::Timeout { .. }), "{error}");
    let error = pool.lease_many(&[4096; 4]).unwrap_err();
    assert!(matches!(error, LeaseError::TooMany { wanted: 4, most: 3, .. }), "{error}");
    assert_eq!((main_stats(&pool).free, main_stats(&pool).waiting), (2, 0));
    let gatherer = {
        let pool = pool.clone();
        std::thread::spawn(move || pool.lease_many(&[4096, 4095, 4000]))
    };
    until_waiting(&pool, 2);
    assert!(pool.try_lease(4096).is_err(), "what is gathered is nobody else's");
    drop(held);
    let leases = join_soon(gatherer).unwrap();
    assert_eq!(leases.iter().map(Lease::len).collect::<Vec<_>>(), [4096, 4095, 4000]);
    drop(leases);
    assert_eq!(main_stats(&pool).free, 3);
    assert!(pool.lease_many(&[]).unwrap().is_empty());
    assert_balanced(&pool);
}

fn priority(subject: &Subject<'_>) {
    let pool = (subject.open)(vec![ClassConfig::new("main", 4096, 2).reserve(1)]);
    let (tell, told) = mpsc::channel();
    let plain = pool.try_lease(4096).unwrap();
    assert_eq!(main_stats(&pool).reserved, 1);
    let error = pool.try_lease(4096).unwrap_err();
    assert!(error.to_string().contains("1 kept for lease_priority"), "{error}");
    let urgent = pool.try_lease_priority(4096).unwrap();
    let threads: Vec<_> = [false, true, false, true]
        .into_iter()
        .enumerate()
        .map(|(number, urgent)| thread_in_line(&pool, number, urgent, &tell))
        .collect();
    drop(plain);
    threads.into_iter().for_each(join_soon);
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [1, 3, 0, 2]);
    // A slot of the reserve is no use to who has no priority.
    let plain = pool.try_lease(4096).unwrap();
    let mut task = task_in_line(&pool);
    drop(urgent);
    assert!(poll(&mut task).is_pending());
    assert!(pool.try_lease_priority(4096).is_ok());
    drop(plain);
    drop(served(&mut task));
    assert_balanced(&pool);
}

fn strict(subject: &Subject<'_>) {
    let pool = (subject.open)(vec![ClassConfig::new("main", 4096, 1).on_empty(OnEmpty::Fail)]);
    let held = pool.lease(4096).unwrap();
    let mut task = pool.lease_async(4096);
    let Poll::Ready(answer) = poll(&mut task) else { panic!("a task waits") };
    for refused in
        [answer, pool.lease(4096), pool.lease_priority(4096), pool.lease_timeout(4096, HANG)]
    {
        assert!(matches!(refused, Err(LeaseError::Exhausted(_))), "{refused:?}");
    }
    assert!(matches!(pool.lease_many(&[4096]), Err(LeaseError::Exhausted(_))));
    assert_eq!((main_stats(&pool).waits_total, main_stats(&pool).misses_total), (0, 5));
    drop(held);
    assert!(pool.lease(4096).is_ok());
}
