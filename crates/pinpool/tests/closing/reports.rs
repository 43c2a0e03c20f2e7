//! What a close says and does while something is out: waiters hear of it, holders and work in flight are
//! reported, nothing is unmapped under them, and a later close succeeds.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use pinpool::{ClassConfig, Heap, Lease, LeaseError, ManualFence, OnEmpty, Pool, Scrub};
use pinpool_testkit::scripted::{Counted, Ledger, counted_pool};
use pinpool_testkit::soon::{HANG, until};
use pinpool_testkit::stamp;

const SIZE: usize = 512;

/// Counts how often a task was woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A way to wait.
type Wait = fn(&Pool) -> Result<Lease, LeaseError>;

/// Eight threads and two tasks wait, in every way to wait, and one of them has gathered a slot; all
/// hear that the pool closed, and nobody is served any more, whatever comes home.
#[test]
fn everybody_in_line_hears_of_a_close() {
    for _ in 0..50 {
        let (pool, ledger) = counted_pool(&[("frame", SIZE, 2)]);
        let (first, second) = (pool.try_lease(SIZE).unwrap(), pool.try_lease(SIZE).unwrap());
        let task_wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&task_wakes));
        let mut tasks = [pool.lease_async(SIZE), pool.lease_priority_async(SIZE)];
        std::thread::scope(|scope| {
            // First in line: it gathers what comes home.
            let gathers = scope.spawn(|| pool.lease_many(&[SIZE, SIZE]).map(drop));
            until("it is first", || pool.stats().classes[0].waiting == 1);
            drop(first);
            let waits: [Wait; 7] = [
                |pool| pool.lease(SIZE),
                |pool| pool.lease(SIZE),
                |pool| pool.lease(SIZE),
                |pool| pool.lease_priority(SIZE),
                |pool| pool.lease_timeout(SIZE, HANG * 9),
                |pool| pool.lease_priority_timeout(SIZE, HANG * 9),
                |pool| pool.lease_deadline(SIZE, Instant::now() + HANG * 9),
            ];
            let waiters = waits.map(|wait| {
                let pool = &pool;
                scope.spawn(move || wait(pool).map(drop))
            });
            let mut context = Context::from_waker(&waker);
            for task in &mut tasks {
                assert!(Pin::new(task).poll(&mut context).is_pending());
            }
            until("all wait", || pool.stats().classes[0].waiting == 10);
            let start = Instant::now();
            assert!(!pool.close(Duration::ZERO).is_complete());
            assert_eq!(gathers.join().unwrap(), Err(LeaseError::Closed));
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), Err(LeaseError::Closed));
            }
            assert!(start.elapsed() < HANG, "they waited for their own deadlines");
            assert_eq!(task_wakes.0.load(Ordering::Relaxed), 2, "each task once");
            drop(second);
            for task in &mut tasks {
                let Poll::Ready(Err(LeaseError::Closed)) = Pin::new(task).poll(&mut context) else {
                    panic!("the task is told")
                };
            }
        });
        assert!(matches!(pool.try_lease(SIZE), Err(LeaseError::Closed)));
        assert!(matches!(pool.lease(SIZE), Err(LeaseError::Closed)));
        assert!(pool.close(HANG).is_complete());
        ledger.assert_clean();
    }
}

