//! The ten lines that matter: open a pool, lease a frame, fill it, drop it.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "printing is what this program is for")]

use std::error::Error;

use pinpool::{FrameFormat, LockMode, Pool};

fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false)
        .init();

    let bytes = FrameFormat::Nv12.bytes(1920, 1080)?;
    let pool = Pool::builder()
        .class("frame-1080p", bytes, 8) // eight slots, pinned once, here
        .lock(LockMode::Try) // open unlocked where the memlock limit is small, and say so
        .open()?;

    for number in 0..100_u8 {
        let mut frame = pool.try_lease(bytes)?; // no system call, no allocation, no page fault
        frame.as_mut_slice().fill(number);
    } // dropped: the slot is free again

    let pinned = if pool.is_pinned() { "pinned" } else { "not pinned" };
    println!("100 frames through {} memory, {pinned}\n{}", pool.backend(), pool.stats());
    Ok(())
}
