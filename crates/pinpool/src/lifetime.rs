//! When a class's memory and then the class itself may go; it knows counts, not what they count.

use crate::sync::{AtomicUsize, Ordering, fence};

/// Two counts that replace a reference count per lease.
///
/// *Out* is the number of slots that are not home plus one for an open class. It is written only
/// after the free list was closed, so leases on an open class share nothing. *References* are the
/// pool's handle and the memory; the class's own record goes with the last.
#[derive(Debug)]
pub(crate) struct Lifetime {
    /// `Release` on the way down, `Acquire` at zero: everything done to a slot happens before its
    /// memory goes.
    out: AtomicUsize,
    references: AtomicUsize,
}

impl Lifetime {
    pub(crate) fn new(slots: u32) -> Self {
        Self { out: AtomicUsize::new(slots as usize + 1), references: AtomicUsize::new(2) }
    }

    /// Keeps the memory while the caller, who owns a slot that is out, gives that slot back.
    pub(crate) fn hold(&self) {
        self.out.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts `arrived` home. True for the last: the caller then lets the memory go, and must not
    /// touch the class after dropping the memory's reference.
    pub(crate) fn arrive(&self, arrived: usize) -> bool {
        if self.out.fetch_sub(arrived, Ordering::Release) != arrived {
            return false;
        }
        fence(Ordering::Acquire);
        true
    }

    /// Drops one of the two references. True for the last: the caller frees the class.
    pub(crate) fn drop_reference(&self) -> bool {
        if self.references.fetch_sub(1, Ordering::Release) != 1 {
            return false;
        }
        fence(Ordering::Acquire);
        true
    }

    /// Slots that are out, once the class is closed.
    pub(crate) fn still_out(&self) -> usize {
        self.out.load(Ordering::Acquire)
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    use super::*;

    /// Two leases come home while the pool closes: exactly one thread lets the memory go, after all
    /// others have written their last byte (I1, I6).
    #[test]
    fn the_last_one_home_releases_once_and_sees_every_write() {
        loom::model(|| {
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
                        arrive(&shared, 1);
                    })
                })
                .collect();
            arrive(&shared, 1);
            for lease in leases {
                assert!(lease.join().is_ok());
            }
            assert_eq!(shared.2.load(Ordering::Relaxed), 1);
        });
    }

    fn arrive(shared: &(Lifetime, [UnsafeCell<u8>; 2], AtomicUsize), count: usize) {
        if shared.0.arrive(count) {
            for slot in &shared.1 {
                // SAFETY: every slot is home, so this access is the only one.
                slot.with_mut(|byte| assert_eq!(unsafe { *byte }, 1));
            }
            shared.2.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The handle and the memory go in any order: the class is freed once.
    #[test]
    fn the_class_is_freed_once() {
        loom::model(|| {
            let life = Arc::new(Lifetime::new(1));
            let other = {
                let life = Arc::clone(&life);
                loom::thread::spawn(move || usize::from(life.drop_reference()))
            };
            let mine = usize::from(life.drop_reference());
            assert_eq!(other.join().unwrap_or(9) + mine, 1);
        });
    }
}
