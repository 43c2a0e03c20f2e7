//! Scripted memory: thin wrappers over any `PageLock`, each of one behaviour, to be stacked:
//! `Faulty(Limited(Counted(Mlock)))`.
//!
//! Each constructor returns the wrapper and a handle, so that a test can look inside after the pool
//! has taken the wrapper. A wrapper calls itself what the memory below it is.

mod counted;
mod delayed;
mod faulty;
mod ledger;
mod limited;

pub use counted::Counted;
pub use delayed::Delayed;
pub use faulty::{Fault, FaultLog, Faulty};
pub use ledger::Ledger;
pub use limited::Limited;

use pinpool::{Heap, LeaseError, MemoryStep, Pool};

use crate::soon::HANG;

/// The steps that a pool calls and that can fail, in the order of a slab's life.
pub const STEPS: [MemoryStep; 5] = [
    MemoryStep::Reserve,
    MemoryStep::Populate,
    MemoryStep::Pin,
    MemoryStep::Unpin,
    MemoryStep::Release,
];

/// A pool of these classes (name, size, count) on counted heap memory that claims to be locked, and
/// its ledger. Panics if it does not open.
pub fn counted_pool(classes: &[(&str, usize, usize)]) -> (Pool, Ledger) {
    let (memory, ledger) = Counted::new(Heap::claiming_locked());
    let mut builder = Pool::builder().env(false).memory(memory);
    for (name, size, count) in classes {
        builder = builder.class(name, *size, *count);
    }
    (builder.open().expect("a pool on the heap opens"), ledger)
}

/// Ends a pool whose slots all came home: each can be leased again, the counts balance, and closing leaves
/// nothing.
pub fn assert_all_home(pool: Pool, ledger: &Ledger) {
    for class in pool.stats().classes {
        assert_eq!((class.free, class.leased), (class.slots, 0), "{class:?}");
        assert_eq!(class.stale_returns_total, 0, "{class:?}");
        let held: Vec<_> = (0..class.slots).map(|_| pool.try_lease(class.size).unwrap()).collect();
        assert!(matches!(pool.try_lease(class.size), Err(LeaseError::Exhausted(_))));
        drop(held);
    }
    assert!(pool.close(HANG).is_complete());
    drop(pool);
    ledger.assert_clean();
}

/// A step's place in [`STEPS`]; `Advise` happens inside `reserve`.
fn index(step: MemoryStep) -> usize {
    STEPS.iter().position(|known| *known == step).unwrap_or(0)
}
