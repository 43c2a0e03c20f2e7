//! The result of the scenario `break-even`: its JSON form, which is committed, and what it advises.

use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::copy::DIRECTIONS;
use crate::header::Header;
use crate::json::to_json;

/// A result of the scenario `break-even`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BreakEvenReport {
    /// Where it comes from; the scenario is always [`BREAK_EVEN`].
    #[serde(flatten)]
    pub header: Header,
    /// What the reader must know about this run.
    pub notes: Vec<String>,
    /// Copies until pinning pays, for each size and direction.
    pub ratios: Vec<BreakEvenRatio>,
    /// From which size to pin, for each direction.
    pub advice: Vec<Advice>,
    /// What it all was worked out from.
    pub rows: Vec<BreakEvenRow>,
}

/// Copies until pinning pays; `None` where copies of pinned memory are no faster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BreakEvenRatio {
    /// "h2d" or "d2h".
    pub direction: String,
    /// Bytes of a buffer.
    pub bytes: u64,
    /// For a buffer of `cuMemHostAlloc`.
    pub reuses_pinned: Option<f64>,
    /// For memory that is there and is registered.
    pub reuses_registered: Option<f64>,
    /// For a lease of a pool that is open.
    pub reuses_leased: Option<f64>,
    /// A pageable copy over a pinned one, in time.
    pub pageable_over_pinned: f64,
}

/// Microseconds, all of them medians.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BreakEvenRow {
    /// "h2d" or "d2h".
    pub direction: String,
    /// Bytes of a buffer.
    pub bytes: u64,
    /// `cuMemHostAlloc` and `cuMemFreeHost`.
    pub pin_us: f64,
    /// Registering memory that is there, and unregistering it.
    pub register_us: f64,
    /// A lease and its drop.
    pub lease_us: f64,
    /// A copy of pageable memory.
    pub pageable_us: f64,
    /// A copy of pinned memory.
    pub pinned_us: f64,
    /// The difference of the two.
    pub saved_us: f64,
    /// Whether the copies spread so much that the figures say little.
    pub unsteady: bool,
}

/// From which size to pin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// "h2d" or "d2h".
    pub direction: String,
    /// The smallest size that pays as all larger ones do; `None` where none does.
    pub from_bytes: Option<u64>,
    /// The most copies until pinning pays, of these sizes.
    pub reuses_pinned: Option<f64>,
}

impl BreakEvenReport {
    /// Of a run that has not begun.
    pub(super) fn new(header: Header) -> Self {
        let (notes, ratios, advice, rows) = Default::default();
        Self { header, notes, ratios, advice, rows }
    }

    /// Works the advice out from the ratios.
    pub(super) fn recommend(&mut self) {
        self.advice = DIRECTIONS.map(|direction| self.advice_for(direction)).to_vec();
    }

    fn advice_for(&self, direction: &str) -> Advice {
        let of = |ratio: &&BreakEvenRatio| ratio.direction == direction;
        let mut ratios: Vec<&BreakEvenRatio> = self.ratios.iter().filter(of).collect();
        ratios.sort_by_key(|ratio| std::cmp::Reverse(ratio.bytes));
        let mut advice =
            Advice { direction: direction.to_owned(), from_bytes: None, reuses_pinned: None };
        for ratio in ratios {
            let Some(reuses) = ratio.reuses_pinned.filter(|reuses| *reuses <= WORTH) else { break };
            advice.from_bytes = Some(ratio.bytes);
            advice.reuses_pinned =
                Some(advice.reuses_pinned.map_or(reuses, |most| most.max(reuses)));
        }
        advice
    }

    /// The result as the JSON that is committed.
    ///
    /// # Errors
    /// Never for a result of a run; the writer's reason else.
    pub fn to_json(&self) -> Result<String, BenchError> {
        to_json(self)
    }
}

/// The name of the scenario.
pub const BREAK_EVEN: &str = "break-even";
/// The most copies within which pinning must pay to be advised: 17 seconds of 60 frames each.
pub(super) const WORTH: f64 = 1000.0;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::header::tests::header;

    pub(crate) fn report(uploads: &[(u64, Option<f64>)]) -> BreakEvenReport {
        let mut report = BreakEvenReport::new(header(BREAK_EVEN, true));
        report.ratios = uploads
            .iter()
            .map(|&(bytes, reuses)| BreakEvenRatio {
                direction: "h2d".to_owned(),
                bytes,
                reuses_pinned: reuses,
                reuses_registered: reuses,
                reuses_leased: reuses.map(|reuses| reuses / 1e4),
                pageable_over_pinned: 3.0,
            })
            .collect();
        report.recommend();
        report
    }

    #[test]
    fn the_smallest_size_is_advised_from_which_all_pay() {
        let advised = |uploads: &[(u64, Option<f64>)]| {
            let advice = report(uploads).advice[0].clone();
            (advice.from_bytes, advice.reuses_pinned)
        };
        let all = [(4096, Some(900.0)), (65536, Some(40.0)), (1 << 20, Some(6.0))];
        assert_eq!(advised(&all), (Some(4096), Some(900.0)));
        // A small size that happens to pay below one that does not is chance.
        let gap = [(4096, Some(30.0)), (65536, None), (1 << 20, Some(6.0))];
        assert_eq!(advised(&gap), (Some(1 << 20), Some(6.0)));
        assert_eq!(advised(&[(4096, Some(1001.0))]), (None, None));
        assert_eq!(advised(&[]), (None, None));
    }
}
