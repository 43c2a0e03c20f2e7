//! Reports and ends: what the pool counts, what a close says, and what is left when all is over.

use std::time::{Duration, Instant};

use pinpool::Heap;

use super::Twin;
use crate::model::class::Class;
use crate::model::held::{Flight, State};
use crate::model::op::Op;
use crate::model::twin::Totals;

impl Twin {
    pub(super) fn check_stats(&mut self) {
        let Some(pool) = self.pools.last() else { return };
        let stats = pool.stats();
        for (rank, class) in self.classes.iter_mut().enumerate() {
            let retired = self.retired.iter().any(|retired| retired.about.class == rank);
            let pending = |flight: &&Flight| flight.state == State::Pending;
            let held = self.flights.iter().filter(pending).any(|held| held.about.class == rank);
            class.check(&stats.classes[rank], self.closed, retired || held);
        }
        let (mapped, total) = (stats.mapped_bytes, pool.plan().total_bytes);
        if !self.closed {
            assert_eq!((mapped, stats.pinned_bytes), (total, total));
        } else if self.returned_late {
            // The last slot of a class may be on its way home, and the memory after it.
            assert!(mapped <= total && stats.pinned_bytes <= mapped);
        } else {
            let reserved = self.ledger.reserved_bytes() as u64;
            assert_eq!((mapped, stats.pinned_bytes), (reserved, reserved));
        }
    }

    pub(super) fn close(&mut self) {
        let Some(pool) = self.pools.first() else { return };
        let report = pool.close(Duration::ZERO);
        self.closed = true;
        let out = |name: &str| report.still_out.iter().find(|(class, _)| *class == name);
        for (class, plan) in self.classes.iter().zip(&pool.plan().classes) {
            let reported = out(&plan.name).map_or(0, |(_, out)| *out);
            let reported = u32::try_from(reported).expect("a class is small");
            assert!(class.out().contains(&reported), "{:?}: {report:?}", class.out());
        }
        for retired in &self.retired {
            let name = &pool.plan().classes[retired.about.class].name;
            let named = report
                .in_flight
                .iter()
                .any(|stuck| stuck.slot == retired.about.slot && stuck.class == name.as_str());
            assert!(named, "slot {} of '{name}' is stuck: {report:?}", retired.about.slot);
        }
        let settled = self.classes.iter().all(Class::is_settled);
        assert!(report.in_flight.len() == self.retired.len() || !settled, "{report:?}");
        assert_eq!(report.stuck_bytes, 0);
        self.returned_late |= !settled;
    }

    pub(super) fn drop_pool(&mut self, op: Op) {
        // The last clone goes more rarely: it ends the pool.
        if self.pools.len() == 1 {
            if op.amount >= 16 {
                return;
            }
            // With nothing else out it would wait for them in vain: nobody else completes them.
            let lost = self.classes.iter().any(|class| class.lost() > 0);
            if self.held.is_empty() && self.flights.is_empty() && !lost {
                self.complete_retired();
            }
        }
        self.pools.pop();
    }

    pub(super) fn complete_retired(&mut self) {
        self.returned_late |= !self.retired.is_empty();
        for retired in std::mem::take(&mut self.retired) {
            retired.fence.complete();
            self.classes[retired.about.class].ripen(retired.about);
        }
    }

    /// Everything comes home, and then nothing is left.
    pub(crate) fn finish(mut self, totals: &mut Totals) {
        self.check_stats();
        totals.pools += 1;
        while let Some(held) = self.held.pop() {
            held.verify(self.classes[held.about.class].slot_bytes);
        }
        for Flight { lease, about, fence, state } in std::mem::take(&mut self.flights) {
            fence.complete();
            drop(lease);
            if state == State::Failed {
                self.classes[about.class].dies();
            }
        }
        self.complete_retired();
        let lost: Vec<_> = self.classes.iter().map(Class::lost).collect();
        let regions = lost.iter().filter(|lost| **lost > 0).count();
        if let Some(pool) = self.pools.first().filter(|_| regions == 0) {
            let report = pool.close(HANG);
            assert!(report.is_complete(), "{report:?}, {:?}", pool.stats());
        }
        self.pools.clear();
        let start = Instant::now();
        while self.ledger.regions() > regions {
            assert!(start.elapsed() < HANG, "memory of {lost:?} lost slots never came home");
            std::thread::sleep(Duration::from_micros(50));
        }
        if regions > 0 {
            assert_eq!(self.ledger.violations(), [""; 0]);
            self.ledger.give_back(&Heap::claiming_locked());
        }
        self.ledger.assert_clean();
    }
}

/// What takes longer is lost.
const HANG: Duration = Duration::from_secs(20);
