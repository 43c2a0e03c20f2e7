//! One thread takes, another gives back: pairs of threads with a bounded channel between them.

use std::hint;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, bounded};

use super::Source;
use crate::BenchError;
use crate::window::{Tally, Window, joined};

/// A [`Source`] whose buffers go from thread to thread, without its types.
pub trait Handoff: Send + Sync {
    /// Buffers handed over in a second by `pairs` pairs together, in `counted` of time, and how often a
    /// taker found none and tried again.
    ///
    /// # Errors
    /// A thread that panicked.
    fn rate(&self, pairs: usize, counted: Duration) -> Result<(f64, u64), BenchError>;

    /// How long `pairs` pairs take to hand over `count` buffers each.
    ///
    /// # Errors
    /// A thread that panicked.
    fn together(&self, pairs: usize, count: u64) -> Result<Duration, BenchError>;
}

impl<S: Source> Handoff for S
where
    for<'a> S::Held<'a>: Send,
{
    fn rate(&self, pairs: usize, counted: Duration) -> Result<(f64, u64), BenchError> {
        let mut works: Vec<Work<'_>> = Vec::new();
        for _ in 0..pairs {
            let (give, take) = bounded(CHANNEL_SLOTS);
            works.push(Box::new(move |window| Ok(produce(self, &give, u64::MAX, window))));
            works.push(Box::new(move |window| Ok(consume::<S>(&take, window))));
        }
        Window::run(works, counted)
    }

    fn together(&self, pairs: usize, count: u64) -> Result<Duration, BenchError> {
        let window = &Window::open();
        thread::scope(|scope| {
            let started = Instant::now();
            let mut threads = Vec::new();
            for _ in 0..pairs {
                let (give, take) = bounded(CHANNEL_SLOTS);
                threads.push(scope.spawn(move || produce(self, &give, count, window)));
                threads.push(scope.spawn(move || consume::<S>(&take, window)));
            }
            threads.into_iter().try_for_each(|thread| joined(thread).map(drop))?;
            Ok(started.elapsed())
        })
    }
}

type Work<'a> = Box<dyn FnOnce(&Window) -> Result<Tally, BenchError> + Send + 'a>;

fn produce<'a, S: Source>(
    source: &'a S,
    give: &Sender<S::Held<'a>>,
    count: u64,
    window: &Window,
) -> Tally {
    let mut tally = Tally::default();
    let mut given = 0;
    while given < count && window.counts().is_some() {
        if let Some(held) = source.take() {
            if give.send(held).is_err() {
                break;
            }
            given += 1;
        } else {
            tally.missed += 1;
            hint::spin_loop();
        }
    }
    tally
}

fn consume<S: Source>(take: &Receiver<S::Held<'_>>, window: &Window) -> Tally {
    let mut tally = Tally::default();
    // Until the producer is gone: it must not be left with a full channel.
    while let Ok(held) = take.recv() {
        hint::black_box(S::address(&held));
        drop(held);
        tally.done += u64::from(window.counts() == Some(true));
    }
    tally
}

/// What lies between a pair.
const CHANNEL_SLOTS: usize = 16;
