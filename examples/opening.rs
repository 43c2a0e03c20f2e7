//! Opens a pool of three classes beside other work: a camera has its frames from the first class as
//! soon as that is there, while the others are still being made; with a bar that says how far it is.
//!
//! `cargo run -p examples --example opening [MILLISECONDS]`; with an argument the opening is
//! cancelled after so long, as a program would on Ctrl-C: set a flag in the signal handler, and look
//! at it where this one looks at the clock.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use pinpool::{FrameFormat, LeaseError, LockMode, OpenProgress, Opening, Pool, StartupReport};

/// The whole opening may take no longer.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Where not everything can be had, this much is enough to run with.
const MIN_BYTES: u64 = 64 << 20;
const BAR: usize = 40;

fn main() -> ExitCode {
    match run(&mut io::stdout().lock(), &mut io::stderr()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // `Display` says what to do; the `Debug` form that `fn main() -> Result` prints does not.
            let _ = writeln!(io::stderr(), "opening: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(out: &mut impl Write, screen: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let cancel_after = match std::env::args().nth(1) {
        Some(text) => Some(Duration::from_millis(text.parse()?)),
        None => None,
    };
    let frame = FrameFormat::Nv12.bytes(1920, 1080)?;
    let began = Instant::now();
    let opening = Pool::builder()
        .class("camera", frame, 8) // made first, because it is needed first
        .class("network", FrameFormat::Nv12.bytes(3840, 2160)?, 12)
        .class("archive", FrameFormat::Rgb8.bytes(3840, 2160)?, 12)
        .lock(LockMode::Try)
        .open_timeout(OPEN_TIMEOUT)
        .min_bytes(MIN_BYTES)
        .open_async()?;

    let mut camera = None;
    while !opening.is_over() {
        if cancel_after.is_some_and(|after| began.elapsed() >= after) {
            opening.cancel();
        }
        camera = camera.or_else(|| begin_camera(&opening, frame, began));
        show(opening.progress(), screen)?;
        thread::sleep(Duration::from_millis(5));
    }
    show(opening.progress(), screen)?;
    writeln!(screen)?;

    let opened = opening.wait();
    // If the opening failed, the camera was told `Closed`, or had what it wanted before.
    if let Some(camera) = camera {
        match camera.join().map_err(|_| "the camera panicked")? {
            Ok(first) => writeln!(out, "the camera had its first frame after {first:.1?}")?,
            Err(error) => writeln!(out, "the camera had no frame: {error}")?,
        }
    }
    report(opened?.startup(), out)
}

/// Starts the camera once there is a pool to ask. It need not know which classes are there: `lease`
/// waits for its class.
fn begin_camera(
    opening: &Opening,
    frame: usize,
    began: Instant,
) -> Option<thread::JoinHandle<Result<Duration, LeaseError>>> {
    let pool = opening.pool()?;
    Some(thread::spawn(move || {
        let mut image = pool.lease(frame)?;
        let first = began.elapsed();
        image.as_mut_slice().fill(16);
        Ok(first)
    }))
}

/// Backing memory and pinning it count alike: without a GPU nearly all the time goes into the first.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a part of the bar, from 0 to all of it"
)]
fn show(progress: OpenProgress, screen: &mut impl Write) -> io::Result<()> {
    let done = (progress.fraction() * BAR as f64) as usize;
    let (bar, ready, all) = ("#".repeat(done), progress.classes_ready, progress.classes);
    write!(screen, "\r[{bar:BAR$}] {ready} of {all} classes")?;
    screen.flush()
}

/// What came of it.
fn report(startup: &StartupReport, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let pinned = if startup.pinned { "pinned" } else { "not pinned" };
    writeln!(out, "{} memory, {pinned}: {}", startup.backend, startup.reason)?;
    for slab in &startup.slabs {
        let node = slab.node.map_or("no one node".into(), |node| format!("node {node}"));
        let (class, bytes, pages) = (&slab.class, slab.bytes, slab.pages);
        writeln!(out, "  {class}: {bytes} bytes on {pages} pages of {node}")?;
    }
    for cut in &startup.cut {
        let (class, slots, wanted) = (&cut.class, cut.slots, cut.wanted);
        writeln!(out, "  {class} has {slots} slots of {wanted}: {}", cut.reason)?;
    }
    for note in &startup.notes {
        writeln!(out, "  not as asked for: {note}")?;
    }
    let (times, total) = (startup.times, startup.total);
    writeln!(
        out,
        "reserving {:.1?}, backing {:.1?}, pinning {:.1?}; {total:.1?} in all",
        times.reserve, times.populate, times.pin
    )?;
    Ok(())
}
