//! Nobody writes to a slot that was left to its work.

use pinpool::{ManualFence, Pool};

fn main() {
    let pool = Pool::builder().class("frame", 4096, 1).open().unwrap();
    let mut lease = pool.lease(4096).unwrap();
    lease.retire_after(ManualFence::new());
    lease.as_mut_slice().fill(0);
}
