//! Opens a pool from a TOML file, prints what it comes to and leases from each of its classes.
//!
//! `cargo run -p examples --example config_file [FILE]`; without an argument it reads `pool.toml`
//! beside this source. Any value can also come from the environment, as `PINPOOL_BACKEND=host`.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use pinpool::Pool;

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(io::stderr).with_target(false).with_ansi(false).init();
    match run(&mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "config_file: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/pool.toml");
    let path = std::env::args_os().nth(1).map_or_else(|| PathBuf::from(beside), PathBuf::from);

    let pool = Pool::open(&path)?;
    writeln!(out, "{} comes to\n\n{}", path.display(), pool.plan())?;

    // A request goes to the smallest class that holds it.
    let sizes: Vec<_> = pool.plan().classes.iter().map(|class| class.size).collect();
    let mut leases = Vec::with_capacity(sizes.len());
    for &size in &sizes {
        let mut lease = pool.try_lease(size)?;
        lease.as_mut_slice().fill(0xA5);
        let (len, capacity) = (lease.len(), lease.capacity());
        writeln!(out, "{len} bytes leased from {}, which hold {capacity}", lease.class())?;
        leases.push(lease);
    }
    writeln!(out, "\nWith one lease out of each class:\n\n{}", pool.stats())?;
    drop(leases);

    // What cannot be had is an error that says why, at once.
    let largest = sizes.iter().copied().max().unwrap_or(0);
    if let Err(error) = pool.try_lease(largest.saturating_mul(2)) {
        writeln!(out, "A request that is too large: {error}\n")?;
    }
    // A misspelled key is refused with its line and the key that was probably meant.
    let misspelled =
        "[pool]\nbackend = \"host\"\n\n[[class]]\nname = \"a\"\nsize = 4096\ncout = 8\n";
    if let Err(error) = Pool::builder().toml(misspelled).plan() {
        writeln!(out, "A file with 'cout = 8' in it: {error}")?;
    }
    Ok(())
}
