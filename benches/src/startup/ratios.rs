//! What the parts of the scenario `startup` come to.

use super::pytorch::{DEFAULT, PyTorch, REGISTER};
use super::report::{Felt, NOTHING, NeighbourRow, OpenRow, SizeRatios, StartupRatios};
use super::strategies::Strategy;
use crate::timing::{median_ratio, rounded};

impl SizeRatios {
    /// Of one size.
    pub(crate) fn of(opens: &[OpenRow], bytes: u64, pytorch: Option<&PyTorch>) -> Self {
        let row = |strategy: Strategy| {
            let same = |row: &&OpenRow| row.bytes == bytes && row.strategy == strategy.name();
            opens.iter().find(same)
        };
        let pool = row(Strategy::Pool);
        let over_pytorch = |mode| {
            let theirs = pytorch?.ms(mode, bytes)?;
            Some(rounded(theirs / pool?.ms.median)).filter(|ratio| ratio.is_finite())
        };
        Self {
            bytes,
            gib_per_s: pool.map_or(0.0, |row| row.gib_per_s),
            open_over_bare: over(pool, row(Strategy::Bare)),
            open_over_no_pauses: over(pool, row(Strategy::PoolWithoutPauses)),
            open_over_no_huge_pages: over(pool, row(Strategy::PoolOnOrdinaryPages)),
            speedup_over_one_thread: over(row(Strategy::PoolOneThread), pool),
            speedup_over_untouched: over(row(Strategy::Untouched), pool),
            speedup_over_hostalloc: over(row(Strategy::DriverAlloc), pool),
            speedup_over_pytorch: over_pytorch(DEFAULT),
            speedup_over_pytorch16: over_pytorch(REGISTER),
        }
    }
}

impl StartupRatios {
    /// Of all sizes and cases. Only a GPU has copies and calls that may be held up.
    pub(crate) fn of(sizes: &[SizeRatios], neighbours: &[NeighbourRow], on_gpu: bool) -> Self {
        let size = |gib: u64| sizes.iter().find(|size| size.bytes == gib << 30);
        let case = |name: &str| neighbours.iter().find(|row| row.case == name);
        let longest = |felt: Option<&Felt>| felt.map(|felt| felt.longest_ms);
        let process = |name: &str| longest(case(name).and_then(|row| row.process.as_ref()));
        let own =
            |name: &str| longest(case(name).filter(|_| on_gpu).and_then(|row| row.own.as_ref()));
        let (pool, driver) = (Strategy::Pool.name(), Strategy::DriverAlloc.name());
        Self {
            speedup_over_hostalloc_8g: size(8).and_then(|size| size.speedup_over_hostalloc),
            speedup_over_hostalloc_1g: size(1).and_then(|size| size.speedup_over_hostalloc),
            speedup_over_pytorch16_8g: size(8).and_then(|size| size.speedup_over_pytorch16),
            speedup_over_pytorch16_1g: size(1).and_then(|size| size.speedup_over_pytorch16),
            open_over_bare_8g: size(8).and_then(|size| size.open_over_bare),
            open_over_bare_1g: size(1).and_then(|size| size.open_over_bare),
            neighbour_process_stall_ms: process(pool),
            neighbour_process_stall_hostalloc_ms: process(driver),
            neighbour_process_idle_ms: process(NOTHING),
            own_copy_stall_ms: own(pool),
            own_copy_stall_hostalloc_ms: own(driver),
            own_copy_idle_ms: own(NOTHING),
        }
    }
}

/// Time over time, of the rounds that both have.
fn over(above: Option<&OpenRow>, below: Option<&OpenRow>) -> Option<f64> {
    Some(rounded(median_ratio(&above?.rounds, &below?.rounds)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::startup::pytorch::tests::figures;
    use crate::startup::report::Left;
    use crate::timing::Range;

    pub(crate) fn open_row(strategy: Strategy, bytes: u64, rounds: &[f64]) -> OpenRow {
        let ms = Range::of(rounds);
        OpenRow {
            strategy: strategy.name().into(),
            bytes,
            threads: if strategy.is_slow() { 0 } else { 16 },
            pages: strategy.is_pool().then(|| "transparent".into()),
            ms,
            gib_per_s: rounded(bytes as f64 / (1u64 << 30) as f64 / (ms.median / 1e3)),
            phases: Vec::new(),
            close_ms: Range::of(&[200.0]),
            left: Left::default(),
            rounds: rounds.to_vec(),
        }
    }

    pub(crate) fn neighbour_row(case: &str, process: f64, own: f64) -> NeighbourRow {
        NeighbourRow {
            case: case.into(),
            bytes: 32 << 30,
            ms: Some(Range::of(&[1400.0])),
            close_ms: None,
            process: Felt::of(&[&[0.125, process]]),
            own: Felt::of(&[&[0.0625, own]]),
            process_closing: None,
            own_closing: None,
        }
    }

    #[test]
    fn times_are_compared_round_by_round_and_size_by_size() {
        let opens = [
            // The second round was disturbed for both.
            open_row(Strategy::Pool, 8 << 30, &[400.0, 800.0, 400.0]),
            open_row(Strategy::Bare, 8 << 30, &[320.0, 640.0, 320.0]),
            open_row(Strategy::PoolOneThread, 8 << 30, &[3200.0]),
            open_row(Strategy::DriverAlloc, 8 << 30, &[3000.0, 6000.0]),
            open_row(Strategy::Pool, 1 << 30, &[50.0]),
            open_row(Strategy::Bare, 1 << 30, &[100.0]),
        ];
        let of = |gib: u64| SizeRatios::of(&opens, gib << 30, Some(&figures()));
        let sizes = [of(8), of(1)];
        assert_eq!(sizes[0].open_over_bare, Some(1.25));
        assert_eq!(sizes[0].speedup_over_one_thread, Some(8.0));
        assert_eq!(sizes[0].speedup_over_hostalloc, Some(7.5));
        // Their 3,200 and 1,000 ms over our 400.
        assert_eq!(sizes[0].speedup_over_pytorch, Some(8.0));
        assert_eq!(sizes[0].speedup_over_pytorch16, Some(2.5));
        assert_eq!((sizes[1].open_over_bare, sizes[1].speedup_over_pytorch16), (Some(0.5), None));

        let rows = [
            neighbour_row(NOTHING, 0.25, 0.5),
            neighbour_row(Strategy::Pool.name(), 0.75, 1.5),
            neighbour_row(Strategy::DriverAlloc.name(), 165.0, 3270.0),
        ];
        let ratios = StartupRatios::of(&sizes, &rows, true);
        assert_eq!(ratios.open_over_bare_8g, Some(1.25));
        assert_eq!(ratios.open_over_bare_1g, Some(0.5));
        assert_eq!(ratios.speedup_over_hostalloc_8g, Some(7.5));
        assert_eq!(ratios.speedup_over_pytorch16_8g, Some(2.5));
        assert_eq!(ratios.neighbour_process_stall_ms, Some(0.75));
        assert_eq!(ratios.neighbour_process_stall_hostalloc_ms, Some(165.0));
        assert_eq!(ratios.own_copy_stall_hostalloc_ms, Some(3270.0));
        assert_eq!(ratios.own_copy_idle_ms, Some(0.5));
        // Nothing is made up where a side was not measured.
        assert_eq!(
            (ratios.speedup_over_hostalloc_1g, sizes[1].speedup_over_untouched),
            (None, None)
        );
        let host = StartupRatios::of(&[], &rows, false);
        assert_eq!((host.open_over_bare_8g, host.own_copy_stall_ms), (None, None));
    }
}
