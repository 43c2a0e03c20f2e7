//! Part `small`: what a stager adds to copies that it does not stage.

use std::time::Instant;

use super::Scale;
use super::report::SmallRow;
use super::side::{Copier, Ends, Side};
use super::stagers::Crew;
use crate::BenchError;
use crate::copy::Direction;
use crate::timing::{Progress, Range, median, order};

/// A row for each size.
pub(super) fn measure(
    copier: &mut Copier,
    crew: Crew,
    scale: &Scale,
    progress: &mut Progress<'_>,
) -> Result<Vec<SmallRow>, BenchError> {
    let mut rows = Vec::new();
    for bytes in SIZES {
        rows.push(of_size(copier, bytes, crew, scale)?);
    }
    progress.step();
    Ok(rows)
}

fn of_size(
    copier: &mut Copier,
    bytes: usize,
    crew: Crew,
    scale: &Scale,
) -> Result<SmallRow, BenchError> {
    let sides = [Side::Pageable, Side::Staged(crew)];
    let mut ends = Ends::new(&copier.rig, bytes)?;
    for side in sides {
        copier.verify(side, Direction::HostToDevice, &mut ends)?;
    }
    // The first round warms up.
    let mut medians = [Vec::new(), Vec::new()];
    for round in 0..=scale.small_rounds {
        for which in order(round, sides.len()) {
            let us = repeated(copier, sides[which], &mut ends, scale.small_repeats)?;
            if round > 0 {
                medians[which].push(median(&us));
            }
        }
    }
    let [plain, upload] = medians;
    Ok(SmallRow {
        bytes: bytes as u64,
        repeats: (scale.small_rounds * scale.small_repeats) as u64,
        plain_us: Range::of(&plain),
        upload_us: Range::of(&upload),
        upload_over_plain: Range::of_ratios(&upload, &plain),
    })
}

/// Microseconds of each copy.
fn repeated(
    copier: &mut Copier,
    side: Side,
    ends: &mut Ends,
    repeats: usize,
) -> Result<Vec<f64>, BenchError> {
    let mut times = Vec::with_capacity(repeats);
    for _ in 0..repeats {
        let started = Instant::now();
        copier.copy(side, Direction::HostToDevice, ends)?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    Ok(times)
}

/// The largest is where stagers begin to stage, at most.
const SIZES: [usize; 3] = [4 << 10, 16 << 10, 64 << 10];