/// Three leases are held and two fences are pending: the report names all five, the leases stay valid,
/// and once they and the work are over a close succeeds.
#[test]
fn a_close_reports_holders_and_work() {
    let (memory, ledger) = Counted::new(Heap::claiming_locked());
    let builder = Pool::builder().env(false).track_holders(true).class("frame", SIZE, 6);
    let pool = builder.memory(memory).open().unwrap();
    let mut held: Vec<_> = (0..3).map(|_| pool.try_lease(SIZE).unwrap()).collect();
    for (owner, lease) in (0..).zip(&mut held) {
        lease.set_tag(pool.tag(&format!("stage {owner}")));
        stamp::write_slot(lease, owner);
    }
    let work = ManualFence::new();
    pool.try_lease(SIZE).unwrap().retire_after(work.clone());
    pool.try_lease(SIZE).unwrap().retire_after(work.clone());
    let start = Instant::now();
    let report = pool.close(Duration::from_millis(100));
    assert!(start.elapsed() >= Duration::from_millis(100), "it waits for what may come");
    let out: Vec<_> = report.still_out.iter().map(|(name, out)| (name.as_str(), *out)).collect();
    assert_eq!(out, [("frame", 5)]);
    let names: Vec<_> = report.holders.iter().filter_map(|holder| holder.tag.clone()).collect();
    assert_eq!(names.len(), 3, "{report:?}");
    assert!(names.iter().all(|name| report.to_string().contains(&**name)), "{report}");
    assert_eq!((report.in_flight.len(), report.slabs_left, report.quarantined), (2, 1, 0));
    assert_eq!(ledger.regions(), 1, "nothing is unmapped under them");
    for (owner, lease) in (0..).zip(&mut held) {
        stamp::verify(lease.as_slice(), owner);
        stamp::write_slot(lease, owner + 10);
    }
    let holder = std::thread::spawn(move || drop(held));
    work.complete();
    holder.join().unwrap();
    assert!(pool.close(HANG).is_complete());
    assert_eq!(pool.holders(), []);
    ledger.assert_clean();
}

/// Work that never ends: a close ends when its time is over, says which slot is stuck, and leaves the
/// memory mapped; so does the drop of the pool, which waits for nothing. If the work ends after
/// all, even then, the memory goes.
#[test]
fn work_that_never_ends_is_left_mapped_and_reported() {
    let (pool, ledger) = counted_pool(&[("frame", SIZE, 2)]);
    let never = ManualFence::new();
    let mut lease = pool.try_lease(SIZE).unwrap();
    let bytes = lease.as_mut_ptr();
    lease.retire_after(never.clone());
    let start = Instant::now();
    let report = pool.close(Duration::from_millis(500));
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(500) && took < HANG, "{took:?}");
    assert_eq!((report.in_flight.len(), report.slabs_left, report.stuck_bytes), (1, 1, 0));
    assert!(report.in_flight[0].age >= Duration::from_millis(500));
    assert!(report.to_string().contains("in flight for"), "{report}");
    drop(pool);
    // The device writes still.
    // SAFETY: the slot is in flight, so that it is mapped and nobody else's.
    unsafe { bytes.write_bytes(3, SIZE) };
    assert_eq!(ledger.regions(), 1);
    never.complete();
    until("its memory is given back", || ledger.regions() == 0);
    ledger.assert_clean();
}

/// Dropping the last handle waits for nothing: with work pending that only ends later, a hundred drops
/// take no time to speak of, in which the memory stays.
#[test]
fn dropping_the_last_handle_waits_for_nothing() {
    let start = Instant::now();
    let left: Vec<_> = (0..100)
        .map(|_| {
            let (pool, ledger) = counted_pool(&[("frame", SIZE, 2)]);
            let work = ManualFence::new();
            pool.try_lease(SIZE).unwrap().retire_after(work.clone());
            drop(pool);
            assert_eq!(ledger.regions(), 1);
            (work, ledger)
        })
        .collect();
    assert!(start.elapsed() < HANG, "100 drops took {:?}", start.elapsed());
    for (work, ledger) in left {
        work.complete();
        until("the keeper gives it back", || ledger.regions() == 0);
        ledger.assert_clean();
    }
}

/// A thousand pools are dropped with eight fences pending and two leases out, which come home in other
/// threads and in any order: the memory goes once, with the last of them.
#[test]
fn a_thousand_drops_with_work_pending() {
    for round in 0..1000u64 {
        let (pool, ledger) = counted_pool(&[("frame", SIZE, 8), ("tile", 64, 4)]);
        let works: Vec<_> = (0..8).map(|_| ManualFence::new()).collect();
        for work in &works {
            pool.try_lease(SIZE).unwrap().retire_after(work.clone());
        }
        let held = [pool.try_lease(64).unwrap(), pool.try_lease(64).unwrap()];
        std::thread::scope(|scope| {
            scope.spawn(|| works.iter().for_each(ManualFence::complete));
            scope.spawn(|| {
                for mut lease in held {
                    stamp::write_slot(&mut lease, round);
                    stamp::verify(lease.as_slice(), round);
                }
            });
            drop(pool);
        });
        until("all memory is given back", || ledger.regions() == 0);
        ledger.assert_clean();
    }
}

