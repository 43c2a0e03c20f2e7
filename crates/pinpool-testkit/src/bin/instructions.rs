//! `instructions`: one case of leasing and dropping, for `scripts/instructions`, which runs it where
//! instructions are counted between entry and return of [`counted`].
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program reports by printing")]

use std::error::Error;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use pinpool::{Heap, Lease, LeaseError, Pool};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Cycles before those that are counted: whatever a thread earns by leasing, it has by then.
const WARM: usize = 20_000;
/// Cycles that are counted, or a few more to make whole rounds.
const CYCLES: usize = 20_000;
/// Slots of each class, unless the case says otherwise.
const SLOTS: usize = 64;
/// Leases that one thread hands to another at a time.
const BATCH: usize = 16;
/// A free list has as many shards as there are processors, and desks for twice as many threads: for everybody
/// as many.
const PROCESSORS: usize = 2;

const BYTES: usize = 4096;
/// Powers of two, frames, and what lies between.
const TWELVE: [usize; 12] =
    [64, 256, 1000, BYTES, 10_000, 43_392, 65_536, 115_200, 230_400, 345_600, 691_200, 1_000_000];

/// Runs a case and returns how many cycles of it were counted.
type Case = fn() -> Result<usize, Box<dyn Error>>;

/// Each with its name and what it is.
const CASES: [(&str, &str, Case); 9] = [
    ("one-class", "one class, most slots free", one_class),
    ("twelve-classes", "twelve classes in turn", twelve_classes),
    ("tagged", "with a tag", tagged),
    ("last-slot", "all other slots are out", last_slot),
    ("refused", "all slots are out: the refusal", refused),
    ("other-thread", "dropped by another thread, 16 at a time", other_thread),
    ("random-order-64", "64 at once of 64 that came home in any order", || random_order(64, 64)),
    ("random-order-65536", "64 at once of 65,536 that did", || random_order(65_536, 64)),
    ("all-65536", "65,536 at once", || random_order(65_536, 65_536)),
];

