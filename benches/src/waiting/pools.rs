//! What tasks and threads wait for in both sides of a comparison: a pool's leases, and what people
//! write without one.

use std::sync::{Condvar, Mutex, PoisonError};

use crossbeam::queue::ArrayQueue;
use pinpool::{BackendChoice, Lease, LockMode, Pool};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::BenchError;

/// Buffers that tasks wait for.
pub(super) trait TaskPool: Sync {
    /// A buffer that comes back when it is dropped.
    type Held<'a>: Send
    where
        Self: 'a;

    /// Waits for a buffer.
    fn take(&self) -> impl Future<Output = Result<Self::Held<'_>, BenchError>> + Send;
}

/// Buffers that threads wait for.
pub(super) trait ThreadPool: Sync {
    /// A buffer that comes back when it is dropped.
    type Held<'a>
    where
        Self: 'a;

    /// Waits for a buffer.
    fn take(&self) -> Result<Self::Held<'_>, BenchError>;
}

/// What a pool says of itself when nobody uses it.
pub(super) trait Census {
    /// Buffers that did not come back.
    fn lost(&self) -> u64;

    /// How many got in line so far, where the pool counts them.
    fn waits(&self) -> Option<u64> {
        None
    }
}

/// pinpool's.
#[derive(Debug)]
pub(super) struct Leases(Pool);

impl Leases {
    pub(super) fn open(slots: usize) -> Result<Self, BenchError> {
        let pool = Pool::builder()
            .env(false)
            .backend(BackendChoice::Host)
            .lock(LockMode::Try)
            .class("waited-for", BYTES, slots)
            .open();
        pool.map(Self).map_err(|cause| BenchError::opening_pool(&cause))
    }
}

impl TaskPool for Leases {
    type Held<'a> = Lease;

    async fn take(&self) -> Result<Lease, BenchError> {
        self.0.lease_async(BYTES).await.map_err(|cause| BenchError::failed("leasing", cause))
    }
}

impl ThreadPool for Leases {
    type Held<'a> = Lease;

    fn take(&self) -> Result<Lease, BenchError> {
        self.0.lease(BYTES).map_err(|cause| BenchError::failed("leasing", cause))
    }
}

impl Census for Leases {
    fn lost(&self) -> u64 {
        let stats = self.0.stats();
        stats.classes.iter().map(|class| u64::from(class.slots - class.free)).sum()
    }

    fn waits(&self) -> Option<u64> {
        Some(self.0.stats().classes.iter().map(|class| class.waits_total).sum())
    }
}

/// tokio's semaphore, which is first come first served, before a queue of buffers.
#[derive(Debug)]
pub(super) struct Permits {
    permits: Semaphore,
    buffers: ArrayQueue<Buffer>,
}

#[derive(Debug)]
pub(super) struct Permitted<'a> {
    pool: &'a Permits,
    buffer: Option<Buffer>,
    /// Comes back after the buffer.
    _permit: SemaphorePermit<'a>,
}

impl Permits {
    pub(super) fn new(slots: usize) -> Self {
        let buffers = ArrayQueue::new(slots);
        // As many as it holds.
        (0..slots).for_each(|_| drop(buffers.push(buffer())));
        Self { permits: Semaphore::new(slots), buffers }
    }
}

impl TaskPool for Permits {
    type Held<'a> = Permitted<'a>;

    async fn take(&self) -> Result<Permitted<'_>, BenchError> {
        let permit = self.permits.acquire().await;
        let permit = permit.map_err(|cause| BenchError::failed("acquiring", cause))?;
        let buffer = self.buffers.pop();
        Ok(Permitted { pool: self, buffer, _permit: permit })
    }
}

impl Drop for Permitted<'_> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            drop(self.pool.buffers.push(buffer));
        }
    }
}

impl Census for Permits {
    fn lost(&self) -> u64 {
        (self.buffers.capacity() - self.buffers.len().min(self.permits.available_permits())) as u64
    }
}

/// A channel of buffers, whose waiters any newcomer may overtake.
#[derive(Debug)]
pub(super) struct Channel {
    give: async_channel::Sender<Buffer>,
    take: async_channel::Receiver<Buffer>,
    slots: usize,
}

#[derive(Debug)]
pub(super) struct Received<'a> {
    pool: &'a Channel,
    buffer: Option<Buffer>,
}

impl Channel {
    pub(super) fn new(slots: usize) -> Self {
        let (give, take) = async_channel::bounded(slots);
        (0..slots).for_each(|_| drop(give.try_send(buffer())));
        Self { give, take, slots }
    }
}

impl TaskPool for Channel {
    type Held<'a> = Received<'a>;

    async fn take(&self) -> Result<Received<'_>, BenchError> {
        let buffer = self.take.recv().await;
        let buffer = buffer.map_err(|cause| BenchError::failed("receiving", cause))?;
        Ok(Received { pool: self, buffer: Some(buffer) })
    }
}

impl Drop for Received<'_> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            drop(self.pool.give.try_send(buffer));
        }
    }
}

impl Census for Channel {
    fn lost(&self) -> u64 {
        (self.slots - self.take.len()) as u64
    }
}

/// A vector behind a mutex, with a condition variable, whose waiters any newcomer may overtake.
#[derive(Debug)]
pub(super) struct Guarded {
    free: Mutex<Vec<Buffer>>,
    returned: Condvar,
    slots: usize,
}

#[derive(Debug)]
pub(super) struct Popped<'a> {
    pool: &'a Guarded,
    buffer: Option<Buffer>,
}

impl Guarded {
    pub(super) fn new(slots: usize) -> Self {
        let free = Mutex::new((0..slots).map(|_| buffer()).collect());
        Self { free, returned: Condvar::new(), slots }
    }
}

impl ThreadPool for Guarded {
    type Held<'a> = Popped<'a>;

    fn take(&self) -> Result<Popped<'_>, BenchError> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(buffer) = free.pop() {
                return Ok(Popped { pool: self, buffer: Some(buffer) });
            }
            free = self.returned.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Popped<'_> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.free.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
            self.pool.returned.notify_one();
        }
    }
}

impl Census for Guarded {
    fn lost(&self) -> u64 {
        (self.slots - self.free.lock().unwrap_or_else(PoisonError::into_inner).len()) as u64
    }
}

type Buffer = Box<[u8]>;

fn buffer() -> Buffer {
    vec![0; BYTES].into_boxed_slice()
}

/// Nobody writes to it: what is measured is the waiting.
const BYTES: usize = 4096;
