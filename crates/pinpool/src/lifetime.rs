//! When a class's memory and then the class itself may go; it knows counts, not what they count.

use std::ops::Deref;

use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// Two counts that replace a reference count per lease.
///
/// *Out* is one word, [`Out`]. On an open class only waking returns write it, so leases share nothing.
/// *References* are the pool's handle, its keeper and the memory; the class's own record goes with
/// the last.
#[derive(Debug)]
pub(crate) struct Lifetime {
    out: Out,
    references: AtomicUsize,
}

/// Whether a slab is open, who else holds it, and how many of its slots are not home.
///
/// ```text
/// [ open: 1 bit | holds: 31 bits | slots: 32 bits ]
/// ```
#[derive(Debug)]
pub(crate) struct Out {
    /// `Release` on the way down, `Acquire` for the last: everything done to a slot happens before its
    /// memory goes.
    word: AtomicU64,
}

impl Lifetime {
    pub(crate) fn new(slots: u32) -> Self {
        Self { out: Out::open(slots), references: AtomicUsize::new(3) }
    }

    /// Drops one of the three references. True for the last: the caller frees the class.
    pub(crate) fn drop_reference(&self) -> bool {
        self.references.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl Deref for Lifetime {
    type Target = Out;

    fn deref(&self) -> &Out {
        &self.out
    }
}

impl Out {
    /// Of an open slab.
    pub(crate) fn open(slots: u32) -> Self {
        Self { word: AtomicU64::new(OPEN | u64::from(slots)) }
    }

    /// Of a slab that is not there.
    pub(crate) fn absent() -> Self {
        Self { word: AtomicU64::new(0) }
    }

    /// The slab is there now. The caller made it, and nobody knows of it yet.
    pub(crate) fn reopen(&self, slots: u32) {
        self.word.store(OPEN | u64::from(slots), Ordering::Release);
    }

    /// Keeps the memory while the caller, who owns a slot that is out, gives that slot back; or while the
    /// class is open, for a slab of its own that comes.
    pub(crate) fn hold(&self) {
        self.word.fetch_add(HOLD, Ordering::Relaxed);
    }

    /// Ends one [`Self::hold`]. True for the last, as [`Self::arrive`].
    pub(crate) fn end_hold(&self) -> bool {
        self.subtract(HOLD)
    }

    /// The slab is not open any more, and `home` slots are home. True for the last.
    pub(crate) fn close(&self, home: u32) -> bool {
        self.subtract(OPEN + u64::from(home))
    }

    /// Counts one slot home. True for the last: the caller then lets the memory go, and must not
    /// touch the class after dropping the memory's reference.
    pub(crate) fn arrive(&self) -> bool {
        self.subtract(1)
    }

    fn subtract(&self, arrived: u64) -> bool {
        // Not a `Release` with a fence for the last one: sanitizers know nothing of fences.
        self.word.fetch_sub(arrived, Ordering::AcqRel) == arrived
    }

    /// Slots that are out, once it is closed; `None` while it is open.
    #[allow(clippy::cast_possible_truncation, reason = "the low half is the count")]
    pub(crate) fn still_out(&self) -> Option<u32> {
        let out = self.word.load(Ordering::Acquire);
        (out & OPEN == 0).then_some(out as u32)
    }
}

/// The class is open.
const OPEN: u64 = 1 << 63;
/// One holder that is no slot.
const HOLD: u64 = 1 << 32;

#[cfg(all(test, loom))]
mod models {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    use super::*;
    use crate::explore::explore;

    /// Two leases come home while the pool closes: exactly one thread lets the memory go, after all
    /// others have written their last byte (I1, I6).
    #[test]
    fn the_last_one_home_releases_once_and_sees_every_write() {
        explore(None, || {
            let shared = Arc::new((
                Lifetime::new(2),
                [UnsafeCell::new(0u8), UnsafeCell::new(0u8)],
                AtomicUsize::new(0),
            ));
            let leases: Vec<_> = (0..2)
                .map(|slot| {
                    let shared = Arc::clone(&shared);
                    loom::thread::spawn(move || {
                        // SAFETY: I2, each thread writes its own slot.
                        shared.1[slot].with_mut(|byte| unsafe { *byte = 1 });
                        arrive(&shared, shared.0.arrive());
                    })
                })
                .collect();
            arrive(&shared, shared.0.close(0));
            for lease in leases {
                assert!(lease.join().is_ok());
            }
            assert_eq!(shared.2.load(Ordering::Relaxed), 1);
        });
    }

    fn arrive(shared: &(Lifetime, [UnsafeCell<u8>; 2], AtomicUsize), last: bool) {
        if last {
            for slot in &shared.1 {
                // SAFETY: every slot is home, so this access is the only one.
                slot.with_mut(|byte| assert_eq!(unsafe { *byte }, 1));
            }
            shared.2.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The handle, the keeper and the memory go in any order: the class is freed once.
    #[test]
    fn the_class_is_freed_once() {
        explore(None, || {
            let life = Arc::new(Lifetime::new(1));
            let others: Vec<_> = (0..2)
                .map(|_| {
                    let life = Arc::clone(&life);
                    loom::thread::spawn(move || usize::from(life.drop_reference()))
                })
                .collect();
            let mine = usize::from(life.drop_reference());
            let theirs: usize = others.into_iter().map(|other| other.join().unwrap_or(9)).sum();
            assert_eq!(theirs + mine, 1);
        });
    }

    /// A slab that was added goes while its last slot comes home and the class closes: the slab ends
    /// once, and the class after it.
    #[test]
    fn an_added_slab_ends_before_its_class() {
        explore(None, || {
            let shared = Arc::new((
                Lifetime::new(0),
                Out::open(1),
                AtomicUsize::new(0),
                AtomicUsize::new(0),
            ));
            shared.0.hold();
            let arrive = |shared: &(Lifetime, Out, AtomicUsize, AtomicUsize), last: bool| {
                if last {
                    shared.2.fetch_add(1, Ordering::Relaxed);
                    if shared.0.end_hold() {
                        assert_eq!(shared.2.load(Ordering::Relaxed), 1, "the slab went first");
                        shared.3.fetch_add(1, Ordering::Relaxed);
                    }
                }
            };
            let holder = {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || arrive(&shared, shared.1.arrive()))
            };
            let closer = {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    if shared.0.close(0) {
                        assert_eq!(shared.2.load(Ordering::Relaxed), 1, "the slab went first");
                        shared.3.fetch_add(1, Ordering::Relaxed);
                    }
                })
            };
            // Taken away while its slot is out.
            arrive(&shared, shared.1.close(0));
            assert!(holder.join().is_ok() && closer.join().is_ok());
            assert_eq!(shared.2.load(Ordering::Relaxed), 1);
            assert_eq!(shared.3.load(Ordering::Relaxed), 1);
        });
    }
}
