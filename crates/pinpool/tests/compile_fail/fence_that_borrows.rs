//! A fence lives as long as the pool likes: it borrows nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use pinpool::{Fence, FenceError, FenceStatus};

struct Borrowed<'a>(&'a AtomicBool);

impl Fence for Borrowed<'_> {
    fn poll(&self) -> Result<FenceStatus, FenceError> {
        match self.0.load(Ordering::Acquire) {
            true => Ok(FenceStatus::Complete),
            false => Ok(FenceStatus::Pending),
        }
    }
}

fn main() {}
