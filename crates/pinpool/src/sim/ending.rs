//! How a world ends: the pool closes, what is out comes home in any order, and everything is given
//! back but for what is stuck or lost.

use std::time::Duration;

use super::shadow::Place;
use super::world::World;
use crate::clock;
use crate::error::LeaseError;
use crate::keeper::Next;

impl World {
    /// Ends the world.
    pub(super) fn end(mut self) {
        self.close();
        while self.let_go() {
            if self.rng.chance(300) {
                clock::simulated::pass(Duration::from_nanos(self.rng.below(self.options.stride)));
                self.keep();
            }
            self.audit(0);
        }
        let now = self.now();
        for stream in &mut self.streams {
            stream.release(now, &mut self.rng);
        }
        for _ in 0..ROUNDS_MAX {
            if self.rounds.is_none() {
                break;
            }
            clock::simulated::pass(Duration::from_millis(5));
            if !self.keep() {
                break;
            }
            self.audit(0);
        }
        assert!(self.rounds.is_none(), "I6: the keeper did not end: {:?}", self.next);
        self.audit(0);
        self.check_books();
        drop(self.pool.take());
        self.memory.clear();
    }

    /// Closes the pool, with leases, tasks and work still about.
    fn close(&mut self) {
        let timeout = Duration::from_nanos(self.rng.below(5_000_000));
        self.closed = true;
        let before = self.now();
        let report = self.pool().close(timeout);
        self.note_lost();
        assert!(
            matches!(self.pool().try_lease(1), Err(LeaseError::Closed)),
            "I6: a lease was given"
        );
        let lost: u32 = self.classes.iter().map(|class| class.lost).sum();
        assert_eq!(report.quarantined, u64::from(lost));
        for shadow in &self.classes {
            let line = shadow.class.get().line();
            let mut out = 0..0;
            for (slot, number) in shadow.slots.iter().zip(0u32..) {
                let handed = line.hands >> number & 1 == 1;
                let pending = slot.marks.iter().any(|mark| !mark.is_complete(before));
                let certain = slot.place != Place::Back || handed || pending;
                out.start += usize::from(certain && shadow.is_there(number));
                let possible = certain || slot.retired;
                out.end += usize::from(possible && shadow.is_there(number));
            }
            let found = shadow.class.get().still_out();
            assert!(out.start <= found && found <= out.end, "still out: {found} of {out:?}");
        }
        while !self.tasks.is_empty() {
            let at = self.rng.index(self.tasks.len());
            assert_eq!(self.tasks[at].bell.count(), 1, "I6: a task still waits");
            if self.rng.chance(100) { self.cancel(at) } else { self.fetch(at) }
        }
        if self.rng.chance(512) {
            // Leases outlive the pool.
            self.pool = None;
        }
    }

    /// Lets go of one thing that is held, if there is any.
    fn let_go(&mut self) -> bool {
        let kinds = [
            self.held.len(),
            self.flights.len(),
            self.landings.len(),
            self.shares.len(),
            self.forgotten.len(),
        ];
        let Some(mut at) = kinds.iter().sum::<usize>().checked_sub(1) else { return false };
        at = self.rng.index(at + 1);
        let kind = kinds.iter().position(|len| {
            let here = at < *len;
            at = at.wrapping_sub(*len);
            here
        });
        match kind {
            Some(0) => self.give_one_back(),
            Some(1) => {
                let flight = self.flights.swap_remove(self.rng.index(kinds[1]));
                self.drop_flight(flight);
            }
            Some(2) => {
                let at = self.rng.index(kinds[2]);
                self.drop_landing(at);
            }
            Some(3) => {
                let at = self.rng.index(kinds[3]);
                self.drop_one_of(at);
            }
            _ => self.remember_one(),
        }
        true
    }

    /// Only what is stuck or lost is still mapped.
    fn check_books(&self) {
        assert_eq!(self.next, Next::End);
        let mut kept = 0;
        for shadow in self.classes.iter().filter(|shadow| shadow.lost > 0) {
            // What is lost keeps its own slab, and the first one, which goes last.
            kept += 1;
            let slots = shadow.slots.iter().zip(0u32..);
            let lost = slots.filter(|(slot, _)| slot.place == Place::Lost);
            let slabs = lost.filter_map(|(_, number)| shadow.slab_of(number));
            kept += slabs.fold(0u64, |bits, slab| bits | 1 << slab).count_ones();
        }
        let (stuck, mapped) = self.memory.look(|books| {
            let stuck = books.regions.iter().filter(|(_, stuck)| *stuck).count();
            (stuck, books.regions.len())
        });
        assert_eq!(mapped, stuck + kept as usize, "I6: memory was not given back");
    }
}

const ROUNDS_MAX: u32 = 10_000;