/// Threads that close at once, each with time to spare, all hear that it is complete: what each saw
/// last is true.
#[test]
fn closers_agree() {
    for _ in 0..200 {
        let (pool, ledger) = counted_pool(&[("frame", SIZE, 2)]);
        let work = ManualFence::new();
        pool.try_lease(SIZE).unwrap().retire_after(work.clone());
        let held = pool.try_lease(SIZE).unwrap();
        std::thread::scope(|scope| {
            let closers = [(); 4].map(|()| scope.spawn(|| pool.close(HANG)));
            scope.spawn(move || drop(held));
            work.complete();
            for closer in closers {
                let report = closer.join().unwrap();
                assert!(report.is_complete(), "{report}");
                assert_eq!(ledger.regions(), 0);
            }
        });
    }
}

/// A class and how to fill it.
type Part = (&'static str, ClassConfig, usize);

/// Opens a pool of this class alone and takes all that it can have: by priority, so also its reserve.
fn filled(class: ClassConfig, leases: usize) -> (Pool, Ledger, Vec<Lease>) {
    let (memory, ledger) = Counted::new(Heap::claiming_locked());
    let builder = Pool::builder().env(false).max_pinned(1 << 20).class_config(class);
    let pool = builder.memory(memory).open().unwrap();
    let held = (0..leases).map(|_| pool.lease_priority_timeout(SIZE, HANG).unwrap()).collect();
    (pool, ledger, held)
}

/// What a class has beyond its first slab goes with a close as well: grown slabs, pageable buffers, slots
/// that wait to be scrubbed, a reserve. Leases of each stay valid after the pool is gone, and some are in
/// flight.
#[test]
fn all_that_a_class_added_goes() {
    let class = || ClassConfig::new("frame", SIZE, 4);
    let parts: [Part; 6] = [
        ("grown", class().on_empty(OnEmpty::Grow).grow_max(6).grow_by(2), 10),
        ("pageable", class().on_empty(OnEmpty::Pageable).pageable_max(4), 8),
        ("zero", class().scrub(Scrub::Zero), 4),
        ("poison", class().on_empty(OnEmpty::Grow).grow_max(2).scrub(Scrub::Poison), 6),
        ("scrubbed and pageable", class().on_empty(OnEmpty::Pageable).scrub(Scrub::Zero), 8),
        ("reserve", class().reserve(2), 4),
    ];
    for (name, class, leases) in parts {
        for round in 0..60 {
            let (pool, ledger, mut held) = filled(class.clone(), leases);
            let regions = ledger.regions();
            let work = ManualFence::new();
            let flying = held.split_off(leases - 3);
            for lease in flying {
                lease.retire_after(work.clone());
            }
            // Some are on their way to be scrubbed when it closes.
            held.truncate(leases - 4 + round % 2);
            let out = held.len() + 3;
            let mut pool = Some(pool);
            if round % 3 == 0 {
                let report = pool.as_ref().unwrap().close(Duration::ZERO);
                let reported: usize = report.still_out.iter().map(|(_, out)| out).sum();
                assert!(reported == out || reported == out + 1, "{name}: {report}");
            }
            if round % 3 < 2 {
                drop(pool.take());
            }
            assert!(ledger.regions() > 0 && ledger.regions() <= regions, "{name}");
            std::thread::scope(|scope| {
                for (owner, mut lease) in (0..).zip(held) {
                    scope.spawn(move || {
                        stamp::write_slot(&mut lease, owner);
                        stamp::verify(lease.as_slice(), owner);
                    });
                }
            });
            work.complete();
            if let Some(pool) = pool {
                let report = pool.close(HANG);
                assert!(report.is_complete(), "{name}: {report}");
                let stats = pool.stats();
                assert_eq!((stats.mapped_bytes, stats.pageable_bytes), (0, 0), "{name}");
            }
            until(name, || ledger.regions() == 0);
            ledger.assert_clean();
        }
    }
}
