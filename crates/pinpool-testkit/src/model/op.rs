//! One operation of a sequence, drawn from three random bytes.

use arbitrary::Unstructured;

/// What to do, with a number that chooses on what or how much.
#[derive(Debug, Clone, Copy)]
pub(super) struct Op {
    pub(super) kind: Kind,
    pub(super) pick: u8,
    pub(super) amount: u8,
    /// Goes on with the other pool, where there are two.
    pub(super) switches: bool,
}

/// The kinds of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Lease,
    LeaseTyped,
    LeaseNow,
    Impossible,
    Drop,
    /// Drops a lease while work that somebody will complete uses it.
    Attach,
    /// Sends a lease into flight and keeps it.
    Hold,
    /// Completes the work on a slot.
    Complete,
    /// Fails it: the slot is lost.
    Fail,
    /// Asks for a lease in flight back, or asks it, or drops it.
    Take,
    SetLen,
    Stamp,
    Verify,
    View,
    Cast,
    Tag,
    Stats,
    ClonePool,
    DropPool,
    Close,
}

impl Op {
    pub(super) fn draw(u: &mut Unstructured<'_>) -> arbitrary::Result<Self> {
        let [kind, pick, amount]: [u8; 3] = u.arbitrary()?;
        // Of 256. Leases lead a little over what gives them up, so that classes run empty now and
        // then.
        let kind = match kind {
            0..76 => Kind::Lease,
            76..86 => Kind::LeaseTyped,
            86..92 => Kind::LeaseNow,
            92..95 => Kind::Impossible,
            95..143 => Kind::Drop,
            143..155 => Kind::Attach,
            155..163 => Kind::Hold,
            163..193 => Kind::Complete,
            193..209 => Kind::Take,
            209..215 => Kind::SetLen,
            215..227 => Kind::Stamp,
            227..233 => Kind::Verify,
            233..237 => Kind::View,
            237..240 => Kind::Cast,
            240..245 => Kind::Tag,
            248..252 => Kind::ClonePool,
            252..255 => Kind::DropPool,
            // Rare, one in 2,048: a closed pool refuses everything, which is soon dull.
            255 if amount < 32 => Kind::Close,
            // Rarer still: what is lost is lost for the rest of the sequence.
            255 if amount < 34 => Kind::Fail,
            _ => Kind::Stats,
        };
        Ok(Self { kind, pick, amount, switches: amount % 4 == 0 })
    }
}
