//! Bytes whose place can be told from their value: written, wiped and looked at by several threads.

use std::thread;

/// Writes what [`first_wrong`] expects.
pub(super) fn fill(buffer: &mut [u8]) {
    each_piece(buffer, |first, piece| {
        for (index, word) in piece.chunks_mut(WORD_BYTES).enumerate() {
            let wanted = word_at(first + index as u64);
            word.copy_from_slice(&wanted[..word.len()]);
        }
    });
}

/// Leaves no byte of what was there.
pub(super) fn wipe(buffer: &mut [u8]) {
    each_piece(buffer, |_, piece| piece.fill(0));
}

/// The place of a byte that [`fill`] did not write there, in the first piece that has one.
pub(super) fn first_wrong(buffer: &[u8]) -> Option<usize> {
    let bytes = piece_bytes(buffer.len());
    let look = |piece: usize, bytes_of: &[u8]| {
        let first = (piece * bytes / WORD_BYTES) as u64;
        let words = bytes_of.chunks(WORD_BYTES).enumerate();
        let mut wrong = words.filter(|(index, word)| {
            let wanted = word_at(first + *index as u64);
            **word != wanted[..word.len()]
        });
        wrong.next().map(|(index, _)| piece * bytes + index * WORD_BYTES)
    };
    thread::scope(|scope| {
        let pieces = buffer.chunks(bytes).enumerate();
        let looks: Vec<_> =
            pieces.map(|(piece, bytes)| scope.spawn(move || look(piece, bytes))).collect();
        // A look that panics has found something wrong.
        looks.into_iter().find_map(|look| look.join().unwrap_or(Some(0)))
    })
}

/// Calls `work` with the number of the first word and the bytes of each piece, all at once.
fn each_piece(buffer: &mut [u8], work: impl Fn(u64, &mut [u8]) + Sync) {
    let bytes = piece_bytes(buffer.len());
    let work = &work;
    thread::scope(|scope| {
        for (piece, bytes_of) in buffer.chunks_mut(bytes).enumerate() {
            let first = (piece * bytes / WORD_BYTES) as u64;
            scope.spawn(move || work(first, bytes_of));
        }
    });
}

/// Whole words; small buffers are one piece.
fn piece_bytes(len: usize) -> usize {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    len.div_ceil(threads).next_multiple_of(WORD_BYTES).max(PIECE_BYTES_MIN)
}

/// No word is all zeros, and no two of a buffer are alike.
fn word_at(index: u64) -> [u8; WORD_BYTES] {
    (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

const WORD_BYTES: usize = 8;
const PIECE_BYTES_MIN: usize = 1 << 20;
const THREADS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_that_is_not_as_written_is_found() {
        for len in [0, 1, 7, 4096, (3 << 20) + 5] {
            let mut buffer = vec![0; len];
            fill(&mut buffer);
            assert_eq!(first_wrong(&buffer), None, "{len}");
            for place in [0, len / 2, len.saturating_sub(1)] {
                let Some(byte) = buffer.get_mut(place) else { continue };
                *byte ^= 1;
                assert_eq!(first_wrong(&buffer), Some(place / WORD_BYTES * WORD_BYTES), "{len}");
                buffer[place] ^= 1;
            }
            wipe(&mut buffer);
            assert!(buffer.iter().all(|byte| *byte == 0));
            assert_eq!(first_wrong(&buffer), (len > 0).then_some(0));
        }
        // A part that came to the wrong place is seen as well.
        let mut buffer = vec![0; 8192];
        fill(&mut buffer);
        buffer.copy_within(..4096, 4096);
        assert_eq!(first_wrong(&buffer), Some(4096));
    }
}
