//! Part `opens`: each way to come to pinned memory, size by size, and what is left after it is given back.

use super::Scale;
use super::report::{Left, OpenRow, PhaseRow};
use super::strategies::{Ground, Phases, Strategy};
use crate::BenchError;
use crate::procfs;
use crate::timing::{self, Progress, Range, rounded};

/// All rows, and the most that a pool left behind.
pub(super) fn measure(
    ground: &Ground,
    sizes: &[usize],
    scale: &Scale,
    progress: &mut Progress<'_>,
) -> Result<(Vec<OpenRow>, Left), BenchError> {
    let strategies = Strategy::all(ground);
    let (mut rows, mut left) = (Vec::new(), Left::default());
    for &bytes in sizes {
        let mut records: Vec<Record> = strategies.iter().map(|_| Record::default()).collect();
        for round in 0..scale.rounds {
            for which in timing::order(round, strategies.len()) {
                let strategy = strategies[which];
                if round < scale.rounds_of(strategy, bytes) {
                    let left = once(strategy, ground, bytes, &mut records[which])?;
                    // The first time, the driver and the C library keep what they need for all.
                    if round > 0 {
                        records[which].left.add(left);
                    }
                }
            }
            progress.step();
        }
        let of_pools = strategies.iter().zip(&records).filter(|(strategy, _)| strategy.is_pool());
        of_pools.for_each(|(_, record)| left.add(record.left));
        let named = strategies.iter().zip(records);
        rows.extend(named.map(|(&strategy, record)| record.row(strategy, bytes)));
    }
    Ok((rows, left))
}

/// Opens, closes, and says what that left.
fn once(
    strategy: Strategy,
    ground: &Ground,
    bytes: usize,
    record: &mut Record,
) -> Result<Left, BenchError> {
    let (resident, locked) = (procfs::resident_bytes()?, procfs::locked_bytes()?);
    let opened = strategy.open(ground, bytes)?;
    record.opened.push(milliseconds(opened.total));
    record.phases.extend(opened.phases);
    record.pages.clone_from(&opened.pages);
    record.closed.push(milliseconds(opened.close()?));
    Ok(Left {
        resident_bytes: procfs::resident_bytes()?.saturating_sub(resident),
        locked_bytes: procfs::locked_bytes()?.saturating_sub(locked),
    })
}

/// The rounds of one way and size.
#[derive(Debug, Default)]
struct Record {
    opened: Vec<f64>,
    closed: Vec<f64>,
    phases: Vec<Phases>,
    left: Left,
    pages: Option<String>,
}

impl Record {
    fn row(self, strategy: Strategy, bytes: usize) -> OpenRow {
        let phase = |name: &str, of: fn(&Phases) -> std::time::Duration| {
            let rounds: Vec<f64> =
                self.phases.iter().map(|phases| milliseconds(of(phases))).collect();
            let ms = Range::of(&rounds);
            PhaseRow { phase: name.to_owned(), gib_per_s: gib_per_s(bytes, ms.median), ms }
        };
        let phases = if self.phases.is_empty() {
            Vec::new()
        } else {
            vec![
                phase("reserve", |phases| phases.reserve),
                phase("populate", |phases| phases.populate),
                phase("pin", |phases| phases.pin),
                phase("total", |phases| phases.total),
            ]
        };
        let ms = Range::of(&self.opened);
        OpenRow {
            strategy: strategy.name().to_owned(),
            bytes: bytes as u64,
            threads: strategy.threads(bytes) as u64,
            pages: self.pages,
            gib_per_s: gib_per_s(bytes, ms.median),
            ms,
            phases,
            close_ms: Range::of(&self.closed),
            left: self.left,
            rounds: self.opened.into_iter().map(rounded).collect(),
        }
    }
}

/// Zero where no time passed.
fn gib_per_s(bytes: usize, ms: f64) -> f64 {
    let gib = bytes as f64 / (1u64 << 30) as f64;
    if ms > 0.0 { rounded(gib / (ms / 1e3)) } else { 0.0 }
}

pub(super) fn milliseconds(took: std::time::Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_binary_gigabytes_and_phases_are_medians() {
        assert!((gib_per_s(8 << 30, 500.0) - 16.0).abs() < 1e-9);
        assert!(gib_per_s(1, 0.0).abs() < 1e-9);
        let ms = std::time::Duration::from_millis;
        let phases =
            |pin| Phases { reserve: ms(0), populate: ms(100), pin: ms(pin), total: ms(100 + pin) };
        let record = Record {
            opened: vec![210.0, 300.0, 250.0],
            closed: vec![1.0, 2.0, 3.0],
            phases: vec![phases(110), phases(200), phases(150)],
            left: Left::default(),
            pages: None,
        };
        let row = record.row(Strategy::Bare, 1 << 30);
        assert_eq!(row.ms, Range { median: 250.0, low: 210.0, high: 300.0 });
        assert!((row.gib_per_s - 4.0).abs() < 1e-9, "{row:?}");
        let pin = row.phases.iter().find(|row| row.phase == "pin").map(|row| row.ms.median);
        assert_eq!((pin, row.close_ms.median, row.phases.len()), (Some(150.0), 2.0, 4));
    }
}
