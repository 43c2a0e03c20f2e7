//! Where a class's free slots may be when a thread leases, and cycles that keep them there: with the leasing thread
//! or not, many at once, none at all; and another thread's slots, which that one does not use any more.

use std::sync::mpsc;

use pinpool::{Lease, Pool, Tag};

use crate::{SIZES, SLOTS, WARM, builder_of, low_byte};

/// Cycles on the given classes. They report instead of panicking: a panic makes system calls.
type Cycles = fn(&Pool, &[usize], Tag, usize) -> Result<(), &'static str>;

struct State {
    name: &'static str,
    sizes: &'static [usize],
    /// How many of the classes each cycle uses.
    at_once: usize,
    slots: usize,
    cycles: Cycles,
}

/// More slots than a thread would keep for itself.
const MANY: usize = 64;
/// Some of them: more than it would keep, too.
const BULK: usize = 40;
const TWELVE: [usize; 12] = [64, 128, 192, 256, 320, 384, 512, 640, 1024, 1280, 2048, 4096];

const STATES: [State; 9] = [
    State::of_each("one slot warm, few slots", SLOTS, one_slot_warm),
    State::of_each("one slot warm, many slots", MANY, one_slot_warm),
    State::of_each("emptied and refilled", SLOTS, emptied_and_refilled),
    State::of_each("tagged", SLOTS, tagged),
    State::of_each("many at once, the first returned first", MANY, |pool, sizes, _, cycles| {
        in_bulk(pool, sizes, cycles, |_, _| ())
    }),
    State::of_each("many at once, the last returned first", MANY, |pool, sizes, _, cycles| {
        in_bulk(pool, sizes, cycles, |held, _| held.reverse())
    }),
    State::of_each("many at once, returned in any order", MANY, |pool, sizes, _, cycles| {
        in_bulk(pool, sizes, cycles, shuffle)
    }),
    State::of_each("exhausted", MANY, exhausted),
    State { name: "twelve classes", sizes: &TWELVE, at_once: 12, slots: MANY, cycles: in_turn },
];

impl State {
    /// Cycles on one class, then on the other.
    const fn of_each(name: &'static str, slots: usize, cycles: Cycles) -> Self {
        Self { name, sizes: &SIZES, at_once: 1, slots, cycles }
    }
}

/// Each state on a pool of its own, with all at hand; without and with a neighbour.
pub(crate) fn all() -> impl Iterator<Item = Ready> {
    STATES.iter().flat_map(|state| [false, true].map(|neighbour| Ready::new(state, neighbour)))
}

/// A pool in a state in which nothing is done for the first time.
pub(crate) struct Ready {
    /// A line.
    pub(crate) name: String,
    state: &'static State,
    pool: Pool,
    tag: Tag,
}

impl Ready {
    fn new(state: &'static State, neighbour: bool) -> Self {
        let pool = builder_of(state.sizes, state.slots).open().unwrap();
        if neighbour {
            settle(pool.clone(), state);
        }
        let beside = if neighbour { "beside a neighbour" } else { "alone" };
        let name = format!("{}, {beside}\n", state.name);
        let ready = Self { name, state, tag: pool.tag("decoder"), pool };
        ready.run(WARM).unwrap();
        ready
    }

    /// So many cycles on each class.
    pub(crate) fn run(&self, cycles: usize) -> Result<(), &'static str> {
        let mut groups = self.state.sizes.chunks(self.state.at_once);
        groups.try_for_each(|sizes| (self.state.cycles)(&self.pool, sizes, self.tag, cycles))
    }
}

/// A neighbour: a thread that leased and returned as often as any, and lives on without doing so. What the pool
/// keeps for it stays with it, until others need it.
fn settle(pool: Pool, state: &'static State) {
    let (settled, is_settled) = mpsc::channel();
    std::thread::spawn(move || {
        for sizes in state.sizes.chunks(1) {
            in_turn(&pool, sizes, pool.tag("neighbour"), WARM).unwrap();
        }
        settled.send(()).unwrap();
        loop {
            std::thread::park();
        }
    });
    is_settled.recv().unwrap();
}

fn lease(pool: &Pool, bytes: usize, round: usize) -> Result<Lease, &'static str> {
    let mut lease = pool.try_lease(bytes).map_err(|_| "no slot")?;
    lease.as_mut_slice()[0] = low_byte(round);
    Ok(lease)
}

fn one_slot_warm(pool: &Pool, sizes: &[usize], _: Tag, cycles: usize) -> Result<(), &'static str> {
    (0..cycles).try_for_each(|round| lease(pool, sizes[0], round).map(drop))
}

/// Takes the class empty, asks once more in vain, and gives all back.
fn emptied_and_refilled(
    pool: &Pool,
    sizes: &[usize],
    _: Tag,
    cycles: usize,
) -> Result<(), &'static str> {
    for round in 0..cycles / SLOTS {
        let mut held = [const { None::<Lease> }; SLOTS];
        for place in &mut held {
            *place = Some(lease(pool, sizes[0], round)?);
        }
        if pool.try_lease(sizes[0]).is_ok() {
            return Err("one slot too many");
        }
    }
    Ok(())
}

fn tagged(pool: &Pool, sizes: &[usize], tag: Tag, cycles: usize) -> Result<(), &'static str> {
    for round in 0..cycles {
        lease(pool, sizes[0], round)?.set_tag(tag);
    }
    Ok(())
}

/// Takes [`BULK`] and returns them in the order that `arrange` makes.
fn in_bulk(
    pool: &Pool,
    sizes: &[usize],
    cycles: usize,
    arrange: fn(&mut [Option<Lease>; BULK], usize),
) -> Result<(), &'static str> {
    for round in 0..cycles / BULK {
        let mut held = [const { None::<Lease> }; BULK];
        for place in &mut held {
            *place = Some(lease(pool, sizes[0], round)?);
        }
        arrange(&mut held, round);
    }
    Ok(())
}

fn shuffle(held: &mut [Option<Lease>; BULK], round: usize) {
    let mut seed = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for at in (1..BULK).rev() {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        held.swap(at, seed % (at + 1));
    }
}

/// Holds all, and asks for more.
fn exhausted(pool: &Pool, sizes: &[usize], _: Tag, cycles: usize) -> Result<(), &'static str> {
    let mut held = [const { None::<Lease> }; MANY];
    for place in &mut held {
        *place = Some(lease(pool, sizes[0], 0)?);
    }
    let refused = (0..cycles).all(|_| pool.try_lease(sizes[0]).is_err());
    if refused { Ok(()) } else { Err("one slot too many") }
}

/// Each class once, then again.
fn in_turn(pool: &Pool, sizes: &[usize], _: Tag, cycles: usize) -> Result<(), &'static str> {
    for round in 0..cycles {
        for bytes in sizes {
            drop(lease(pool, *bytes, round)?);
        }
    }
    Ok(())
}
