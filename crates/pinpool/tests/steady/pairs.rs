//! Two threads of which one drops what the other leased: neither makes a system call, allocates, faults on a page or
//! sleeps, once both are in their stride. They hand leases over without calls of their own.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use pinpool::{Lease, Pool};

use crate::counting::{Thread, allocations};
use crate::{CYCLES, PLANTED, SIZES, WARM, assert_killed, builder_of, gate, low_byte, support};

/// Slots of each class: more than lie in queues and with two threads, whatever these keep.
const SLOTS: usize = 768;
/// Leases that may be on their way in one direction.
const ON_THE_WAY: usize = 256;
/// How many each thread is ahead of what it takes, where both give.
const AHEAD: usize = ON_THE_WAY / 2;
/// Each thread's cycles before any count: many times what either may keep.
const LONG_WARM: usize = 10 * WARM;

/// A way from one thread to another. A place is locked by a try only, which makes no call, nor does its unlocking
/// then.
struct Way(Box<[Mutex<Option<Lease>>]>);

impl Way {
    fn new() -> Self {
        Self((0..ON_THE_WAY).map(|_| Mutex::new(None)).collect())
    }

    /// Puts the `number`th lease on the way, once there is room.
    fn give(&self, number: usize, lease: Lease) {
        let mut lease = Some(lease);
        soon(|| {
            let mut place = self.0[number % ON_THE_WAY].try_lock().ok()?;
            if place.is_some() {
                return None;
            }
            *place = lease.take();
            Some(())
        });
    }

    /// Takes the `number`th lease, once it is there.
    fn take(&self, number: usize) -> Lease {
        soon(|| self.0[number % ON_THE_WAY].try_lock().ok()?.take())
    }
}

/// Tries until it succeeds.
fn soon<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    loop {
        for _ in 0..100 {
            if let Some(done) = attempt() {
                return done;
            }
            std::hint::spin_loop();
        }
        gate::let_others_run();
    }
}

/// What the two have in common.
struct Pair {
    pool: Pool,
    ways: [Way; 2],
    /// How often each has come to where they meet.
    met: [AtomicUsize; 2],
    /// Which of them were left in peace by the kernel, once.
    quiet: [AtomicBool; 2],
}

impl Pair {
    fn new() -> Arc<Self> {
        let pool = builder_of(&SIZES, SLOTS).open().unwrap();
        let ways = [Way::new(), Way::new()];
        Arc::new(Self { pool, ways, met: Default::default(), quiet: Default::default() })
    }

    /// Waits until the other has come here as often.
    fn meet(&self, side: usize) {
        let mine = self.met[side].fetch_add(1, Ordering::AcqRel) + 1;
        soon(|| (self.met[1 - side].load(Ordering::Acquire) >= mine).then_some(()));
    }

    /// One thread's part, on one class after the other: the first gives and the second drops; then both do both.
    fn play(&self, side: usize, cycles: usize) {
        for bytes in SIZES {
            for number in 0..cycles {
                if side == 0 { self.give(0, number, bytes) } else { self.drop(0, number) }
            }
            for number in 0..cycles + AHEAD {
                if number < cycles {
                    self.give(side, number, bytes);
                }
                if number >= AHEAD {
                    self.drop(1 - side, number - AHEAD);
                }
            }
        }
    }

    fn give(&self, way: usize, number: usize, bytes: usize) {
        let Ok(mut lease) = self.pool.try_lease(bytes) else { gate::fail("no slot") };
        lease.as_mut_slice()[0] = low_byte(number);
        self.ways[way].give(number, lease);
    }

    fn drop(&self, way: usize, number: usize) {
        let lease = self.ways[way].take(number);
        if lease.as_slice()[0] != low_byte(number) {
            gate::fail("another owner wrote to the slot");
        }
    }

    /// Plays until each thread was left in peace by the kernel once, which it may be late in doing (see
    /// `plain_cycles_allocate_nothing_fault_on_nothing_and_never_sleep`). True if both were.
    fn play_counted(&self, side: usize) -> bool {
        self.play(side, LONG_WARM);
        (0..3).any(|_| {
            self.meet(side);
            let (before, allocated) = (Thread::now(), allocations());
            self.play(side, CYCLES);
            assert_eq!(allocations() - allocated, 0, "side {side}");
            if Thread::now() == before {
                self.quiet[side].store(true, Ordering::Release);
            }
            self.meet(side);
            self.quiet.iter().all(|quiet| quiet.load(Ordering::Acquire))
        })
    }
}

#[test]
fn pairs_make_no_system_call() {
    support::alone("pairs::pairs_make_no_system_call", &[], || {
        let pair = Pair::new();
        let planted = std::env::var(PLANTED).unwrap_or_default();
        let other = Arc::clone(&pair);
        std::thread::spawn(move || {
            other.play(1, LONG_WARM);
            gate::shut(&[]);
            other.meet(1);
            other.play(1, CYCLES);
            if planted == YIELD {
                std::thread::yield_now();
            }
            other.meet(1);
            // Its end would make calls.
            soon(|| None::<()>);
        });
        pair.play(0, LONG_WARM);
        gate::run(&[], || {
            pair.meet(0);
            pair.play(0, CYCLES);
            pair.meet(0);
            Ok(())
        });
    });
}

/// The second thread is behind the gate as well, and only the hand-over may let others run there.
#[test]
fn a_planted_yield_is_killed() {
    assert_killed("pairs::pairs_make_no_system_call", YIELD);
}

#[test]
fn pairs_allocate_nothing_fault_on_nothing_and_never_sleep() {
    let test = "pairs::pairs_allocate_nothing_fault_on_nothing_and_never_sleep";
    support::alone(test, &[], || {
        let pair = Pair::new();
        let other = Arc::clone(&pair);
        let dropper = std::thread::spawn(move || other.play_counted(1));
        assert!(pair.play_counted(0), "one of them faults or sleeps");
        assert!(dropper.join().unwrap());
    });
}

/// What is planted in a child.
const YIELD: &str = "yield";
