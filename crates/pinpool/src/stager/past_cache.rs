//! Copies that write past the cache. The target's lines are not read before they are written, which memory
//! that somebody else reads next need not be; the C library does so only for copies as large as the cache.

/// Copies `bytes` bytes, as `ptr::copy_nonoverlapping` does, and writes past the cache where the processor can.
///
/// # Safety
///
/// As `ptr::copy_nonoverlapping` of bytes.
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx") {
        let head = to.align_offset(LINE).min(bytes);
        let (body, tail) = ((bytes - head) / BLOCK * BLOCK, (bytes - head) % BLOCK);
        let at = |offset: usize| (from.wrapping_add(offset), to.wrapping_add(offset));
        // SAFETY: the caller's word: it is the first part.
        unsafe { std::ptr::copy_nonoverlapping(from, to, head) };
        let (source, target) = at(head);
        // SAFETY: as above, of the second, whose target begins a line; the processor has AVX.
        unsafe { lines(source, target, body) };
        let (source, target) = at(head + body);
        // SAFETY: as above, of the rest.
        unsafe { std::ptr::copy_nonoverlapping(source, target, tail) };
        return;
    }
    // SAFETY: the caller's word.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
}

/// Copies whole blocks.
///
/// # Safety
///
/// As [`copy`]; `to` begins a cache line, and `bytes` is a multiple of [`BLOCK`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
#[allow(clippy::cast_ptr_alignment, reason = "sources are read unaligned, targets begin a line")]
unsafe fn lines(from: *const u8, to: *mut u8, bytes: usize) {
    use std::arch::x86_64::{
        __m256i, _MM_HINT_NTA, _mm_prefetch, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256,
    };
    for offset in (0..bytes).step_by(BLOCK) {
        let source = from.wrapping_add(offset);
        let target = to.wrapping_add(offset);
        _mm_prefetch::<_MM_HINT_NTA>(source.wrapping_add(AHEAD).cast());
        _mm_prefetch::<_MM_HINT_NTA>(source.wrapping_add(AHEAD + LINE).cast());
        let part = |part: usize| source.wrapping_add(part * VECTOR).cast::<__m256i>();
        // SAFETY: the block lies within the source.
        let loaded =
            unsafe { [part(0), part(1), part(2), part(3)].map(|part| _mm256_loadu_si256(part)) };
        for (number, vector) in loaded.into_iter().enumerate() {
            let place = target.wrapping_add(number * VECTOR).cast::<__m256i>();
            // SAFETY: the block lies within the target, which begins a line.
            unsafe { _mm256_stream_si256(place, vector) };
        }
    }
    // What was written is visible before whatever is written next.
    _mm_sfence();
}

const LINE: usize = 64;
#[cfg(target_arch = "x86_64")]
const VECTOR: usize = 32;
/// Two lines.
#[cfg(target_arch = "x86_64")]
const BLOCK: usize = 2 * LINE;
/// How far ahead lines are fetched.
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 8 * LINE;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    /// Every byte arrives and none beside them is touched, whatever the alignments and lengths.
    #[test]
    fn copies_of_all_shapes_are_exact() {
        let source: Vec<u8> = (0..5000_u32).map(|at| (at * 31 % 251) as u8).collect();
        for (from, to, bytes) in [0, 1, 7, 31, 63, 64].into_iter().flat_map(|from| {
            [0, 1, 33, 64].into_iter().flat_map(move |to| {
                [0, 1, 63, 127, 128, 129, 1000, 4096].into_iter().map(move |len| (from, to, len))
            })
        }) {
            let mut target = vec![0xee_u8; 5000];
            let part = &source[from..from + bytes];
            let place = target[to..to + bytes].as_mut_ptr();
            // SAFETY: both lie within their vectors.
            unsafe { super::copy(part.as_ptr(), place, bytes) };
            assert!(target[to..to + bytes] == *part, "{from} {to} {bytes}");
            assert!(target[..to].iter().chain(&target[to + bytes..]).all(|byte| *byte == 0xee));
        }
    }
}
