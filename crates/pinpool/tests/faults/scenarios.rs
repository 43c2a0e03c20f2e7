//! Ways to come to memory and to give it back; which calls fail meanwhile they do not know.

use std::time::Duration;

use pinpool::{LockMode, PIN_CHUNK_DEFAULT, Pool, PoolBuilder};

/// What a scenario does with its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Opens and drops it.
    Open,
    /// Opens, leases, returns, closes.
    Close,
    /// Drops it with leases out, which then come home.
    HeldOver,
}

/// One way to come to memory and to give it back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) mlock: bool,
    /// Past so many bytes `pin` answers "not locked": the pool opens unlocked.
    pub(crate) lenient_bytes: Option<usize>,
    pub(crate) lock: LockMode,
    /// Name, slot size, slots.
    pub(crate) classes: &'static [(&'static str, usize, usize)],
    pub(crate) pin_chunk: u64,
    pub(crate) threads: usize,
    pub(crate) what: Use,
    /// Opened on a thread of its own.
    pub(crate) beside: bool,
    /// The pool may become smaller.
    pub(crate) min_bytes: Option<u64>,
    /// With a deadline, which is far off.
    pub(crate) deadline: bool,
}

const PLAIN: Scenario = Scenario {
    mlock: false,
    lenient_bytes: None,
    lock: LockMode::Require,
    classes: &[("one", 4096, 8)],
    pin_chunk: PIN_CHUNK_DEFAULT,
    threads: 1,
    what: Use::Close,
    beside: false,
    min_bytes: None,
    deadline: false,
};
const THREE: &[(&str, usize, usize)] = &[("s", 64, 100), ("m", 4096, 6), ("l", 12_288, 5)];
/// As many pins as slots, when each is pinned alone.
const MANY: &[(&str, usize, usize)] = &[("many", 4096, 24)];
/// More than two pieces of 16 MiB, which the threads share.
const LARGE: &[(&str, usize, usize)] = &[("small", 100, 3), ("frame", 6_220_800, 6)];

pub(crate) const SCENARIOS: &[Scenario] = &[
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
    Scenario { beside: true, ..PLAIN },
    Scenario { beside: true, classes: THREE, pin_chunk: 8192, what: Use::HeldOver, ..PLAIN },
    Scenario {
        beside: true,
        mlock: true,
        lock: LockMode::Try,
        classes: MANY,
        pin_chunk: 1,
        ..PLAIN
    },
    Scenario { beside: true, classes: LARGE, pin_chunk: 1, threads: 4, what: Use::Open, ..PLAIN },
    Scenario { deadline: true, classes: THREE, pin_chunk: 1, ..PLAIN },
    Scenario { deadline: true, beside: true, classes: LARGE, threads: 2, ..PLAIN },
    // Any slot of each class will do; at least two thirds; all but a chunk.
    Scenario { min_bytes: Some(1), classes: MANY, pin_chunk: 1, ..PLAIN },
    Scenario { min_bytes: Some(1), classes: THREE, pin_chunk: 1, what: Use::HeldOver, ..PLAIN },
    Scenario { min_bytes: Some(16 * 4096), classes: MANY, pin_chunk: 1, ..PLAIN },
    Scenario { min_bytes: Some(90_000), classes: THREE, pin_chunk: 1, what: Use::Open, ..PLAIN },
    Scenario {
        min_bytes: Some(1),
        beside: true,
        deadline: true,
        classes: LARGE,
        threads: 4,
        ..PLAIN
    },
    Scenario {
        min_bytes: Some(1),
        mlock: true,
        classes: MANY,
        lock: LockMode::Try,
        pin_chunk: 1,
        ..PLAIN
    },
    Scenario { min_bytes: Some(1), lock: LockMode::Off, classes: LARGE, ..PLAIN },
];

/// The pool of a scenario, on the memory that is given.
pub(crate) fn builder(scenario: &Scenario) -> PoolBuilder {
    let builder = Pool::builder()
        .env(false)
        .lock(scenario.lock)
        .prefault_threads(scenario.threads)
        .pin_chunk(scenario.pin_chunk);
    let class = |builder: PoolBuilder, class: &(&str, usize, usize)| {
        builder.class(class.0, class.1, class.2)
    };
    let mut builder = scenario.classes.iter().fold(builder, class);
    if let Some(bytes) = scenario.min_bytes {
        builder = builder.min_bytes(bytes);
    }
    if scenario.deadline {
        builder = builder.open_timeout(Duration::from_secs(3600));
    }
    builder
}
