//! The "device": a thread that reads slots in flight, checks them and completes their fences.

use std::sync::mpsc::Receiver;

use pinpool::ManualFence;
use pinpool_testkit::stamp;

use crate::verdict::Verdict;

/// A slot that the device reads until it completes the fence.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    pub(crate) owner: u64,
    pub(crate) fence: ManualFence,
}

/// Serves until nobody can ask any more; returns how many slots it read.
pub(crate) fn run(copies: &Receiver<Copy>, verdict: &Verdict) -> u64 {
    let mut reads = 0;
    while let Ok(first) = copies.recv() {
        // A few at a time and out of order, as streams complete.
        let reading: Vec<_> = std::iter::once(first).chain(copies.try_iter().take(3)).collect();
        for copy in reading.into_iter().rev() {
            // SAFETY: I3, a slot in flight stays mapped and unwritten until its fence is complete,
            // which is below.
            let slot = unsafe { std::slice::from_raw_parts(copy.start as *const u8, copy.bytes) };
            if !stamp::is_whole(slot, copy.owner) {
                verdict.wrong(format!("a slot in flight was overwritten, owner {:#x}", copy.owner));
            }
            copy.fence.complete();
            reads += 1;
        }
    }
    reads
}
