//! A fence is asked from any thread: it is `Send` and `Sync`.

use std::cell::Cell;
use std::rc::Rc;

use pinpool::{Fence, FenceError, FenceStatus};

struct Local(Rc<Cell<bool>>);

impl Fence for Local {
    fn poll(&self) -> Result<FenceStatus, FenceError> {
        Ok(if self.0.get() { FenceStatus::Complete } else { FenceStatus::Pending })
    }
}

fn main() {}
