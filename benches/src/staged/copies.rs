//! Parts `copies` and `chunks`: large copies by each side, interleaved.

use std::time::Instant;

use super::Scale;
use super::report::SideRow;
use super::side::{Copier, Ends, Side};
use super::stagers::{CHUNKS_BYTES, Crew};
use crate::BenchError;
use crate::copy::Direction;
use crate::text;
use crate::timing::{self, Progress, Range, rounded};

/// All sizes in both directions.
pub(super) fn measure(
    copier: &mut Copier,
    sizes: &[usize],
    crew: Crew,
    scale: &Scale,
    notes: &mut Vec<String>,
    progress: &mut Progress<'_>,
) -> Result<Vec<SideRow>, BenchError> {
    let mut rows = Vec::new();
    for &bytes in sizes {
        let compared = sides(bytes, crew, scale);
        rows.extend(of_size(copier, bytes, &compared, scale, notes, progress)?);
    }
    Ok(rows)
}

/// Stagers with chunks of each size, in both directions.
pub(super) fn chunks(
    copier: &mut Copier,
    bytes: usize,
    crew: Crew,
    scale: &Scale,
    notes: &mut Vec<String>,
    progress: &mut Progress<'_>,
) -> Result<Vec<SideRow>, BenchError> {
    let sides = CHUNKS_BYTES.map(|chunk_bytes| Side::Staged(crew.with_chunks(chunk_bytes)));
    of_size(copier, bytes, &sides, scale, notes, progress)
}

/// What is compared: with small sizes a stager has as many threads as by default.
fn sides(bytes: usize, crew: Crew, scale: &Scale) -> Vec<Side> {
    let crews = if bytes < scale.all_threads_from { vec![crew] } else { crew.with_all_threads() };
    let mut sides = vec![Side::Pageable, Side::Register, Side::Pinned];
    sides.extend(crews.into_iter().map(Side::Staged));
    sides
}

fn of_size(
    copier: &mut Copier,
    bytes: usize,
    sides: &[Side],
    scale: &Scale,
    notes: &mut Vec<String>,
    progress: &mut Progress<'_>,
) -> Result<Vec<SideRow>, BenchError> {
    let mut ends = Ends::new(&copier.rig, bytes)?;
    let mut rows = Vec::new();
    for direction in Direction::ALL {
        // The first copies of all, which also warm up what comes after.
        for &side in sides {
            copier.verify(side, direction, &mut ends)?;
        }
        let times = rounds(copier, &mut ends, sides, direction, scale)?;
        let (wanted, done) = (scale.rounds(bytes), times.first().map_or(0, Vec::len));
        if done < wanted {
            let of_chunks = if sides.contains(&Side::Pinned) { "" } else { "chunks, " };
            notes.push(format!(
                "{of_chunks}{} {}: {done} rounds of {wanted}, which took {} s already",
                direction.name().to_uppercase(),
                text::bytes(bytes as u64),
                scale.patience.as_secs(),
            ));
        }
        rows.extend(sides.iter().zip(times).map(|(&side, us)| row(side, direction, bytes, &us)));
        progress.step();
    }
    Ok(rows)
}

/// Microseconds of each side, round by round.
fn rounds(
    copier: &mut Copier,
    ends: &mut Ends,
    sides: &[Side],
    direction: Direction,
    scale: &Scale,
) -> Result<Vec<Vec<f64>>, BenchError> {
    let mut times = vec![Vec::new(); sides.len()];
    let started = Instant::now();
    for round in 0..scale.rounds(ends.bytes()) {
        if round >= ROUNDS_MIN && started.elapsed() > scale.patience {
            break;
        }
        for which in timing::order(round, sides.len()) {
            let took = copier.copy(sides[which], direction, ends)?;
            times[which].push(took.as_secs_f64() * 1e6);
        }
    }
    Ok(times)
}

fn row(side: Side, direction: Direction, bytes: usize, us: &[f64]) -> SideRow {
    let range = Range::of(us);
    SideRow {
        side: side.name().to_owned(),
        direction: direction.name().to_owned(),
        bytes: bytes as u64,
        threads: side.crew().map(|crew| crew.threads as u64),
        chunk_bytes: side.crew().map(|crew| crew.chunk_bytes as u64),
        us: range,
        gb_per_s: gb_per_s(bytes, range.median * 1e-6),
        rounds: us.iter().copied().map(rounded).collect(),
    }
}

/// Decimal; zero where no time passed.
pub(super) fn gb_per_s(bytes: usize, seconds: f64) -> f64 {
    if seconds > 0.0 { rounded(bytes as f64 / 1e9 / seconds) } else { 0.0 }
}

/// Rounds that run however long they take.
const ROUNDS_MIN: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_decimal_gigabytes_and_rows_name_their_crew() {
        let crew = Crew { threads: 6, chunk_bytes: 4 << 20 };
        let staged =
            row(Side::Staged(crew), Direction::HostToDevice, 2_000_000, &[100.0, 50.0, 40.0]);
        assert_eq!((staged.threads, staged.chunk_bytes), (Some(6), Some(4 << 20)));
        assert!((staged.gb_per_s - 40.0).abs() < 1e-9, "{staged:?}");
        assert_eq!(staged.rounds, [100.0, 50.0, 40.0]);
        let plain = row(Side::Pageable, Direction::DeviceToHost, 1, &[]);
        assert_eq!((plain.threads, plain.direction.as_str()), (None, "d2h"));
        assert!(plain.gb_per_s.abs() < 1e-9);
    }

    #[test]
    fn small_sizes_know_the_default_threads_only() {
        let crew = Crew { threads: 5, chunk_bytes: 4 << 20 };
        let small = sides(1 << 20, crew, &Scale::FULL);
        assert_eq!(small.len(), 4);
        assert_eq!(small[3], Side::Staged(crew));
        let large = sides(16 << 20, crew, &Scale::FULL);
        assert!(large.len() >= 5 && large.contains(&Side::Staged(crew)), "{large:?}");
    }
}
