//! The contract suite over every memory that needs no GPU, every wrapper and the options that change
//! how a pool opens: each pair of two options' values occurs together at least once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test reports by panicking, and its figures by printing"
)]

use std::sync::Mutex;
use std::time::Duration;

use pinpool::{
    BackendKind, ClassConfig, Heap, LeaseError, LockMode, MemoryStep, Mlock, PageLock, Pool,
};
use pinpool_testkit::contract::{self, Subject};
use pinpool_testkit::proc;
use pinpool_testkit::scripted::{Counted, Delayed, Ledger, Limited};

/// One way to open a pool: an index into each of the lists below.
type Row = [usize; 5];

const MEMORIES: [&str; 4] = ["heap", "heap claiming locked", "mlock", "mlock off"];
const WRAPPERS: [&str; 4] = ["none", "counted", "limited", "delayed"];
const THREADS: [usize; 2] = [1, 4];
const PIN_CHUNKS: [u64; 2] = [1, pinpool::PIN_CHUNK_DEFAULT];
const CLASSES: [usize; 2] = [1, 12];

#[test]
fn heap_and_mlock_keep_the_contract() {
    let rows = pairwise([MEMORIES.len(), WRAPPERS.len(), THREADS.len(), 2, CLASSES.len()]);
    let mode = proc::lock_mode_for(4 << 20);
    println!("mlock is tested with lock = {mode}");
    let mut checks = 0;
    for row in &rows {
        checks += check(*row, mode);
    }
    println!("{} combinations, {checks} checks", rows.len());
    assert!(rows.len() >= MEMORIES.len() * WRAPPERS.len());
}

fn check(row: Row, mode: LockMode) -> usize {
    let [memory, wrapper, threads, chunk, classes] = row;
    println!(
        "memory {}, wrapper {}, {} threads, pin_chunk {}, {} classes",
        MEMORIES[memory], WRAPPERS[wrapper], THREADS[threads], PIN_CHUNKS[chunk], CLASSES[classes]
    );
    let ledgers = Mutex::new(Vec::new());
    let open = |list: Vec<ClassConfig>| {
        let mut builder = Pool::builder()
            .env(false)
            .lock(if memory == 3 { LockMode::Off } else { mode })
            .prefault_threads(THREADS[threads])
            .pin_chunk(PIN_CHUNKS[chunk]);
        for class in list {
            builder = builder.class_config(class);
        }
        let ledgers = &ledgers;
        match memory {
            0 => wrapped(builder, Heap::new(), wrapper, ledgers),
            1 => wrapped(builder, Heap::claiming_locked(), wrapper, ledgers),
            2 => wrapped(builder, Mlock::new(mode), wrapper, ledgers),
            _ => wrapped(builder, Mlock::new(LockMode::Off), wrapper, ledgers),
        }
    };
    let checks = contract::run(&Subject {
        open: &open,
        backend: if memory < 2 { BackendKind::Heap } else { BackendKind::Host },
        locked: match memory {
            1 => Some(true),
            2 => (mode == LockMode::Require).then_some(true),
            _ => Some(false),
        },
        classes: CLASSES[classes],
    });
    let ledgers = ledgers.into_inner().unwrap();
    assert_eq!(ledgers.is_empty(), wrapper != 1);
    // One check forgets a lease and one loses slots: two regions may stay. Others leave nothing.
    let open_regions: usize = ledgers.iter().map(Ledger::regions).sum();
    assert!(open_regions <= 2, "{open_regions} regions are left");
    for ledger in ledgers {
        assert_eq!(ledger.violations(), [""; 0]);
    }
    checks
}

fn wrapped(
    builder: pinpool::PoolBuilder,
    memory: impl PageLock + 'static,
    wrapper: usize,
    ledgers: &Mutex<Vec<Ledger>>,
) -> Pool {
    let opened = match wrapper {
        0 => builder.memory(memory),
        1 => {
            let (memory, ledger) = Counted::new(memory);
            ledgers.lock().unwrap().push(ledger);
            builder.memory(memory)
        }
        2 => builder.memory(Limited::new(memory, 64 << 20)),
        _ => builder.memory(
            Delayed::new(memory)
                .on(MemoryStep::Pin, Duration::from_micros(50))
                .on(MemoryStep::Unpin, Duration::from_micros(50))
                .on(MemoryStep::Release, Duration::from_millis(1)),
        ),
    };
    opened.open().unwrap()
}

/// Rows in which every pair of values of two options occurs, chosen greedily from all combinations.
fn pairwise(options: [usize; 5]) -> Vec<Row> {
    let all: Vec<Row> = (0..options.iter().product::<usize>())
        .map(|mut number| {
            options.map(|values| {
                let value = number % values;
                number /= values;
                value
            })
        })
        .collect();
    let pairs = |row: &Row| {
        let row = *row;
        (0..row.len()).flat_map(move |a| (a + 1..row.len()).map(move |b| (a, row[a], b, row[b])))
    };
    let mut open: std::collections::BTreeSet<_> = all.iter().flat_map(pairs).collect();
    let mut rows = Vec::new();
    while !open.is_empty() {
        let gain = |row: &&Row| pairs(row).filter(|pair| open.contains(pair)).count();
        let best = *all.iter().max_by_key(gain).expect("there are combinations");
        pairs(&best).for_each(|pair| {
            open.remove(&pair);
        });
        rows.push(best);
    }
    rows
}

/// Slots of 64 bytes are aligned to 64 bytes and no more: a type that needs 128 is refused where it
/// does not fit, and the slot goes home.
#[test]
fn a_type_of_larger_alignment_is_refused_where_it_does_not_fit() {
    #[derive(Debug, Clone, Copy)]
    #[repr(C, align(128))]
    struct Wide([u8; 128]);
    // SAFETY: all bytes zero are a valid array of bytes.
    unsafe impl bytemuck::Zeroable for Wide {}
    // SAFETY: an array of bytes as large as its alignment has no padding, and any bytes are valid.
    unsafe impl bytemuck::Pod for Wide {}

    let pool = Pool::builder().env(false).class("odd", 192, 2).memory(Heap::new()).open().unwrap();
    let mut aligned = 0;
    let held: Vec<_> = (0..2)
        .map(|_| match pool.try_lease_of::<Wide>(1) {
            Ok(lease) => {
                aligned += 1;
                lease.cast::<u8>().unwrap()
            }
            Err(error) => {
                assert_eq!(error, LeaseError::Misaligned { align: 128, leftover: 0 });
                assert!(error.to_string().contains("128"));
                pool.try_lease(128).expect("the refused slot went home")
            }
        })
        .collect();
    assert_eq!((aligned, held.len()), (1, 2), "of 192-byte slots every second one is aligned");
}
