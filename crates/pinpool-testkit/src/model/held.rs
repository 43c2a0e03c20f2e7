//! What a holder has: a lease, or a lease in flight, and what it must find there.

use pinpool::{InFlight, Lease, ManualFence};

use super::op::{Kind, Op};
use crate::stamp;

/// A lease and all that was done to it.
pub(super) struct Held {
    pub(super) lease: Lease,
    pub(super) about: About,
}

/// What is known about a slot that is out.
#[derive(Debug, Clone, Copy)]
pub(super) struct About {
    pub(super) class: usize,
    pub(super) slot: u32,
    pub(super) len: usize,
    /// Who stamped it last.
    pub(super) owner: u64,
    pub(super) tag: Option<usize>,
}

/// A lease in flight.
pub(super) struct Flight {
    pub(super) lease: InFlight,
    pub(super) about: About,
    pub(super) fence: ManualFence,
    pub(super) state: State,
}

/// A slot whose lease was dropped while work used it.
pub(super) struct Retired {
    pub(super) about: About,
    pub(super) fence: ManualFence,
}

/// What is known of the work on a lease in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Pending,
    Complete,
    /// Complete, and the pool was asked: it knows.
    Seen,
    Failed,
}

impl Held {
    pub(super) fn touch(&mut self, op: Op, slot_bytes: usize, owner: u64) {
        let (lease, about) = (&mut self.lease, &mut self.about);
        match op.kind {
            Kind::SetLen => {
                let len = usize::from(op.amount) * 23 % (slot_bytes + 64);
                let fits = lease.set_len(len).is_ok();
                assert_eq!(fits, len <= slot_bytes, "{len} of {slot_bytes}");
                about.len = if fits { len } else { about.len };
            }
            Kind::Stamp => {
                stamp::write_slot(lease, owner);
                lease.set_len(about.len).unwrap();
                about.owner = owner;
            }
            Kind::View => {
                let (start, end) = (usize::from(op.pick), usize::from(op.amount));
                let view = lease.view(start..end);
                assert_eq!(view.is_ok(), start <= end && end <= about.len);
                if let Ok(view) = view {
                    assert_eq!(view.as_slice(), &lease.as_slice()[start..end]);
                }
            }
            Kind::Cast => {
                let whole = about.len.is_multiple_of(8);
                assert_eq!(
                    lease.typed::<u64>().map(<[u64]>::len).ok(),
                    whole.then_some(about.len / 8)
                );
            }
            _ => {}
        }
        assert_eq!(
            (lease.len(), lease.slot(), lease.is_empty()),
            (about.len, about.slot, about.len == 0)
        );
        if op.kind == Kind::Verify {
            let part = lease.as_slice().chunks_exact(8).len() * 8;
            assert!(stamp::is_whole(&lease.as_slice()[..part], about.owner), "still our own");
        }
    }

    /// The whole slot is as this owner left it.
    pub(super) fn verify(&self, slot_bytes: usize) {
        assert_eq!((self.lease.len(), self.lease.slot()), (self.about.len, self.about.slot));
        // SAFETY: I2, the lease owns all `slot_bytes` bytes of its slot, which are initialised; the
        // length in use may be shorter.
        let slot = unsafe { std::slice::from_raw_parts(self.lease.as_ptr(), slot_bytes) };
        stamp::verify(slot, self.about.owner);
    }
}
