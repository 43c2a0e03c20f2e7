//! Which frame rates a source keeps up with: a camera that waits for nobody, fed with the times of
//! the frames as they were measured.

use std::time::Duration;

use super::report::RateRow;
use crate::timing::rounded;

/// A camera of one rate and the source behind it. A frame that comes while the last one is still in
/// work is dropped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Camera {
    fps: u32,
    arrived: u64,
    in_time: u64,
    dropped: u64,
}

impl Camera {
    /// One of each rate that matters.
    pub(super) fn all() -> [Self; 3] {
        RATES.map(|fps| Self { fps, arrived: 0, in_time: 0, dropped: 0 })
    }

    /// A frame that arrived while the source was idle, and how long it took.
    pub(super) fn frame(&mut self, took: Duration) {
        let period_ns = NS_PER_S / u64::from(self.fps);
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // Of the periods that it took the first is its own; a frame came at the start of each other.
        let missed = took_ns.div_ceil(period_ns).saturating_sub(1);
        self.arrived += 1 + missed;
        self.dropped += missed;
        self.in_time += u64::from(missed == 0);
    }

    /// What became of all frames.
    pub(super) fn row(&self, name: &str) -> RateRow {
        let share = self.in_time as f64 / self.arrived.max(1) as f64;
        RateRow {
            name: name.to_owned(),
            target_fps: f64::from(self.fps),
            in_time_percent: rounded(share * 100.0),
            dropped: self.dropped,
            arrived: self.arrived,
            holds: share >= HOLDS,
        }
    }
}

/// Frames a second of films and games, of most cameras, of fast ones.
const RATES: [u32; 3] = [30, 60, 120];
/// A rate is held where this share of the frames is done before the next one comes.
const HOLDS: f64 = 0.99;
const NS_PER_S: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_takes_longer_than_a_period_drops_those_that_come_meanwhile() {
        let [mut slow, _, mut fast] = Camera::all();
        for _ in 0..100 {
            // 20 ms: less than a period of 30 a second, more than two of 120.
            slow.frame(Duration::from_millis(20));
            fast.frame(Duration::from_millis(20));
        }
        let row = slow.row("lease");
        assert_eq!((row.arrived, row.dropped, row.holds), (100, 0, true), "{row:?}");
        assert!((row.in_time_percent - 100.0).abs() < 1e-9 && row.name == "lease");
        // 20 ms are 2.4 periods: two more frames came, and the one that was taken was late.
        let row = fast.row("lease");
        assert_eq!((row.arrived, row.dropped, row.holds), (300, 200, false), "{row:?}");
        assert!(row.in_time_percent.abs() < 1e-9, "{row:?}");
    }

    #[test]
    fn a_late_frame_costs_the_next_one_too_and_one_in_a_hundred_may_be_lost() {
        let holds = |late: usize| {
            let [_, mut camera, _] = Camera::all();
            for frame in 0..1000 {
                camera.frame(Duration::from_millis(if frame < late { 17 } else { 1 }));
            }
            camera.row("x").holds
        };
        // Of 1,004 frames that came 8 were late or dropped, of 1,006 then 12.
        assert!(holds(0) && holds(4) && !holds(6));
    }
}
