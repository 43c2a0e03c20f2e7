//! Part `growth`: whether a pool of a thousand times as many slots is slower, when they came back in
//! a random order and so lie in the list far from their neighbours.

use pinpool::Lease;

use super::Scale;
use super::report::{GrowthRow, HALF_OUT, LEASE_AND_DROP};
use crate::BenchError;
use crate::churn::{Churn, Leases, Source};
use crate::stamp::{self, Clock, Ticks};
use crate::timing::{Progress, median, order, rounded};

/// Measures both cases in the small and the large pool, interleaved.
pub(super) fn measure(
    clock: &Clock,
    scale: &Scale,
    progress: &mut Progress<'_>,
) -> Result<Vec<GrowthRow>, BenchError> {
    let mut sides = Vec::new();
    for slots in SIZES {
        let side = Shuffled::new(Leases::open(slots, 1)?);
        sides.push(side);
    }
    let cases = [LEASE_AND_DROP, HALF_OUT].into_iter();
    let mut rows: Vec<GrowthRow> =
        cases.flat_map(|case| SIZES.map(|slots| row(case, slots))).collect();
    for round in 0..scale.rounds {
        for at in order(round, rows.len()) {
            let side = &mut sides[at % SIZES.len()];
            let mut times = Ticks::new()?;
            side.shuffle();
            if rows[at].case == HALF_OUT {
                side.half_out(scale.growth_count, &mut times)?;
            } else {
                // Once uncounted, so that what the shuffling left in the caches is gone.
                side.leases.round_trips(scale.growth_count / 10);
                side.leases.timed(scale.growth_count, &mut times);
            }
            let row = &mut rows[at];
            row.count += times.count();
            row.p50_rounds.push(rounded(clock.quantile_ns(&times, 0.5)));
            row.p99_rounds.push(rounded(clock.quantile_ns(&times, 0.99)));
        }
        progress.step();
    }
    for row in &mut rows {
        row.p50_ns = rounded(median(&row.p50_rounds));
        row.p99_ns = rounded(median(&row.p99_rounds));
    }
    Ok(rows)
}

fn row(case: &str, slots: usize) -> GrowthRow {
    GrowthRow {
        case: case.to_owned(),
        slots: slots as u64,
        count: 0,
        p50_ns: 0.0,
        p99_ns: 0.0,
        p50_rounds: Vec::new(),
        p99_rounds: Vec::new(),
    }
}

/// A pool, and the order in which its slots come back.
pub(super) struct Shuffled {
    leases: Leases,
    dice: Dice,
}

impl Shuffled {
    pub(super) fn new(leases: Leases) -> Self {
        Self { leases, dice: Dice(0x9E37_79B9_7F4A_7C15) }
    }

    /// The pool as it is now.
    pub(super) fn into_leases(self) -> Leases {
        self.leases
    }

    /// Takes all slots and gives them back in a random order.
    pub(super) fn shuffle(&mut self) {
        let mut held = self.leases.take_all();
        while !held.is_empty() {
            let at = self.dice.below(held.len());
            drop(held.swap_remove(at));
        }
    }

    /// Times dropping a random one of many leases and leasing again.
    fn half_out(&mut self, count: u64, times: &mut Ticks) -> Result<(), BenchError> {
        let mut held: Vec<Option<Lease>> = self.leases.take_all().into_iter().map(Some).collect();
        held.truncate(held.len() / 2);
        for turn in 0..count + count / 10 {
            let at = self.dice.below(held.len());
            // What is outside the stamps: finding the lease among the held ones.
            let old = std::hint::black_box(held[at].take());
            let began = stamp::start();
            drop(old);
            let new = self.leases.take();
            let took = stamp::end() - began;
            if new.is_none() {
                return Err(BenchError::Failed("a slot that was dropped is not free".to_owned()));
            }
            held[at] = new;
            if turn >= count / 10 {
                times.record(took);
            }
        }
        while !held.is_empty() {
            let at = self.dice.below(held.len());
            drop(held.swap_remove(at));
        }
        Ok(())
    }
}

/// xorshift, the same in every run; never zero.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // A remainder is less than `end`, which came from a `usize`.
        usize::try_from(self.0 % (end.max(1) as u64)).unwrap_or(0)
    }
}

/// Slots of the large pool.
pub(super) const SLOTS_MANY: usize = 65_536;
const SIZES: [usize; 2] = [64, SLOTS_MANY];
