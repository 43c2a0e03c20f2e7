//! What the host does of a pageable copy, by itself: writing memory, and copying it from there.

use std::hint::black_box;
use std::time::Instant;

use crate::timing::{self, Progress};
use crate::{BenchError, clock};

/// A step that the host can do without a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Writing memory that has no pages yet.
    WriteFresh,
    /// Writing it again.
    WriteTouched,
    /// Copying through a small buffer, as a driver does to stage.
    Staging,
    /// Copying into memory that has its pages.
    ToTouched,
    /// Copying into memory that has none.
    ToFresh,
}

impl Step {
    pub(super) const ALL: [Self; 5] =
        [Self::WriteFresh, Self::WriteTouched, Self::Staging, Self::ToTouched, Self::ToFresh];

    /// As results name it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::WriteFresh => "write fresh memory",
            Self::WriteTouched => "write it again",
            Self::Staging => STAGING,
            Self::ToTouched => "memcpy to touched memory",
            Self::ToFresh => "memcpy to fresh memory",
        }
    }
}

/// Milliseconds of each step in each round, after a round that does not count.
pub(super) fn measure(
    bytes: usize,
    rounds: usize,
    progress: &mut Progress<'_>,
) -> Result<Vec<Vec<f64>>, BenchError> {
    let source = filled(bytes)?;
    let mut touched = filled(bytes)?;
    let mut stage = vec![0_u8; STAGE_BYTES];
    let mut times = vec![Vec::new(); Step::ALL.len()];
    for round in 0..=rounds {
        for place in timing::order(round, Step::ALL.len()) {
            let took = match Step::ALL[place] {
                Step::WriteFresh => {
                    let mut fresh = black_box(vec![0; bytes]);
                    ms(|| black_box(&mut fresh).fill(FILL))
                }
                Step::WriteTouched => ms(|| black_box(&mut touched).fill(FILL)),
                Step::Staging => ms(|| through(&source, &mut stage)),
                Step::ToTouched => ms(|| black_box(&mut touched).copy_from_slice(&source)),
                Step::ToFresh => {
                    let mut fresh = black_box(vec![0; bytes]);
                    let took = ms(|| black_box(&mut fresh).copy_from_slice(&source));
                    check(&fresh, &source)?;
                    took
                }
            };
            if round > 0 {
                times[place].push(took);
            }
        }
        if round > 0 {
            progress.step();
        }
    }
    Ok(times)
}

/// Copies all of it, piece by piece, over the same small buffer.
fn through(source: &[u8], stage: &mut [u8]) {
    for piece in source.chunks(stage.len()) {
        stage[..piece.len()].copy_from_slice(piece);
        black_box(&mut *stage);
    }
}

/// The time of `work` in milliseconds.
fn ms(work: impl FnOnce()) -> f64 {
    let clock = clock::cost();
    let started = Instant::now();
    work();
    started.elapsed().saturating_sub(clock).as_secs_f64() * 1e3
}

/// Memory that is touched.
pub(super) fn filled(bytes: usize) -> Result<Vec<u8>, BenchError> {
    let mut memory = Vec::new();
    let reserved = memory.try_reserve_exact(bytes);
    reserved.map_err(|cause| BenchError::failed("allocating a buffer", cause))?;
    memory.resize(bytes, FILL);
    Ok(memory)
}

fn check(arrived: &[u8], sent: &[u8]) -> Result<(), BenchError> {
    let same = arrived.first() == sent.first() && arrived.last() == sent.last();
    same.then_some(()).ok_or_else(|| BenchError::Failed("a memcpy copied nothing".to_owned()))
}

/// [`Step::name`] of staging.
pub(super) const STAGING: &str = "memcpy through a small buffer";
pub(super) const FILL: u8 = 7;
const STAGE_BYTES: usize = 4 << 20;
