//! Object pools that others published. All of them hold buffers of one size; three of them make new
//! ones when all are out, so that nothing bounds them.

use std::fmt;

use deadpool::unmanaged;
use lockfree_object_pool::{LinearObjectPool, LinearReusable};
use opool::{PoolAllocator, RefGuard};

use super::{BUFFER_BYTES, Source};

/// deadpool's unmanaged pool, asked without waiting.
#[derive(Debug)]
pub struct Deadpool(unmanaged::Pool<Vec<u8>>);

impl Deadpool {
    /// With `slots` buffers.
    pub fn new(slots: usize) -> Self {
        Self(unmanaged::Pool::from(vec![vec![0; BUFFER_BYTES]; slots]))
    }
}

impl Source for Deadpool {
    type Held<'a> = unmanaged::Object<Vec<u8>>;

    #[inline]
    fn take(&self) -> Option<Self::Held<'_>> {
        self.0.try_get().ok()
    }

    #[inline]
    fn address(held: &Self::Held<'_>) -> *const u8 {
        held.as_ptr()
    }
}

/// opool's concurrent pool: a bounded queue, and a new buffer where it is empty.
#[derive(Debug)]
pub struct Opool(opool::Pool<Zeroed, Vec<u8>>);

/// Makes opool's buffers.
#[derive(Debug)]
pub struct Zeroed;

impl PoolAllocator<Vec<u8>> for Zeroed {
    fn allocate(&self) -> Vec<u8> {
        vec![0; BUFFER_BYTES]
    }
}

impl Opool {
    /// With `slots` buffers to begin with.
    pub fn new(slots: usize) -> Self {
        Self(opool::Pool::new_prefilled(slots, Zeroed))
    }
}

impl Source for Opool {
    type Held<'a> = RefGuard<'a, Zeroed, Vec<u8>>;

    #[inline]
    fn take(&self) -> Option<Self::Held<'_>> {
        Some(self.0.get())
    }

    #[inline]
    fn address(held: &Self::Held<'_>) -> *const u8 {
        held.as_ptr()
    }
}

/// lockfree-object-pool's linear pool, which grows by pages and never shrinks.
pub struct Linear(LinearObjectPool<Vec<u8>>);

impl Linear {
    /// With as many buffers as are needed.
    pub fn new() -> Self {
        Self(LinearObjectPool::new(|| vec![0; BUFFER_BYTES], |_| ()))
    }
}

impl Default for Linear {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Linear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Linear")
    }
}

impl Source for Linear {
    type Held<'a> = LinearReusable<'a, Vec<u8>>;

    #[inline]
    fn take(&self) -> Option<Self::Held<'_>> {
        Some(self.0.pull())
    }

    #[inline]
    fn address(held: &Self::Held<'_>) -> *const u8 {
        held.as_ptr()
    }
}

/// sharded-slab's pool, whose buffers go back by their key.
#[derive(Debug, Default)]
pub struct Sharded(sharded_slab::Pool<Cleared>);

/// What a [`Sharded`] holds: made there, and not touched when it comes back.
#[derive(Debug)]
pub(super) struct Cleared(Box<[u8]>);

impl Default for Cleared {
    fn default() -> Self {
        Self(vec![0; BUFFER_BYTES].into_boxed_slice())
    }
}

impl sharded_slab::Clear for Cleared {
    fn clear(&mut self) {}
}

/// A buffer of a [`Sharded`].
#[derive(Debug)]
pub struct Created<'a> {
    pool: &'a sharded_slab::Pool<Cleared>,
    buffer: Option<sharded_slab::pool::RefMut<'a, Cleared>>,
}

impl Sharded {
    /// With as many buffers as are needed.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Source for Sharded {
    type Held<'a> = Created<'a>;

    #[inline]
    fn take(&self) -> Option<Created<'_>> {
        Some(Created { pool: &self.0, buffer: Some(self.0.create()?) })
    }

    #[inline]
    fn address(held: &Created<'_>) -> *const u8 {
        held.buffer.as_ref().map_or(std::ptr::null(), |buffer| buffer.0.as_ptr())
    }
}

impl Drop for Created<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            let key = buffer.key();
            drop(buffer);
            self.pool.clear(key);
        }
    }
}
