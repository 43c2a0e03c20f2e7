//! What people write by hand: a vector behind a mutex, a bounded queue.

use crossbeam::queue::ArrayQueue;
use parking_lot::Mutex;
use pinpool::Lease;

use super::{BUFFER_BYTES, Source};

type Buffer = Box<[u8]>;

fn buffer() -> Buffer {
    vec![0; BUFFER_BYTES].into_boxed_slice()
}

/// A buffer that goes back to its source.
#[derive(Debug)]
pub struct Taken<'a, S: TakesBack> {
    source: &'a S,
    buffer: Option<Buffer>,
}

/// Where a [`Taken`] goes back to.
pub trait TakesBack {
    /// Takes it back.
    fn take_back(&self, buffer: Buffer);
}

impl<S: TakesBack> Taken<'_, S> {
    #[inline]
    fn address(&self) -> *const u8 {
        self.buffer.as_ref().map_or(std::ptr::null(), |buffer| buffer.as_ptr())
    }
}

impl<S: TakesBack> Drop for Taken<'_, S> {
    #[inline]
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.source.take_back(buffer);
        }
    }
}

/// A vector of buffers behind a mutex.
#[derive(Debug)]
pub struct MutexVec(Mutex<Vec<Buffer>>);

impl MutexVec {
    /// With `slots` buffers.
    pub fn new(slots: usize) -> Self {
        Self(Mutex::new((0..slots).map(|_| buffer()).collect()))
    }
}

impl TakesBack for MutexVec {
    #[inline]
    fn take_back(&self, buffer: Buffer) {
        self.0.lock().push(buffer);
    }
}

impl Source for MutexVec {
    type Held<'a> = Taken<'a, Self>;

    #[inline]
    fn take(&self) -> Option<Taken<'_, Self>> {
        let buffer = self.0.lock().pop()?;
        Some(Taken { source: self, buffer: Some(buffer) })
    }

    #[inline]
    fn address(held: &Taken<'_, Self>) -> *const u8 {
        held.address()
    }
}

/// crossbeam's bounded queue of buffers.
#[derive(Debug)]
pub struct Queue(ArrayQueue<Buffer>);

impl Queue {
    /// With `slots` buffers, at least one.
    pub fn new(slots: usize) -> Self {
        let queue = ArrayQueue::new(slots);
        // As many as it holds.
        (0..slots).for_each(|_| drop(queue.push(buffer())));
        Self(queue)
    }

    /// With none.
    pub fn empty() -> Self {
        Self(ArrayQueue::new(1))
    }
}

impl TakesBack for Queue {
    #[inline]
    fn take_back(&self, buffer: Buffer) {
        // It has room for all that came from it.
        drop(self.0.push(buffer));
    }
}

impl Source for Queue {
    type Held<'a> = Taken<'a, Self>;

    #[inline]
    fn take(&self) -> Option<Taken<'_, Self>> {
        let buffer = self.0.pop()?;
        Some(Taken { source: self, buffer: Some(buffer) })
    }

    #[inline]
    fn address(held: &Taken<'_, Self>) -> *const u8 {
        held.address()
    }
}

/// No buffers at all: what a channel costs without them.
#[derive(Debug)]
pub struct Integers;

impl Source for Integers {
    type Held<'a> = usize;

    #[inline]
    fn take(&self) -> Option<usize> {
        Some(std::hint::black_box(1))
    }

    #[inline]
    fn address(held: &usize) -> *const u8 {
        std::ptr::without_provenance(*held)
    }
}

/// As [`Integers`], of a lease's size: what a channel costs that moves so many bytes.
#[derive(Debug)]
pub struct Messages;

impl Source for Messages {
    type Held<'a> = [usize; 4];

    #[inline]
    fn take(&self) -> Option<[usize; 4]> {
        Some(std::hint::black_box([1; 4]))
    }

    #[inline]
    fn address(held: &[usize; 4]) -> *const u8 {
        // All words are looked at, so that all must come along.
        std::ptr::without_provenance(held.iter().fold(0, |all, word| all | word))
    }
}

const _: () = assert!(size_of::<Lease>() == size_of::<[usize; 4]>(), "as large as a lease");
