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

use pinpool::MemoryStep;

/// The steps that a pool calls and that can fail, in the order of a slab's life.
pub const STEPS: [MemoryStep; 5] = [
    MemoryStep::Reserve,
    MemoryStep::Populate,
    MemoryStep::Pin,
    MemoryStep::Unpin,
    MemoryStep::Release,
];

/// A step's place in [`STEPS`]; `Advise` happens inside `reserve`.
fn index(step: MemoryStep) -> usize {
    STEPS.iter().position(|known| *known == step).unwrap_or(0)
}
