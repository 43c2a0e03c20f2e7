//! What a slot waits for: work that the pool cannot see, several readers, and copies to a GPU.
//!
//! `cargo run -p examples --example in_flight`. Without a GPU the copies are left out, and it says so.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use pinpool::{LockMode, ManualFence, Pool};

/// One packet, and four of them in the pool.
const BYTES: usize = 64 << 10;
const SLOTS: usize = 4;

fn main() -> ExitCode {
    match run(&mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "in_flight: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let pool = Pool::builder().class("packet", BYTES, SLOTS).lock(LockMode::Try).open()?;
    send_in_the_background(&pool, out)?;
    read_from_several_threads(&pool, out)?;
    copy_to_a_gpu(&pool, out)?;
    let report = pool.close(Duration::from_secs(5));
    writeln!(out, "\nclose: {report}")?;
    Ok(())
}

/// A "network card" that is done with each packet some time after it was told of it. The sender
/// drops its leases at once; the pool hands no packet out again while the card may read it.
fn send_in_the_background(pool: &Pool, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let (card, told) = mpsc::channel::<ManualFence>();
    let card_is_done = std::thread::spawn(move || {
        for sent in told {
            std::thread::sleep(Duration::from_millis(1));
            sent.complete();
        }
    });
    let start = Instant::now();
    for number in 0..40_u8 {
        // Waits when all four packets are on their way.
        let mut packet = pool.lease(BYTES)?;
        packet.as_mut_slice().fill(number);
        let sent = ManualFence::new();
        card.send(sent.clone())?;
        packet.retire_after(sent);
    }
    writeln!(out, "40 packets through {SLOTS} slots in {:.0?}", start.elapsed())?;
    write!(out, "{}", pool.stats())?;
    drop(card);
    card_is_done.join().map_err(|_| "the card's thread panicked")?;
    Ok(())
}

/// One buffer for several consumers: read-only, and free when the last one lets go.
fn read_from_several_threads(pool: &Pool, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let mut packet = pool.lease(BYTES)?;
    packet.as_mut_slice().fill(3);
    let shared = packet.share();
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let shared = shared.clone();
            std::thread::spawn(move || shared.as_slice().iter().map(|&b| u64::from(b)).sum::<u64>())
        })
        .collect();
    for reader in readers {
        writeln!(out, "a reader counts {}", reader.join().map_err(|_| "a reader panicked")?)?;
    }
    // The last holder may write again.
    let mut packet = shared.into_lease().map_err(|_| "somebody still reads it")?;
    packet.as_mut_slice().fill(0);
    Ok(())
}

/// Uploads that nobody waits for, and a download that somebody does.
fn copy_to_a_gpu(pool: &Pool, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let Some(context) = pool.cuda_context() else {
        writeln!(out, "no GPU: the copies are left out")?;
        return Ok(());
    };
    let stream = context.new_stream()?;
    let mut on_device = stream.alloc_zeros::<u8>(BYTES)?;
    for number in 0..40 {
        let mut packet = pool.lease(BYTES)?;
        packet.as_mut_slice().fill(number);
        // Returns at once. The slot comes home when the GPU has read it.
        drop(packet.upload(&stream, &mut on_device)?);
    }
    let last = pool.lease(BYTES)?.download(&on_device, &stream)?.wait()?;
    writeln!(out, "40 packets copied; the device has number {}", last.as_slice()[0])?;
    Ok(())
}
