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
        // Of 256. Leases lead a little over drops, so that classes run empty now and then.
        let kind = match kind {
            0..80 => Kind::Lease,
            80..92 => Kind::LeaseTyped,
            92..98 => Kind::LeaseNow,
            98..102 => Kind::Impossible,
            102..186 => Kind::Drop,
            186..194 => Kind::SetLen,
            194..210 => Kind::Stamp,
            210..222 => Kind::Verify,
            222..228 => Kind::View,
            228..234 => Kind::Cast,
            234..243 => Kind::Tag,
            248..252 => Kind::ClonePool,
            252..255 => Kind::DropPool,
            // Rare, one in 2,048: a closed pool refuses everything, which is soon dull.
            255 if amount < 32 => Kind::Close,
            _ => Kind::Stats,
        };
        Ok(Self { kind, pick, amount, switches: amount % 4 == 0 })
    }
}