fn main() -> ExitCode {
    if let Err(reason) = restrict_processors() {
        println!("NOT RUN: {reason}");
        return ExitCode::SUCCESS;
    }
    let Some(name) = std::env::args().nth(1) else {
        for (name, text, _) in CASES {
            println!("{name} {text}");
        }
        return ExitCode::SUCCESS;
    };
    let Some((.., case)) = CASES.iter().find(|(known, ..)| *known == name) else {
        eprintln!("there is no case {name}; without an argument all are listed");
        return ExitCode::from(2);
    };
    match case() {
        Ok(cycles) => {
            println!("{cycles}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Leaves the process its first few processors.
fn restrict_processors() -> Result<(), String> {
    let given = sched_getaffinity(None).map_err(|error| error.to_string())?;
    let mut few = CpuSet::new();
    let all = (0..CpuSet::MAX_CPU).filter(|number| given.is_set(*number));
    all.take(PROCESSORS).for_each(|number| few.set(number));
    sched_setaffinity(None, &few).map_err(|error| error.to_string())?;
    match thread::available_parallelism().map_or(1, usize::from) {
        PROCESSORS => Ok(()),
        other => Err(format!("{PROCESSORS} processors are needed, and there are {other}")),
    }
}

/// What is counted: this call, in whichever thread, and all within it.
// SAFETY: no other symbol of the program or of its libraries has this name.
#[unsafe(export_name = "pinpool_counted")]
#[inline(never)]
fn counted(cycles: &mut dyn FnMut()) {
    cycles();
    // Or the call would be a jump, behind which nobody sees the return.
    black_box(());
}

#[inline(never)]
fn uncounted(cycles: &mut dyn FnMut()) {
    cycles();
    // Or the compiler would make one function of both.
    black_box(false);
}

/// Who calls the cycles.
type Caller = fn(&mut dyn FnMut());

/// Rounds of `cycles` each, the later half of which are counted.
fn rounds(cycles: usize, mut round: impl FnMut(Caller)) -> usize {
    let warm = WARM.div_ceil(cycles);
    let rounds = CYCLES.div_ceil(cycles);
    for number in 0..warm + rounds {
        round(if number < warm { uncounted } else { counted });
    }
    rounds * cycles
}

/// Cycles of one thread.
fn count(mut cycle: impl FnMut()) -> usize {
    rounds(CYCLES, |call| call(&mut || (0..CYCLES).for_each(|_| cycle())))
}

fn open(classes: &[usize], slots: usize) -> Result<Pool, pinpool::Error> {
    let mut builder = Pool::builder().env(false).memory(Heap::claiming_locked());
    for bytes in classes {
        builder = builder.class(&format!("of-{bytes}"), *bytes, slots);
    }
    builder.open()
}

#[inline]
fn lease(pool: &Pool, bytes: usize) -> Lease {
    match pool.try_lease(bytes) {
        Ok(lease) => lease,
        Err(error) => missing(error),
    }
}

#[cold]
#[inline(never)]
fn missing(error: LeaseError) -> ! {
    eprintln!("a slot should be free: {error}");
    std::process::abort();
}

#[inline]
fn lease_and_drop(pool: &Pool, bytes: usize) {
    black_box(lease(pool, bytes).as_ptr());
}

fn one_class() -> Result<usize, Box<dyn Error>> {
    let pool = open(&[BYTES], SLOTS)?;
    Ok(count(|| lease_and_drop(&pool, black_box(BYTES))))
}

/// Each class in turn.
fn twelve_classes() -> Result<usize, Box<dyn Error>> {
    let pool = open(&TWELVE, 4)?;
    let cycles = rounds(TWELVE.len(), |call| {
        call(&mut || TWELVE.iter().for_each(|bytes| lease_and_drop(&pool, *bytes)));
    });
    Ok(cycles)
}

fn tagged() -> Result<usize, Box<dyn Error>> {
    let pool = open(&[BYTES], SLOTS)?;
    let tag = pool.tag("decoder");
    Ok(count(|| {
        let mut lease = lease(&pool, black_box(BYTES));
        lease.set_tag(tag);
        black_box(lease.as_ptr());
    }))
}

/// All others are out.
fn last_slot() -> Result<usize, Box<dyn Error>> {
    let pool = open(&[BYTES], SLOTS)?;
    let _held: Vec<Lease> = (1..SLOTS).map(|_| lease(&pool, BYTES)).collect();
    Ok(count(|| lease_and_drop(&pool, black_box(BYTES))))
}

/// All are out.
fn refused() -> Result<usize, Box<dyn Error>> {
    let pool = open(&[BYTES], SLOTS)?;
    let _held: Vec<Lease> = (0..SLOTS).map(|_| lease(&pool, BYTES)).collect();
    Ok(count(|| {
        black_box(pool.try_lease(black_box(BYTES)).is_ok());
    }))
}

/// Leased here, dropped there, in lockstep.
fn other_thread() -> Result<usize, Box<dyn Error>> {
    let pool = open(&[BYTES], SLOTS)?;
    // Which shard is a thread's own follows from how many threads came before. Once the pool's thread rests it
    // has come, and these two come one after the other, so that they do not share a shard.
    thread::sleep(Duration::from_millis(100));
    let (there, arriving) = sync_channel::<(Caller, Vec<Lease>)>(0);
    let (back, empty) = sync_channel(0);
    thread::scope(|scope| {
        scope.spawn(move || {
            for (call, mut leases) in arriving {
                call(&mut || leases.clear());
                let _ = back.send(leases);
            }
        });
        let mut leases = Vec::with_capacity(BATCH);
        let cycles = rounds(BATCH, |call| {
            call(&mut || leases.extend((0..BATCH).map(|_| lease(&pool, BYTES))));
            let _ = there.send((call, std::mem::take(&mut leases)));
            leases = empty.recv().unwrap_or_default();
        });
        drop(there);
        Ok(cycles)
    })
}

/// All slots have come home in an order of chance; then so many are leased at a time, and dropped in such an order.
fn random_order(slots: usize, at_once: usize) -> Result<usize, Box<dyn Error>> {
    let pool = open(&[64], slots)?;
    let mut leases: Vec<Lease> = Vec::with_capacity(slots);
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |end: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed >> 33).unwrap_or(0) % end
    };
    let mut round = |call: Caller, count: usize| {
        call(&mut || leases.extend((0..count).map(|_| lease(&pool, 64))));
        (1..count).for_each(|at| leases.swap(at, below(at + 1)));
        call(&mut || leases.clear());
    };
    round(uncounted, slots);
    Ok(rounds(at_once, |call| round(call, at_once)))
}
