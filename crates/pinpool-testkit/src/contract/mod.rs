//! The contract suite: everything that a pool promises whatever memory it stands on. A new memory's
//! test file is its name and one call of [`run`].

mod closing;
mod in_flight;
mod leasing;
mod reports;
mod slots;
mod typed;
mod waiting;

use pinpool::{BackendKind, ClassConfig, Pool};

/// A kind of pool, and what may be expected of it.
pub struct Subject<'a> {
    /// Opens a pool with these classes; everything else is the kind's choice.
    pub open: &'a (dyn Fn(Vec<ClassConfig>) -> Pool + Sync),
    /// What the pool stands on.
    pub backend: BackendKind,
    /// Whether its memory is locked, if that is known.
    pub locked: Option<bool>,
    /// How many classes each pool has: the one under test and others around it.
    pub classes: usize,
}

impl std::fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject")
            .field("backend", &self.backend)
            .field("locked", &self.locked)
            .field("classes", &self.classes)
            .finish_non_exhaustive()
    }
}

impl Subject<'_> {
    /// A pool with a class "main" of `count` slots of `size` bytes, and as many others as the
    /// subject has: smaller ones while there is room below, larger ones above.
    fn pool(&self, size: usize, count: usize) -> Pool {
        let mut classes = vec![ClassConfig::new("main", size, count)];
        for other in 1..self.classes {
            let below = other * 64;
            let size = if other % 2 == 0 && below < size {
                below
            } else {
                size.next_multiple_of(64) + other * 192
            };
            classes.push(ClassConfig::new(format!("other-{other}"), size, 2));
        }
        (self.open)(classes)
    }
}

/// Runs every check, each on a thread of its own that bears its name. Returns how many there were.
pub fn run(subject: &Subject<'_>) -> usize {
    let checks = [slots::CHECKS, leasing::CHECKS, typed::CHECKS, waiting::CHECKS]
        .into_iter()
        .chain([in_flight::CHECKS, closing::CHECKS, reports::CHECKS])
        .flatten();
    let mut count = 0;
    for (name, check) in checks {
        std::thread::scope(|scope| {
            let named = std::thread::Builder::new().name(format!("contract: {name}"));
            let thread = named.spawn_scoped(scope, || check(subject)).expect("a thread starts");
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        });
        count += 1;
    }
    count
}

/// A named check.
type Check = (&'static str, fn(&Subject<'_>));

/// The counts of the class "main".
fn main_stats(pool: &Pool) -> pinpool::ClassStats {
    let stats = pool.stats();
    stats.classes.into_iter().find(|class| class.name.as_str() == "main").expect("a class 'main'")
}

/// Every class balances (I5), and no return was stale.
fn assert_balanced(pool: &Pool) {
    for class in pool.stats().classes {
        let sum = class.free + class.leased + class.in_flight + class.quarantined;
        assert_eq!(sum, class.slots, "the counts balance: {class:?}");
        assert_eq!(class.stale_returns_total, 0, "no stale return: {class:?}");
        assert!(class.high_water <= class.slots, "{class:?}");
    }
}

/// Waits until so many leases of "main" have gone to sleep since the pool opened.
fn until_waiting(pool: &Pool, waits: u64) {
    let start = std::time::Instant::now();
    while main_stats(pool).waits_total < waits {
        assert!(start.elapsed() < HANG, "a lease that must wait does not");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // The count rises just before the sleep.
    std::thread::sleep(std::time::Duration::from_millis(2));
}

/// The result of a thread that must end soon: a waiter that nobody wakes is a failure, not a hang.
fn join_soon<T>(thread: std::thread::JoinHandle<T>) -> T {
    let start = std::time::Instant::now();
    while !thread.is_finished() {
        assert!(start.elapsed() < HANG, "a waiter was never woken");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What takes longer hangs.
const HANG: std::time::Duration = std::time::Duration::from_secs(30);
