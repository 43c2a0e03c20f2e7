//! What does taking and giving back a buffer cost, with one thread and with several at once?
//!
//! A lease and its drop, for three size classes, against what people write by hand
//! (`Mutex<Vec>`, a bounded lock-free queue) and against `malloc` and `free` of the same size,
//! which touch no page here. `exhausted` is the cost of being told that nothing is free.

#![allow(missing_docs, clippy::panic, reason = "a benchmark may stop loudly; macros lack docs")]

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main,
};
use crossbeam::queue::ArrayQueue;
use parking_lot::Mutex;
use pinpool::{BackendChoice, LockMode, Pool};

const CLASSES: [(&str, usize); 3] =
    [("4KiB", 4 << 10), ("1MiB", 1 << 20), ("1080p-rgb", 1920 * 1080 * 3)];

/// Something that buffers are taken from and given back to, by many threads.
trait Source: Sync {
    fn name(&self) -> &'static str;

    /// Takes one buffer and gives it back; false where there was none.
    fn round_trip(&self) -> bool;
}

struct Leases {
    pool: Pool,
    bytes: usize,
}

impl Source for Leases {
    fn name(&self) -> &'static str {
        "pinpool"
    }

    fn round_trip(&self) -> bool {
        black_box(self.pool.try_lease(self.bytes)).is_ok()
    }
}

struct MutexVec(Mutex<Vec<Box<[u8]>>>);

impl Source for MutexVec {
    fn name(&self) -> &'static str {
        "mutex-vec"
    }

    fn round_trip(&self) -> bool {
        // The guard must go before the buffer is given back.
        let taken = self.0.lock().pop();
        match black_box(taken) {
            Some(buffer) => {
                self.0.lock().push(buffer);
                true
            }
            None => false,
        }
    }
}

struct Queue(ArrayQueue<Box<[u8]>>);

impl Source for Queue {
    fn name(&self) -> &'static str {
        "array-queue"
    }

    fn round_trip(&self) -> bool {
        black_box(self.0.pop()).is_some_and(|buffer| self.0.push(buffer).is_ok())
    }
}

struct Malloc(usize);

impl Source for Malloc {
    fn name(&self) -> &'static str {
        "malloc"
    }

    fn round_trip(&self) -> bool {
        let mut buffer = Vec::<u8>::with_capacity(self.0);
        black_box(buffer.as_mut_ptr());
        true
    }
}

fn pool(bytes: usize, slots: usize) -> Pool {
    let pool = Pool::builder()
        .env(false)
        .backend(BackendChoice::Host)
        .lock(LockMode::Try)
        .class("bench", bytes, slots)
        .open();
    pool.unwrap_or_else(|error| panic!("opening the pool: {error}"))
}

fn buffers(bytes: usize, count: usize) -> impl Iterator<Item = Box<[u8]>> {
    std::iter::repeat_with(move || vec![0u8; bytes].into_boxed_slice()).take(count)
}

fn sources(bytes: usize, slots: usize) -> [Box<dyn Source>; 4] {
    let queue = ArrayQueue::new(slots);
    for buffer in buffers(bytes, slots) {
        let _ = queue.push(buffer);
    }
    [
        Box::new(Leases { pool: pool(bytes, slots), bytes }),
        Box::new(MutexVec(Mutex::new(buffers(bytes, slots).collect()))),
        Box::new(Queue(queue)),
        Box::new(Malloc(bytes)),
    ]
}

/// Runs `count` round trips in each of `threads` threads, released together; returns the time
/// until the last one ends. Each must find a buffer, or none, as `expected` says.
fn together(source: &dyn Source, threads: usize, count: u64, expected: bool) -> Duration {
    let work = || {
        for _ in 0..count {
            assert!(source.round_trip() == expected, "{}: wrong state", source.name());
        }
    };
    if threads == 1 {
        let started = Instant::now();
        work();
        return started.elapsed();
    }
    let barrier = Barrier::new(threads);
    let run = || {
        barrier.wait();
        let started = Instant::now();
        work();
        (started, Instant::now())
    };
    let spans: Vec<(Instant, Instant)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, _>| worker.join();
        workers.into_iter().filter_map(|worker| join(worker).ok()).collect()
    });
    assert_eq!(spans.len(), threads, "{}: a thread panicked", source.name());
    let first = spans.iter().map(|(started, _)| *started).min();
    let last = spans.iter().map(|(_, ended)| *ended).max();
    first.zip(last).map_or(Duration::ZERO, |(first, last)| last - first)
}

fn thread_counts() -> Vec<usize> {
    let all = thread::available_parallelism().map_or(1, usize::from);
    let mut counts = vec![1, 2, all];
    counts.sort_unstable();
    counts.dedup();
    counts
}

fn quick(group: &mut BenchmarkGroup<'_, WallTime>) {
    group.warm_up_time(Duration::from_millis(300));
    group.measurement_time(Duration::from_secs(1));
    group.sample_size(20);
}

fn lease_and_drop(criterion: &mut Criterion) {
    let counts = thread_counts();
    let slots = 2 * counts.iter().max().copied().unwrap_or(1).max(4);
    for (class, bytes) in CLASSES {
        let mut group = criterion.benchmark_group(format!("lease_drop/{class}"));
        quick(&mut group);
        for source in sources(bytes, slots) {
            for &threads in &counts {
                // The rate of all threads together.
                group.throughput(Throughput::Elements(threads as u64));
                let id = BenchmarkId::new(source.name(), format!("{threads}-threads"));
                group.bench_function(id, |bencher| {
                    bencher.iter_custom(|count| together(source.as_ref(), threads, count, true));
                });
            }
        }
        group.finish();
    }
}

fn exhausted(criterion: &mut Criterion) {
    const BYTES: usize = 4 << 10;
    let leases = Leases { pool: pool(BYTES, 1), bytes: BYTES };
    let held = leases.pool.try_lease(BYTES);
    assert!(held.is_ok(), "the only slot must be free at first");
    let sources: [Box<dyn Source>; 3] = [
        Box::new(leases),
        Box::new(MutexVec(Mutex::new(Vec::new()))),
        Box::new(Queue(ArrayQueue::new(1))),
    ];
    let mut group = criterion.benchmark_group("exhausted");
    quick(&mut group);
    for source in sources {
        for threads in thread_counts() {
            group.throughput(Throughput::Elements(threads as u64));
            let id = BenchmarkId::new(source.name(), format!("{threads}-threads"));
            group.bench_function(id, |bencher| {
                bencher.iter_custom(|count| together(source.as_ref(), threads, count, false));
            });
        }
    }
    group.finish();
    drop(held);
}

criterion_group!(benches, lease_and_drop, exhausted);
criterion_main!(benches);
