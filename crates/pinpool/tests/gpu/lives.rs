//! Many lives of CUDA pools, begun in every way there is: nothing is left, neither with the system nor
//! with the driver.

use std::time::Duration;

use pinpool::{BackendChoice, Error, HugePages, Opening, Pool, PoolBuilder};
use pinpool_testkit::proc;

use crate::Check;
use crate::support::*;

/// On the software driver: a real one keeps maps and threads of its own as it likes.
pub(crate) const ON_SOFTWARE: &[Check] = &[Check {
    name: "two_hundred_lives_leave_nothing_behind",
    // The C library keeps stacks of ended threads and makes an arena for each new one.
    settings: &[("MALLOC_ARENA_MAX", "1"), ("GLIBC_TUNABLES", "glibc.pthread.stack_cache_size=0")],
    run: two_hundred_lives,
}];

const SLOT: usize = 64 << 10;
const SLOTS: usize = 32;
/// Of every kind.
const ROUNDS: u64 = 34;

/// Everything that a pool could leave behind.
#[derive(Debug, PartialEq, Eq)]
struct Readings {
    maps: usize,
    threads: u64,
    open_files: usize,
    locked_bytes: u64,
    pinned_bytes: u64,
    lost_bytes: u64,
    contexts: u64,
    events: u64,
}

impl Readings {
    fn now() -> Self {
        let driver = driver();
        Self {
            maps: proc::maps(),
            threads: proc::threads(),
            open_files: proc::open_files(),
            locked_bytes: proc::locked_bytes(),
            pinned_bytes: driver.pinned_bytes(),
            lost_bytes: driver.lost_bytes(),
            contexts: driver.live_contexts(),
            events: driver.live_events(),
        }
    }
}

fn builder() -> PoolBuilder {
    let builder = Pool::builder().env(false).backend(BackendChoice::Cuda).prefault_threads(2);
    builder.pin_chunk(2 * SLOT as u64).class("frame", SLOT, SLOTS).class("small", 4096, 4)
}

fn use_up(pool: &Pool) {
    for class in pool.stats().classes {
        let slots = 0..class.slots;
        let held: Vec<_> = slots.map(|_| filled(pool, class.size, 1)).collect();
        assert!(held.iter().all(|lease| lease.device_ptr().is_some()));
    }
    assert!(pool.close(HANG).is_complete());
}

fn either(outcome: Result<Pool, Error>) {
    match outcome {
        Ok(pool) => use_up(&pool),
        Err(Error::OpenCancelled { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

fn with_huge_pages(round: u64) {
    let huge = if round.is_multiple_of(2) { HugePages::Off } else { HugePages::Try };
    use_up(&builder().huge_pages(huge).class("large", 3 << 20, 1).open().expect("a pool"));
}

fn beside_its_caller(_: u64) {
    use_up(&builder().open_async().and_then(Opening::wait).expect("a pool"));
}

/// At another moment each time.
fn cancelled(round: u64) {
    let opening = builder().open_async().expect("it begins");
    std::thread::sleep(Duration::from_micros(round * round * 4));
    opening.cancel();
    either(opening.wait());
}

fn dropped(round: u64) {
    let opening = builder().open_async().expect("it begins");
    std::thread::sleep(Duration::from_micros(round * round * 4));
    let pool = opening.pool();
    drop(opening);
    drop(pool);
}

/// The driver refuses one chunk: the pool is smaller, or not there.
fn smaller(round: u64) {
    let chunks = (SLOTS / 2) as u64;
    let nth = 1 + round % chunks;
    driver().fail(&format!("cuMemHostRegister_v2:{nth}:2")).expect("a plan");
    match builder().min_bytes(1).open() {
        Ok(pool) => {
            assert_eq!(u64::from(pool.stats().classes[1].slots), 2 * (nth - 1));
            use_up(&pool);
        }
        Err(error) => assert_eq!(nth, 1, "{error}"),
    }
    driver().clear_faults();
}

/// All or nothing.
fn refused(round: u64) {
    let nth = 1 + round % (SLOTS / 2) as u64;
    driver().fail(&format!("cuMemHostGetDevicePointer_v2:{nth}:1")).expect("a plan");
    assert!(matches!(builder().open(), Err(Error::Memory { .. })));
    driver().clear_faults();
}

const KINDS: &[fn(u64)] =
    &[with_huge_pages, beside_its_caller, cancelled, dropped, smaller, refused];

fn two_hundred_lives() {
    // Those of the test harness that have no test end by and by; its main one waits.
    until("this is the only test", || proc::threads() <= 2);
    let threads = proc::threads();
    for live in KINDS {
        (0..3).for_each(live);
    }
    until("openings that were dropped are over", || proc::threads() == threads);
    let before = Readings::now();
    let resident = proc::resident_bytes();
    let mut lives = 0;
    for round in 0..ROUNDS {
        for live in KINDS {
            live(round);
            lives += 1;
            // Openings that nobody waits for end a moment later.
            let start = std::time::Instant::now();
            while Readings::now() != before && start.elapsed() < HANG {
                std::thread::yield_now();
            }
            assert_eq!(Readings::now(), before, "round {round}, life {lives}");
        }
    }
    assert!(lives >= 200, "{lives}");
    let grown = proc::resident_bytes().saturating_sub(resident);
    assert!(grown < 2 << 20, "{grown} bytes more in RAM after {lives} lives");
    assert_eq!((before.pinned_bytes, before.lost_bytes, before.contexts), (0, 0, 0));
    no_harm_done();
}
