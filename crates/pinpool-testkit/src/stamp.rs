//! Owner stamps: a holder writes its own pattern over its whole slot and checks it before it lets
//! go. Two owners of one slot, or overlapping slots, cannot both find their pattern whole.

use pinpool::Lease;

/// Writes the pattern of `owner` over every byte.
pub fn write(bytes: &mut [u8], owner: u64) {
    let mut expected = first(owner);
    let mut words = bytes.chunks_exact_mut(8);
    for word in words.by_ref() {
        word.copy_from_slice(&expected.to_le_bytes());
        expected = expected.wrapping_add(STEP);
    }
    let rest = words.into_remainder();
    let len = rest.len();
    rest.copy_from_slice(&expected.to_le_bytes()[..len]);
}

/// True when every byte is as `owner` wrote it.
pub fn is_whole(bytes: &[u8], owner: u64) -> bool {
    let mut expected = first(owner);
    let (words, rest) = bytes.as_chunks::<8>();
    // All differences together, without a branch per word: it is vectorised.
    let mut differences = 0;
    for word in words {
        differences |= u64::from_le_bytes(*word) ^ expected;
        expected = expected.wrapping_add(STEP);
    }
    differences == 0 && rest == &expected.to_le_bytes()[..rest.len()]
}

/// Panics with the first wrong byte unless `owner` finds every byte as it wrote it.
pub fn verify(bytes: &[u8], owner: u64) {
    if is_whole(bytes, owner) {
        return;
    }
    let mut wanted = vec![0; bytes.len()];
    write(&mut wanted, owner);
    let wrong = bytes.iter().zip(&wanted).position(|(a, b)| a != b);
    panic!("owner {owner:#x}: byte {wrong:?} of {} was changed by somebody else", bytes.len());
}

/// Stretches the lease over its whole slot and stamps it.
pub fn write_slot(lease: &mut Lease, owner: u64) {
    lease.set_len(lease.capacity()).expect("the capacity fits");
    write(lease.as_mut_slice(), owner);
}

/// An owner's first word.
fn first(owner: u64) -> u64 {
    (owner ^ STEP).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// From one word to the next: each depends on its place, so that a shifted copy is found too.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_and_every_other_owner_is_found() {
        for len in [1, 7, 8, 9, 64, 4095] {
            let mut bytes = vec![0; len];
            write(&mut bytes, 7);
            verify(&bytes, 7);
            assert!(!is_whole(&bytes, 8), "{len}");
            for at in 0..len {
                bytes[at] ^= 1;
                assert!(!is_whole(&bytes, 7), "{at} of {len}");
                bytes[at] ^= 1;
            }
        }
    }
}
